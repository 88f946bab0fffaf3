"""One wgmma for all columns of a tile, whatever multiple of eight they are; by PTX.

Gluon's tensors have powers of two of columns, so a tile of 80 is a product of 64 and one of 16, and the tensor cores
read the left factor's rows for each. Here they read them once. The sums are tensors of as many columns as the smallest
of those powers, whose registers lie in the order in which wgmma wants them.

Two things hold in the versions of Triton in `KEPT_BY` and are promised by none: the ring is the first thing in shared
memory, and a view may be larger than the buffer that it begins in. Tests look at what is compiled.
"""

from __future__ import annotations

from dataclasses import replace

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tuner.kernels.shared.roles import Roles
from tuner.kernels.shared.stream_k import sums_layout

KEPT_BY = ("3.6.", "3.7.")
"""Versions of Triton that keep what this relies on; in others, tiles are composed of powers of two."""

_BLOCK_BYTES = 64 * 128
"""Bytes of 64 rows of a factor in one step of 128 bytes along K."""
_HIGH_WORD = 0x40000040
"""High word of a matrix descriptor: groups of 8 rows 1,024 bytes apart, swizzled by 128 bytes."""


def is_kept() -> bool:
    """Return whether this version of Triton keeps what one wgmma for all columns relies on."""
    return triton.__version__.startswith(KEPT_BY)


def compiled_tile(tile: Roles, is_known: bool) -> Roles:
    """Return the tile as it is compiled.

    Without one wgmma for all columns, which this version of Triton may not support, columns are composed of powers of
    two, in steps of 128 bytes.
    """
    return tile if is_known or not tile.wide else replace(tile, wide=False, block_k=128 // tile.element)


@gluon.constexpr_function
def constraints(tensors, registers, descriptors, adds=True):
    """Return the constraints of assembly that writes registers of tensors and reads descriptors.

    Args:
        adds: whether it updates what the registers hold.
    """
    held = tensors * registers
    read = [str(nth) for nth in range(held)] if adds else []
    return ",".join(["=f"] * held + read + ["r"] * (descriptors * registers))


@gluon.constexpr_function
def step_in_ptx(tensors, registers, blocks, name, adds=True, across=False):
    """Return the PTX of a step along K of 128 bytes: four products of each block of 64 rows.

    Args:
        tensors: number of tensors of sums, those of the first block first.
        registers: number of registers of each tensor in a thread.
        name: the type of both factors in PTX.
        adds: whether the products are added to sums, and those of the step before waited for.
        across: whether the left factor lies across K: 16 bits, 64 rows side by side for each element along K.
    """
    assert not (across and name == "e4m3"), "wgmma reads factors of 8 bits along K only"
    held = tensors * registers
    each, before = held // blocks, 2 * held if adds else held
    depth, transposed = (32, "") if name == "e4m3" else (16, f", {int(across)}, 0")
    further = depth * 128 // 16 if across else 2
    shape = f"m64n{2 * each}k{depth}.f32.{name}.{name}"
    lines = [
        ".reg .b64 left, right, below;",
        f"mov.b64 left, {{${before}, {_HIGH_WORD}}};",
        f"mov.b64 right, {{${before + registers}, {_HIGH_WORD}}};",
        "wgmma.fence.sync.aligned;",
    ]
    for step, block in ((step, block) for step in range(4) for block in range(blocks)):
        sums = ", ".join(f"${block * each + nth}" for nth in range(each))
        rows = "below" if block else "left"
        if block:
            lines.append(f"add.s64 below, left, {block * _BLOCK_BYTES // 16};")
        onto = int(adds or step > 0)
        lines.append(f"wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {rows}, right, {onto}, 1, 1{transposed};")
        if block == blocks - 1 and step < 3:
            lines += [f"add.s64 left, left, {further};", "add.s64 right, right, 2;"]
    lines.append("wgmma.commit_group.sync.aligned;")
    return "\n".join(["{", *lines, *(["wgmma.wait_group.sync.aligned 1;"] if adds else []), "}"])


@gluon.constexpr_function
def name_in_ptx(dtype):
    return {"fp8e4nv": "e4m3"}.get(dtype.name, dtype.name.replace("fp", "f"))


@gluon.jit
def zeros_of(TENSORS: gl.constexpr, WIDTH: gl.constexpr, DEPTH: gl.constexpr):
    """Return sums of 64 rows each, zero."""
    sums = ()
    for _ in gl.static_range(TENSORS):
        sums = sums + (gl.zeros((64, WIDTH), gl.float32, sums_layout(WIDTH, DEPTH)),)
    return sums


@gluon.jit
def first_byte():
    """Return the address in shared memory of the ring."""
    return gl.inline_asm_elementwise("mov.u32 $0, global_smem;", "=r,r", [0], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def added(sums, left, right, BLOCKS: gl.constexpr, DTYPE: gl.constexpr, LEFT_ACROSS_K: gl.constexpr):
    """Issue a step's products, and return the sums before those are complete; those of the step before are.

    Args:
        sums: those of the first block of 64 rows, and of the others.
        left, right: addresses of the factors' rows in shared memory: 64 a block, and as many as the sums have columns.
        LEFT_ACROSS_K: whether rows of the left factor lie across K.
    """
    TENSORS: gl.constexpr = len(sums)
    REGISTERS: gl.constexpr = sums[0].shape[1] // 2
    a = gl.full(sums[0].shape, left >> 4 | 0x10000, gl.int32, sums[0].type.layout)
    b = gl.full(sums[0].shape, right >> 4 | 0x10000, gl.int32, sums[0].type.layout)
    return gl.inline_asm_elementwise(
        step_in_ptx(TENSORS, REGISTERS, BLOCKS, name_in_ptx(DTYPE), True, LEFT_ACROSS_K),
        constraints(TENSORS, REGISTERS, 2), sums + (a, b),
        dtype=(gl.float32,) * TENSORS, is_pure=False, pack=REGISTERS)  # fmt: skip


@gluon.jit
def products(left, right, TENSORS: gl.constexpr, WIDTH: gl.constexpr, DEPTH: gl.constexpr, DTYPE: gl.constexpr):
    """Issue a step's products of 64 rows. Return them before they are complete, as TENSORS tensors of WIDTH columns.

    Args:
        left, right: addresses of the factors' rows in shared memory.
    """
    a = gl.full([64, WIDTH], left >> 4 | 0x10000, gl.int32, sums_layout(WIDTH, DEPTH))
    b = gl.full([64, WIDTH], right >> 4 | 0x10000, gl.int32, sums_layout(WIDTH, DEPTH))
    return gl.inline_asm_elementwise(
        step_in_ptx(TENSORS, WIDTH // 2, 1, name_in_ptx(DTYPE), False), constraints(TENSORS, WIDTH // 2, 2, False),
        [a, b], dtype=(gl.float32,) * TENSORS, is_pure=False, pack=WIDTH // 2)  # fmt: skip


@gluon.jit
def completed(sums):
    """Wait until all products are complete; return the sums."""
    TENSORS: gl.constexpr = len(sums)
    REGISTERS: gl.constexpr = sums[0].shape[1] // 2
    return gl.inline_asm_elementwise(
        "wgmma.wait_group.sync.aligned 0;", constraints(TENSORS, REGISTERS, 0), sums,
        dtype=(gl.float32,) * TENSORS, is_pure=False, pack=REGISTERS)  # fmt: skip


@gluon.jit
def beside(sums, FIRST: gl.constexpr, COUNT: gl.constexpr, DEPTH: gl.constexpr):
    """Return COUNT tensors of sums, from FIRST on, as one. No value changes its register."""
    if COUNT == 1:
        found = sums[FIRST]
    else:
        left = beside(sums, FIRST, COUNT // 2, DEPTH)
        right = beside(sums, FIRST + COUNT // 2, COUNT // 2, DEPTH)
        wide = gl.reshape(gl.permute(gl.join(left, right), (0, 2, 1)), (64, 2 * left.shape[1]))
        found = gl.convert_layout(wide, sums_layout(wide.shape[1], DEPTH), assert_trivial=True)
    return found


@gluon.jit
def stacked(sums, FIRST: gl.constexpr, COUNT: gl.constexpr, BLOCKS: gl.constexpr, DEPTH: gl.constexpr):
    """Return COUNT tensors of sums of each block, from FIRST on, as one. No value changes its register."""
    found = beside(sums, FIRST, COUNT, DEPTH)
    if BLOCKS == 2:
        HALF: gl.constexpr = len(sums) // 2
        below = beside(sums, HALF + FIRST, COUNT, DEPTH)
        tall = gl.reshape(gl.permute(gl.join(found, below), (2, 0, 1)), (128, found.shape[1]))
        found = gl.convert_layout(tall, sums_layout(tall.shape[1], DEPTH), assert_trivial=True)
    return found
