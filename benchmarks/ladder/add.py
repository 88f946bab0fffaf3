"""Add, from one element a thread to several accesses of 16 bytes in flight.

The sum of 2^27 elements of bf16 reads 512 MB and writes 256 MB, and does nothing else. Each step is a config of the
kernel that ships: the number of elements of a thread decides the width of its accesses, and their number in flight.
"""

from __future__ import annotations

from ladder.step import Ladder, configured
from tuner.kernels.add import KERNEL

KNOBS = {"STEPS": 1, "EVICT_FIRST": False, "num_warps": 4, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"N": 2**27}),),
    steps=(
        configured("one element", "one element a thread: accesses of 2 bytes", KERNEL, KNOBS | {"BLOCK": 128}),
        configured("16 bytes", "8 elements a thread, read by one instruction", KERNEL, KNOBS | {"BLOCK": 1024}),
        configured("two accesses", "16 elements a thread: 64 bytes in flight", KERNEL, KNOBS | {"BLOCK": 2048}),
    ),
    unit="GB/s",
)
