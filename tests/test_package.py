"""The package: what importing it loads, what its face is, and that the wheel is whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from inspect import ismodule
from pathlib import Path

import pytest
from installed import copy_context

import tuner

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("torch", "triton", "optuna", "numpy", "sqlalchemy", "fastapi", "rich")


def _modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded after running `code` in a fresh process."""
    story = f"{code}\nimport sys, json; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    printed = subprocess.run([sys.executable, "-P", "-c", story], capture_output=True, text=True, check=True).stdout
    return set(json.loads(printed.splitlines()[-1]))


def test_importing_the_package_is_light() -> None:
    assert not _modules_after("import tuner") & set(HEAVY)


def test_replaying_needs_neither_torch_nor_triton() -> None:
    code = """
from tuner import recorded
from tuner.recorded import RecordedMeasurer
from tuner.search import Budget, search
space = recorded.load(recorded.names()[0])
configs = [measurement.config for measurement in space.measurements]
assert search(configs, space.default, RecordedMeasurer(space), budget=Budget(trials=15)).verdict
"""
    assert not _modules_after(code) & {"torch", "triton"}


@pytest.mark.parametrize(
    "module", ["tuner.api.app", "tuner.client.client", "tuner.lookup.table", "tuner.db.store", "tuner.measure.device"]
)
def test_looking_up_needs_no_search(module: str) -> None:
    assert not _modules_after(f"import {module}") & {"torch", "triton", "optuna"}


def test_the_face_is_what_it_says() -> None:
    public = {name for name, value in vars(tuner).items() if not name.startswith("_") and not ismodule(value)}
    on_use = {"Events", "JointAnswer", "Tuned", "launch", "retune", "tune"}  # and kept then
    assert public <= set(tuner.__all__)
    assert set(tuner.__all__) - public - {"__version__"} <= on_use
    assert all(hasattr(tuner, name) for name in tuner.__all__)


def test_the_changelog_begins_with_this_version() -> None:
    released = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## [")]
    assert released[0].startswith(f"## [{tuner.__version__}]")


def test_the_wheel_works_in_an_empty_folder_beside_another_kernels_package(installed: Path, tmp_path: Path) -> None:
    """It replays a space, opens a database, and neither package overwrites the other's files."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TUNER_DB": str(tmp_path / "tuner.db")}
    binaries, empty = installed / "bin", tmp_path / "empty"
    empty.mkdir()

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(str(binaries / "triton-tuner"), "--version") == run(str(binaries / "tuner"), "--version")
    answer = json.loads(
        run(str(binaries / "triton-tuner"), "search", "gemm", "--M", "4096", "--trials", "20", "--json")
    )
    assert answer["recorded"].startswith("gemm-4096x4096x4096-bf16-")
    assert "llama-3-8b       48 problems" in run(str(binaries / "tuner"), "bench", "--list")
    both = """
import importlib.util, tuner.kernels, tuner.db.migrations
print(importlib.util.find_spec("kernels").origin)
print(tuner.kernels.__file__)
"""
    theirs, ours = run(str(binaries / "python"), "-c", both).splitlines()
    assert theirs.endswith("site-packages/kernels/__init__.py")
    assert ours.endswith("site-packages/tuner/kernels/__init__.py")
    assert json.loads(run(str(binaries / "tuner"), "list", "--json"))[0]["config"] == answer["config"]
    pages = """
import asyncio
from tuner.api.app import create_app
from tuner.db.store import Store
app = create_app(Store.open("tuner.db"))
async def status(path):
    sent = []
    async def send(message): sent.append(message)
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    await app(scope, None, send)
    return sent[0]["status"]
for path in ("/", "/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/assets/docs.js", "/assets/page.css"):
    print(asyncio.run(status(path)))
"""
    assert run(str(binaries / "python"), "-c", pages).split() == ["200"] * 6


def test_the_wheel_is_the_same_from_the_sdist(tmp_path: Path) -> None:
    """Both hold all code and data of the rooms, and the sdist no tests."""
    source = tmp_path / "source"
    copy_context(source)
    for name in ("CHANGELOG.md", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    (source / "tests").mkdir()
    shutil.copy(__file__, source / "tests")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def build(*options: str) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", *options, str(source)]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    build("--outdir", "sdist")
    shutil.rmtree(source / "build", ignore_errors=True)
    build("--outdir", "direct", "--wheel")
    name = f"triton_tuner-{tuner.__version__}"
    wheels = [zipfile.ZipFile(tmp_path / folder / f"{name}-py3-none-any.whl") for folder in ("sdist", "direct")]
    by_sdist, direct = ({entry: wheel.read(entry) for entry in wheel.namelist()} for wheel in wheels)
    assert by_sdist == direct
    files = (
        file for file in (source / "tuner").glob("**/*") if file.suffix in (".py", ".pyi", ".typed", ".json", ".gz")
    )
    shown = (file for folder in ("templates", "assets") for file in (ROOT / "api" / "pages" / folder).rglob("*.*"))
    assert {f"tuner/{file.relative_to(ROOT)}" for file in shown} <= set(direct)
    assert {str(file.relative_to(source)) for file in files} <= set(direct)
    linked = {
        str(file.relative_to(source)) for room in ("kernels", "db", "api") for file in (source / room).rglob("*.py")
    }
    assert {f"tuner/{file}" for file in linked} <= set(direct)
    with tarfile.open(tmp_path / "sdist" / f"{name}.tar.gz") as sdist:
        held = {entry.removeprefix(f"{name}/") for entry in sdist.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "pyproject.toml"} <= held
    assert not any(entry.startswith("tests") for entry in held)


def test_every_extra_is_tried_alone_and_is_in_all() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    alone = [extra for extra in extras if extra != "all"]
    assert extras["all"] == [f"triton-tuner[{','.join(alone)}]"]
    tried = (ROOT / "scripts" / "try-extras").read_text().partition("set -- core ")[2].splitlines()[0]
    assert set(tried.split()) == set(alone)
