"""Copy of a column: out (M,) = x[:, column] of a matrix x on the device, or in the host's memory.

M elements are moved, each of them from another row of x. Memory is read in sectors of 32 bytes and sent across PCIe in
packets, so a naive copy of the whole matrix moves N times the bytes, and a read of the column alone still a sector for
each element. There are three ways to read it.

kernel: a program for each block of rows reads the column. From the host it reads page-locked memory through its mapped
address, a sector a packet; thousands of threads have enough packets in flight to hide the latency of PCIe.
driver: a copy of a matrix one element wide. It starts no kernel, and the copy engine handles one element at a time.
packed: the host gathers the column into a page-locked buffer, and one copy sends it. The host reads a cache line for
each element, and PCIe carries what is needed and no more. It is the way for ordinary memory, which the card cannot map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.copy_column.default import default
from tuner.kernels.copy_column.draw import draw
from tuner.kernels.copy_column.driver import copy_column_by_driver
from tuner.kernels.copy_column.packed import copy_column_packed
from tuner.kernels.copy_column.reference import reference, vendor
from tuner.kernels.copy_column.space import ALONE, valid
from tuner.kernels.copy_column.strided import copy_column_kernel
from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    HostCall,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
    Step,
    cdiv,
    itemsize,
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (M,), a column of a matrix with rows of N elements, and out (M,)."""
    M, N = problem.sizes
    return {
        "x": Operand((M,), problem.dtype, strides=(N,), place=problem["memory"]),
        "out": Operand((M,), problem.dtype, role="out"),
    }


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return the buffer on the host in which a column is packed."""
    M, _ = problem.sizes
    return {"buffer": Operand((M,), problem.dtype, place="pinned")} if config["WAY"] == "packed" else {}


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Step, ...]:
    M, N = problem.sizes
    if M == 0 or N == 0:
        return ()
    x, out, memory = tensors["x"], tensors["out"], problem["memory"]
    # A single element may state any stride, and the driver refuses large ones.
    strides = (x.stride(0), out.stride(0)) if M > 1 else (1, 1)
    if config["WAY"] == "kernel":
        knobs = {name: config[name] for name in ("BLOCK", "WIDE", "num_warps", "num_stages")}
        args = (x, out, M, *strides, strides[1])
        return (Launch(copy_column_kernel, grid=(cdiv(M, config["BLOCK"]),), args=args, kwargs=knobs),)
    if config["WAY"] == "driver":
        given = (x, out, M, itemsize(problem.dtype), *strides, memory != "device")
        return (HostCall(copy_column_by_driver, given, captures=memory != "pageable"),)
    given = (x, out, M, itemsize(problem.dtype), *strides, tensors["buffer"])
    return (HostCall(copy_column_packed, given, captures=False),)


KERNEL = Kernel(
    signature=Signature(
        op="copy_column",
        summary="out (M,) = a column of x (M, N), on the device or from the host; dtypes move as integers",
        dims=(
            Dim("M", help="rows of x"),
            Dim("N", default="M", help="elements from a row of x to the next"),
        ),
        dtypes=("fp32", "bf16", "fp16", "int64", "int32", "int16", "int8"),
        attributes=(Attribute("memory", ("device", "pinned", "pageable"), "device", "the memory that x is in"),),
        knobs=(
            Knob("WAY", ("kernel", "driver", "packed"), "who gathers: the card, its copy engine, or the host"),
            Knob("BLOCK", (128, 256, 512, 1024, 2048, 4096), "rows of x in a program"),
            Knob("WIDE", (0, 1), "1: a thread moves adjacent rows, up to 16 bytes of out; 0: a warp does"),
            Knob("num_warps", (1, 2, 4, 8), "warps that share a block"),
            Knob("num_stages", (1,), "1: a program has no loop to pipeline"),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    workspace=workspace,
    valid=valid,
    parts=({"WAY": ("kernel",)}, {"WAY": ("driver", "packed"), **{name: (value,) for name, value in ALONE.items()}}),
    default=default,
    draw=draw,
    exact=True,
)
