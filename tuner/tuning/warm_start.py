"""Warm start: winners of near problems, which a search measures first, and their transfer losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.db.store import Store
from tuner.kernels.spec import Config, Problem
from tuner.lookup.neighbours import distance
from tuner.search import Result
from tuner.suites.suite import Entry
from tuner.tuning.target import Target
from tuner.tuning.winners import Winner, promising


def near_winners(store: Store, target: Target, entry: Entry) -> dict[Config, Winner]:
    """Return feasible configs that won near problems, the most promising first.

    A replay takes winners of replays alone, and a measured search measured ones.
    """
    recorded, problem = target.provenance.recorded is not None, entry.problem
    answers = [
        stored for stored in store.answers(op=problem.op) if (stored.provenance.recorded is not None) == recorded
    ]
    return promising(map(Winner.of, answers), target.signature_of(entry), problem, target.provenance, target.space)


def transfer_losses(
    winners: Mapping[Config, Winner], problem: Problem, result: Result
) -> Iterator[tuple[int, float, float]]:
    """Yield for each measured winner the id of its answer, its distance in octaves, and its slowdown here."""
    for config, winner in winners.items():
        slowdown = result.slowdown(config)
        if winner.answer is not None and slowdown is not None:
            yield winner.answer, distance(winner.problem, problem), slowdown
