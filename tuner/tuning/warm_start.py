"""What won near problems, out of the store for a search to try first; and what each of those configs lost there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.db.store import Store
from tuner.kernels.spec import Config, Problem, Signature
from tuner.lookup.neighbours import distance
from tuner.search.loop import Result
from tuner.tuning.target import Target
from tuner.tuning.winners import Winner, promising


def near_winners(store: Store, source: Target, signature: Signature, problem: Problem) -> dict[Config, Winner]:
    """What won near problems and can be tried here. Measured and replayed answers stay apart."""
    recorded = source.provenance.recorded is not None
    answers = [
        stored for stored in store.answers(op=problem.op) if (stored.provenance.recorded is not None) == recorded
    ]
    return promising(map(Winner.of, answers), signature, problem, source.provenance, set(source.space))


def lost_by(won: Mapping[Config, Winner], problem: Problem, result: Result) -> Iterator[tuple[int, float, float]]:
    """Of every winner that was measured: its answer, how far off that is, and how many times as long it takes here."""
    for config, winner in won.items():
        slowdown = result.slowdown(config)
        if winner.answer is not None and slowdown is not None:
            yield winner.answer, distance(winner.problem, problem), slowdown
