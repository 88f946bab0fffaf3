"""Problems with an answer near one without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.api.view import View
from tuner.kernels.spec import Problem
from tuner.lookup.table import LookupResult


@dataclass(frozen=True)
class Near:
    """A problem with an answer, and the address of its page."""

    problem: Problem
    address: str


def nearest(found: LookupResult, view: View, links: Links) -> Iterator[Near]:
    """Yield the nearest problems that a lookup without an answer names."""
    table = view.table(found.problem.op, found.device)
    for text in found.nearest:
        problem = table.answers_to(text)[-1].answer.problem
        yield Near(problem, links.to("problem", **address_of(problem, found.device)))


def neighbour(found: LookupResult, links: Links) -> Near | None:
    """Return the problem whose answer serves in place of a missing one; None if there is none."""
    if found.neighbour is None:
        return None
    problem = found.neighbour.problem
    return Near(problem, links.to("problem", **address_of(problem, found.device)))
