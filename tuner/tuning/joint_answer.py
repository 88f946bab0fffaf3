"""The outcome of a joint search: one config for several problems, and its speed on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.kernels.spec import Config
from tuner.measure.joint_comparison import OBJECTIVES, JointComparison
from tuner.records import median
from tuner.search import Result
from tuner.search.verdict import Verdict, ratio
from tuner.suites.suite import Suite
from tuner.tuning.bench import Subject, row_of
from tuner.tuning.bench_row import Rival, Row
from tuner.tuning.target import Target


@dataclass(frozen=True)
class Share:
    """The joint config on one problem."""

    row: Row
    """The config beside the kernel's default and the vendor, if those run."""
    speed: float
    """Speed relative to the problem's baseline; above 1, the joint config is faster."""
    baseline: str
    """Text of the problem's default; if that does not run, of the config in its place."""
    own: Rival | None
    """The problem's own stored answer, from the same rounds."""
    run: int
    """Id of the run that keeps the measurements."""

    def as_json(self) -> dict[str, Any]:
        """Return the row of `tuner bench --json`, with the baseline, the own answer and the run."""
        own = None if self.own is None else {**asdict(self.own), "loss": loss(self.own)}
        relative = {"baseline": self.baseline, "baseline_speedup": self.speed}
        return {**self.row.as_json(), **relative, "own": own, "run": self.run}


def loss(own: Rival) -> float:
    """Return how much longer the joint config takes than a problem's own answer: 0.02 is 2 %."""
    return 1 / own.speedup - 1


@dataclass(frozen=True, repr=False)
class JointAnswer:
    """A joint config with its evidence. It is not stored as an answer: each problem is served its own."""

    name: str
    objective: str
    """`geomean` or `worst`."""
    space: int
    """Number of configs that are feasible for all problems."""
    result: Result
    """The search; without a verdict it found no config, and `shares` is empty."""
    shares: tuple[Share, ...] = ()

    def __repr__(self) -> str:
        """Return the objective and the config: the value of a cell in a notebook."""
        if self.result.verdict is None:
            return f"<JointAnswer {self.name}: none found>"
        speed = f"{self.objective} {self.speed:.3f} x default over {len(self.shares)} problems"
        return f"<JointAnswer {self.name}: {speed}; {self.config.text}>"

    @property
    def verdict(self) -> Verdict:
        """The verdict of the search."""
        assert self.result.verdict is not None, "a search without a verdict has no joint config"
        return self.result.verdict

    @property
    def config(self) -> Config:
        """The config for all problems."""
        return self.verdict.config

    @property
    def speed(self) -> float:
        """The objective over the speeds relative to the baselines."""
        return self._joined([share.speed for share in self.shares])

    @property
    def vendor_speedup(self) -> float | None:
        """The objective over the speed-ups over the vendor; None if the vendor was not timed."""
        speedups = [share.row.vendor.speedup for share in self.shares if share.row.vendor is not None]
        return self._joined(speedups) if speedups else None

    def _joined(self, speeds: Sequence[float]) -> float:
        return 1 / OBJECTIVES[self.objective]([1 / speed for speed in speeds])

    def as_json(self) -> dict[str, Any]:
        """Return the document of `tuner search --joint --json`."""
        verdict, row = self.verdict, self.shares[0].row
        return {
            "op": row.problem.op,
            "problems": self.name,
            "device": row.device,
            "joint": self.objective,
            "config": dict(verdict.config),
            "kind": verdict.kind,
            "speedup": self.speed,
            "vendor_speedup": self.vendor_speedup,
            "ties": [{"config": dict(tie.config), "slowdown": tie.slowdown} for tie in verdict.ties],
            "unresolved": verdict.unresolved,
            "checked": asdict(self.result.evidence[verdict.config]),
            "feasible_for_all": self.space,
            "tried": len(self.result.measurements),
            "failures": dict(self.result.failures),
            "seconds": round(sum(self.result.seconds.values()), 1),
            "rows": [share.as_json() for share in self.shares],
        }


def joint_answer(
    suite: Suite, objective: str, result: Result, targets: Sequence[Target], space: int, runs: Sequence[int]
) -> JointAnswer:
    """Return the joint answer: the winner of the joint comparison, with its speed on each problem."""
    if result.verdict is None:
        return JointAnswer(suite.name, objective, space, result)
    assert isinstance(result.comparison, JointComparison)
    winner = result.verdict.config
    shares = []
    for entry, target, run, part, (baseline, *own) in zip(
        suite.entries, targets, runs, result.comparison.parts, result.comparison.companions, strict=True
    ):
        subject = Subject(
            *(entry.problem, target.provenance, winner, target.default, target.flops, target.bytes),
            *(target.roofline_limits, target.refused, target.vendor_name),
        )
        rivals = [Rival(median(part.of(text)), *ratio(part, text, winner.text)) for text in own]
        speed, _ = ratio(part, baseline, winner.text)
        shares.append(Share(row_of(subject, winner, part), speed, baseline, next(iter(rivals), None), run))
    return JointAnswer(suite.name, objective, space, result, tuple(shares))
