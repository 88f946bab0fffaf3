"""A joint config as a person reads it: its speed on each problem, and over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.cli.text import print_json
from tuner.records import Measurement
from tuner.report.text import config_text, short, speed_text, times
from tuner.tuning.bench_row import vendor_of
from tuner.tuning.joint_answer import JointAnswer, Share, loss

_NAMES = {"geomean": "geometric mean", "worst": "worst"}


def print_joint_so_far(objective: str, best: Measurement | None, as_json: bool) -> None:
    """Print the best single measurement of an interrupted search."""
    if as_json:
        speed = None if best is None else 1 / best.latency_us
        config = None if best is None else dict(best.config)
        print_json({"match": "partial", "joint": objective, "config": config, "speedup": speed})
    elif best is not None:
        speed_so_far = f"{_NAMES[objective]} {speed_text(1 / best.latency_us, 'default')}, best so far"
        Output().write(escape(f"{config_text(best.config)}  {speed_so_far}"))


def print_joint(found: JointAnswer) -> None:
    """Print a row for each problem, the objective, and the config."""
    console = Output()
    console.write(f"[bold]{escape(found.name)}[/], one config for {len(found.shares)}, on {found.shares[0].row.device}")
    print_table(_table(found.shares), console, spare=("own answer, us",))
    for line in _notes(found):
        console.write(line)
    worst = min(found.shares, key=lambda share: share.speed)
    beside = vendor_of([share.row for share in found.shares])
    vendor = [] if found.vendor_speedup is None else [speed_text(found.vendor_speedup, beside)]
    also = [short(worst.row.problem)] if found.objective == "worst" else vendor
    console.write(f"[bold]{_NAMES[found.objective]}[/]  {', '.join([speed_text(found.speed, 'default'), *also])}")
    console.write(f"[bold green]{escape(config_text(found.verdict.config))}[/]")


def _table(shares: Sequence[Share]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    known = any(share.own is not None for share in shares)
    marked = any(share.row.marks for share in shares)
    vendor = vendor_of([share.row for share in shares])
    for name in ("us", times(vendor), times("default"), *["own answer, us", "loss to it"] * known):
        table.add_column(name, justify="right", no_wrap=True)
    if marked:
        table.add_column("")
    for share in shares:
        ratios = ["" if rival is None else f"{rival.speedup:.3f}" for rival in (share.row.vendor, share.row.default)]
        own = ("", "") if share.own is None else (f"{share.own.latency_us:,.2f}", f"{100 * loss(share.own):.1f} %")
        table.add_row(
            *(escape(short(share.row.problem)), f"{share.row.latency_us:,.2f}", *ratios),
            *own * known,
            *[", ".join(share.row.marks)] * marked,
        )
    return table


def _notes(found: JointAnswer) -> Iterator[str]:
    for share in found.shares:
        if share.row.default is None:
            problem = short(share.row.problem)
            speed = speed_text(share.speed, "baseline")
            yield f"[yellow]no default runs on {problem}: the baseline is {share.baseline}, {speed}[/]"
    verdict, tried = found.verdict, len(found.result.measurements)
    others = f"{len(verdict.ties)} more as fast{', but not all are resolved' if verdict.unresolved else ''}"
    yield f"tried {tried:,} of the {found.space:,} configs that are feasible for all; {others}"
    if verdict.kind == "default":
        yield "the kernel's default for all of them: nothing is faster over all by more than 1 % with confidence"
    yield "not stored as an answer: each problem is still served its own"
    if recorded := [share.row.recorded for share in found.shares if share.row.recorded]:
        yield f"[yellow]replayed from {', '.join(recorded)}: not measured here[/]"
