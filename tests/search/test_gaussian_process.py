"""The model behind the default sampler: what it knows of configs it has not seen, and that its work is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf, log
from time import process_time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tuner.kernels.spec import Value
from tuner.search.gaussian_process import GaussianProcess

SIZES = (8, 6, 5, 5, 5, 3)
GRID = list(product(*(range(1, 1 + size) for size in SIZES)))


def _far(config: tuple[Value, ...]) -> float:
    return log(1 + sum((float(value) - 2.3) ** 2 for value in config))


def _run(model: GaussianProcess, space: Sequence[tuple[Value, ...]], trials: int, on_the_way: int = 8) -> list[int]:
    asked: list[int] = []
    for told in range(-on_the_way, trials):
        if told >= 0:
            model.tell(asked[told], _far(space[asked[told]]))
        if len(asked) < trials:
            asked.append(model.propose())
            model.start(asked[-1])
    return asked


def test_nothing_is_proposed_twice_until_nothing_is_left() -> None:
    space = list(product((1, 2, 4), (1, 2, 3), (True, False)))
    model = GaussianProcess(zip(*space, strict=True), seed=0)
    assert sorted(_run(model, space, len(space))) == list(range(len(space)))


def test_the_best_of_18000_is_found_within_60() -> None:
    best = GRID.index((2, 2, 2, 2, 2, 2))
    assert best in _run(GaussianProcess(zip(*GRID, strict=True), seed=0), GRID, 60)


def test_a_batch_spreads() -> None:
    """With nothing told between them, sixteen proposals try most choices of every knob."""
    model = GaussianProcess(zip(*GRID, strict=True), seed=0)
    for number in np.random.default_rng(0).choice(len(GRID), 12, replace=False).tolist():
        model.tell(number, _far(GRID[number]))
    batch = []
    for _ in range(16):
        batch.append(GRID[model.propose()])
        model.start(GRID.index(batch[-1]))
    assert len(set(batch)) == 16
    assert sum(len(set(column)) for column in zip(*batch, strict=True)) >= sum(SIZES) / 2


def test_strings_have_no_order() -> None:
    """Only "b" is fast. In an order, it would lie between the slow ones."""
    space = list(product(("a", "b", "c"), range(6)))
    model = GaussianProcess(zip(*space, strict=True), seed=0)
    for number, (letter, size) in enumerate(space):
        if size < 3:
            model.tell(number, 0.0 if letter == "b" else 1.0)
    proposed = []
    for _ in range(3):
        proposed.append(space[model.propose()])
        model.start(space.index(proposed[-1]))
    assert {letter for letter, _ in proposed} == {"b"}


@pytest.mark.parametrize("told", [inf, 0.0])
def test_all_the_same_is_no_obstacle(told: float) -> None:
    """All fail, or all are as fast."""
    model = GaussianProcess(zip(*GRID, strict=True), seed=0)
    for _ in range(40):
        config = model.propose()
        model.start(config)
        model.tell(config, told)


def test_hope_goes_when_the_best_is_found_and_not_while_nothing_is_known() -> None:
    model = GaussianProcess(zip(*GRID, strict=True), seed=0)
    assert model.improvement_probability == 1.0
    asked = _run(model, GRID, 40)
    assert GRID.index((2, 2, 2, 2, 2, 2)) in asked
    while model.improvement_probability > 0.02:
        asked.append(model.propose())
        model.start(asked[-1])
        model.tell(asked[-1], _far(GRID[asked[-1]]))
        assert len(asked) < 150
    failing = GaussianProcess(zip(*GRID, strict=True), seed=0)
    for _ in range(60):
        config = failing.propose()
        failing.start(config)
        failing.tell(config, inf)
    assert failing.improvement_probability > 0.3


def _until_sure(space: Sequence[tuple[Value, ...]], min_improvement_probability: float) -> list[tuple[Value, ...]]:
    """What is taken until the chance of anything better is below 0.02."""
    model = GaussianProcess(zip(*space, strict=True), seed=0, min_improvement_probability=min_improvement_probability)
    taken: list[int] = []
    while model.improvement_probability >= 0.02:
        taken.append(model.propose())
        model.start(taken[-1])
        model.tell(taken[-1], _far(space[taken[-1]]))
        assert len(taken) < 190
    return [space[number] for number in taken]


def _least_taken(space: Sequence[tuple[Value, ...]], taken: Sequence[tuple[Value, ...]]) -> int:
    """How often the choice was that was taken least."""
    knobs = range(len(space[0]))
    return min(sum(config[knob] == choice for config in taken) for knob in knobs for choice in {c[knob] for c in space})


def test_before_hope_goes_every_choice_of_a_knob_has_its_turn() -> None:
    assert _least_taken(GRID, _until_sure(GRID, min_improvement_probability=0.0)) < 3
    assert _least_taken(GRID, _until_sure(GRID, min_improvement_probability=0.02)) == 3


def test_a_neglected_choice_that_surprises_gives_hope_again() -> None:
    model = GaussianProcess(zip(*GRID, strict=True), seed=0, min_improvement_probability=0.02)
    best = inf
    on_the_way: list[int] = []
    while model.improvement_probability >= 0.02:
        on_the_way.append(model.propose())
        model.start(on_the_way[-1])
        if len(on_the_way) > 8:
            best = min(best, _far(GRID[told := on_the_way.pop(0)]))
            model.tell(told, _far(GRID[told]))
    turn = on_the_way.pop(-2)  # the last that was taken for its choice, before it was seen that none is left
    for number in on_the_way:
        best = min(best, _far(GRID[number]))
        model.tell(number, _far(GRID[number]))
    assert model.improvement_probability < 0.02
    model.tell(turn, best - 0.1)
    assert model.improvement_probability == 1.0


def test_a_choice_that_few_of_many_configs_have_is_not_overlooked() -> None:
    """Of 18,003 it looks at some 2,000 at a time; and what there are but two of is taken twice."""
    few: list[tuple[Value, ...]] = [(99, *config[1:]) for config in GRID[-3:]]
    seldom: list[tuple[Value, ...]] = [(1, 99, *config[2:]) for config in GRID[:2]]
    taken = _until_sure([*GRID, *few, *seldom], min_improvement_probability=0.02)
    assert {*few, *seldom} <= {*taken}


def test_a_knob_of_many_choices_does_not_keep_hope_alive() -> None:
    """Each of a hundred thrice would take longer than anybody waits."""
    space: list[tuple[Value, ...]] = list(product(range(100), range(6)))
    assert len(_until_sure(space, min_improvement_probability=0.02)) < 100


def test_two_told_the_same_propose_the_same() -> None:
    first, second, third = (_run(GaussianProcess(zip(*GRID, strict=True), seed), GRID, 40) for seed in (1, 1, 2))
    assert first == second
    assert first != third


def test_it_leaves_the_cores_to_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thread a core, each of its calls would wait until every thread had one."""
    seen: set[int] = set()
    inverse = np.linalg.inv

    def watched(matrix: Any) -> Any:
        seen.update(one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"])
        return inverse(matrix)

    monkeypatch.setattr(np.linalg, "inv", watched)
    with threadpool_limits(limits=3, user_api="blas"):
        _run(GaussianProcess(zip(*GRID, strict=True), seed=0), GRID, 20)
    assert seen == {1}


def test_work_and_memory_stay_flat() -> None:
    """Of 4,000 trials the last thousand takes no longer than the second, and the matrices stay as they are."""

    def growth() -> float:
        model = GaussianProcess(zip(*GRID, strict=True), seed=0)
        seconds = []
        for _ in range(4):
            started = process_time()
            for _ in range(1000):
                config = model.propose()
                model.start(config)
                model.tell(config, _far(GRID[config]))
            seconds.append(process_time() - started)
        assert max(np.size(value) for value in vars(model._posterior).values()) < 500_000
        return seconds[3] / seconds[1]

    assert any(growth() < 1.5 for _ in range(3))  # others have the cores at times; work that grows gives 2.3
