"""Grids that are called with plain functions in place of Triton's return what they return."""

from __future__ import annotations

from collections.abc import Callable
from timeit import repeat
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from tuner.triton.grid_calls import evaluated

CARDS = 132
LARGE = tl.constexpr(64)
calls = 0


def of_sizes(M: int, N: int) -> Callable[[dict[str, Any]], tuple[int, ...]]:
    return lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)


def of_defaults(M: int) -> Callable[..., tuple[int, ...]]:
    return lambda meta, M=M: (triton.cdiv(M, meta["BM"]),)


def counting(meta: dict[str, Any]) -> tuple[int, ...]:
    global calls
    calls += 1
    return (triton.cdiv(meta["n"], meta["BM"]), calls)


def keyword(meta: dict[str, Any], *, n: int = 7) -> tuple[int, ...]:
    return (triton.cdiv(n, 2),)


class Grid:
    def __call__(self, meta: dict[str, Any]) -> tuple[int, ...]:
        return (triton.cdiv(meta["n"], meta["BM"]),)


GRIDS: list[Any] = [
    of_sizes(1000, 2000),
    of_sizes(1, 129),
    of_defaults(1000),
    of_defaults(3000),
    lambda meta: (min(CARDS, triton.cdiv(meta["n"], meta["BM"])), 1, 2),
    lambda meta: (cdiv(meta["n"], meta["BM"]), next_power_of_2(meta["n"])),
    lambda meta: tuple(triton.cdiv(meta["n"], meta[name]) for name in ("BM", "BN")),
    lambda meta: (triton.cdiv(meta["n"], LARGE),),
    lambda meta: (triton.cdiv(-meta["n"], meta["BM"]) + 9, triton.next_power_of_2(0), triton.next_power_of_2(1)),
    lambda meta: (triton.cdiv(meta["n"], meta["BM"]), len(triton.__version__)),
    lambda meta: (meta["n"] // meta["BM"],),
    keyword,
    Grid(),
]


@pytest.mark.parametrize("number", range(len(GRIDS)))
def test_a_grid_returns_what_it_returns(number: int) -> None:
    for n in (1, 7, 128, 1000, 4097):
        meta = {"n": n, "BM": 128, "BN": 64}
        assert evaluated(GRIDS[number], meta) == GRIDS[number](meta)


def test_global_variables_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = GRIDS[4]
    assert evaluated(grid, {"n": 10**6, "BM": 1})[0] == 132
    monkeypatch.setitem(globals(), "CARDS", 7)
    assert evaluated(grid, {"n": 10**6, "BM": 1})[0] == 7


def test_global_variables_are_set_where_they_are() -> None:
    meta = {"n": 1000, "BM": 128}
    assert [evaluated(counting, meta)[1] for _ in range(3)] == [1, 2, 3]
    assert calls == 3


def test_an_error_is_the_grids() -> None:
    with pytest.raises(KeyError, match="BLOCK"):
        evaluated(lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), {"n": 1})
    with pytest.raises(ZeroDivisionError):
        evaluated(lambda meta: (triton.cdiv(meta["n"], 0),), {"n": 1})
    with pytest.raises(NameError, match="unknown"):
        evaluated(lambda meta: (triton.cdiv(unknown, 1),), {"n": 1})  # type: ignore[name-defined]  # noqa: F821


def test_it_costs_less() -> None:
    meta = {"n": 1000, "BM": 128, "BN": 64}
    grid = of_sizes(1000, 2000)
    ours, own = (
        min(repeat(call, number=500, repeat=5)) for call in (lambda: evaluated(grid, meta), lambda: grid(meta))
    )
    assert ours < 0.7 * own


def test_a_function_of_the_callers_may_have_the_name_of_one_of_tritons() -> None:
    named = {"triton": triton, "cdiv": lambda x, y: 100 * x + y}
    grid = eval('lambda meta: (cdiv(meta["M"], triton.next_power_of_2(meta["N"])),)', named)
    assert evaluated(grid, {"M": 3, "N": 5}) == grid({"M": 3, "N": 5}) == (308,)
