"""Inputs of captured calls: drawn as the tensors were."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import pytest
import torch
from calls import tensor

from tuner.captured.call import Contents
from tuner.captured.inputs import fill_of, fresh
from tuner.kernels.dtypes import ALL_DTYPES
from tuner.kernels.spec import Operand
from tuner.measure import tensors

FLOATS = [dtype for dtype in ALL_DTYPES if dtype.startswith(("fp", "bf"))]


def drawn(*shape: int, dtype: str = "fp32", strides: tuple[int, ...] | None = None, **known: Any) -> torch.Tensor:
    """Return a tensor drawn from contents with these values."""
    argument = tensor(*shape, dtype=dtype, contents=Contents(**known), **({"strides": strides} if strides else {}))
    operands = {"x": Operand(shape, dtype, strides=strides, fill=fill_of(argument))}
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    return values["x"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_range_mean_and_deviation(dtype: str) -> None:
    x = drawn(100, 100, dtype=dtype, low=-1.0, high=7.0, mean=3.0, deviation=0.5).float()
    assert (x.mean().item(), x.std().item()) == pytest.approx((3.0, 0.5), rel=0.05)
    x = drawn(100, 100, dtype=dtype, low=0.0, high=0.5, mean=0.25, deviation=0.5 / 12**0.5).float()
    assert 0 <= x.min() < 0.05
    assert 0.45 < x.max() <= 0.5
    x = drawn(100, 100, dtype=dtype, low=-1.0, high=1.0, mean=0.0, deviation=40.0).float()
    assert (x.min(), x.max()) == (-1, 1)


@pytest.mark.parametrize(("low", "high"), [(-65504.0, 65504.0), (-3.0, -3.0), (-0.5, 1e-3)])
def test_floats_may_have_a_wide_range_or_one_value(low: float, high: float) -> None:
    x = drawn(64, 3, dtype="fp16", low=low, high=high, mean=None).float()
    assert low <= x.min() <= x.max() <= high + 1e-6
    assert (x.min() < x.max()) == (low < high)


def test_floats_that_are_all_zero_are_drawn_since_their_products_would_not_show_a_wrong_config() -> None:
    zero: dict[str, Any] = {"low": 0.0, "high": 0.0, "mean": 0.0, "deviation": 0.0}
    x = drawn(64, 3, **zero)
    assert 0 <= x.min() < 0.1 < 0.9 < x.max() <= 1
    assert drawn(1, **zero) == 0  # a flag or a scale
    assert not drawn(64, dtype="int32", low=0, high=0).any()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 127),
        ("uint8", 3, 255),
        ("int64", 0, 4),
        ("int32", -5, 2**31 - 1),
        ("bool", 0, 1),
        ("int16", 7, 7),
    ],
)
def test_integers_are_within_their_range(dtype: str, low: int, high: int) -> None:
    x = drawn(5000, dtype=dtype, low=low, high=high).long()
    assert low <= x.min() <= x.max() <= high
    assert x.unique().numel() >= min(4, high - low + 1)


def test_sorted_vectors_are_sorted_and_have_their_ends() -> None:
    """Offsets of sequences are such tensors: the last one is the number of tokens."""
    x = drawn(9, dtype="int32", low=0, high=1000, is_sorted=True)
    assert (x[0], x[-1]) == (0, 1000)
    assert (x.diff() >= 0).all()
    assert (drawn(9, low=0.0, high=1.0, is_sorted=True).diff() >= 0).all()


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (0, 3)])
def test_small_integers_are_kept_by_value(shape: tuple[int, ...]) -> None:
    values = tuple(range(5, 5 + prod(shape)))
    assert drawn(*shape, dtype="int64", values=values).flatten().tolist() == list(values)


def test_an_expanded_tensor_has_its_values_once() -> None:
    x = drawn(4, 3, dtype="int32", strides=(0, 1), values=(1, 2, 3) * 4)
    assert x.tolist() == [[1, 2, 3]] * 4
    assert drawn(4, 3, strides=(0, 1), low=2.0, high=2.0).unique().tolist() == [2]
    assert drawn(4, 300, strides=(0, 1), mean=1.0, deviation=0.1, low=0.0, high=2.0)[0].unique().numel() > 200


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("known", [{}, {"low": -inf, "high": inf}, {"low": 0.0, "high": inf}])
def test_of_unknown_contents_floats_are_normal_and_wide_integers_zero(dtype: str, known: dict[str, Any]) -> None:
    """An integer may be an index, and one that is drawn from all integers reads far beyond its tensor."""
    x = drawn(500, dtype=dtype, **known).double()
    is_zero = dtype in ("int16", "int32", "int64")
    assert bool((x == 0).all()) == is_zero


@pytest.mark.parametrize("offset", [0, 4, 12])
def test_fresh_tensors_lie_as_their_operand_does(offset: int) -> None:
    operand = Operand((3, 5), "fp32", strides=(8, 1), offset=offset)
    x = fresh(operand, "cpu")
    assert (x.shape, x.stride(), x.dtype) == ((3, 5), (8, 1), torch.float32)
    assert x.data_ptr() % 16 == offset
    x.fill_(1)
