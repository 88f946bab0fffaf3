"""All answers of one op on one device, and which of them serves a question; for the client and the service alike.

Pure and standard library only. Where an answer is not exactly what was asked for, it says so and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, product
from math import floor, log2, prod
from operator import sub
from types import MappingProxyType
from typing import Any

from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem
from tuner.lookup.neighbours import Neighbour, TransferLosses, distance, in_reach
from tuner.records import IMPORTED, Environment, StoredAnswer, Transfer

COMPARED = ("triton", "source", "driver", "ptxas", "policy")
"""Fields of a question that are compared with an answer's, where they were sent."""
_NEAREST = 3


@dataclass(frozen=True)
class Query:
    """A question. A field that is None was not sent and is not compared."""

    problem: Problem
    triton: str | None = None
    source: str | None = None
    driver: str | None = None
    ptxas: str | None = None
    policy: str | None = None
    strict: bool = False
    """A stale answer is a miss, and so is a neighbour's."""

    @staticmethod
    def here(
        problem: Problem,
        environment: Environment,
        source: str | None,
        *,
        policy: str | None = None,
        strict: bool = False,
    ) -> Query:
        """Asks for what was tuned with all that is installed here; what is not installed is not compared.

        Who launches takes an answer of any policy: which one suits is for the search to decide.
        """
        return Query(
            problem,
            triton=environment.triton or None,
            source=source,
            driver=environment.driver or None,
            ptxas=environment.ptxas or None,
            policy=policy,
            strict=strict,
        )


@dataclass(frozen=True)
class LookupResult:
    """What serves a question.

    `match` is `exact`; `stale`, with the reasons; `neighbour`, another problem's answer, with what that should cost; or
    `none`, with the nearest problems that have an answer, and the reasons if there is one that was refused.
    """

    problem: Problem
    device: str
    match: str
    stored: StoredAnswer | None = None
    differences: tuple[str, ...] = ()
    """Fields of the key in which the answer is not what was asked for, and how."""
    recorded: str | None = None
    """The recorded space that the answer was replayed from."""
    nearest: tuple[str, ...] = ()
    neighbour: Neighbour | None = None
    reference: str = ""
    """What the kernel was called on the command line, such as the path of its file; else its op."""
    alias: str | None = None
    """What the asker calls the device, where its answers are stored under another name of the same card."""

    @property
    def stale(self) -> tuple[str, ...]:
        """Why the answer is not exactly what was asked for."""
        if self.recorded is None:
            return self.differences
        return (*self.differences, replayed_from(self.recorded))

    @property
    def command(self) -> str:
        """What would tune the problem."""
        options = " ".join(f"--{name} {value}" for name, value in self.problem.stated.items())
        return f"tuner search {self.reference or self.problem.op} {options}"

    @property
    def reason(self) -> str:
        """Why there is no answer."""
        if self.stale:
            return f"the answer for {self.problem.text} on {self.device} is refused: {'; '.join(self.stale)}"
        return f"no answer is stored for {self.problem.text} on {self.device}"

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """The document that the service, `tuner best --json` and `tuner search --json` give."""
        head = {"op": self.problem.op, "problem": self.problem.values, "device": self.device}
        if self.alias is not None:
            head["alias"] = self.alias
        if self.stored is None:
            return {
                **head,
                "match": self.match,
                "reason": self.reason,
                "nearest": list(self.nearest),
                "command": self.command,
                "snapshot": snapshot,
            }
        evidence = answer_json(self.stored)
        if self.neighbour is not None:
            evidence |= _OF_ITS_OWN_PROBLEM
        return {
            **head,
            "config": evidence.pop("config"),
            "match": self.match,
            "neighbour": self.neighbour and self.neighbour.as_json(),
            **evidence,
            "stale": list(self.stale),
            "tuned_at": self.stored.created_at,
            "snapshot": snapshot,
        }


def answer_json(stored: StoredAnswer) -> dict[str, Any]:
    """What an answer says, whoever asked: its config, its numbers and where they come from."""
    answer, provenance = stored.answer, stored.provenance
    return {
        "config": dict(answer.config),
        "kind": answer.kind,
        "latency_us": _round(answer.latency_us),
        "interval_us": _rounds(answer.interval_us),
        "speedup": _round(answer.speedup),
        "speedup_interval": _rounds(answer.speedup_interval),
        "tflops": _round(answer.tflops),
        "gb_per_s": _round(answer.gb_per_s),
        "default_latency_us": _round(answer.default_latency_us),
        "vendor_latency_us": _round(answer.vendor_latency_us),
        "ties": [{"config": dict(tie.config), "slowdown": _round(tie.slowdown)} for tie in answer.ties],
        "unresolved": answer.unresolved,
        "marks": list(answer.marks),
        "recorded": provenance.recorded,
        "imported": stored.taken_from,
        "max_error": answer.evidence.max_error,
        "tolerance": answer.evidence.tolerance,
        "checked": {"inputs": list(answer.evidence.inputs), "launches": answer.evidence.launches},
        "tuned_with": provenance.as_json(),
    }


_OF_ITS_OWN_PROBLEM: Mapping[str, Any] = {
    **dict.fromkeys(("latency_us", "interval_us", "speedup", "speedup_interval", "tflops", "gb_per_s")),
    **dict.fromkeys(("default_latency_us", "vendor_latency_us", "max_error", "tolerance")),
    "ties": [],
    "unresolved": False,
    "marks": [],
    "checked": {"inputs": [], "launches": 0},
}
"""What was measured of a neighbour's answer says nothing of the problem that is asked about, and is not told."""


class Table:
    """The answers of one op on one device, and what their configs lost on each other's problems.

    Without such transfers no answer serves another problem than its own.
    """

    def __init__(self, device: str, answers: Iterable[StoredAnswer], transfers: Collection[Transfer] = ()) -> None:
        self._device, self._evidence = device, TransferLosses()
        self._answers: dict[str, tuple[StoredAnswer, ...]] = {}
        self._near: dict[_Cell, tuple[_Place, ...]] = {}
        """The problems by the part of an octave that each dim is in."""
        self._add(answers, transfers)

    @property
    def transfers(self) -> Sequence[Transfer]:
        """What configs lost, in the order in which it came."""
        return self._evidence.transfers

    def __iter__(self) -> Iterator[StoredAnswer]:
        return chain.from_iterable(self._answers.values())

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    def extended(
        self,
        answers: Iterable[StoredAnswer],
        without: Collection[int] = (),
        transfers: Collection[Transfer] = (),
    ) -> Table:
        """This table and some more, less the answers of these ids. This one stays as it is."""
        if without:
            kept = (stored for stored in self if stored.id not in without)
            return Table(self._device, chain(kept, answers), (*self.transfers, *transfers))
        table = Table(self._device, ())
        table._answers, table._near, table._evidence = self._answers.copy(), self._near.copy(), self._evidence
        table._add(answers, transfers)
        return table

    def _add(self, answers: Iterable[StoredAnswer], transfers: Collection[Transfer]) -> None:
        added: dict[str, list[StoredAnswer]] = {}
        for stored in answers:
            added.setdefault(stored.answer.problem.text, []).append(stored)
        near: dict[_Cell, list[_Place]] = {}
        for text, several in added.items():
            if text not in self._answers:
                problem = several[-1].answer.problem
                near.setdefault(_cell(problem), []).append((problem.sizes, problem.dtype, text))
            self._answers[text] = (*self._answers.get(text, ()), *several)
        for cell, places in near.items():
            self._near[cell] = (*self._near.get(cell, ()), *places)
        self._evidence = self._evidence.extended(chain.from_iterable(added.values()), transfers)

    def find(self, asked: Query, fits: Callable[[StoredAnswer], bool] = lambda stored: True) -> LookupResult:
        """The newest answer that is exactly what was asked for; else the best stale one, a neighbour's, or none.

        Args:
            fits: whether the config of another problem's answer is valid for this one.
        """
        stored = self._answers.get(asked.problem.text, ())
        if not stored:
            return self._missed(asked, fits)
        best = stored[0] if len(stored) == 1 else max(stored, key=lambda one: _preference(one, asked))
        reasons, recorded, exact = differences(best, asked), best.provenance.recorded, _exact(best, asked)
        if not _comparable(best, asked) or (asked.strict and not exact):
            nearest = self.nearest(asked.problem)
            return LookupResult(asked.problem, self._device, "none", None, reasons, recorded, nearest)
        return LookupResult(asked.problem, self._device, "exact" if exact else "stale", best, reasons, recorded)

    def _missed(self, asked: Query, fits: Callable[[StoredAnswer], bool]) -> LookupResult:
        near = None if asked.strict or not self.transfers else self._neighbour(asked)
        if near is not None and near.answer.kind == "tuned" and fits(near):
            neighbour = self._evidence.neighbour(near, asked.problem)
            if neighbour is not None:
                return LookupResult(asked.problem, self._device, "neighbour", near, neighbour=neighbour)
        return LookupResult(asked.problem, self._device, "none", nearest=self.nearest(asked.problem))

    def _neighbour(self, asked: Query) -> StoredAnswer | None:
        """The nearest exact answer within reach; of those as near the one of the largest problem, then by text."""
        best: tuple[tuple[float, int, str], StoredAnswer] | None = None
        for nearer, cells in self._rings(_cell(asked.problem)):
            if nearer > 2 or (best is not None and log2(nearer) > best[0][0]):
                break
            for _, _, text in chain.from_iterable(self._near[cell] for cell in cells):
                problem = self._answers[text][-1].answer.problem
                if not in_reach(problem, asked.problem):
                    continue
                place = (round(distance(problem, asked.problem), 9), -prod(problem.sizes), text)
                exact = [stored for stored in self._answers[text] if _exact(stored, asked)]
                if exact and (best is None or place < best[0]):
                    best = (place, max(exact, key=lambda stored: stored.id))
        return None if best is None else best[1]

    def nearest(self, problem: Problem) -> tuple[str, ...]:
        """Texts of the problems that are tuned and nearest to this one, three at most."""
        sizes, found, seen = problem.sizes, list[tuple[float, str]](), 0
        for nearer, cells in self._rings(_cell(problem)):
            if len(found) == _NEAREST and (found[-1][0] < nearer or seen > _FAR):
                break
            others = [other for cell in cells for other in self._near[cell]]
            if nearer > 2:
                others = others[:_FAR]
            seen += len(others)
            found += [
                (_distance(sizes, size) + (dtype != problem.dtype), text)
                for size, dtype, text in others
                if text != problem.text
            ]
            found = nsmallest(_NEAREST, found)
        return tuple(text for _, text in found)

    def _rings(self, middle: _Cell) -> Iterator[tuple[float, list[_Cell]]]:
        """Cells that hold problems, ring by ring, each with what no problem in it or further out is nearer than."""
        for ring in range(_RINGS):
            if (2 * ring + 1) ** len(middle) > len(self._near):
                break
            around = product(*(range(place - ring, place + ring + 1) for place in middle))
            yield (
                2 ** ((ring - 1) / _CELLS_AN_OCTAVE),
                [cell for cell in around if _apart(cell, middle) == ring and cell in self._near],
            )
        else:
            ring = _RINGS
        rest: dict[int, list[_Cell]] = {}
        for cell in self._near:
            if len(cell) == len(middle):  # its dims may have been others once
                rest.setdefault(_apart(cell, middle), []).append(cell)
        for further in sorted(rest):
            if further >= ring:
                yield 2 ** ((further - 1) / _CELLS_AN_OCTAVE), rest[further]


_Cell = tuple[int, ...]
_Place = tuple[tuple[int, ...], str, str]
"""A problem's sizes, dtype and text."""
_CELLS_AN_OCTAVE = 4
_RINGS = 4
"""So many are probed before all cells are looked through."""
_FAR = 2000
"""Of problems more than 2x off, no more are looked at: which of them is nearest helps nobody."""


def _cell(problem: Problem) -> _Cell:
    return tuple(floor(_CELLS_AN_OCTAVE * log2(size)) for size in problem.sizes)


def _apart(cell: _Cell, other: _Cell) -> int:
    return max(map(abs, map(sub, cell, other)), default=0)


def _distance(sizes: tuple[int, ...], others: tuple[int, ...]) -> float:
    """How many times one dim is the other's, of the dim where that is most."""
    return max([a / b if a > b else b / a for a, b in zip(sizes, others, strict=True)], default=1.0)


def device_asked(
    given: str | None, own: str | None, stored: Sequence[str], aliases: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Which device a question is about: the one it names, else the asker's own, else the only one with answers.

    Args:
        stored: ids of those with answers.
        aliases: other names of theirs.

    Raises:
        UnknownName: no card here and no answer is called so.
        UsageError: it names none, and there is not just one.
    """
    if given is not None:
        if given not in stored and given not in aliases and given != own:
            raise UnknownName(f"no device is called {given[:80]!r}; there are {', '.join(stored) or 'none'}")
        return aliases.get(given, given)
    if own is not None:
        return aliases.get(own, own)
    if len(stored) != 1:
        raise UsageError(f"device is missing; answers are stored for {', '.join(stored) or 'none'}")
    return stored[0]


def serving(several: Sequence[StoredAnswer]) -> StoredAnswer:
    """Of the answers to one problem on one device the one that serves whoever compares nothing."""
    return max(several, key=lambda stored: _preference(stored, Query(stored.answer.problem)))


def differences(stored: StoredAnswer, asked: Query) -> tuple[str, ...]:
    """The fields that were asked for and are others in this answer, and how."""
    provenance = stored.provenance
    fields = {
        "source": (provenance.source, asked.source),
        "triton": (provenance.environment.triton, asked.triton),
        "driver": (provenance.environment.driver, asked.driver),
        "ptxas": (provenance.environment.ptxas, asked.ptxas),
        "policy": (provenance.policy, asked.policy),
    }
    others = [
        f"{name}: tuned with {has or 'none'}, asked for {wants}"
        for name, (has, wants) in fields.items()
        if wants not in (None, has)
    ]
    if stored.answer.kind == IMPORTED:  # no question can have asked for what nobody measured
        others.append(f"imported: taken from {stored.taken_from}, not measured here")
    return tuple(others)


def replayed_from(space: str) -> str:
    """What to know of an answer that was found in a recorded space."""
    return f"recorded: replayed from {space}, not measured here"


def _exact(stored: StoredAnswer, asked: Query) -> bool:
    """Whether it was measured, and with all that was asked for."""
    return not differences(stored, asked) and stored.provenance.recorded is None


def _comparable(stored: StoredAnswer, asked: Query) -> bool:
    """Numbers of another policy are never compared, so an answer made with them is none."""
    return asked.policy in (None, stored.provenance.policy)


def _preference(stored: StoredAnswer, asked: Query) -> tuple[Any, ...]:
    """Exact before stale; measured, recorded, imported; same source; nearest Triton not newer than asked; newest."""
    provenance = stored.provenance
    return (
        _comparable(stored, asked),
        _exact(stored, asked),
        stored.answer.kind != IMPORTED,
        provenance.recorded is None,
        asked.source in (None, provenance.source),
        _triton_preference(provenance.environment.triton, asked.triton),
        stored.id,
    )


def _triton_preference(has: str, wants: str | None) -> tuple[bool, tuple[int, ...]]:
    """Not newer than asked: the higher the nearer. Newer: after all those, the lower the nearer."""
    if wants is None:
        return True, ()
    version = _version(has)
    if version <= _version(wants):
        return True, version
    return False, tuple(-part for part in version)


def _version(text: str) -> tuple[int, ...]:
    """Numbers up to what is no release: `3.7.0rc1` and `3.7.0+git` are (3, 7, 0)."""
    release = re.match(r"[0-9.]*", text)
    return tuple(int(part) for part in re.findall(r"[0-9]+", release[0] if release else ""))


def _round(value: float | None) -> float | None:
    """Four decimals: a tenth of a nanosecond, and what a ratio can be trusted to."""
    return None if value is None else round(value, 4)


def _rounds(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else [round(bound, 4) for bound in interval]
