"""The condition that decides against a config, with its values: as constraints are usually written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tuner.kernels.conditions import deciding_condition
from tuner.kernels.rules import Rules

Values = Mapping[str, Any]
SMALL, LARGE = {"N": 64}, {"N": 4096}
CONFIG = {"BLOCK": 256, "SPLIT": 4, "num_warps": 4, "VARIANT": "plain"}
WIDEST = 1024


def in_turn(problem: Values, config: Values) -> Any:
    return (
        config["num_warps"] <= 8
        # A comment is no part of a condition.
        and config["BLOCK"] <= problem["N"]
        and config["SPLIT"] == 1
    )


def calls(problem: Values, config: Values) -> Any:
    return config["num_warps"] <= 8 and in_turn(problem, config)


def guarded(problem: Values, config: Values) -> Any:
    return config["SPLIT"] == 1 or in_turn(problem, config)


def either(problem: Values, config: Values) -> Any:
    return config["SPLIT"] == 1 or 2 * config["BLOCK"] <= problem["N"]


def early(problem: Values, config: Values) -> Any:
    if config["VARIANT"] == "wide" or not config["BLOCK"] <= WIDEST // 8:  # noqa: SIM103
        return False
    return True


def otherwise(problem: Values, config: Values) -> Any:
    if problem["N"] >= config["BLOCK"]:  # noqa: SIM103
        return True
    else:  # noqa: RET505
        return False


def by_name(problem: Values, config: Values) -> Any:
    block, n = config["BLOCK"], problem["N"]
    fits = block <= n
    return bool(fits and config["SPLIT"] == 1)


def by_variant(problem: Values, config: Values) -> Any:
    return {"plain": in_turn, "wide": calls}[config["VARIANT"]](problem, config)


def chosen(problem: Values, config: Values) -> Any:
    return config["SPLIT"] == 1 if config["VARIANT"] == "wide" else not config["num_warps"] < WIDEST


short = lambda problem, config: config["BLOCK"] <= problem["N"]  # noqa: E731


class Tile:
    def fits(self, problem: Values, config: Values) -> bool:
        return bool(config["BLOCK"] <= problem["N"])


@pytest.mark.parametrize(
    ("rule", "function", "text", "values"),
    [
        (in_turn, "in_turn", "BLOCK <= N is false", "256 <= 64"),
        (calls, "in_turn", "BLOCK <= N is false", "256 <= 64"),
        (guarded, "in_turn", "BLOCK <= N is false", "256 <= 64"),
        (either, "either", "SPLIT == 1 or 2 * BLOCK <= N is false", "4 == 1 or 512 <= 64"),
        (early, "early", "BLOCK <= WIDEST // 8 is false", "256 <= 128"),
        (otherwise, "otherwise", "N >= BLOCK is false", "64 >= 256"),
        (by_name, "by_name", "block <= n is false", "256 <= 64"),
        (by_variant, "in_turn", "BLOCK <= N is false", "256 <= 64"),
        (chosen, "chosen", "num_warps < WIDEST is true", "4 < 1,024"),
        (short, "<lambda>", "BLOCK <= N is false", "256 <= 64"),
        (Tile().fits, "fits", "BLOCK <= N is false", "256 <= 64"),
    ],
)
def test_the_part_that_decides_is_named_with_its_values(
    rule: Callable[..., bool], function: str, text: str, values: str
) -> None:
    assert not rule(SMALL, CONFIG)
    found = deciding_condition(rule, SMALL, CONFIG)
    assert found is not None
    assert (found.function, found.text, found.values) == (function, text, values)
    assert found.file == __file__


def test_the_line_is_that_of_the_condition() -> None:
    first = in_turn.__code__.co_firstlineno
    assert [deciding_condition(in_turn, size, CONFIG).line - first for size in (SMALL, LARGE)] == [4, 5]  # type: ignore[union-attr]


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    left = iter([1])

    def once(problem: Values, config: Values) -> Any:
        return config["BLOCK"] <= next(left, 0)

    found = deciding_condition(once, SMALL, CONFIG)
    assert found is not None
    assert found.line == once.__code__.co_firstlineno + 1
    made: dict[str, Any] = {}
    exec(compile("def gone(problem, config):\n    return problem['N'] < 0", str(tmp_path / "gone.py"), "exec"), made)
    found = deciding_condition(made["gone"], SMALL, CONFIG)
    assert found is not None
    assert (found.function, found.line, found.text, found.values) == ("gone", 2, "", "")
    assert deciding_condition(partial(in_turn, SMALL), CONFIG) is None
    assert deciding_condition(sorted, [1]) is None


def reassigned(problem: Values, config: Values) -> Any:
    block = config["BLOCK"]
    fits = block <= problem["N"]
    block //= 8
    return fits


def reassigned_in_a_branch(problem: Values, config: Values) -> Any:
    block = config["BLOCK"]
    if block > problem["N"]:
        block = problem["N"]
        return False
    return block


def unpacked(problem: Values, config: Values) -> Any:
    given = {"most": 64}

    def fits(config: Values, most: int = 1000) -> Any:
        return config["BLOCK"] <= most

    return fits(config, **given)


@pytest.mark.parametrize(
    ("rule", "text"),
    [(reassigned, ""), (reassigned_in_a_branch, ""), (unpacked, "fits(config, **given) is false")],
)
def test_no_condition_is_stated_that_does_not_hold(rule: Callable[..., bool], text: str) -> None:
    """The names have changed since it was evaluated, or arguments of a call are not known."""
    found = deciding_condition(rule, SMALL, CONFIG)
    assert found is not None
    assert (found.text, found.values) == (text, "")


def test_either_of_two_functions_that_would_do_is_shown() -> None:
    def wide(config: Values) -> Any:
        return config["VARIANT"] == "wide"

    def single(config: Values) -> Any:
        return config["SPLIT"] == 1

    found = deciding_condition(lambda config: wide(config) or single(config), CONFIG)
    assert found is not None
    assert found.text == "wide(config) or single(config) is false"


def test_the_source_is_that_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    for most in (64, 32):
        file.write_text(f"def rule(config):\n    return config['BLOCK'] <= {most}\n")
        os.utime(file, (most, most))
        made: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), made)
        found = deciding_condition(made["rule"], CONFIG)
        assert found is not None
        assert (found.text, found.values) == (f"BLOCK <= {most} is false", f"256 <= {most}")


def test_a_profiler_that_runs_is_put_back() -> None:
    def note(*event: object) -> None:
        """Notice nothing."""

    sys.setprofile(note)
    try:
        assert deciding_condition(in_turn, SMALL, CONFIG) is not None
        assert sys.getprofile() is note
    finally:
        sys.setprofile(None)


def test_a_rule_names_itself_and_the_function_that_it_calls() -> None:
    class Card:
        warp_size, threads_per_block = 32, 1024

    def valid(problem: Values, config: Values, limits: Any) -> Any:
        """Return whether a config is feasible."""
        return in_turn(problem, config)

    line = in_turn.__code__.co_firstlineno + 4
    refusal = Rules(valid).refusal(SMALL, CONFIG, Card())  # type: ignore[arg-type]
    assert str(refusal) == f"valid ({__file__} line {line}, in in_turn): BLOCK <= N is false (256 <= 64)"
