"""A function of a kernel file that raises ends each command in one line with file and line, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import H200, toy

from tuner.cli import cli
from tuner.errors import KernelFault, TunerError

TEXT = Path(toy("double")).read_text()
LAST = TEXT[TEXT.index("    default=") :]
FAULTS = {
    "operands": (
        'Operand((problem["N"],), "fp32"),',
        'Operand((problem["K"],), "fp32"),',
        "operands raises KeyError: 'K'",
    ),
    "default": ('"BLOCK": 256', '"BLOCK": problem["K"]', "default raises KeyError: 'K'"),
    "valid": (
        LAST,
        f'    valid=lambda problem, config, limits: config["TILE"],\n{LAST}',
        "valid raises KeyError: 'TILE'",
    ),
    "flops": (LAST, f'    flops=lambda problem: problem["K"],\n{LAST}', "flops raises KeyError: 'K'"),
    "workspace": (
        LAST,
        f'    workspace=lambda problem, config, limits: {{"a": problem["K"]}},\n{LAST}',
        "workspace raises KeyError: 'K'",
    ),
    "launch": ('config["BLOCK"]', 'config["TILE"]', "launch raises KeyError: 'TILE'"),
    "fill": (
        'Operand((problem["N"],), "fp32"),',
        'Operand((problem["N"],), "fp32", fill=lambda tensor, generator: 1 / 0),',
        "fill raises ZeroDivisionError",
    ),
    "import": ("KERNEL = Kernel(", "1 / 0\nKERNEL = Kernel(", "raises ZeroDivisionError"),
}
PLANNED = ("valid", "import")
"""Functions that a plan calls."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "command",
    [
        ["check", "kernel.py", "N=300"],
        ["search", "kernel.py", "--N", "300", "--dry-run", "--device", H200.id],
        ["best", "kernel.py", "--N", "300", "--device", H200.id],
    ],
    ids=lambda command: command[0],
)
def test_a_command_ends_in_one_line(
    command: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    old, new, reason = FAULTS[fault]
    assert old in TEXT
    (tmp_path / "kernel.py").write_text(TEXT.replace(old, new, 1))
    done = CliRunner().invoke(cli, command)
    assert done.exception is None or isinstance(done.exception, SystemExit | TunerError), repr(done.exception)
    told = done.output + ("" if isinstance(done.exception, SystemExit | None) else str(done.exception))
    assert "Traceback" not in told
    if command[0] == "check" or (command[0] == "search" and fault in PLANNED):
        assert reason in " ".join(told.split())
        assert "kernel.py line " in " ".join(told.split())
    assert not isinstance(done.exception, KernelFault) or "\n" not in str(done.exception)
