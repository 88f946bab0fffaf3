"""Feasible configs, kept as numbers: the same configs in the same order as the rules give, in little memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import A100, H200, toy

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Knob, Limits, Problem
from tuner.search.proposer import Proposer
from tuner.search.space import FeasibleSpace, ListedSpace, Unseen, as_space, common, feasible

DOUBLE = catalog.resolve(toy("double"))
PROBLEM = DOUBLE.signature.problem({"N": 300})
MAX_MB = 150
"""Memory that a space of a million combinations may take, in MB."""


def odd(problem: Problem, config: Any, limits: Limits) -> bool:
    return bool(config["NAME"] != "b" or config["num_warps"] > 1)


def with_knobs(*knobs: Knob, **fields: Any) -> Kernel:
    return replace(DOUBLE, signature=replace(DOUBLE.signature, knobs=(*DOUBLE.signature.knobs, *knobs)), **fields)


NAMED = with_knobs(
    Knob("NAME", ("b", "a c", None, "c"), default="b"),
    valid=odd,
    parts=({"num_warps": (1, 2)}, {"num_warps": (4,), "NAME": ("c", "a c")}),
)


def spaces() -> Iterator[tuple[str, Kernel, Problem, Limits]]:
    yield "parts", NAMED, PROBLEM, H200.limits
    yield "overlap", replace(NAMED, parts=({"NAME": ("b", "c")}, {"NAME": ("c", None)})), PROBLEM, H200.limits
    for op, values in (
        ("gemm", {"M": 1311, "N": 4352, "K": 127}),
        ("softmax", {"M": 3, "N": 1025}),
        ("transpose", {"M": 129, "N": 127}),
    ):
        kernel = catalog.load(op)
        yield op, kernel, kernel.signature.problem(values), A100.limits


@pytest.mark.parametrize(("name", "kernel", "problem", "limits"), [pytest.param(*of, id=of[0]) for of in spaces()])
def test_a_space_is_the_feasible_configs(name: str, kernel: Kernel, problem: Problem, limits: Limits) -> None:
    space = FeasibleSpace.of(kernel, problem, limits)
    expected = list(dict.fromkeys(feasible(kernel, problem, limits))) if name == "overlap" else None
    expected = expected or list(feasible(kernel, problem, limits))
    assert [config.text for config in space] == [config.text for config in expected]
    assert [list(config.items()) for config in space] == [list(config.items()) for config in expected]
    assert len(space) == len(expected)
    for place in Random(0).sample(range(len(space)), min(200, len(space))):
        assert space[place].text == expected[place].text
        assert space.index(expected[place]) == place
        assert space[place - len(space)] == expected[place]
    for knob in expected[0]:
        assert list(space.column(knob)) == [config[knob] for config in expected]


def every_combination(kernel: Kernel, problem: Problem, limits: Limits) -> list[str]:
    """Return the texts of the feasible configs, each combination asked on its own."""
    signature = kernel.signature
    names = [knob.name for knob in signature.knobs]
    parts = [[part.get(knob.name, knob.choices) for knob in signature.knobs] for part in kernel.parts]
    configs = (dict(zip(names, choice, strict=True)) for part in parts for choice in product(*part))
    return [signature.config(config).text for config in configs if kernel.valid(problem, config, limits)]


def of_the_last(problem: Problem, config: Any, limits: Limits) -> bool:
    return bool(config["LAST"] != 3)


def of_the_first(problem: Problem, config: Any, limits: Limits) -> bool:
    return bool(config["BLOCK"] < 512)


def of_a_copy(problem: Problem, config: Any, limits: Limits) -> bool:
    return bool({**config, "BLOCK": 1}["num_warps"] != 2)


def of_the_items(problem: Problem, config: Any, limits: Limits) -> bool:
    return all(value != 4 or name != "num_warps" for name, value in config.items())


def one_by_one(problem: Problem, config: Any, limits: Limits) -> bool:
    if config["BLOCK"] == 128:
        return bool(config.get("LAST", 1) == 2)
    return "none" not in config


def never(problem: Problem, config: Any, limits: Limits) -> bool:
    return False


@pytest.mark.parametrize(
    "rules",
    [
        (of_the_last,),
        (of_the_first,),
        (of_the_last, of_the_first),
        (of_a_copy,),
        (of_the_items, of_the_first),
        (one_by_one,),
        (never,),
        (of_the_first, odd),
    ],
    ids=lambda rules: " ".join(rule.__name__ for rule in rules),
)
def test_what_is_passed_over_is_not_feasible(rules: tuple[Any, ...]) -> None:
    kernel = with_knobs(Knob("NAME", ("b", "c"), default="b"), Knob("LAST", (1, 2, 3)), valid=rules)
    assert [config.text for config in FeasibleSpace.of(kernel, PROBLEM, H200.limits)] == every_combination(
        kernel, PROBLEM, H200.limits
    )


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("gemm", {"M": 1311, "N": 4352, "K": 129, "layout": "tn"}),
        ("scaled_gemm", {"M": 24, "N": 1048, "K": 4112}),
        ("softmax", {"M": 3, "N": 1025}),
        ("max_pool2d", {"B": 2, "C": 17, "H": 9, "W": 30, "R": 3, "S": 3}),
    ],
)
def test_the_rules_of_an_op_are_asked_for_few_combinations(op: str, values: Mapping[str, int]) -> None:
    kernel, asked = catalog.load(op), 0
    problem = kernel.signature.problem(values)

    def counted(problem: Problem, config: Any, limits: Limits) -> bool:
        nonlocal asked
        asked += 1
        return True

    stated = kernel.valid.stated if isinstance(kernel.valid.stated, tuple) else (kernel.valid.stated,)
    found = FeasibleSpace.of(replace(kernel, valid=(counted, *stated)), problem, H200.limits)
    assert [config.text for config in found] == every_combination(kernel, problem, H200.limits)
    combinations = sum(
        prod(len(part.get(knob.name, knob.choices)) for knob in kernel.signature.knobs) for part in kernel.parts
    )
    assert asked < (0.15 if op in ("gemm", "scaled_gemm") else 1) * combinations


def test_a_config_that_is_not_feasible_is_not_in_the_space() -> None:
    space = FeasibleSpace.of(NAMED, PROBLEM, H200.limits)
    config = space[0]
    others: tuple[dict[str, Any], ...] = ({"NAME": "d"}, {"NAME": False}, {"num_warps": 64}, {"BLOCK": 3}, {"MORE": 1})
    for changes in others:
        assert Config({**config, **changes}, "") not in space
    assert Config({name: value for name, value in config.items() if name != "NAME"}, "") not in space
    assert Config({**config, "num_warps": 1, "NAME": "b"}, "") not in space
    with pytest.raises(ValueError, match="is not in the space"):
        space.index(Config({**config, "NAME": "d"}, ""))
    with pytest.raises(IndexError, match=f"a space of {len(space)} configs has no index {len(space)}"):
        space[len(space)]
    assert space[-2:] == [space[len(space) - 2], space[len(space) - 1]]


def test_what_was_taken_is_not_unseen() -> None:
    space = FeasibleSpace.of(NAMED, PROBLEM, H200.limits)
    unseen = Unseen(space)
    for place in (0, 1, 3):
        assert unseen.take(Config(dict(space[place]), "")) == space[place]
        assert unseen.take(space[place]) is None
    assert list(unseen) == [space[2], *space[4:]]
    assert len(unseen) == len(space) - 3
    assert space[0] not in unseen
    assert space[2] in unseen
    for config in space:
        unseen.take(config)
    assert not unseen
    assert list(unseen) == []


def test_common_configs_have_the_order_of_the_first_space() -> None:
    first = FeasibleSpace.of(NAMED, PROBLEM, H200.limits)
    listed = ListedSpace([*reversed(first[::3])])
    assert list(common([first, listed])) == first[::3]
    assert list(common([listed, first])) == [*reversed(first[::3])]
    assert as_space(first) is first


@pytest.mark.parametrize("sampler", ["gp", "random", "grid", "tpe"])
def test_a_proposer_of_a_space_proposes_as_one_of_a_list(sampler: str) -> None:
    space = FeasibleSpace.of(NAMED, PROBLEM, H200.limits)
    numbers, configs = (Proposer(of, sampler, 3) for of in (space, list(space)))
    assert [numbers.ask() for _ in range(7)] == [configs.ask() for _ in range(7)]


def test_a_million_combinations_take_little_memory() -> None:
    """A list of the configs takes more than 400 MB."""
    program = """
import os, sys, time
from test_feasible_space import PROBLEM, H200, Knob, with_knobs
from tuner.search.proposer import Proposer
from tuner.search.space import FeasibleSpace
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
choices = tuple(range(1, 1 + 32))
kernel = with_knobs(*(Knob(name, choices, default=1) for name in ("X", "Y", "Z")), valid=lambda *of: of[1]["X"] != 3)
before, started = peak(), time.process_time()
space = FeasibleSpace.of(kernel, PROBLEM, H200.limits)
enumerated, seconds = peak(), time.process_time() - started
for sampler in sys.argv[1:]:
    if os.fork() == 0:
        forked = peak()
        proposer = Proposer(space, sampler, 0)
        assert all(proposer.ask() in space for _ in range(3))
        searched = enumerated + peak() - forked
        print(len(space), (enumerated - before) / 1024, (searched - before) / 1024, seconds)
        sys.exit()
    assert os.wait()[1] == 0
"""
    here = Path(__file__).parent
    samplers = ("gp", "random", "grid", "tpe")
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *samplers],
        env={"PYTHONPATH": f"{here}:{here.parent}:{here.parents[1]}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(samplers)
    for line in lines:
        configs, enumerated, searched, seconds = map(float, line.split())
        assert configs > 900_000
        assert enumerated < MAX_MB
        assert searched < MAX_MB
        assert seconds < 60
