"""The plan of a search, a bench or a recording: its options, and its table."""

from __future__ import annotations

import click
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.cli.ops import open_if_there
from tuner.cli.text import counted, print_json
from tuner.db.database import Database
from tuner.errors import UsageError
from tuner.report.text import short
from tuner.suites.suite import Suite
from tuner.tuning.effort import Effort
from tuner.tuning.lanes import chosen_gpus
from tuner.tuning.plan import Plan, ProblemPlan, plan_search


def dry_run_options(printed: str) -> list[click.Parameter]:
    """Return the options of a command that can print its plan."""
    return [
        click.Option(["--dry-run"], is_flag=True, help=f"Print {printed}, and measure nothing."),
        click.Option(
            ["--device", "device_id"], metavar="ID", help="The card of a --dry-run, if it is not in this machine."
        ),
    ]


def refuse_device(device_id: str | None, verb: str) -> None:
    """Raise UsageError if a card is named without a dry run."""
    if device_id is not None:
        raise UsageError(f"--device names the card of a --dry-run; {verb} measures on --gpu")


def give_plan(
    suite: Suite,
    effort: Effort,
    *,
    db: Database | None,
    gpu: str,
    device_id: str | None,
    verb: str = "search",
    as_json: bool = False,
    joint: bool = False,
    compared: bool | None = None,
) -> int:
    """Print the plan of a command. Return its exit code: 1 if a problem has no feasible config.

    Args:
        compared: as for `plan_search`.
    """
    gpus = [] if device_id is not None else chosen_gpus(gpu)
    entries = counted(suite.entries, "counting configs")
    store = open_if_there(db)
    plan = plan_search(suite, entries, effort, store, gpus=gpus, device_id=device_id, joint=joint, compared=compared)
    if as_json:
        print_json(plan.as_json())
    else:
        print_plan(plan, verb)
    return 1 if plan.lacking else 0


def print_plan(plan: Plan, verb: str) -> None:
    """Print a row for each problem, the expected time, and the problems without feasible configs."""
    console = Output()
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    for name in ("combinations", "feasible", "stored", "to try", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for problem in plan.problems:
        table.add_row(*_cells(problem))
    console.write(f"[bold]dry run[/] on {plan.card.name}: problems to {verb}")
    print_table(table, console, spare=("combinations",))
    if any(problem.feasible is None for problem in plan.problems):
        console.write(escape("unknown: the kernel's code is needed to count them: pip install 'triton-tuner[gpu]'"))
    for_all = f"feasible for all {len(plan.problems)}: {_size_text(plan.common)}; " if plan.joint else ""
    console.write(f"{for_all}about {plan.seconds:,.0f} s on {plan.card.name}: {plan.basis}")
    if plan.replays:
        console.write("There is no GPU here: without --dry-run, recorded measurements and their answers are replayed.")
    for line in plan.lacking:
        console.write(f"[red]{escape(line)}[/]")


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
