"""`best_config` of a kernel file: by its path or by the `Kernel` itself; without an answer it names a command."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fresh_client import forget
from helpers import H200, toy

from tuner import Best, best_config, catalog
from tuner.cli import cli
from tuner.db.store import Store
from tuner.kernels.spec import Kernel
from tuner.records import Answer, Comparison, Environment, Provenance

KERNEL = catalog.resolve(toy("double"))
CONFIG = KERNEL.signature.config({"BLOCK": 256, "num_warps": 2, "num_stages": 1})


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path / "tuner.db"
    forget()


def keep(database: Path, kernel: Kernel, **values: object) -> Answer:
    problem = kernel.signature.problem(values)
    made = Provenance(H200, Environment("3.6.0", "12.9", "2.10.0", "580.95"), kernel.source, "cold-events-1")
    answer = Answer(problem, "tuned", CONFIG, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(database)
    run = store.start_run(kernel.signature, problem, made, {"known": 0})
    store.add_answer(run, answer, made, "trials", {}, Comparison((CONFIG.text,), ((10.0,),)))
    store.close()
    return answer


@pytest.mark.parametrize("named", [toy("double"), Path(toy("double")), KERNEL], ids=["text", "path", "kernel"])
def test_a_kernel_goes_by_its_file_or_itself(named: Any, database: Path) -> None:
    kept = keep(database, KERNEL, N=4096)
    best = best_config(named, device=H200.id, N=4096)
    assert (best.config, best.match, best.answer) == (CONFIG, "exact", kept)
    assert best_config(named, device=H200.id, N=4096) is best


@pytest.mark.parametrize("folder", ["", "my kernels"])
@pytest.mark.parametrize("as_kernel", [False, True])
def test_without_an_answer_it_names_a_command_that_works(
    folder: str, as_kernel: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path(folder) / "double.py"
    file.parent.mkdir(exist_ok=True)
    shutil.copy(toy("double"), file)
    named: Any = catalog.resolve(str(file)) if as_kernel else str(file)
    with caplog.at_level(logging.WARNING, "tuner"):
        assert best_config(named, device=H200.id, N=300) == Best(None, "none")
    (message,) = caplog.messages
    command = message.rpartition("; ")[2]
    assert command == f"tuner search {shlex.quote(str(file))} --N 300 --dtype fp32"
    arguments = [*shlex.split(command)[1:], "--dry-run", "--device", H200.id]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_kernel_of_a_script_names_its_op_in_the_command(caplog: pytest.LogCaptureFixture) -> None:
    """No file states it."""
    best_config(replace(KERNEL, exact=True), device=H200.id, N=300)
    assert caplog.messages[0].endswith("; tuner search double --N 300 --dtype fp32")


def test_a_shipped_kernel_goes_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    best_config(catalog.load("softmax"), device=H200.id, M=64)
    assert "; tuner search softmax --M 64 " in caplog.messages[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "there is no kernel file "),
        ("x = 1", "a kernel file ends in KERNEL = Kernel(...), and "),
        ("x = (", "line 1 raises SyntaxError: "),
        ("1 / 0", "line 1 raises ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "line 1 raises SystemExit: 3"),
        ("import no_such_package", "needs no_such_package, which is not installed; install what it imports"),
    ],
)
def test_a_file_that_does_not_load_is_logged_once_and_raises_nothing(
    text: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    if text is not None:
        Path("kernel.py").write_text(text)
    for _ in range(2):
        assert best_config("kernel.py", device=H200.id, M=64) == Best(None, "none")
    (message,) = caplog.messages
    assert message.startswith("kernel.py: no config is given, since ")
    assert reason in message


@pytest.mark.parametrize(
    ("old", "new"),
    [('"BLOCK": 256', '"BLOCK": problem["K"]'), ('Operand((problem["N"],)', 'Operand((problem["K"],)')],
    ids=["default", "operands"],
)
def test_a_function_that_raises_raises_nothing_into_a_model(
    old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path("raising.py")
    file.write_text(Path(toy("double")).read_text().replace(old, new))
    for device in (0, H200.id):
        assert best_config(file, device=device, N=64).match == "none"
    assert caplog.messages
    assert all("Traceback" not in message and "\n" not in message for message in caplog.messages)


def test_files_of_the_same_name_are_kernels_of_their_own(tmp_path: Path) -> None:
    files = [tmp_path / folder / "double.py" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(Path(toy("double")).read_text().replace('op="double"', f'op="{file.parent.name}"'))
    first, second = (catalog.resolve(str(file)) for file in files)
    assert (first.op, second.op) == ("a", "b")
    assert catalog.resolve(str(files[0])) is first
