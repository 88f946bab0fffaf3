"""Tensors by the operands' roles: what is written stands between bands, elsewhere if need be, and never overlaps."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from tuner.errors import MeasureError
from tuner.kernels.spec import Operand
from tuner.measure import tensors

OPERANDS = {
    "x": Operand((5, 7), "fp16"),
    "state": Operand((5,), "int32", "inout"),
    "out": Operand((5, 7), "fp16", "out", strides=(9, 1)),
}


@pytest.fixture
def values() -> dict[str, torch.Tensor]:
    values = tensors.allocate(OPERANDS, "cpu")
    tensors.draw(OPERANDS, values, seed=3)
    return values


def test_shapes_strides_and_dtypes_are_as_stated(values: dict[str, torch.Tensor]) -> None:
    assert {name: (value.dtype, value.shape, value.stride()) for name, value in values.items()} == {
        "x": (torch.float16, (5, 7), (7, 1)),
        "state": (torch.int32, (5,), (1,)),
        "out": (torch.float16, (5, 7), (9, 1)),
    }
    assert values["out"].data_ptr() % 16 == 0


@pytest.mark.parametrize("place", [-1, 43])
def test_a_write_on_either_side_is_noticed(values: dict[str, torch.Tensor], place: int) -> None:
    """43 elements lie from the first of `out` to its last."""
    assert tensors.guards_intact(OPERANDS, values)
    out = values["out"]
    out.as_strided((1,), (1,), out.storage_offset() + place)[0] = 0.0
    assert not tensors.guards_intact(OPERANDS, values)


def test_all_of_an_output_is_its_own(values: dict[str, torch.Tensor]) -> None:
    tensors.poison(OPERANDS, values)
    values["state"].fill_(0)
    assert tensors.guards_intact(OPERANDS, values)


def test_elsewhere_is_another_place_with_the_alignment_asked_for(values: dict[str, torch.Tensor]) -> None:
    moved = tensors.relocate(OPERANDS, values, alignment=16)
    assert moved["x"] is values["x"]
    assert {moved[name].data_ptr() % 32 for name in ("state", "out")} == {16}
    assert torch.equal(moved["state"], values["state"])
    assert moved["out"].stride() == (9, 1)
    assert tensors.guards_intact(OPERANDS, moved)


def test_copies_hold_the_same_elsewhere(values: dict[str, torch.Tensor]) -> None:
    copies = tensors.copy(OPERANDS, values)
    assert copies["x"].data_ptr() != values["x"].data_ptr()
    assert torch.equal(copies["x"], values["x"])


def test_a_change_of_what_is_only_read_is_noticed(values: dict[str, torch.Tensor]) -> None:
    before = tensors.checksums(OPERANDS, values)
    assert set(before) == {"x"}
    values["state"].zero_()
    assert tensors.checksums(OPERANDS, values) == before
    values["x"][4, 6] = -values["x"][4, 6]
    assert tensors.checksums(OPERANDS, values) != before


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("strides", [(7, 1), (1, 5), (8, 1), (0, 1)])
def test_a_change_of_any_one_element_changes_the_sum(strides: tuple[int, int], dtype: str) -> None:
    operands = {"x": Operand((5, 7), dtype, strides=strides)}
    x = tensors.allocate(operands, "cpu")["x"]
    x.fill_(100)
    before = tensors.checksums(operands, {"x": x})
    for place in product(range(5), range(7)):
        x[place] += 1
        assert tensors.checksums(operands, {"x": x}) != before, place
        x[place] -= 1
    assert tensors.checksums(operands, {"x": x}) == before


def test_a_workspace_is_zero_where_it_counts_and_nothing_where_it_does_not() -> None:
    work = tensors.workspace({"partials": Operand((2, 3), "fp32"), "arrived": Operand((4,), "int32")}, "cpu")
    assert bool(work["partials"].isnan().all())
    assert work["arrived"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (6, 1)])
def test_outputs_that_overlap_themselves_are_refused(strides: tuple[int, int]) -> None:
    with pytest.raises(MeasureError, match=r"^elements of out share memory"):
        tensors.allocate({"out": Operand((5, 7), "fp32", "out", strides=strides)}, "cpu")


def test_inputs_may_overlap() -> None:
    operands = {"x": Operand((5, 7), "fp32", strides=(0, 1))}
    values = tensors.allocate(operands, "cpu")
    assert values["x"].stride() == (0, 1)


def test_special_values_are_among_the_floats() -> None:
    operands = {"x": Operand((64, 64), "bf16"), "n": Operand((64, 64), "int32"), "f": Operand((64, 64), "fp8e4m3")}
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=3, special=True)
    x = values["x"].float()
    assert bool(x.isnan().any())
    assert {math.inf, -math.inf, 0.0} <= set(x.flatten().tolist())
    assert float(x.isfinite().float().mean()) > 0.99
    assert bool(values["f"].float().isnan().any())
    tensors.draw(operands, values, seed=3)
    assert bool(values["x"].isfinite().all())
