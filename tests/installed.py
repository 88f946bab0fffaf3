"""A fixture: the package as an image has it, built from the files that images are built from."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_EXTRAS = "search,serve,postgres"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with our wheel and Hugging Face's `kernels`; all processes of a test run share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "installed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed" / "done").exists():
            _install(folder / "installed")
            (folder / "installed" / "done").touch()
    return folder / "installed" / "venv"


def _install(folder: Path) -> None:
    copy_context(folder / "context")
    venv.create(folder / "venv", with_pip=False)
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", *arguments]
        subprocess.run(command, cwd=folder / "context", env=outside, check=True, stdout=subprocess.DEVNULL)

    run("build", "--no-isolation", "--wheel", "--outdir", str(folder))
    (wheel,) = folder.glob("*.whl")
    pip = ["pip", "--quiet", "--disable-pip-version-check", "--python", str(folder / "venv" / "bin" / "python")]
    pip += ["install", "--no-compile", "--constraint", "constraints.txt"]
    run(*pip, "--no-deps", "kernels")
    run(*pip, f"{wheel}[{_EXTRAS}]")


def copy_context(folder: Path) -> None:
    """Copy what `.dockerignore` lets through: it keeps all out, and names what is let in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    assert len(let_in) + len(left_out) == len(rules) - 1
    folder.mkdir(parents=True)
    for name in let_in:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
