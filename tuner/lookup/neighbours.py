"""When the answer of a tuned problem may serve another one near it: where it was seen to lose little on others.

Distances are in octaves: the length, over all dims, of the log2 of how many times one is the other's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import hypot, inf, log2
from statistics import geometric_mean
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import Config, Kernel, Problem, Signature, cdiv
from tuner.records import StoredAnswer, Transfer
from tuner.records.codec import checked_config

_FEWEST_OWN, _FEWEST, _MOST = 3, 10, 200
"""Measurements that tell what an answer loses elsewhere: of its own config; of all alike, the newest."""
_LOOKED_AT = 2000
"""Of all transfers, the newest: so many take a few milliseconds, and a question does not wait for more."""
_MOST_LOST, _SLOWER, _SLOWER_SHARE = 1.03, 1.01, 0.02
"""What may be lost on average; from where on a config counts as slower; and how many may be, of all that were tried."""
_LEAST_GAIN = 1.05
"""Where tuning gained less over the default, the default risks nothing."""


def distance(problem: Problem, other: Problem) -> float:
    """Octaves between the dims of two problems; infinite where they do not have the same dims."""
    if [name for name, _ in problem.dims] != [name for name, _ in other.dims]:
        return inf
    return hypot(*(log2(a / b) for a, b in zip(problem.sizes, other.sizes, strict=True)))


@dataclass(frozen=True)
class Neighbour:
    """That an answer is another problem's, and what that should cost."""

    problem: Problem
    """Which it was tuned for."""
    distance: float
    """Octaves to it."""
    expected_loss: float
    """How much longer than the asked problem's own best it should take: 0.02 is 2 %."""
    transfers: int
    """How many measurements say so."""

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"that of {self.problem.text}, which should be {100 * self.expected_loss:.1f} % slower than this problem's "
            f"own best, as {self.transfers} measurements on near problems say"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "problem": self.problem.values,
            "distance": round(self.distance, 4),
            "expected_loss": round(self.expected_loss, 4),
            "transfers": self.transfers,
        }


class TransferLosses:
    """What tuned configs were seen to lose on each other's problems.

    Only like is compared with like: one dtype, the same attributes, source, compiler and policy, both measured here.
    """

    def __init__(self) -> None:
        self.transfers: tuple[Transfer, ...] = ()
        self._answers: dict[int, StoredAnswer] = {}
        self._of: dict[int, tuple[Transfer, ...]] = {}
        """By the answer whose config was tried."""

    def extended(self, answers: Iterable[StoredAnswer], transfers: Collection[Transfer]) -> TransferLosses:
        """This evidence and some more, what is newer last. This one stays as it is."""
        more = TransferLosses()
        more.transfers = (*self.transfers, *transfers)
        more._answers = self._answers | {stored.id: stored for stored in answers}
        more._of = self._of.copy()
        for transfer in transfers:
            more._of[transfer.from_answer] = (*more._of.get(transfer.from_answer, ()), transfer)
        return more

    def neighbour(self, stored: StoredAnswer, asked: Problem) -> Neighbour | None:
        """An answer as one for a problem near its own; None unless it was shown to be nearly as good as an own one.

        Its own record tells, where it was tried on three problems within reach or more; else that of all answers alike,
        at such distances, where there are ten. On average it must have lost at most 3 % there, and less than tuning
        gains over the default; and not more than one in fifty may have been slower than the default. Where its config
        cuts the asked problem into as many tiles as its own, that is the record on such problems; else on the others.
        """
        if _gain(stored) < _LEAST_GAIN:
            return None
        away = distance(stored.answer.problem, asked)
        as_many = _as_many_tiles(stored, asked)
        seen = own = list(self._losses(self._of.get(stored.id, ()), as_many))
        if len(own) < _FEWEST_OWN:
            newest = islice(reversed(self.transfers), _LOOKED_AT)
            alike = (one for one in newest if one.distance >= away / 2 and self._tried_alike(one, stored))
            seen = list(islice(self._losses(alike, as_many), _MOST))
            if len(seen) < _FEWEST or any(loss.slower_than_default for loss in own):
                return None
        lost = geometric_mean(loss.slowdown for loss in seen)
        gained = min(geometric_mean(loss.gain for loss in seen), _gain(stored))
        slower = sum(loss.slower_than_default for loss in seen)
        if lost > _MOST_LOST or lost >= gained or slower > _SLOWER_SHARE * len(seen):
            return None
        return Neighbour(stored.answer.problem, away, max(0.0, lost - 1), len(seen))

    def _tried_alike(self, transfer: Transfer, stored: StoredAnswer) -> bool:
        came = self._answers.get(transfer.from_answer)
        return came is not None and _family(came) == _family(stored)

    def _losses(self, transfers: Iterable[Transfer], as_many: bool) -> Iterator[_Loss]:
        """Those between answers that are here and can be compared, where there were `as_many` tiles or were not."""
        for transfer in transfers:
            came, went = self._answers.get(transfer.from_answer), self._answers.get(transfer.to_answer)
            if (
                came is not None
                and went is not None
                and came.answer.kind == "tuned"
                and _gain(came) >= _LEAST_GAIN
                and _comparable(came, went)
                and _as_many_tiles(came, went.answer.problem) == as_many
            ):
                yield _Loss(transfer.slowdown, went.answer.speedup or inf)


def fits(kernel: Kernel, problem: Problem, stored: StoredAnswer) -> bool:
    """Whether another problem's answer has a config that is valid for this one, on its card, by the kernel's code."""
    config = today(kernel.signature, stored.answer.config)
    return config is not None and kernel.valid(problem, config, stored.provenance.device.limits)


def in_reach(problem: Problem, other: Problem) -> bool:
    """Whether all else than the dims is equal, and no dim is more than twice the other's."""
    return (
        (problem.dtype, problem.attributes) == (other.dtype, other.attributes)
        and len(problem.sizes) == len(other.sizes)
        and all(a <= 2 * b and b <= 2 * a for a, b in zip(problem.sizes, other.sizes, strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Loss:
    slowdown: float
    """Of a near problem's config, over the best."""
    gain: float
    """Of tuning there: the default's latency over the best's; infinite where the default does not run."""

    @property
    def slower_than_default(self) -> bool:
        return self.slowdown > _SLOWER * self.gain


def _gain(stored: StoredAnswer) -> float:
    """The default's latency over an answer's, at least; infinite where the default does not run."""
    return (stored.answer.speedup_interval or (inf, inf))[0]


def _as_many_tiles(stored: StoredAnswer, asked: Problem) -> bool:
    """Whether an answer's config cuts every dim of another problem into as many pieces as of its own.

    By the knobs that are called after what they tile: BLOCK_M or TILE_M for M. One more row of tiles costs a decode
    GEMM 14 to 60 %; as many of them, 1 % at most (H200, 2026-11-28).
    """
    config, problem = stored.answer.config, stored.answer.problem
    tiled = [(dim, config.get(f"{word}_{dim}")) for dim, _ in problem.dims for word in ("BLOCK", "TILE")]
    return all(
        cdiv(problem[dim], tile) == cdiv(asked[dim], tile) for dim, tile in tiled if type(tile) is int and tile > 0
    )


_Family = tuple[object, ...]


def _family(stored: StoredAnswer) -> _Family:
    """Answers that agree in this can be compared."""
    problem, made = stored.answer.problem, stored.provenance
    compiler = (made.environment.triton, made.environment.ptxas)
    return (problem.dtype, problem.attributes, made.source, made.policy, made.recorded, *compiler)


def _comparable(one: StoredAnswer, other: StoredAnswer) -> bool:
    problem, others = one.answer.problem, other.answer.problem
    return problem != others and in_reach(problem, others) and _family(one) == _family(other)


def today(signature: Signature, config: Config) -> Config | None:
    """The config with today's knobs; None where it had others, or values of other types."""
    try:
        return checked_config(signature, config)
    except UsageError:
        return None
