"""Neighbour answers: when the config of one tuned problem serves another one near it, by measured transfer losses.

Distances are in octaves: the Euclidean length, over all dims, of the log2 ratios of two problems' dims.
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
from tuner.records.signatures import checked_config


@dataclass(frozen=True)
class NeighbourSettings:
    """Evidence that a neighbour's answer needs."""

    min_own_transfers: int = 3
    """Number of transfer losses of the answer's own config that decide alone."""
    min_transfers: int = 10
    """Number of transfer losses of similar answers that decide otherwise."""
    max_transfers: int = 200
    """Largest number of transfer losses that are averaged, the newest first."""
    max_scanned: int = 2000
    """Largest number of transfer losses that one lookup reads, the newest first; they take a few milliseconds."""
    max_loss: float = 1.03
    """Largest geometric mean of the slowdowns."""
    slower: float = 1.01
    """Slowdown over the default from which on a config counts as slower than the default."""
    max_slower_share: float = 0.02
    """Largest share of transfer losses in which the config is slower than the default."""
    min_gain: float = 1.05
    """Smallest speedup over the default, at the lower bound of its interval, of an answer that serves others."""


_SETTINGS = NeighbourSettings()


def distance(problem: Problem, other: Problem) -> float:
    """Return the distance between the dims of two problems, in octaves; infinite if they do not have the same dims."""
    if [name for name, _ in problem.dims] != [name for name, _ in other.dims]:
        return inf
    return hypot(*(log2(a / b) for a, b in zip(problem.sizes, other.sizes, strict=True)))


def apart(tuned: Problem, problem: Problem) -> tuple[str, ...]:
    """Return a sentence for each dim, dtype and attribute in which a tuned problem differs from that of a query."""
    has, wants = tuned.values, problem.values
    sentences = []
    for name in dict.fromkeys([*wants, *has]):
        if name not in wants:
            sentences.append(f"{name}: tuned {has[name]}, a {problem.dtype} problem has none")
        elif name not in has:
            sentences.append(f"{name}: the query has {wants[name]}, a {tuned.dtype} problem has none")
        elif has[name] != wants[name]:
            sentences.append(f"{name}: tuned {has[name]}, the query has {wants[name]}")
    return tuple(sentences)


@dataclass(frozen=True)
class Neighbour:
    """The problem that a served answer was tuned for, with the expected loss."""

    problem: Problem
    distance: float
    """Distance between the two problems, in octaves."""
    expected_loss: float
    """Expected slowdown over the query's own best config, less one: 0.02 is 2 %."""
    transfers: int
    """Number of transfer losses that the expected loss is averaged over."""

    @property
    def text(self) -> str:
        """A description that continues "the config is"."""
        return (
            f"that of {self.problem.text}, expected to be {100 * self.expected_loss:.1f} % slower than this problem's "
            f"own best by {self.transfers} measurements on near problems"
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "problem": self.problem.values,
            "distance": round(self.distance, 4),
            "expected_loss": round(self.expected_loss, 4),
            "transfers": self.transfers,
        }


class TransferLosses:
    """Measured losses of tuned configs on each other's problems.

    Only similar answers are compared: same dtype, attributes, source, definition, compiler and policy, both measured
    here.
    """

    def __init__(self, settings: NeighbourSettings = _SETTINGS) -> None:
        self.transfers: tuple[Transfer, ...] = ()
        self._settings = settings
        self._answers: dict[int, StoredAnswer] = {}
        self._of: dict[int, tuple[Transfer, ...]] = {}
        """Transfer losses by the answer whose config was measured."""

    def extended(self, answers: Iterable[StoredAnswer], transfers: Collection[Transfer]) -> TransferLosses:
        """Return these losses with further ones, the newest last. This object does not change."""
        more = TransferLosses(self._settings)
        more.transfers = (*self.transfers, *transfers)
        more._answers = self._answers | {stored.id: stored for stored in answers}
        more._of = self._of.copy()
        for transfer in transfers:
            more._of[transfer.from_answer] = (*more._of.get(transfer.from_answer, ()), transfer)
        return more

    def neighbour(self, stored: StoredAnswer, problem: Problem) -> Neighbour | None:
        """Return an answer as a neighbour of a problem, or None unless its config is known to be nearly as good there.

        The transfer losses of the answer's own config decide if there are at least three within reach; else those of
        all similar answers at such distances, if there are at least ten. Their geometric mean must be at most 3 % and
        less than tuning gains over the default, and at most one in fifty may be slower than the default. Losses count
        only between problems that the config cuts into an equal number of tiles, if that holds of the two problems,
        else only between others.
        """
        limits = self._settings
        if _gain(stored) < limits.min_gain:
            return None
        octaves = distance(stored.answer.problem, problem)
        same_tiles = _has_same_tiles(stored, problem)
        seen = own = list(self._losses(self._of.get(stored.id, ()), same_tiles))
        if len(own) < limits.min_own_transfers:
            newest = islice(reversed(self.transfers), limits.max_scanned)
            similar = (one for one in newest if one.distance >= octaves / 2 and self._is_similar(one, stored))
            seen = list(islice(self._losses(similar, same_tiles), limits.max_transfers))
            if len(seen) < limits.min_transfers or any(loss.is_slower(limits.slower) for loss in own):
                return None
        lost = geometric_mean(loss.slowdown for loss in seen)
        gained = min(geometric_mean(loss.gain for loss in seen), _gain(stored))
        slower = sum(loss.is_slower(limits.slower) for loss in seen)
        if lost > limits.max_loss or lost >= gained or slower > limits.max_slower_share * len(seen):
            return None
        return Neighbour(stored.answer.problem, octaves, max(0.0, lost - 1), len(seen))

    def _is_similar(self, transfer: Transfer, stored: StoredAnswer) -> bool:
        origin = self._answers.get(transfer.from_answer)
        return origin is not None and _is_similar(origin, stored)

    def _losses(self, transfers: Iterable[Transfer], same_tiles: bool) -> Iterator[_Loss]:
        """Yield the losses between comparable answers that are known, with or without the same number of tiles."""
        for transfer in transfers:
            origin, target = self._answers.get(transfer.from_answer), self._answers.get(transfer.to_answer)
            if (
                origin is not None
                and target is not None
                and origin.answer.kind == "tuned"
                and _gain(origin) >= self._settings.min_gain
                and _are_comparable(origin, target)
                and _has_same_tiles(origin, target.answer.problem) == same_tiles
            ):
                yield _Loss(transfer.slowdown, target.answer.speedup or inf)


def fits(kernel: Kernel, problem: Problem, stored: StoredAnswer) -> bool:
    """Return whether the config of another problem's answer is valid for this problem on its card, by the kernel."""
    config = with_current_knobs(kernel.signature, stored.answer.config)
    return config is not None and kernel.valid(problem, config, stored.provenance.device.limits)


def in_reach(problem: Problem, other: Problem) -> bool:
    """Return whether two problems agree in all but their dims, and no dim is more than twice the other's."""
    return (
        (problem.dtype, problem.attributes) == (other.dtype, other.attributes)
        and len(problem.sizes) == len(other.sizes)
        and all(a <= 2 * b and b <= 2 * a for a, b in zip(problem.sizes, other.sizes, strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Loss:
    slowdown: float
    """Latency of another problem's config over that of the best one."""
    gain: float
    """Latency of the default over that of the best config; infinite if the default does not run."""

    def is_slower(self, than: float) -> bool:
        """Return whether the config is slower than the default by more than this ratio."""
        return self.slowdown > than * self.gain


def _gain(stored: StoredAnswer) -> float:
    """Return the lower bound of the speedup over the default; infinite if the default does not run."""
    return (stored.answer.speedup_interval or (inf, inf))[0]


def _has_same_tiles(stored: StoredAnswer, problem: Problem) -> bool:
    """Return whether an answer's config cuts each dim of a problem into the number of tiles of the answer's own.

    By the knobs named after the dim that they tile: BLOCK_M or TILE_M for M. One more row of tiles makes a small GEMM
    14 to 60 % slower; an equal number, 1 % at most.
    """
    config, own = stored.answer.config, stored.answer.problem
    tiled = [(dim, config.get(f"{word}_{dim}")) for dim, _ in own.dims for word in ("BLOCK", "TILE")]
    return all(
        cdiv(own[dim], tile) == cdiv(problem[dim], tile) for dim, tile in tiled if type(tile) is int and tile > 0
    )


def _family(stored: StoredAnswer) -> tuple[object, ...]:
    """Return the fields in which answers must agree to be compared."""
    problem, made = stored.answer.problem, stored.provenance
    compiler = (made.environment.triton, made.environment.ptxas)
    return (problem.dtype, problem.attributes, made.source, made.policy, made.recorded, *compiler)


def _is_similar(one: StoredAnswer, other: StoredAnswer) -> bool:
    """Return whether two answers agree in these fields, and in the definition hash if both have one."""
    definitions = {one.provenance.definition, other.provenance.definition} - {""}
    return _family(one) == _family(other) and len(definitions) < 2


def _are_comparable(one: StoredAnswer, other: StoredAnswer) -> bool:
    problem, others = one.answer.problem, other.answer.problem
    return problem != others and in_reach(problem, others) and _is_similar(one, other)


def with_current_knobs(signature: Signature, config: Config) -> Config | None:
    """Return the config with the signature's knobs, or None if it has others or values of other types."""
    try:
        return checked_config(signature, config)
    except UsageError:
        return None
