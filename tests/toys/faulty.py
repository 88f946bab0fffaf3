"""out = 2 x, with a knob for each failure."""

import os
import signal
import subprocess
import time

import triton
import triton.language as tl

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature

FAULTS = (
    "none",
    "wild",  # stores far out of bounds
    "endless",  # never returns from the device
    "half",  # leaves half of the output as it was
    "wrong",  # a wrong factor
    "nothing",  # launches nothing and is very fast
    "refused",  # the compiler refuses the code
    "raises",  # the launch code has a bug
    "aborts",  # kills the compiling process
    "dies in a comparison",  # from here on, only the scripted worker reports it
    "loses its context",
    "killed once",
    "fills memory once",
    "fills memory",
    "sleeps",  # compiles forever and ignores SIGTERM, with a child that does the same
)


@triton.jit
def double(x, out, N, limit, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    if FAULT == "refused":
        tl.static_assert(False, "refused on purpose")
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FAULT == "endless":
        turns = 0
        while turns >= limit:
            turns += 1
            tl.atomic_add(out, 1.0)
    factor = 3 if FAULT == "wrong" else 2
    values = factor * tl.load(x + n, mask=n < N)
    if FAULT == "wild":
        out += tl.full((), 1 << 40, tl.int64)
    tl.store(out + n, values, mask=n < (N // 2 if FAULT == "half" else N))


def launch(problem, config, tensors):
    N, fault = problem["N"], config["FAULT"]
    compiling = type(tensors["x"]).__name__ == "StandIn"
    if fault == "raises":
        raise ZeroDivisionError("a bug in the launch code")
    if fault == "aborts" and compiling:
        os.abort()
    if fault == "sleeps" and compiling:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sh", "-c", "trap '' TERM; echo $$ >> \"$FAULTY_PIDS\"; while :; do sleep 1; done"])
        while True:
            time.sleep(1)
    if fault == "nothing":
        return ()
    args = (tensors["x"], tensors["out"], N, 0)
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    return (Launch(double, (-(-N // config["BLOCK"]),), args, {"BLOCK": config["BLOCK"], "FAULT": fault, **options}),)


KERNEL = Kernel(
    signature=Signature(
        op="faulty",
        dims=(Dim("N"),),
        dtypes=("fp32",),
        knobs=(
            Knob("BLOCK", (64, 128, 256, 512, 1024)),
            Knob("FAULT", FAULTS),
            Knob("num_warps", (1, 2, 4)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=lambda problem: {"x": Operand((problem["N"],), "fp32"), "out": Operand((problem["N"],), "fp32", "out")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    vendor=lambda problem, tensors: tensors["out"].copy_(tensors["x"] * 2),
    default=lambda problem, limits: {"BLOCK": 256, "FAULT": "none", "num_warps": 4, "num_stages": 1},
)
