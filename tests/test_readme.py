"""The README's kernel file is right, is tuned, and is launched with the stored config; the new pages' examples run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import run_tuner
from helpers import H200, reaching, wrongness

import tuner
from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.kernels.spec import Config, Kernel
from tuner.records import VENDOR, Answer, Comparison, Environment, Measurement, Outcome, Policy, Provenance
from tuner.search.space import feasible

ROOT = Path(__file__).parents[1]
KERNEL_FILE, MODEL_CODE = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
TUNE_LINE = next(line for line in MODEL_CODE.splitlines() if line.startswith("tuner.tune("))
ENVIRONMENT = Environment("3.6.0", "12.8", "2.11.0", "580.1")


@pytest.fixture
def scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Write `scale.py` into an empty working directory with a database of its own, and load it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    Path("scale.py").write_text(KERNEL_FILE)
    return catalog.resolve("scale.py")


def latency_us(config: Config) -> float:
    """Return a made-up latency that is lowest at BLOCK=2048 and 8 warps."""
    return 4.0 + 2048 / float(config["BLOCK"]) + 8 / float(config["num_warps"])


def run(code: str, tmp_path: Path) -> str:
    """Run model code in a fresh interpreter, with Triton's interpreter in place of a GPU."""
    environment = os.environ | {"TRITON_INTERPRET": "1"} | reaching(ROOT, tmp_path, ROOT / "tests")
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_the_host(code: str) -> str:
    """Return the model code for a host tensor of fewer elements and a card that is named."""
    code = code.replace('device="cuda"', 'device="cpu"').replace("1 << 20", "5000")
    code = code.replace('best_config("scale.py", N=N)', 'best_config("scale.py", N=N, device="nvidia-h200")')
    return code.replace("import tuner\n", "import host_launch\nimport tuner\n")


def test_the_kernel_file_computes_what_its_reference_says(scale: Kernel) -> None:
    problem = scale.signature.problem({"N": 5000})
    for config in feasible(scale, problem, H200.limits):
        error, allowed = wrongness(scale, problem, config, "cpu")
        assert error == 0
        assert allowed < 1e-6


def store_answer(kernel: Kernel, best: Config, database: Path) -> None:
    """Store an answer for 5,000 elements on an H200."""
    problem = kernel.signature.problem({"N": 5000})
    provenance = Provenance(H200, ENVIRONMENT, kernel.source, Policy().text, None, tuner.__version__)
    store = Store.open(database)
    run_id = store.start_run(kernel.signature, problem, provenance, {"trials": 10, "budget_s": None, "space": 16})
    answer = Answer(problem, "tuned", best, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, 11.0, flops=0, bytes=40_000)
    rounds = Comparison((best.text, VENDOR), ((10.0, 11.0),))
    store.add_answer(run_id, answer, provenance, "trials", {}, rounds)
    store.close()


def test_the_kernel_is_launched_with_the_config_that_is_stored(scale: Kernel, tmp_path: Path) -> None:
    best = scale.signature.config({"BLOCK": 2048, "num_warps": 8, "num_stages": 1})
    store_answer(scale, best, tmp_path / "tuner.db")
    code = on_the_host(MODEL_CODE).replace(on_the_host(TUNE_LINE) + "\n", "")
    printed = run(code + '\nassert torch.equal(out, 2 * x)\nprint(config["BLOCK"], config["num_warps"])', tmp_path)
    assert printed == "2048 8\n"


def test_the_kernel_is_tuned_by_one_call(scale: Kernel, tmp_path: Path) -> None:
    problem = scale.signature.problem({"N": 5000})
    space = list(feasible(scale, problem, H200.limits))
    recording = recorded.RecordedSpace(
        signature=scale.signature,
        problem=problem,
        device=H200,
        environment=ENVIRONMENT,
        source=scale.source,
        policy=Policy(),
        default=scale.default_config(problem, H200.limits),
        flops=0,
        bytes=40_000,
        recorded_at="2026-11-29T00:00:00+00:00",
        measurements=tuple(Measurement(config, Outcome.OK, (latency_us(config),) * 10) for config in space),
        comparison=Comparison((*(config.text for config in space), VENDOR), ((*map(latency_us, space), 30.0),) * 20),
    )
    (tmp_path / "scale.json.gz").write_bytes(recorded.dumps(recording))
    assert TUNE_LINE.partition("  #")[0] == 'tuner.tune("scale.py", {"N": N})'
    code = on_the_host(MODEL_CODE).replace('{"N": N})', '{"N": N}, replay="scale.json.gz")')
    printed = run(code + '\nassert torch.equal(out, 2 * x)\nprint(config["BLOCK"], config["num_warps"])', tmp_path)
    assert printed == "2048 8\n"


@pytest.mark.gpu
def test_the_readme_runs_as_it_stands_on_a_card(scale: Kernel, tmp_path: Path) -> None:
    environment = os.environ | reaching(ROOT, tmp_path)
    code = MODEL_CODE + "\nassert torch.equal(out, 2 * x)"
    subprocess.run([sys.executable, "-P", "-c", code], env=environment, cwd=tmp_path, check=True)


def test_the_examples_of_the_page_on_tuning(tmp_path: Path) -> None:
    """Run the examples that need no kernel file, without a GPU."""
    answers, _, joint, replayed, with_events = re.findall(
        r"```py\n(.*?)```", (ROOT / "docs" / "tuning.md").read_text(), re.DOTALL
    )
    environment = f"import os\nos.environ['TUNER_DB'] = {str(tmp_path / 'tuner.db')!r}\n"
    printed = run(environment + answers + joint + replayed + "print(answer.config)", tmp_path).splitlines()
    assert ["BLOCK_M" in line for line in printed] == [True, True, False]
    lines = run(environment + with_events, tmp_path).splitlines()
    assert len(lines) > 20
    assert all(re.fullmatch(r"\w+ ([\d.]+|inf) BLOCK_N=.*", line) for line in lines)


def console(page: str) -> list[str]:
    """Return the commands of a page's console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_the_page_on_kernel_files_has_a_command_for_its_kernel(tmp_path: Path) -> None:
    source, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "kernels.md").read_text(), re.DOTALL)
    (tmp_path / "double.py").write_text(source)
    check, command = console("kernels.md")
    assert "passes, compiled for nvidia-h200" in in_shell(check, tmp_path)
    assert re.search(r"double 4096 fp32 +9 +9 +none", in_shell(command, tmp_path))


def test_the_page_on_kernel_files_launches_the_tuned_config(tmp_path: Path) -> None:
    source, model = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "kernels.md").read_text(), re.DOTALL)
    (tmp_path / "double.py").write_text(source)
    kernel = catalog.resolve(str(tmp_path / "double.py"))
    best = kernel.signature.config({"BLOCK": 256, "num_warps": 2, "num_stages": 1})
    store_answer(kernel, best, tmp_path / "tuner.db")
    used = """
x = torch.randn(5000)
assert torch.equal(double(x), 2 * x)
answer = tuner.best_config(KERNEL, device="nvidia-h200", N=5000)
print(answer.config.text, answer.match)
"""
    environment = f"import os\nos.environ['TUNER_DB'] = {str(tmp_path / 'tuner.db')!r}\n"
    printed = run(environment + on_the_host(model) + used, tmp_path)
    assert printed == f"{best.text} exact\n"


def test_the_commands_that_open_the_pages_run(tmp_path: Path) -> None:
    pages = ("measuring.md", "commands.md", "neighbours.md", "jobs.md", "studies/kernels.md")
    for command in (command for page in pages for command in console(page)):
        if command.startswith("tuner") and "work" not in command:  # the service and its workers have their own tests
            _, *arguments = shlex.split(command)
            done = run_tuner(*arguments, environment={"TUNER_DB": str(tmp_path / "tuner.db")}, folder=tmp_path)
            assert done.returncode in {"verify": (0, 3), "why": (0, 1)}.get(arguments[0], (0,)), done.stderr


def test_the_map_of_packages_is_that_of_the_import_rules() -> None:
    (rooms,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    shown = [sorted(set(re.findall(r"(?:^|\s{2,})([a-z]+)(?=\s{2,})", level))) for level in rooms.split("─\n")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    levels = [sorted(level.split(" | ")) for level in contracts[0]["layers"] if level != "__main__"]
    assert shown == levels


def in_shell(command: str, tmp_path: Path) -> str:
    """Run a command in a folder with a database of its own, and return what it printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TUNER_DB": str(tmp_path / "tuner.db")} | reaching(ROOT)
    done = subprocess.run(
        ["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout + done.stderr
