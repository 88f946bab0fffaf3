"""Accesses of compiled kernels: as many elements at once as rows are multiples of, up to 16 bytes.

Triton derives alignment from arguments that are multiples of 16, so kernels state it for other rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from compiled import launches_compiled
from helpers import H200

from tuner import catalog


class Case(NamedTuple):
    """A problem, and the bytes of the accesses of a thread to device memory, in each launch.

    `knobs` replace those of the default, and `strides` those of dense tensors.
    """

    op: str
    problem: Mapping[str, object]
    accesses: tuple[set[int], ...]
    knobs: Mapping[str, object] = {}
    strides: Mapping[str, tuple[int, ...]] = {}

    def __str__(self) -> str:
        given = {**self.problem, **self.knobs, **self.strides}
        return " ".join([self.op, *(f"{name}={value}" for name, value in given.items())])


def rows(M: int, N: int, dtype: str = "bf16") -> dict[str, object]:
    return {"M": M, "N": N, "dtype": dtype}


def heads(M: int, D: int, **kind: object) -> dict[str, object]:
    return {"B": 2, "H": 9, "G": 3, "M": M, "N": 1024, "D": D, "dtype": "bf16", **kind}


def image(channels: int) -> dict[str, object]:
    return {"B": 8, "C": channels, "H": 56, "W": 56, "O": 64, "padding_h": 1, "padding_w": 1, "dtype": "bf16"}


LOOP = {"BLOCK_N": 4096, "ROWS": 2, "num_warps": 8}
SHARED = {"BLOCK_N": 8192, "ROWS": 1, "SHARED": True, "num_warps": 32, "num_stages": 1}
WIDE = {"TILE_M": 64, "TILE_N": 64, "VEC": 8, "PAD": 8, "num_warps": 4}
HEADS = {"VARIANT": "tiles", "BLOCK_M": 64, "BLOCK_N": 64, "TURNS": False}
COPY = {"VARIANT": "tiles", "COPY": True, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}
CASES = [
    Case("softmax", rows(1000, 4104), ({16},)),
    Case("softmax", rows(1000, 4100), ({8},)),
    Case("softmax", rows(1000, 4098, "fp32"), ({8},)),
    Case("softmax", rows(1000, 60), ({8},)),
    Case("softmax", rows(1000, 4096), ({16},), strides={"x": (4104, 1)}),
    Case("softmax", rows(1000, 4104), ({16},), LOOP),
    Case("softmax", rows(1000, 65_544), ({16},)),
    Case("softmax", rows(10, 40_004), ({8, 4},), SHARED),  # and what programs exchange
    Case("transpose", rows(4104, 4104), ({4},)),
    Case("transpose", rows(4104, 4104), ({16},), WIDE),
    Case("transpose", rows(4100, 4097), ({2, 4},)),  # only columns are even
    Case("transpose", rows(4098, 4098, "fp32"), ({8},)),
    Case("transpose", rows(4100, 4100, "int8"), ({4},)),
    Case("attention", heads(1, 72, page=64), ({16, 4},), {"SPLITS": 1}),  # and the table
    Case("attention", heads(1, 72, lengths=True), ({16, 4},), {"SPLITS": 1}),
    Case("attention", heads(512, 72), ({16},), HEADS),
    Case("attention", heads(512, 72, packed=True), ({16, 4},), HEADS),
    Case("attention", heads(512, 72, packed=True), ({16, 4},)),
    Case("attention", heads(512, 136), ({16, 4}, {16, 8, 4}), {**HEADS, "SPLITS": 3}),
    Case("conv2d", image(36), ({16, 8, 2}, {16}), COPY),  # filters are few, and copied one by one
    Case("conv2d", image(6), ({16, 4, 2}, {16}), COPY),
]


def accesses(code: str) -> set[int]:
    """Return the bytes of the loads, stores and asynchronous copies in PTX."""
    found = re.findall(r"(?:ld|st)\.global\S*?(?:\.v(\d))?\.[bfsu](\d+) ", code)
    copied = re.findall(r"cp\.async\.c[ag]\.shared\.global .*, (0x\w+), ", code)
    return {int(count or 1) * int(bits) // 8 for count, bits in found} | {int(each, 16) for each in copied}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_thread_accesses_as_many_elements_at_once_as_divide_a_row(case: Case) -> None:
    kernel = catalog.load(case.op)
    config = {**kernel.default_config(kernel.signature.problem(case.problem), H200.limits), **case.knobs}
    code = launches_compiled(case.op, case.problem, config, strides=case.strides)
    assert tuple(map(accesses, code)) == case.accesses
