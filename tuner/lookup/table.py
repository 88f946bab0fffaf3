"""The answers of one op on one device, and the result of a lookup. Standard library only.

A result that differs from the query states the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import log2, prod
from shlex import quote
from typing import Any

from tuner.kernels.spec import Problem
from tuner.lookup.grid import ProblemGrid
from tuner.lookup.neighbours import Neighbour, TransferLosses, distance, in_reach
from tuner.lookup.query import Query
from tuner.lookup.ranking import (
    differences,
    is_exact,
    is_verified,
    preference,
    replayed_from,
    same_policy,
    unverified,
)
from tuner.records import StoredAnswer, Transfer
from tuner.records.answer import ROLLBACK
from tuner.records.document import answer_document, unmeasured
from tuner.records.signatures import lacks_choices


@dataclass(frozen=True)
class LookupResult:
    """The result of a lookup.

    `match` is `exact`; `stale`, with the reasons; `neighbour`, another problem's answer with its expected loss; or
    `none`, with the nearest problems that have an answer, and the reasons if an answer was refused.
    """

    problem: Problem
    device: str
    """Id under which the device's answers are stored."""
    match: str
    stored: StoredAnswer | None = None
    differences: tuple[str, ...] = ()
    """A sentence for each compared field in which the answer differs from the query."""
    recorded: str | None = None
    """Name of the recorded space that the answer was replayed from."""
    nearest: tuple[str, ...] = ()
    """Texts of the nearest problems with an answer."""
    neighbour: Neighbour | None = None
    reference: str = ""
    """Name of the kernel on the command line, such as the path of its file; empty: its op."""
    alias: str | None = None
    """Name of the device in the query, if its answers are stored under another name of the same card."""
    captured: bool = False
    """True if the problem is that of captured calls."""
    without_kernel: bool = False
    """True if all answers of the op are imported, and no kernel of it is known: a search needs a kernel file."""

    @property
    def stale(self) -> tuple[str, ...]:
        """Differences between the answer and the query, which make it stale."""
        if self.recorded is None:
            return self.differences
        return (*self.differences, replayed_from(self.recorded))

    @property
    def command(self) -> str:
        """The command that tunes the problem."""
        if self.captured:
            return f"tuner search --captured {quote(self.problem.op)}"
        reference = self.reference or self.problem.op
        if self.without_kernel and not reference.endswith(".py"):
            reference = "FILE.py"
        return f"tuner search {quote(reference)} {self._options}"

    @property
    def why_command(self) -> str:
        """The command that prints the query of a program here, compared with the stored answers, as JSON."""
        return f"tuner why {quote(self.problem.op)} {self._options} --json"

    @property
    def _options(self) -> str:
        return " ".join(f"--{name} {quote(str(value))}" for name, value in self.problem.stated.items())

    @property
    def reason(self) -> str:
        """Reason for a match of `none`."""
        if self.stale:
            return f"the answer for {self.problem.text} on {self.device} is refused: {'; '.join(self.stale)}"
        return f"no answer is stored for {self.problem.text} on {self.device}"

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """Return the document of the service and of the commands' `--json`."""
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
        stored = self.stored
        if self.neighbour is not None:
            stored = replace(stored, answer=unmeasured(stored.answer))
        document = answer_document(stored)
        return {
            **head,
            "config": document.pop("config"),
            "match": self.match,
            "neighbour": self.neighbour and self.neighbour.as_json(),
            **document,
            "stale": list(self.stale),
            "tuned_at": stored.created_at,
            "snapshot": snapshot,
        }


class Table:
    """The answers of one op on one device, with the transfer losses measured between them.

    Without transfer losses an answer serves its own problem only.
    """

    def __init__(self, device: str, answers: Iterable[StoredAnswer], transfers: Collection[Transfer] = ()) -> None:
        self._device, self._losses, self._grid = device, TransferLosses(), ProblemGrid()
        self._answers: dict[str, tuple[StoredAnswer, ...]] = {}
        self._captured = self._has_kernel = False
        self._add(answers, transfers)

    @property
    def transfers(self) -> Sequence[Transfer]:
        """Measured transfer losses, the oldest first."""
        return self._losses.transfers

    def __iter__(self) -> Iterator[StoredAnswer]:
        return chain.from_iterable(self._answers.values())

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    def answers_to(self, problem: str) -> Sequence[StoredAnswer]:
        """Return the answers to a problem, by its text, the oldest first."""
        return self._answers.get(problem, ())

    def extended(self, answers: Iterable[StoredAnswer], transfers: Collection[Transfer] = ()) -> Table:
        """Return this table with further answers and transfer losses. This table does not change."""
        table = Table(self._device, ())
        table._answers, table._grid, table._losses = self._answers.copy(), self._grid, self._losses
        table._captured, table._has_kernel = self._captured, self._has_kernel
        table._add(answers, transfers)
        return table

    def without(self, ids: Collection[int]) -> Table:
        """Return this table without the answers of these ids; the table itself if it has none of them."""
        kept = [stored for stored in self if stored.id not in ids]
        return self if len(kept) == len(self) else Table(self._device, kept, self.transfers)

    def _add(self, answers: Iterable[StoredAnswer], transfers: Collection[Transfer]) -> None:
        added: dict[str, list[StoredAnswer]] = {}
        for stored in answers:
            added.setdefault(stored.answer.problem.text, []).append(stored)
            signature = stored.signature
            self._captured = self._captured or (signature is not None and signature.captured)
            self._has_kernel = self._has_kernel or signature is None or not lacks_choices(signature)
        new = [several[-1].answer.problem for text, several in added.items() if text not in self._answers]
        for text, several in added.items():
            self._answers[text] = (*self._answers.get(text, ()), *several)
        self._grid = self._grid.extended(new)
        self._losses = self._losses.extended(chain.from_iterable(added.values()), transfers)

    def find(
        self,
        query: Query,
        fits: Callable[[StoredAnswer], bool] = lambda stored: True,
        refused: Callable[[StoredAnswer], str] | None = None,
    ) -> LookupResult:
        """Return the newest exact answer; else the best stale one, a neighbour's, or none.

        Args:
            fits: returns whether the config of another problem's answer is valid for the query's problem.
            refused: returns the reason for which an answer may not serve at all, or an empty text.
        """
        found = self._find(query, fits, refused)
        if self._has_kernel and not self._captured:
            return found
        return replace(found, captured=self._captured, without_kernel=bool(self._answers) and not self._has_kernel)

    def served(
        self, query: Query, refused: Callable[[StoredAnswer], str] | None = None
    ) -> Iterator[tuple[StoredAnswer, bool]]:
        """Yield the answer that each problem's own query returns, and whether it is exact.

        Many times faster than `find` for each problem, since answers that were measured alike are compared once.

        Args:
            query: fields that answers are compared in; its problem does not matter.
            refused: as for `find`.
        """
        exact: dict[tuple[int, str], bool] = {}
        for several in self._answers.values():
            stored = several if refused is None else [one for one in several if not refused(one)]
            if not stored:
                continue
            best = stored[0] if len(stored) == 1 else max(stored, key=lambda one: preference(one, query))
            if not same_policy(best, query):
                continue
            alike = (id(best.provenance), best.answer.kind)
            if alike not in exact:
                exact[alike] = is_exact(best, query)
            yield best, exact[alike]

    def _find(
        self, query: Query, fits: Callable[[StoredAnswer], bool], refused: Callable[[StoredAnswer], str] | None
    ) -> LookupResult:
        stored = self.answers_to(query.problem.text)
        if stored and refused is not None and any(refusals := [refused(one) for one in stored]):
            stored = [one for one, refusal in zip(stored, refusals, strict=True) if not refusal]
            if not stored:
                missed = self._missed(query, fits)
                return missed if missed.stored is not None else replace(missed, differences=(refusals[-1],))
        if not stored:
            return self._missed(query, fits)
        best = stored[0] if len(stored) == 1 else max(stored, key=lambda one: preference(one, query))
        reasons, recorded, exact = differences(best, query), best.provenance.recorded, is_exact(best, query)
        if query.strict and not is_verified(best):
            reasons, exact = (*reasons, unverified()), False
        if not same_policy(best, query) or (query.strict and not exact):
            nearest = self.nearest(query.problem)
            return LookupResult(query.problem, self._device, "none", None, reasons, recorded, nearest)
        return LookupResult(query.problem, self._device, "exact" if exact else "stale", best, reasons, recorded)

    def neighbour(self, query: Query, fits: Callable[[StoredAnswer], bool]) -> LookupResult | None:
        """Return the result with another problem's answer, as `find` does without an own one; None if none serves."""
        near = None if query.strict or not self.transfers else self._neighbour(query)
        if near is not None and near.answer.kind in ("tuned", ROLLBACK) and fits(near):
            neighbour = self._losses.neighbour(near, query.problem)
            if neighbour is not None:
                return LookupResult(query.problem, self._device, "neighbour", near, neighbour=neighbour)
        return None

    def _missed(self, query: Query, fits: Callable[[StoredAnswer], bool]) -> LookupResult:
        found = self.neighbour(query, fits)
        return found or LookupResult(query.problem, self._device, "none", nearest=self.nearest(query.problem))

    def _neighbour(self, query: Query) -> StoredAnswer | None:
        """Return the nearest exact answer within reach; at one distance that of the largest problem, then by text."""
        best: tuple[tuple[float, int, str], StoredAnswer] | None = None
        for bound, texts in self._grid.around(query.problem):
            if bound > 2 or (best is not None and log2(bound) > best[0][0]):
                break
            for text in texts:
                problem = self._answers[text][-1].answer.problem
                if not in_reach(problem, query.problem):
                    continue
                place = (round(distance(problem, query.problem), 9), -prod(problem.sizes), text)
                exact = [stored for stored in self._answers[text] if is_exact(stored, query)]
                if exact and (best is None or place < best[0]):
                    best = (place, max(exact, key=lambda stored: stored.id))
        return None if best is None else best[1]

    def nearest(self, problem: Problem) -> tuple[str, ...]:
        """Return the texts of the nearest problems with an answer, three at most."""
        return self._grid.nearest(problem)
