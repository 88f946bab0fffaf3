"""What came of a joint search, for a reader: what the one config is worth on each problem, and over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tuner.cli.bench_rows import short
from tuner.cli.grid import print_table
from tuner.cli.text import config_text, print_json
from tuner.measure.joint import OBJECTIVES, JointComparison
from tuner.records import Measurement, median
from tuner.search.loop import Result
from tuner.search.verdict import Verdict, ratio
from tuner.suites.suite import Suite
from tuner.tuning.bench import Rival, Row, Subject, row_of
from tuner.tuning.target import Target

_NAMES = {"geomean": "geometric mean", "worst": "worst"}


@dataclass(frozen=True)
class Share:
    """The joint config on one problem."""

    row: Row
    """Beside the kernel's default and torch, where those run."""
    speed: float
    """Over the problem's yardstick; above 1, the joint config is faster."""
    baseline: str
    """The default's text; where that does not run, the config that stood in for it."""
    own: Rival | None
    """The problem's own stored answer, from the same rounds."""
    run: int
    """That keeps what was measured."""

    def as_json(self) -> dict[str, Any]:
        """What `tuner bench --json` gives of a problem, and what only a joint search knows."""
        own = None if self.own is None else {**asdict(self.own), "loss": loss(self.own)}
        held_against = {"baseline": self.baseline, "over_baseline": self.speed}
        return {**self.row.as_json(), **held_against, "own": own, "run": self.run}


def loss(own: Rival) -> float:
    """How much longer the joint config takes than a problem's own answer: 0.02 is 2 %."""
    return 1 / own.ratio - 1


@dataclass(frozen=True)
class Joined:
    """The joint config with its evidence."""

    name: str
    objective: str
    space: int
    """How many configs are feasible for all problems."""
    result: Result
    shares: tuple[Share, ...]

    @property
    def verdict(self) -> Verdict:
        assert self.result.verdict is not None, "a search without a verdict has nothing to show"
        return self.result.verdict

    @property
    def speed(self) -> float:
        """What the objective makes of the speeds over the yardsticks."""
        return self._joined([share.speed for share in self.shares])

    @property
    def over_vendor(self) -> float:
        """The same beside the vendor's kernel."""
        return self._joined([share.row.vendor.ratio for share in self.shares if share.row.vendor is not None])

    def _joined(self, speeds: Sequence[float]) -> float:
        return 1 / OBJECTIVES[self.objective]([1 / speed for speed in speeds])

    def as_json(self) -> dict[str, Any]:
        """The whole of it: nothing else is kept."""
        verdict, row = self.verdict, self.shares[0].row
        return {
            "op": row.problem.op,
            "problems": self.name,
            "device": row.device,
            "joint": self.objective,
            "config": dict(verdict.config),
            "kind": verdict.kind,
            "over_default": self.speed,
            "over_vendor": self.over_vendor,
            "ties": [{"config": dict(tie.config), "slowdown": tie.slowdown} for tie in verdict.ties],
            "unresolved": verdict.unresolved,
            "checked": asdict(self.result.evidence[verdict.config]),
            "feasible_for_all": self.space,
            "tried": len(self.result.measurements),
            "failures": dict(self.result.failures),
            "seconds": round(sum(self.result.seconds.values()), 1),
            "rows": [share.as_json() for share in self.shares],
        }


def joined(
    suite: Suite, objective: str, result: Result, sources: Sequence[Target], space: int, runs: Sequence[int]
) -> Joined:
    """Reads the duel, problem by problem."""
    assert isinstance(result.comparison, JointComparison)
    assert result.verdict is not None
    winner = result.verdict.config
    shares = []
    for entry, source, run, part, (baseline, *own) in zip(
        suite.entries, sources, runs, result.comparison.parts, result.comparison.companions, strict=True
    ):
        subject = Subject(
            entry.problem, source.provenance, winner, source.default, source.flops, source.bytes, source.roofline_limits
        )
        rivals = [Rival(median(part.of(text)), *ratio(part, text, winner.text)) for text in own]
        speed, _ = ratio(part, baseline, winner.text)
        shares.append(Share(row_of(subject, winner, part), speed, baseline, next(iter(rivals), None), run))
    return Joined(suite.name, objective, space, result, tuple(shares))


def speed_text(joined: float) -> str:
    """What a joined ratio of latencies means, as a speed: above 1, faster than the defaults."""
    return f"{1 / joined:.3f} x default"


def print_joint_so_far(objective: str, best: Measurement | None, as_json: bool) -> None:
    """The best single measurement of a search that was interrupted."""
    if as_json:
        speed = None if best is None else 1 / best.latency_us
        config = None if best is None else dict(best.config)
        print_json({"match": "partial", "joint": objective, "config": config, "over_default": speed})
    elif best is not None:
        click.echo(f"{config_text(best.config)}  {_NAMES[objective]} {speed_text(best.latency_us)}, best so far")


def print_joined(joined: Joined) -> None:
    """The table, what the objective comes to, and the config."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(joined.name)}[/], one config for {len(joined.shares)}, on {joined.shares[0].row.device}"
    )
    print_table(_table(joined.shares), console, spare=("own answer, us",))
    for line in _notes(joined):
        console.print(line)
    worst = min(joined.shares, key=lambda share: share.speed)
    also = short(worst.row.problem) if joined.objective == "worst" else f"{joined.over_vendor:.3f} x torch"
    console.print(f"[bold]{_NAMES[joined.objective]}[/]  {joined.speed:.3f} x default, {also}")
    console.print(f"[bold green]{escape(config_text(joined.verdict.config))}[/]")


def _table(shares: Sequence[Share]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    known = any(share.own is not None for share in shares)
    marked = any(share.row.marks for share in shares)
    for name in ("us", "x torch", "x default", *["own answer, us", "loss to it"] * known):
        table.add_column(name, justify="right", no_wrap=True)
    if marked:
        table.add_column("")
    for share in shares:
        rivals = ["" if rival is None else f"{rival.ratio:.3f}" for rival in (share.row.vendor, share.row.default)]
        own = ("", "") if share.own is None else (f"{share.own.latency_us:,.2f}", f"{100 * loss(share.own):.1f} %")
        table.add_row(
            *(short(share.row.problem), f"{share.row.latency_us:,.2f}", *rivals),
            *own * known,
            *[", ".join(share.row.marks)] * marked,
        )
    return table


def _notes(joined: Joined) -> Iterator[str]:
    for share in joined.shares:
        if share.row.default is None:
            problem = short(share.row.problem)
            yield f"[yellow]no default runs on {problem}: {share.baseline} stands in, {share.speed:.3f} times it[/]"
    verdict, tried = joined.verdict, len(joined.result.measurements)
    others = f"{len(verdict.ties)} more as good{', as far as could be told' if verdict.unresolved else ''}"
    yield f"tried {tried:,} of the {joined.space:,} configs that are feasible for all; {others}"
    if verdict.kind == "default":
        yield "the kernel's default for all of them: nothing is faster over all by more than 1 % with confidence"
    yield "not stored as an answer: what serves each problem stays as it was"
    if recorded := [share.row.recorded for share in joined.shares if share.row.recorded]:
        yield f"[yellow]replayed from {', '.join(recorded)}: not measured here[/]"
