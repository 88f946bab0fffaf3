"""Constraints of a kernel: each is named with file and line, and the card's threads count too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from helpers import H200, toy

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.spec import Config, Kernel, Knob, Limits, Problem
from tuner.search.refusals import none_feasible, refusal, refusals
from tuner.search.space import feasible

DOUBLE = catalog.resolve(toy("double"))
PROBLEM = DOUBLE.signature.problem({"N": 300})
HERE = __file__


def block_fits(problem: Problem, config: Any, limits: Limits) -> bool:
    """Return whether the block fits the row."""
    return bool(config["BLOCK"] <= 256)


def few_warps(problem: Problem, config: Any, limits: Limits) -> bool | str:
    return config["num_warps"] <= 2 or f"{config['num_warps']} warps are too many"


def line_of(function: Callable[..., object]) -> int:
    return function.__code__.co_firstlineno


def with_rules(*rules: Any, **fields: Any) -> Kernel:
    return replace(DOUBLE, valid=rules[0] if len(rules) == 1 else rules, **fields)


def test_several_functions_may_state_the_rules() -> None:
    kernel = with_rules(block_fits, few_warps)
    space = list(feasible(kernel, PROBLEM, H200.limits))
    assert space
    assert all(config["BLOCK"] <= 256 and config["num_warps"] <= 2 for config in space)
    assert {config["num_warps"] for config in feasible(DOUBLE, PROBLEM, H200.limits)} > {1, 2}


def test_a_rule_is_named_with_its_place_and_what_it_says() -> None:
    kernel = with_rules(block_fits, few_warps)
    big = kernel.signature.config({"BLOCK": 1024, "num_warps": 4, "num_stages": 1})
    assert refusal(kernel, PROBLEM, big, H200.limits) == (
        f"refused by block_fits ({HERE} line {line_of(block_fits) + 2}): BLOCK <= 256 is false (1,024 <= 256)"
    )
    small = kernel.signature.config({"BLOCK": 256, "num_warps": 4, "num_stages": 1})
    assert refusal(kernel, PROBLEM, small, H200.limits) == (
        f"refused by few_warps ({HERE} line {line_of(few_warps)}): 4 warps are too many"
    )


def test_a_text_refuses_and_does_not_pass_for_true() -> None:
    kernel = with_rules(lambda problem, config, limits: "not here")
    assert not kernel.valid(PROBLEM, {"BLOCK": 256, "num_warps": 4, "num_stages": 1}, H200.limits)


def test_a_lambda_goes_by_the_name_of_its_field() -> None:
    kernel = with_rules(lambda problem, config, limits: False)
    config = kernel.default_config(PROBLEM, H200.limits)
    assert refusal(kernel, PROBLEM, config, H200.limits).startswith(f"refused by valid ({HERE} line ")


def test_more_threads_than_a_block_has_are_refused_by_the_card() -> None:
    knobs = (Knob("BLOCK", (256,)), Knob("num_warps", (4, 64)), Knob("num_stages", (1,)))
    kernel = replace(DOUBLE, signature=replace(DOUBLE.signature, knobs=knobs))
    assert [config["num_warps"] for config in feasible(kernel, PROBLEM, H200.limits)] == [4]
    large = kernel.signature.config({"BLOCK": 256, "num_warps": 64, "num_stages": 1})
    assert refusal(kernel, PROBLEM, large, H200.limits) == (
        "refused by the card: 2,048 threads needed, a block has 1,024"
    )


def test_an_empty_space_counts_what_each_constraint_refuses() -> None:
    knobs = (Knob("BLOCK", (256, 512)), Knob("num_warps", (2, 4, 64)), Knob("num_stages", (1,)))
    signature = replace(DOUBLE.signature, knobs=knobs)
    kernel = with_rules(block_fits, few_warps, lambda problem, config, limits: False, signature=signature)
    counts = refusals(kernel, PROBLEM, H200.limits)
    assert sorted(counts.values()) == [1, 1, 2, 2]
    text = none_feasible(kernel, PROBLEM, "a card", H200.limits)
    assert text.startswith("no config of double is feasible for double N=300 dtype=fp32 on a card: 2 refused by ")
    place = f"{HERE} line {line_of(block_fits) + 2}"
    assert f"2 refused by block_fits ({place}): BLOCK <= 256 is false (512 <= 256)" in text
    assert "2 refused by the card: 2,048 threads needed, a block has 1,024" in text
    assert f"1 refused by few_warps ({HERE} line {line_of(few_warps)}): 4 warps are too many" in text
    assert text.endswith("; change the problem, the card or the constraints")
    assert "\n" not in text


def test_a_condition_is_counted_once_with_one_of_its_values_as_an_example() -> None:
    signature = replace(DOUBLE.signature, knobs=(Knob("BLOCK", (512, 1024, 2048)), *DOUBLE.signature.knobs[1:]))
    kernel = with_rules(block_fits, signature=signature)
    combinations = prod(len(knob.choices) for knob in signature.knobs)
    text = none_feasible(kernel, PROBLEM, "a card", H200.limits)
    assert f"on a card: {combinations} refused by block_fits (" in text
    assert "BLOCK <= 256 is false (for example 512 <= 256);" in text
    sampled = none_feasible(kernel, PROBLEM, "a card", H200.limits, most=combinations // 3)
    assert f"on a card: about {combinations} refused by block_fits (" in sampled


def test_a_config_of_no_part_is_not_refused_by_a_rule() -> None:
    kernel = replace(DOUBLE, parts=({"BLOCK": (256,)},))
    config = kernel.signature.config({"BLOCK": 512, "num_warps": 4, "num_stages": 1})
    assert refusal(kernel, PROBLEM, config, H200.limits) == "in none of the kernel's parts"


def test_a_config_of_an_older_kernel_is_not_given_to_a_rule() -> None:
    config = DOUBLE.signature.config({"BLOCK": 512, "num_warps": 4, "num_stages": 1})
    older = Config({name: value for name, value in config.items() if name != "BLOCK"}, "")
    assert refusal(with_rules(block_fits), PROBLEM, older, H200.limits) == ("the config lacks the knob BLOCK")


@pytest.mark.parametrize(
    ("valid", "message"),
    [
        ((), r"double: valid has at least one function, not \(\); leave it out to try all configs"),
        ((block_fits, 3), "double: valid is a function, not 3; define it"),
        (True, "double: valid is a function, not True; define it"),
    ],
)
def test_refusals_of_the_field(valid: Any, message: str) -> None:
    with pytest.raises(KernelFault, match=f"^{message}$"):
        replace(DOUBLE, valid=valid)


def test_a_rule_that_raises_is_named() -> None:
    kernel = with_rules(block_fits, lambda problem, config, limits: config["TILE"])
    with pytest.raises(KernelFault, match=r"test_rules.py line \d+: valid raises KeyError: 'TILE'"):
        list(feasible(kernel, PROBLEM, H200.limits))


def test_replacing_a_field_keeps_the_rules() -> None:
    kernel = with_rules(block_fits, few_warps)
    assert replace(kernel, exact=True).valid == kernel.valid
    assert kernel.valid != DOUBLE.valid
