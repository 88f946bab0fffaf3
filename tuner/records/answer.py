"""Answers, with their evidence and provenance. Times are microseconds.

The fields of `Answer` are stated here and nowhere else: the columns of the store, the rows, the bundle, the served
document and its OpenAPI description follow from their types and from what `stated` adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tuner.kernels.spec import Config, Problem, Signature
from tuner.records.device import Device, Environment
from tuner.records.measurement import VENDOR, VENDOR_NAME, Interval

IMPORTED = "imported"
"""Kind of an answer taken from a file of another tool: not checked here, and perhaps never timed."""
ROLLBACK = "rollback"
"""Kind of an answer that restores an earlier one, with the measurements of that one."""
FORGOTTEN = "forgotten"
"""Kind of the row that retires an answer. It is never read as an answer."""
REFERENCE, AGREEMENT = "reference", "agreement"
"""Bases of an answer: its outputs were compared with a reference, or with those of the kernel's other configs."""
BASES = (REFERENCE, AGREEMENT)
UNVERIFIED = "agreeing, not verified"
"""Label of answers whose basis is agreement."""
KINDS = ("tuned", "default", ROLLBACK, IMPORTED)
"""Kinds of answers."""


def stated(help: str = "", *, served: bool = True, null: Any = None) -> dict[str, Any]:
    """Return the metadata of a field.

    Args:
        help: Description, for the code's reader and for the OpenAPI page.
        served: Whether the served document has the field.
        null: Value that stands for None in the field's column, if that takes no null.
    """
    return {"help": help, "served": served, "null": null}


@dataclass(frozen=True)
class Tie:
    """A config that was not shown to be more than 1 % slower than the fastest."""

    config: Config = field(metadata=stated())
    slowdown: float = field(metadata=stated("Its latency over the winner's, round by round: 1.002 is 0.2 % slower."))
    interval: Interval = field(metadata=stated("Interval of the slowdown.", served=False))


@dataclass(frozen=True)
class Evidence:
    """Inputs that a config was checked on, and the result."""

    max_error: float | None = field(
        default=None, metadata=stated("Largest deviation from the reference over its row's largest value.")
    )
    tolerance: float | None = field(default=None, metadata=stated("Largest `max_error` that passes."))
    inputs: tuple[str, ...] = field(default=(), metadata=stated("Kind of each set of inputs: `normal`, `special`."))
    launches: int = field(default=0, metadata=stated("Number of launches whose outputs were compared."))


@dataclass(frozen=True, repr=False)
class Answer:
    """The config that a search found for one problem, with its evidence.

    Answers are never changed: a newer one of the same key replaces an older one. Without its measurements an answer is
    `Answer(problem, kind, config)`; an imported one may have none.
    """

    problem: Problem = field(metadata=stated(served=False))
    kind: str = field(
        metadata=stated(
            "`tuned`; `default` if nothing was faster than the kernel's default; `rollback` if an earlier answer was "
            "restored; `imported` if it was taken from a file of another tool and not measured here."
        )
    )
    config: Config = field(metadata=stated())
    latency_us: float | None = field(
        default=None, metadata=stated("null if an imported answer has no timing, or for another problem's.", null=inf)
    )
    interval_us: Interval | None = field(default=None, metadata=stated("Confidence interval of the latency.", null=()))
    speedup: float | None = field(
        default=None,
        metadata=stated("Default's latency over this config's, round by round; null if the default does not run."),
    )
    speedup_interval: Interval | None = field(default=None, metadata=stated("Confidence interval of the speedup."))
    default_latency_us: float | None = field(default=None, metadata=stated("Latency of the kernel's default."))
    vendor_latency_us: float | None = field(
        default=None, metadata=stated("Latency of the vendor's kernel; null if it was not timed.")
    )
    ties: tuple[Tie, ...] = field(
        default=(), metadata=stated("Configs that were not shown to be more than 1 % slower than the fastest.")
    )
    unresolved: bool = field(
        default=False, metadata=stated("Some configs were shown to be neither within 1 % of the fastest nor beyond.")
    )
    evidence: Evidence = field(default=Evidence(), metadata=stated("What it was checked on.", served=False))
    marks: tuple[str, ...] = field(
        default=(),
        metadata=stated(
            "`launch_bound`: the latency is below twice that of an empty kernel; `contended`: other processes used the "
            "card; `throttled`: its clocks were lowered."
        ),
    )
    basis: str = field(
        default=REFERENCE,
        metadata=stated(
            "`reference` if outputs were compared with a reference; `agreement` if they were compared with those of "
            "the kernel's other configs alone: agreeing, not verified. An imported answer was not compared here."
        ),
    )
    flops: int = field(default=0, metadata=stated("Operations that the problem needs.", served=False))
    bytes: int = field(default=0, metadata=stated("Bytes that the problem moves at least.", served=False))

    def __repr__(self) -> str:
        """Return problem, kind, latency, speedup and config: the value of a cell in a notebook."""
        known = [] if self.latency_us is None else [f"{self.latency_us:.2f} us"]
        known += [] if self.speedup is None else [f"{self.speedup:.3f} x default"]
        return f"<{type(self).__name__} {self.problem.text}: {', '.join([self.kind, *known])}; {self.config.text}>"

    @property
    def tflops(self) -> float | None:
        """Rate in TFLOP/s; null for a kernel that only moves data, and if it is not known."""
        return self.flops / self.latency_us / 1e6 if self.flops and self.latency_us else None

    @property
    def gb_per_s(self) -> float | None:
        """Rate of the fewest bytes that must move, in GB/s; null if it is not known."""
        return self.bytes / self.latency_us / 1e3 if self.bytes and self.latency_us else None


@dataclass(frozen=True)
class Provenance:
    """Origin of an answer: the rest of its key, and what is kept for information."""

    device: Device
    environment: Environment
    source: str
    policy: str
    recorded: str | None = None
    """The recorded space that it was replayed from; None: measured on the device."""
    tuner: str = ""
    definition: str = ""
    """Definition hash of the kernel; empty if it is not known, as in recorded spaces and imported files."""

    def as_json(self) -> dict[str, str]:
        """Return versions, source and policy, as documents have them under `tuned_with`."""
        environment = self.environment
        return {
            "triton": environment.triton,
            "ptxas": environment.ptxas,
            "torch": environment.torch,
            "driver": environment.driver,
            "source": self.source,
            "definition": self.definition,
            "policy": self.policy,
            "tuner": self.tuner,
        }


@dataclass(frozen=True)
class StoredAnswer:
    """An answer in a store."""

    id: int
    answer: Answer
    provenance: Provenance
    created_at: str
    """UTC, ISO 8601."""
    run_id: int
    trials: int = 0
    """Number of configs that its run knew in the end: measured, or taken over from earlier runs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its run."""
    forgotten_at: str | None = None
    """Time at which it was retired by hand, UTC in ISO 8601; None: it is in service."""
    signature: Signature | None = field(default=None, compare=False, repr=False)
    """The signature that it was read by; None if it was not read."""

    @property
    def imported_from(self) -> str | None:
        """The file or store that it was imported from; None: found by a search into this store."""
        origin: str | None = self.settings.get("imported")
        return origin

    @property
    def vendor(self) -> str | None:
        """Name of the vendor that was timed beside it; None if none was."""
        return None if self.answer.vendor_latency_us is None else str(self.settings.get(VENDOR, VENDOR_NAME))

    @property
    def restored(self) -> int | None:
        """Id of the answer that a rollback restored, which was measured; None of any other kind."""
        origin = self._origin
        return None if origin is None else origin["answer"]

    @property
    def measured_in(self) -> int:
        """Id of the run that holds its measurements: its own, but of a rollback that of the restored answer."""
        origin = self._origin
        return self.run_id if origin is None else origin["run"]

    @property
    def measured_with(self) -> Provenance:
        """Origin of its measurements: its own provenance, but of a rollback that of the restored answer."""
        origin = self._origin
        if origin is None:
            return self.provenance
        versions = {name: origin["tuned_with"][name] for name in _TUNED_WITH[:4]}
        others = {name: origin["tuned_with"][name] for name in _TUNED_WITH[4:]}
        return replace(self.provenance, environment=Environment(**versions), **others)

    @property
    def _origin(self) -> Any:
        """Setting of a rollback's run that names the restored answer; None if there is none, or it is malformed."""
        origin = self.settings.get(ROLLBACK) if self.answer.kind == ROLLBACK else None
        if not isinstance(origin, dict) or not isinstance(tuned_with := origin.get("tuned_with"), dict):
            return None
        ids = (origin.get("answer"), origin.get("run"))
        is_whole = all(type(id) is int for id in ids) and all(type(tuned_with.get(name)) is str for name in _TUNED_WITH)
        return origin if is_whole else None


_TUNED_WITH = ("triton", "ptxas", "torch", "driver", "source", "definition", "policy", "tuner")
"""Names in `Provenance.as_json`, those of the environment first."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer loss of one answer's config, measured on another answer's problem."""

    id: int
    from_answer: int
    """Id of the answer whose config was measured."""
    to_answer: int
    """Id of the answer on whose problem it was measured."""
    distance: float
    """Octaves between the two problems, over all dims."""
    slowdown: float
    """Its latency over the other answer's; infinite if it did not run right."""

    def as_json(self) -> list[float | None]:
        """Return the five values in order, with null for an infinite slowdown. A list, since a table has many."""
        slowdown = None if self.slowdown == inf else self.slowdown
        return [self.id, self.from_answer, self.to_answer, self.distance, slowdown]

    @staticmethod
    def from_json(values: Sequence[Any]) -> Transfer:
        """Return the transfer that `as_json` wrote."""
        id, from_answer, to_answer, distance, slowdown = values
        return Transfer(id, from_answer, to_answer, distance, inf if slowdown is None else slowdown)
