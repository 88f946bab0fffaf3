"""Values of `tuner retune`: what re-measuring an answer found, its cause, and what was done. Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tuner.kernels.spec import Config, Problem
from tuner.records.answer import Provenance
from tuner.records.measurement import CardState, Interval

DEFAULT, RUNNER_UP = "default", "runner-up"
"""Roles of contenders besides the vendor: the kernel's default, and the config after the answer's."""


class Cause(StrEnum):
    """Cause of the difference between an answer as it was stored and as it was measured again."""

    UNCHANGED = "unchanged"
    """No difference that the noise of the rounds does not explain."""
    SLOWER_CODE = "slower: kernel or compiler"
    """The config lost against the vendor, which held."""
    FASTER_CODE = "faster: kernel or compiler"
    SLOWER_MACHINE = "slower: machine"
    """The config and the vendor slowed alike: clocks, power, driver or another card."""
    FASTER_MACHINE = "faster: machine"
    METHOD = "method"
    """The policy, or the version of the timing, is another one; latencies are not compared."""
    ORDER = "order moved"
    """The runner-up or the default is now ahead with confidence."""
    BROKEN = "broken"
    """The config does not compile, crashes or gives wrong results."""
    NOT_MEASURED = "not measured"
    """There is no result: an error, or other processes used the card."""

    @property
    def is_regression(self) -> bool:
        """True if users of the answer are worse off than when it was stored."""
        return self in (Cause.SLOWER_CODE, Cause.SLOWER_MACHINE, Cause.BROKEN)


class Action(StrEnum):
    """Outcome of a retune for an answer."""

    KEPT = "kept"
    CONFIRMED = "confirmed"
    """The same config is stored for today's kernel, compiler or policy."""
    REPLACED = "replaced"
    """A search found a config that is faster by more than the threshold, or one that works."""
    RETIRED = "retired"
    """The config is wrong, and no other works: the answer is forgotten."""


@dataclass(frozen=True)
class Contender:
    """A config or the vendor's implementation, timed in the same rounds as an answer's config."""

    latency_us: float
    ratio: float
    """Its latency over that of the answer's config, round by round: 1.05 is 5 % slower than the answer."""
    interval: Interval
    """Interval of the ratio."""
    config: Config | None = None
    """None: the vendor's implementation."""
    vendor: str = ""
    """Name of a vendor that is not the kernel's own, such as `torch.compile` or a library."""


@dataclass(frozen=True)
class Reading:
    """An answer's config beside its contenders, at one time."""

    latency_us: float
    interval_us: Interval
    contenders: Mapping[str, Contender]
    """By role: `VENDOR`, `DEFAULT`, `RUNNER_UP`. One that did not run is missing."""
    provenance: Provenance
    rounds: int
    at: str
    """UTC, ISO 8601."""
    marks: tuple[str, ...] = ()
    state: CardState | None = None
    """State of the card in the middle of the rounds."""


@dataclass(frozen=True)
class Finding:
    """Outcome of measuring one answer again."""

    problem: Problem
    answer_id: int
    """The answer that was measured again."""
    config: Config
    """Its config."""
    cause: Cause
    action: Action
    text: str
    """One sentence with the figures that decided, for people."""
    then: Reading | None = None
    """None if its rounds are not stored, as of an imported answer."""
    now: Reading | None = None
    """None if it is broken or was not measured."""
    reasons: tuple[str, ...] = ()
    """Changes since the answer was stored, such as `Triton 3.6.0, now 3.7.1`, that made it stale."""
    pinned: bool = False
    error: str = ""
    """Failure of its config, or the error that kept it from being measured."""
    new_answer_id: int | None = None
    """The answer that was stored: confirmed or replaced."""
    new_config: Config | None = None
    """Config of a replacement, or the fastest that a search found and that was not confirmed to be faster enough."""
    gain: float | None = None
    """Latency of the answer's config over that of `new_config`, in the same rounds."""
    gain_interval: Interval | None = None
    searched: int = 0
    """Number of configs that a new search measured; 0: there was none."""
    seconds: float = 0.0
    """Wall time of the check, and of the search if there was one."""

    @property
    def is_open_regression(self) -> bool:
        """True if users are still worse off: a regression that was not repaired."""
        return self.cause.is_regression and self.action is not Action.REPLACED


@dataclass(frozen=True)
class Retune:
    """One run of `tuner retune` on one card, with its findings so far."""

    id: int
    device: str
    """Device id."""
    settings: Mapping[str, Any]
    """Selection, thresholds and budget."""
    planned: Sequence[int]
    """Ids of the answers to be measured again, most valuable first; fixed when it starts."""
    environment: Mapping[str, str]
    """Versions at its start, as in `Provenance.as_json`, and the host."""
    status: str
    """`running` (or killed), `done`, `interrupted` or `failed`."""
    started_at: str
    ended_at: str | None = None
    findings: tuple[Finding, ...] = field(default=())
    """In the order in which they were found, one of each answer at most."""

    @property
    def left(self) -> list[int]:
        """Ids of the answers that are planned and have no finding yet."""
        found = {finding.answer_id for finding in self.findings}
        return [answer for answer in self.planned if answer not in found]
