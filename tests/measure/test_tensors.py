"""Tensors by the operands' roles: guards, relocation, checksums, special values and overlap."""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

import pytest
import torch

from tuner.errors import KernelFault
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
def test_a_write_on_either_side_changes_a_guard(values: dict[str, torch.Tensor], place: int) -> None:
    """From the first element of `out` to its last there are 43."""
    assert not tensors.written_beside(OPERANDS, values)
    out = values["out"]
    out.as_strided((1,), (1,), out.storage_offset() + place)[0] = 0.0
    assert tensors.written_beside(OPERANDS, values) == ["out"]
    tensors.poison(OPERANDS, values, 1)
    assert tensors.written_beside(OPERANDS, values) == ["out"]  # also by a repeated launch
    tensors.poison(OPERANDS, values)
    assert not tensors.written_beside(OPERANDS, values)


def test_a_write_inside_an_output_changes_no_guard(values: dict[str, torch.Tensor]) -> None:
    tensors.poison(OPERANDS, values)
    values["state"].fill_(0)
    assert not tensors.written_beside(OPERANDS, values)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8", "int64"])
def test_a_read_out_of_bounds_gives_what_no_input_has(dtype: str) -> None:
    """The elements on either side of a tensor that is read, and those between its rows, are NaN or -1."""
    operands = {"x": Operand((5, 7), dtype, strides=(9, 1), fill=lambda tensor, generator: tensor.zero_())}
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=3)
    x = values["x"]
    around = [x.as_strided((1,), (1,), x.storage_offset() + place).double().item() for place in (-1, 7, 8, 43)]
    assert all(math.isnan(value) or value == -1 for value in around)
    x.as_strided((1,), (1,), x.storage_offset() + 43).zero_()
    assert tensors.written_beside(operands, values) == ["x"]
    tensors.poison(operands, values)
    assert tensors.written_beside(operands, values) == []


def test_outputs_hold_another_poison_each_turn() -> None:
    operands = {name: Operand((4,), name, "out") for name in ("fp16", "fp8e4m3", "int8", "bool")}
    values = tensors.allocate(operands, "cpu")
    held = []
    for turn in range(4):
        tensors.poison(operands, values, turn)
        held.append([bytes(value.view(torch.uint8)[: value.element_size()].tolist()) for value in values.values()])
    assert held[0] == held[3]
    assert all(len(set(kinds)) == 3 for kinds in zip(*held[:3], strict=True))
    assert held[0][3] not in (b"\0", b"\1")


def test_booleans_are_drawn_of_both_kinds() -> None:
    operands = {"x": Operand((64,), "bool")}
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=3, special=True)
    assert 16 < int(values["x"].view(torch.uint8).sum()) < 48


def test_relocated_outputs_have_the_given_alignment(values: dict[str, torch.Tensor]) -> None:
    moved = tensors.relocate(OPERANDS, values, alignment=16)
    assert moved["x"] is values["x"]
    assert {moved[name].data_ptr() % 32 for name in ("state", "out")} == {16}
    assert torch.equal(moved["state"], values["state"])
    assert moved["out"].stride() == (9, 1)
    assert not tensors.written_beside(OPERANDS, moved)


def test_copies_hold_the_same_at_other_addresses(values: dict[str, torch.Tensor]) -> None:
    copies = tensors.copy(OPERANDS, values)
    assert copies["x"].data_ptr() != values["x"].data_ptr()
    assert torch.equal(copies["x"], values["x"])


def test_a_change_of_a_read_operand_changes_its_checksum(values: dict[str, torch.Tensor]) -> None:
    before = tensors.checksums(OPERANDS, values)
    assert set(before) == {"x"}
    values["state"].zero_()
    assert tensors.checksums(OPERANDS, values) == before
    values["x"][4, 6] = -values["x"][4, 6]
    assert tensors.checksums(OPERANDS, values) != before


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("strides", [(7, 1), (1, 5), (8, 1), (0, 1)])
def test_a_change_of_any_one_element_changes_the_checksum(strides: tuple[int, int], dtype: str) -> None:
    operands = {"x": Operand((5, 7), dtype, strides=strides)}
    x = tensors.allocate(operands, "cpu")["x"]
    x.fill_(100)
    before = tensors.checksums(operands, {"x": x})
    for place in product(range(5), range(7)):
        x[place] += 1
        assert tensors.checksums(operands, {"x": x}) != before, place
        x[place] -= 1
    assert tensors.checksums(operands, {"x": x}) == before


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (9,), (4, 5)])
@pytest.mark.parametrize("dtype", ["int8", "bool", "fp8e4m3", "bf16", "fp32", "int64"])
def test_a_checksum_of_a_view_at_any_address(dtype: str, shape: tuple[int, ...]) -> None:
    """Elements are summed as 64-bit integers, which begin at multiples of 8 bytes only."""
    bytes = tensors.dtype_of(dtype).itemsize
    for offset in range(0, 16, bytes):
        operands = {"x": Operand(shape, dtype, offset=offset)}
        x = tensors.allocate(operands, "cpu")["x"]
        assert x.storage_offset() * bytes % 16 == offset
        raw = tensors.bits(x)
        raw.fill_(0)
        before = tensors.checksums(operands, {"x": x})
        for place in product(*map(range, shape)) if x.numel() else ():
            raw[place] = 1
            assert tensors.changed({"x": x}, before) == ["x"], (offset, place)
            raw[place] = 0
        assert tensors.changed({"x": x}, before) == []


def test_a_workspace_has_zero_integers_and_nan_floats() -> None:
    work = tensors.workspace({"partials": Operand((2, 3), "fp32"), "arrived": Operand((4,), "int32")}, "cpu")
    assert bool(work["partials"].isnan().all())
    assert work["arrived"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (6, 1)])
def test_outputs_that_overlap_themselves_are_rejected(strides: tuple[int, int]) -> None:
    with pytest.raises(KernelFault, match=r"written elements share no memory, and do by strides"):
        Operand((5, 7), "fp32", "out", strides=strides)


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


@pytest.mark.parametrize("role", ["in", "inout", "out"])
def test_an_offset_is_kept_by_allocation_copies_and_relocation(role: Literal["in", "out", "inout"]) -> None:
    operands = {"x": Operand((3, 5), "fp16", role, strides=(8, 1), offset=6)}
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    tensors.poison(operands, values)
    moved = [tensors.copy(operands, values), tensors.relocate(operands, values, 16)]
    assert [each["x"].data_ptr() % 16 for each in (values, *moved)] == [6, 6, 6]
    assert not tensors.written_beside(operands, values)
    assert all(torch.equal(tensors.bits(each["x"]), tensors.bits(values["x"])) for each in moved)


def test_an_expanded_tensor_is_drawn_and_copied() -> None:
    operands = {
        "x": Operand((4, 7), "fp16", strides=(0, 1)),
        "y": Operand((4, 7), "int32", strides=(0, 0)),
        "z": Operand((4, 2), "fp8e4m3", strides=(1, 0)),
    }
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1, special=True)
    copies = tensors.copy(operands, values)
    for name, value in values.items():
        assert copies[name].stride() == value.stride()
        assert torch.equal(tensors.bits(copies[name]), tensors.bits(value))
    assert values["x"][0].unique().numel() > 1


@pytest.mark.parametrize(("offset", "message"), [(16, "from 0 to 15, not 16"), (3, "the 2 bytes of an element, not 3")])
def test_an_offset_that_no_tensor_has_is_refused(offset: int, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        Operand((3,), "fp16", offset=offset)


def test_an_operand_on_the_host_is_beside_those_on_the_device() -> None:
    operands = {"x": Operand((5, 7), "fp16", place="pageable"), "out": Operand((5,), "fp16", "out")}
    values = tensors.allocate(operands, "meta")
    made = [
        values,
        tensors.copy(operands, values),
        tensors.relocate(operands, values, 16),
        tensors.blank(operands, "meta"),
    ]
    assert [[tensor.device.type for tensor in each.values()] for each in made] == [["cpu", "meta"]] * 4
