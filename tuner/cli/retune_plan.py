"""The plan of a retune, in a table."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.cli.text import print_json
from tuner.report.retune.escapes import plain_text
from tuner.report.text import count_text, short, us_text
from tuner.retuning.api import RetunePlan
from tuner.retuning.selection import Chosen


def give_plan(plan: RetunePlan, budget_s: float | None, as_json: bool) -> None:
    """Print the answers in the order in which they would be measured, with the reasons, and the expected time."""
    if as_json:
        print_json(_document(plan))
        return
    console = Output()
    console.write(f"[bold]dry run[/] on {escape(plan.device)}: answers to measure again, in order")
    if plan.chosen:
        print_table(_table(plan), console, spare=("misses", "us", "answer"))
    answers = count_text(len(plan.chosen), "answer")
    within = "" if budget_s is None else f" of a budget of {budget_s:,.0f} s"
    console.write(f"{answers}, about {plan.seconds:,.0f} s{within}, new searches not counted")
    for sentence in plan.left_out.values():
        console.write(f"[yellow]{escape(sentence)}[/]")


def _table(plan: RetunePlan) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    for name in ("answer", "us", "misses"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("changed since")
    for chosen in plan.chosen:
        answer = chosen.stored.answer
        latency = "" if answer.latency_us is None else us_text(answer.latency_us).removesuffix(" us")
        misses = f"{chosen.misses:,}" if chosen.misses else ""
        table.add_row(escape(short(chosen.problem)), str(chosen.stored.id), latency, misses, escape(_reasons(chosen)))
    return table


def _reasons(chosen: Chosen) -> str:
    pinned = ["pinned"] if chosen.is_pinned else []
    return plain_text("; ".join([*pinned, *chosen.reasons]))


def _document(plan: RetunePlan) -> dict[str, Any]:
    """Return the document of `tuner retune --dry-run --json`."""
    return {
        "device": plan.device,
        "seconds": round(plan.seconds, 1),
        "left_out": dict(plan.left_out),
        "rows": [
            {
                "op": chosen.problem.op,
                "problem": chosen.problem.values,
                "answer_id": chosen.stored.id,
                "config": dict(chosen.stored.answer.config),
                "latency_us": chosen.stored.answer.latency_us,
                "stale": chosen.is_stale,
                "reasons": list(chosen.reasons),
                "misses": chosen.misses,
                "pinned": chosen.is_pinned,
            }
            for chosen in plan.chosen
        ],
    }
