"""Host time of a launch: our ops and users' kernels, the same kernels through Triton and its autotuner, and torch.

All run in one process, on problems so small that the card is never behind. Each way has a turn in each round, and the
card is synchronised between turns, outside the timed interval. The report has medians over the rounds, in us a launch.
All are called with the same arguments each time, and write to a given `out` except torch's functions that take none.
The report also has the time of a repeated `best_config`, in us.

Users' kernels are launched by `tuner.launch`, under our `autotune`, by Triton, by its autotuner when it has its config,
under it once `install` was called, and by the launcher in C alone, which is the floor. Their grids are functions of the
arguments, as users write them, or tuples.

    python benchmarks/launch.py --out launch.json
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

import torch
import triton
import triton.language as tl

import tuner
import tuner.triton
from tuner import best_config, catalog, ops
from tuner.launching.launcher import ONE_BY_ONE, fixed_arguments
from tuner.measure import device
from tuner.measure.tensors import allocate, draw, workspace

ROUNDS, LAUNCHES = 200, 50
Tensors = dict[str, torch.Tensor]
Case = tuple[str, dict[str, object], Callable[[Tensors], object], Callable[[Tensors], object]]
"""An op, its problem, and its call of ours and torch's."""
MATRIX: dict[str, object] = {"M": 64, "N": 128, "dtype": "fp32"}
VECTOR: dict[str, object] = {"N": 8192, "dtype": "fp32"}
LAYER: dict[str, object] = {"B": 1, "C": 64, "H": 8, "padding_h": 1, "padding_w": 1}
IMAGES: dict[str, object] = {"B": 2, "C": 3, "H": 16, "R": 2, "dtype": "fp32"}


def of_gemm(dtype: str) -> Case:
    """Return the case of gemm in a dtype: bf16 is launched with tensor descriptors, fp32 with pointers."""
    return (
        "gemm", {"M": 64, "N": 64, "K": 64, "dtype": dtype},
        lambda t: ops.gemm(t["a"], t["b"], t["out"]), lambda t: torch.matmul(t["a"], t["b"], out=t["out"]),
    )  # fmt: skip


CASES: list[Case] = [
    (
        "softmax", MATRIX,
        lambda t: ops.softmax(t["x"], t["out"]), lambda t: torch.softmax(t["x"], dim=1, out=t["out"]),
    ),
    (
        "transpose", MATRIX,
        lambda t: ops.transpose(t["x"], t["out"]), lambda t: t["out"].copy_(t["x"].t()),
    ),
    of_gemm("bf16"),
    of_gemm("fp32"),
    (
        "scaled_gemm", {"M": 64, "N": 64, "K": 64},
        lambda t: ops.scaled_gemm(t["a"], t["b"], t["scale_a"], t["scale_b"], t["out"]),
        lambda t: torch._scaled_mm(t["a"], t["b"], t["scale_a"], t["scale_b"], out_dtype=torch.bfloat16),
    ),
    (
        "add", VECTOR,
        lambda t: ops.add(t["x"], t["y"], out=t["out"]), lambda t: torch.add(t["x"], t["y"], out=t["out"]),
    ),
    (
        "gelu", VECTOR,
        lambda t: ops.gelu(t["x"], out=t["out"]), lambda t: torch.nn.functional.gelu(t["x"]),
    ),
    (
        "silu", VECTOR,
        lambda t: ops.silu(t["x"], out=t["out"]), lambda t: torch.nn.functional.silu(t["x"]),
    ),
    (
        "silu_mul", MATRIX,
        lambda t: ops.silu_mul(t["gate"], t["up"], out=t["out"]),
        lambda t: torch.nn.functional.silu(t["gate"]) * t["up"],
    ),
    (
        "rms_norm", MATRIX,
        lambda t: ops.rms_norm(t["x"], t["weight"], out=t["out"]),
        lambda t: torch.nn.functional.rms_norm(t["x"], (128,), t["weight"], 1e-6),
    ),
    (
        "layer_norm", MATRIX,
        lambda t: ops.layer_norm(t["x"], t["weight"], t["bias"], out=t["out"]),
        lambda t: torch.nn.functional.layer_norm(t["x"], (128,), t["weight"], t["bias"]),
    ),
    (
        "reduce", MATRIX,
        lambda t: ops.reduce(t["x"], dim=1, out=t["out"]), lambda t: torch.sum(t["x"], 1, out=t["out"]),
    ),
    (
        "max_pool2d", IMAGES,
        lambda t: ops.max_pool2d(t["x"], 2, out=t["out"]), lambda t: torch.nn.functional.max_pool2d(t["x"], 2),
    ),
    (
        "avg_pool2d", IMAGES,
        lambda t: ops.avg_pool2d(t["x"], 2, out=t["out"]), lambda t: torch.nn.functional.avg_pool2d(t["x"], 2),
    ),
    (
        "conv2d", LAYER,
        lambda t: ops.conv2d(t["x"], t["weight"], padding=1, out=t["out"]),
        lambda t: torch.nn.functional.conv2d(t["x"], t["weight"], padding=1),
    ),
    (
        "copy_column", MATRIX,
        lambda t: ops.copy_column(t["matrix"], out=t["out"]), lambda t: t["out"].copy_(t["x"]),
    ),
]  # fmt: skip
BARS = {"Triton": 0.7, "triton.autotune": 0.4}
"""Largest host time of an op, relative to that of these ways."""
MOST_US, AIM_US = 5.0, 3.0
"""Largest host time of a launch of a user's kernel by us, in us, and the aim."""
FILE = str(Path(__file__).parent.parent / "tests" / "toys" / "double.py")


@triton.jit  # type: ignore[untyped-decorator]
def add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add, as tutorial 01 does."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def strided(  # type: ignore[no-untyped-def]
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Launch with the arguments of tutorial 03, and do next to no work."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(a + m * stride_am + (K - 1) * stride_ak, mask=m < M)
    y = tl.load(b + n * stride_bn + (K - 1) * stride_bk, mask=n < N)
    at = m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c + at, x[:, None] * y[None, :], mask=(m < M)[:, None] & (n < N)[None, :])


def ways(
    op: str, given: dict[str, object], ours: Callable[[Tensors], object], torchs: Callable[[Tensors], object]
) -> dict[str, Callable[[], object]]:
    """Return functions that launch an op each way; all but torch use the same config of the same kernel."""
    kernel, tensors = catalog.load(op), operands(op, given)
    problem = kernel.signature.problem(given)
    config = best_config(op, **problem.values).config
    assert config is not None
    work = workspace(kernel.workspace(problem, config, device.describe(0).limits), "cuda")
    (launch,) = kernel.launch(problem, config, {**tensors, **work})
    if op == "copy_column":  # the operand is a column, and the function takes its matrix
        tensors["matrix"] = tensors["x"].unsqueeze(1)
    fn, grid, args = launch.fn, launch.grid, launch.args
    own = {name: value for name, value in launch.kwargs.items() if name not in ("num_warps", "num_stages")}
    options = {name: launch.kwargs[name] for name in ("num_warps", "num_stages")}
    names = fn.arg_names
    key = [name for name in names if name in ("M", "N", "K")]
    tuned = triton.autotune(configs=[triton.Config(own, **options)] * 2, key=key)(
        fn
    )  # with one config it makes no lookup
    return {
        f"tuner.ops.{op}": lambda: ours(tensors),
        "Triton": lambda: fn[grid](*args, **launch.kwargs),
        "triton.autotune": lambda: tuned[grid](*args),
        "torch": lambda: torchs(tensors),
    }


def users_ways() -> dict[str, dict[str, Callable[[], object]]]:
    """Return functions that launch users' kernels each way, with the same config, by kernel."""
    x, y, out = (torch.zeros(1024, device="cuda") for _ in range(3))
    a, b, c = (torch.zeros(64, 64, device="cuda") for _ in range(3))
    strides = [stride for tensor in (a, b, c) for stride in tensor.stride()]
    return {
        "add: 4 arguments": {
            "tuner.launch of a file": lambda: tuner.launch(FILE, x=x, out=out),
            **_decorated(
                add, (x, y, out, 1024), ["n"], {"BLOCK": 1024}, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)
            ),
        },
        "strided: 12 arguments": _decorated(
            strided, (a, b, c, 64, 64, 64, *strides), ["M", "N", "K"], {"BLOCK_M": 32, "BLOCK_N": 32},
            lambda meta: (triton.cdiv(meta["M"], meta["BLOCK_M"]), triton.cdiv(meta["N"], meta["BLOCK_N"])),
        ),
    }  # fmt: skip


def _decorated(
    fn: Any, args: tuple[Any, ...], key: list[str], meta: dict[str, int], grid: Callable[[Any], tuple[int, ...]]
) -> dict[str, Callable[[], object]]:
    configs = [triton.Config(meta, num_warps=4)] * 2  # with one, Triton's makes no lookup
    ours, tritons = tuner.triton.autotune(configs, key)(fn), triton.autotune(configs, key)(fn)
    sizes = grid({**dict(zip(fn.arg_names, args, strict=False)), **meta})
    compiled = fn[sizes](*args, **meta, num_warps=4)
    values = tuple(value.data_ptr() if isinstance(value, torch.Tensor) else value for value in (*args, *meta.values()))
    stream = torch.cuda.current_stream().cuda_stream
    in_c = compiled.run.launch
    rest = (*fixed_arguments(compiled), *(values if ONE_BY_ONE else (values,)))
    x, y, z = (*sizes, 1, 1)[:3]
    return {
        "tuner.triton.autotune": lambda: ours[grid](*args),
        "tuner.triton.autotune, tuple": lambda: ours[sizes](*args),
        "Triton": lambda: fn[grid](*args, **meta, num_warps=4),
        "Triton, tuple": lambda: fn[sizes](*args, **meta, num_warps=4),
        "triton.autotune": lambda: tritons[grid](*args),
        "triton.autotune, tuple": lambda: tritons[sizes](*args),
        "launcher in C alone": lambda: in_c(x, y, z, stream, *rest),
    }


def measured(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the host time of a launch each way, in us."""
    for way in ways.values():
        for _ in range(LAUNCHES):
            way()
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        names = list(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            way = ways[name]
            torch.cuda.synchronize()
            started = perf_counter_ns()
            for _ in range(LAUNCHES):
                way()
            costs[name].append((perf_counter_ns() - started) / LAUNCHES / 1000)
    torch.cuda.synchronize()
    return {name: median(values) for name, values in costs.items()}


def users() -> dict[str, dict[str, float]]:
    """Return the host time of a launch of users' kernels each way, in us."""
    found = {what: measured(ways) for what, ways in users_ways().items()}
    tuner.triton.install()
    for what, ways in users_ways().items():
        once_installed = {name: ways[name] for name in ("triton.autotune", "triton.autotune, tuple")}
        found[what] |= {f"{name} after install": cost for name, cost in measured(once_installed).items()}
    tuner.triton.uninstall()
    return found


def best_config_us() -> dict[str, float]:
    """Return p50 and p99 of a repeated `best_config`, in us, without the clock's own cost."""
    best_config("gemm", M=4096, N=4096, K=4096, dtype="bf16")
    samples, clock = [], []
    for _ in range(100_000):
        started = perf_counter_ns()
        best_config("gemm", M=4096, N=4096, K=4096, dtype="bf16")
        samples.append(perf_counter_ns() - started)
        started = perf_counter_ns()
        clock.append(perf_counter_ns() - started)
    percentiles = quantiles(samples, n=100)
    return {f"p{p}": (percentiles[p - 1] - median(clock)) / 1000 for p in (50, 99)}


def operands(op: str, given: dict[str, object]) -> dict[str, torch.Tensor]:
    kernel = catalog.load(op)
    described = kernel.operands(kernel.signature.problem(given))
    tensors = allocate(described, "cuda")
    draw(described, tensors, seed=1)
    return tensors


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, help="write what was measured as JSON")
    given = options.parse_args()
    card = device.describe(0)
    report: dict[str, Any] = {
        "card": card.name,
        "host": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "launch_us": {
            f"{op} {given.get('dtype', '')}".strip(): measured(ways(op, given, *calls)) for op, given, *calls in CASES
        },
        "users_us": users(),
        "best_config_us": best_config_us(),
    }
    print(f"{card.name}, Triton {triton.__version__}, PyTorch {torch.__version__}; us a launch on the host")
    for what, costs in report["launch_us"].items():
        print(f" {what}")
        own = next(iter(costs.values()))
        for name, cost in costs.items():
            bar = f"  (at most {BARS[name]})" if name in BARS else ""
            print(f"  {name:18} {cost:7.2f}   ours is {own / cost:.2f} of it{bar}")
    for what, costs in report["users_us"].items():
        print(f" {what}")
        for name, cost in costs.items():
            is_ours = name.startswith("tuner") or name.endswith("install")
            bar = f"  (at most {MOST_US}, aim {AIM_US})" if is_ours else ""
            print(f"  {name:38} {cost:7.2f}{bar}")
    print(f"  best_config, again: p50 {report['best_config_us']['p50']:.2f}, p99 {report['best_config_us']['p99']:.2f}")
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
