"""Which winners of other problems are worth trying on this one."""

from __future__ import annotations

from dataclasses import replace

from helpers import A100
from stored import HERE, PROBLEM, SCALE, config

from tuner.kernels.spec import Config, Knob, Problem
from tuner.lookup.neighbours import distance
from tuner.records import Environment, Provenance
from tuner.tuning.winners import Winner, WinnerSettings, promising

SPACE = [config(block, num_warps=warps) for block in (64, 128, 256) for warps in (4, 8)]


def won(number: int, problem: Problem = PROBLEM, provenance: Provenance = HERE) -> Winner:
    return Winner(problem, provenance, SPACE[number], number)


def first(*winners: Winner, most: int = 4) -> list[int | None]:
    """The answers whose configs would be tried, in their order."""
    found = promising(winners, SCALE, PROBLEM, HERE, set(SPACE), WinnerSettings(most=most))
    return [winner.answer for winner in found.values()]


def test_distance_is_in_octaves_over_all_dims() -> None:
    def to(**values: object) -> float:
        return distance(PROBLEM, SCALE.problem(values))

    assert to(M=4096) == 0
    assert to(M=2048, N=4096) == to(M=8192, N=4096) == 1
    assert to(M=2048, N=8192) == 2**0.5
    other = replace(SCALE, dims=SCALE.dims[:1]).problem({"M": 4096})
    assert distance(PROBLEM, other) == float("inf")


def test_the_nearest_go_first_and_what_is_another_dtypes_cards_or_compilers_is_farther() -> None:
    older = replace(HERE, environment=Environment("3.5.0", "12.9"))
    winners = [
        won(5, sized(M=16384)),
        won(4, PROBLEM, replace(HERE, device=A100)),
        won(3, SCALE.problem({"M": 4096, "layout": "nt"})),
        won(2, PROBLEM, replace(HERE, source="ffff")),
        won(1, PROBLEM, older),
        won(0),
    ]
    assert first(*winners, most=9) == [0, 1, 2, 3, 4, 5]
    assert first(*winners) == [0, 1, 2, 3]
    assert first(won(0, SCALE.problem({"M": 4096, "dtype": "fp16"})), won(1, sized(M=2048))) == [1, 0]


def test_among_equals_the_newest_goes_first_and_no_config_goes_twice() -> None:
    assert first(won(2), won(1), won(3)) == [3, 2, 1]
    same = [replace(won(1), answer=answer) for answer in (7, 9, 8)]
    assert first(*same) == [9]


def test_what_is_far_or_cannot_be_tried_here_is_left_out() -> None:
    assert first(won(0, SCALE.problem({"M": 128}))) == []
    infeasible = Winner(PROBLEM, HERE, config(64, num_warps=16), 1)
    strange = Winner(PROBLEM, HERE, Config({"TILE": 3}, "TILE=3"), 2)
    assert first(infeasible, strange, won(3)) == [3]


def test_a_config_from_before_a_knob_was_added_is_tried_with_the_knobs_default() -> None:
    today = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2), default=1)))
    space = {today.config({**SPACE[0], "SPLIT": split}) for split in (1, 2)}
    (found,) = promising([won(0)], today, PROBLEM, HERE, space)
    assert found == today.config({**SPACE[0], "SPLIT": 1})


def sized(**sizes: int) -> Problem:
    return SCALE.problem({"M": 4096, "N": 4096, **sizes})
