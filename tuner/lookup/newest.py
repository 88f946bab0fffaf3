"""The newest kernels and software that stored answers were measured with, which other answers are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.kernels.spec import Problem
from tuner.lookup.query import Query
from tuner.lookup.ranking import differences, release, replayed_from
from tuner.records import IMPORTED, Environment, Provenance, StoredAnswer


@dataclass(frozen=True)
class Newest:
    """The kernel of each op and the software of each card, by the answers that were measured on cards.

    An op has the source and the definition of its newest answer on any card. A card has the software of its newest
    answer among those with its highest Triton version.
    """

    kernels: Mapping[str, Provenance]
    """By op."""
    environments: Mapping[str, Environment]
    """By device id."""

    @staticmethod
    def of(answers: Iterable[StoredAnswer]) -> Newest:
        """Return the newest kernels and software of these answers. Recorded and imported ones do not count."""
        last: dict[tuple[str, int], StoredAnswer] = {}  # of each provenance, of which there are few
        for stored in answers:
            alike = (stored.answer.problem.op, id(stored.provenance))
            if stored.answer.kind != IMPORTED and (alike not in last or stored.id > last[alike].id):
                last[alike] = stored
        measured = [stored for stored in last.values() if stored.provenance.recorded is None]
        by_id = sorted(measured, key=lambda stored: stored.id)
        by_release = sorted(by_id, key=lambda stored: release(stored.provenance.environment.triton))
        return Newest(
            {stored.answer.problem.op: stored.provenance for stored in by_id},
            {stored.provenance.device.id: stored.provenance.environment for stored in by_release},
        )

    def query(self, problem: Problem, device: str) -> Query:
        """Return the query of a program with the newest kernel and software. What is not known is not compared."""
        kernel = self.kernels.get(problem.op)
        source, definition = (None, None) if kernel is None else (kernel.source, kernel.definition)
        environment = self.environments.get(device, Environment(""))
        return Query.for_environment(problem, environment, source, definition=definition)

    def stale(self, stored: StoredAnswer) -> tuple[str, ...]:
        """Return the reasons for which an answer is stale for that program, each as `field: sentence`."""
        provenance = stored.provenance
        found = differences(stored, self.query(stored.answer.problem, provenance.device.id))
        return found if provenance.recorded is None else (*found, replayed_from(provenance.recorded))
