"""Tables and lines on terminals of several widths, and without a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from tuner.cli.grid import Output, print_lines, print_table

NAME = "gemm 4096 x 4096 x 4096 bf16"


def _shown(width: int, *, terminal: bool = True) -> str:
    table = Table("problem", box=SIMPLE, pad_edge=False)
    for head in ("us", "± %", "x torch", "± %", "GB/s"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row(NAME, "179.94", "0.2", "1.003", "0.3", "559")
    written = StringIO()
    console = Console(file=written, width=width, force_terminal=terminal, color_system=None, soft_wrap=True)
    print_table(table, console, spare=("GB/s", "± %"))
    return written.getvalue()


def test_a_table_is_complete_without_a_terminal() -> None:
    shown = _shown(20, terminal=False)
    assert "left out" not in shown
    (row,) = (line.split() for line in shown.splitlines() if "4096" in line)
    assert row == [*NAME.split(), "179.94", "0.2", "1.003", "0.3", "559"]


@pytest.mark.parametrize(
    ("width", "numbers", "said"),
    [
        (80, ["179.94", "0.2", "1.003", "0.3", "559"], ""),
        (66, ["179.94", "0.2", "1.003", "0.3"], "narrow terminal, left out: GB/s"),
        (58, ["179.94", "1.003"], "narrow terminal, left out: GB/s, ± %"),
    ],
)
def test_columns_are_left_out_of_a_narrow_terminal(width: int, numbers: list[str], said: str) -> None:
    shown = _shown(width)
    assert max(map(len, shown.splitlines())) <= width
    assert f"{NAME}   {'   '.join(numbers[:1])}" in shown
    (row,) = (line.split() for line in shown.splitlines() if "4096" in line)
    assert row == [*NAME.split(), *numbers]
    assert "x torch" in shown
    assert shown.splitlines()[-1].strip() == said


def test_any_column_may_have_the_titles_that_stand_above_the_rows_of_a_narrow_terminal() -> None:
    table = Table("run", "tried", "problem", box=SIMPLE, pad_edge=False)
    table.add_row("7", "200", NAME)
    written = StringIO()
    console = Console(file=written, width=34, force_terminal=True, color_system=None, soft_wrap=True)
    print_table(table, console, spare=("tried",), title="problem")
    lines = [line.split() for line in written.getvalue().splitlines() if line.strip(" ─")]
    assert lines == [["run", "tried"], NAME.split(), ["7", "200"]]


def test_rows_keep_their_styles() -> None:
    table = Table("name", Column("spared"), box=SIMPLE)
    table.add_row("a" * 30, "b" * 30, style="red")
    written = StringIO()
    print_table(table, Console(file=written, width=40, force_terminal=True, color_system="standard"), spare=["spared"])
    assert "\x1b[31m" in written.getvalue()


def test_a_long_line_goes_on_without_further_spaces() -> None:
    """The lines after the first are narrower, so that they break elsewhere; a long word has no space in it."""
    written = StringIO()
    line = "a line of words that goes on for three lines here, 25.2 s " + "y" * 60
    print_lines([line], Console(file=written, width=40, force_terminal=True, color_system=None))
    first, *rest = written.getvalue().splitlines()
    assert all(more.startswith("  ") and len(more) <= 40 for more in rest)
    assert " ".join([first, rest[0].strip()]) == line.partition(" y")[0]
    assert "".join(more.strip() for more in rest[1:]) == "y" * 60


def test_colons_of_a_name_are_printed_as_they_are() -> None:
    written = StringIO()
    output, table = Output(file=written, width=40, force_terminal=True, color_system=None), Table("suite")
    table.add_row("random:100:7")
    output.write("random:100:7 is a suite")
    print_table(table, output)
    assert written.getvalue().count("random:100:7") == 2
