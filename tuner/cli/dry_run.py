"""The plan of a search, in a table."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.report.text import short
from tuner.tuning.plan import Plan, ProblemPlan


def print_plan(plan: Plan) -> None:
    """Print a row for each problem, the expected time, and the problems without feasible configs."""
    console = Output()
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    for name in ("combinations", "feasible", "stored", "to try", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for problem in plan.problems:
        table.add_row(*_cells(problem))
    console.write(f"[bold]dry run[/] on {plan.card.name}: problems to search")
    print_table(table, console, spare=("combinations",))
    if any(problem.feasible is None for problem in plan.problems):
        console.write(escape("unknown: the kernel's code is needed to count them: pip install 'triton-tuner[gpu]'"))
    for_all = f"feasible for all {len(plan.problems)}: {_size_text(plan.common)}; " if plan.joint else ""
    console.write(f"{for_all}about {plan.seconds:,.0f} s on {plan.card.name}: {plan.basis}")
    for line in plan.lacking:
        console.write(f"[red]{line}[/]")


def _cells(plan: ProblemPlan) -> tuple[str, ...]:
    return (
        escape(short(plan.problem)),
        f"{plan.combinations:,}",
        _size_text(plan.feasible),
        f"{plan.stored}, {plan.known:,} tried" if plan.known else plan.stored,
        f"{plan.trials:,}",
        f"{plan.seconds:,.0f}",
    )


def _size_text(size: int | None) -> str:
    return "unknown" if size is None else f"{size:,}"
