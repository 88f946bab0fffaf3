"""Nothing right is refused: vendors and defaults of shipped ops, and users' kernels, beside the ceiling of rounding.

`pytest -s` prints, for each problem, the vendor's error and root mean square beside their ceilings, the tolerance, and
the default's error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import OURS, able, toy
from stated_tests import stated_tests

from tuner import catalog
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.measure import check, tensors
from tuner.measure.clock import EventClock
from tuner.measure.correctness import CorrectnessCheck, calibrated
from tuner.measure.device import describe
from tuner.measure.difference import Difference
from tuner.measure.loaded_problem import LoadedProblem
from tuner.measure.messages import Task
from tuner.measure.tolerance import tolerances

pytestmark = pytest.mark.gpu

GEMM = [(4096, 4096, 16384), (16, 4096, 16384), (1, 4096, 16384), (4096, 1, 16384), (16, 16, 65536), (127, 129, 1031)]
SCALED = [(4096, 4096, 16384), (16, 4096, 16384), (64, 64, 8192), (1, 4096, 4096)]
SOFTMAX = [(64, 151_936), (8192, 8192), (1024, 65_536), (129, 127), (4096, 1)]
OF_GEMM: list[dict[str, object]] = [
    {"dtype": "bf16"},
    {"dtype": "fp16"},
    {"dtype": "fp16", "bias": True, "activation": "gelu"},
    {"dtype": "bf16", "bias": True, "activation": "silu"},
    {"dtype": "fp32"},
    {"dtype": "fp32", "precision": "tf32"},
]
OF_SCALED: list[dict[str, object]] = [
    {"out_dtype": "bf16"},
    {"out_dtype": "fp16"},
    {"out_dtype": "bf16", "accumulate": "fast"},
    {"out_dtype": "fp16", "accumulate": "fast"},
    {"out_dtype": "bf16", "scales": "block"},
]


def shipped(sizes: int | None = None) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield shipped ops with the first sizes, dtypes and attributes; None is all sizes."""
    for op, all_sizes, attributes in (("gemm", GEMM, OF_GEMM), ("scaled_gemm", SCALED, OF_SCALED)):
        for M, N, K in all_sizes[:sizes]:
            yield from ((op, {"M": M, "N": N, "K": K, **more}) for more in attributes)
    for M, N in SOFTMAX[:sizes]:
        for dtype in ("fp32", "fp16", "bf16"):
            yield "softmax", {"M": M, "N": N, "dtype": dtype}
    for dtype in ("fp32", "bf16", "int8"):
        yield "transpose", {"M": 4097, "N": 1031, "dtype": dtype}
    for op in OURS:
        if op not in ("gemm", "scaled_gemm", "softmax", "transpose"):
            stated, kernel = stated_tests(op), catalog.load(op)
            of_it = [dict(values) for values in (*stated.large, *stated.on_card)]
            fit = [values for values in of_it if kernel.bytes(kernel.signature.problem(values)) < 2**32]
            yield from ((op, values) for values in fit[:sizes])


def vendors(kernel: Kernel, problem: Problem, values: Mapping[str, torch.Tensor]) -> dict[str, Difference]:
    """Return the differences of the vendor's outputs from the reference, beside the ceilings."""
    vendor, operands = kernel.vendor, kernel.operands(problem)
    assert vendor is not None
    ceilings = {name: limit.at_ceiling() for name, limit in tolerances(kernel, problem).items()}
    found, _ = check.differences_after(
        kernel, problem, operands, values, lambda: vendor(problem, values), allowed=ceilings
    )
    return found


def show(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def line(case: str, found: Difference) -> str:
    """Return the vendor's errors beside their ceilings."""
    mean_ceiling = found.tolerance.mean_of(torch.Size(found.shape).numel())
    return (
        f"{case} {found.name}: vendor {found.error:.2e} of {found.tolerance.ceiling:.2e}, "
        f"mean {found.mean:.2e} of {mean_ceiling:.2e}"
    )


@pytest.mark.parametrize(("op", "given"), list(shipped()))
def test_the_vendor_of_a_shipped_op_passes(op: str, given: dict[str, object]) -> None:
    kernel = catalog.load(op)
    checked_vendor(kernel, kernel.signature.problem(given), "cuda")


@pytest.mark.parametrize(("op", "given"), list(shipped(1)))
def test_the_default_of_a_shipped_op_passes(op: str, given: dict[str, object]) -> None:
    limits = describe(0).limits
    if not able(op, limits):
        pytest.skip(f"{op} needs other instructions")
    kernel = catalog.load(op)
    problem = kernel.signature.problem(given)
    loaded = LoadedProblem(Task(op, problem, limits), "cuda:0", EventClock("cuda:0"))
    checked = CorrectnessCheck(loaded, lambda: None)
    evidence = checked.recheck(kernel.default_config(problem, limits), seed=1)
    show(f"{problem.text}: default {evidence.max_error:.2e}, tolerance {evidence.tolerance:.2e}")


def attention(dtype: str, S: int, D: int = 64, heads: int = 8) -> tuple[Kernel, Problem]:
    """Return causal attention with the logarithms of its sums; late rows are much smaller than the first."""

    def reference(problem: Problem, inputs: Any, rows: slice) -> dict[str, torch.Tensor]:
        q, k, v = (inputs[name].double() for name in "qkv")
        scores = (q[rows] @ k[rows].mT) / D**0.5
        scores.masked_fill_(torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
        return {"out": scores.softmax(-1) @ v[rows], "lse": scores.logsumexp(-1)}

    def vendor(problem: Problem, values: Any) -> None:
        q, k, v = (values[name][None] for name in "qkv")
        out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
        values["out"].copy_(out[0])
        values["lse"].copy_(lse[0])

    shape = (heads, S, D)
    operands = {
        **{name: Operand(shape, dtype) for name in "qkv"},
        "out": Operand(shape, dtype, "out"),
        "lse": Operand((heads, S), "fp32", "out"),
    }
    return _with(operands, reference, vendor, lambda problem: 4 * heads * S * S * D)


def gated(dtype: str, tokens: int, hidden: int, width: int) -> tuple[Kernel, Problem]:
    """Return the gated layer of a model, whose vendor rounds each result to the dtype."""

    def layer(x: torch.Tensor, up: torch.Tensor, gate: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down

    def reference(problem: Problem, inputs: Any, rows: slice) -> dict[str, torch.Tensor]:
        return {"out": layer(inputs["x"][rows].double(), *(inputs[name].double() for name in ("up", "gate", "down")))}

    def vendor(problem: Problem, values: Any) -> None:
        values["out"].copy_(layer(*(values[name] for name in ("x", "up", "gate", "down"))))

    def small(tensor: Any, generator: Any) -> None:
        tensor.normal_(0, 1 / tensor.shape[0] ** 0.5, generator=generator)

    operands = {
        "x": Operand((tokens, hidden), dtype),
        "up": Operand((hidden, width), dtype, fill=small),
        "gate": Operand((hidden, width), dtype, fill=small),
        "down": Operand((width, hidden), dtype, fill=small),
        "out": Operand((tokens, hidden), dtype, "out"),
    }
    return _with(operands, reference, vendor, lambda problem: 6 * tokens * hidden * width)


def norm_gradient(dtype: str, M: int, N: int) -> tuple[Kernel, Problem]:
    """Return the gradient of a layer norm: dx (M, N) in the dtype, and dw (N,) and mean (M,) in fp32."""

    def results(x: torch.Tensor, dy: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
        mean = x.mean(1)
        rstd = (x.var(1, correction=0) + 1e-5).rsqrt()
        at = (x - mean[:, None]) * rstd[:, None]
        g = dy * w
        dx = rstd[:, None] * (g - g.mean(1, keepdim=True) - at * (g * at).mean(1, keepdim=True))
        return {"dx": dx, "dw": (dy * at).sum(0), "mean": mean}

    def reference(problem: Problem, inputs: Any, rows: slice) -> dict[str, torch.Tensor]:
        made = results(*(inputs[name].double() for name in ("x", "dy", "w")))
        return {name: value[rows] for name, value in made.items()}

    def vendor(problem: Problem, values: Any) -> None:
        for name, value in results(*(values[name].float() for name in ("x", "dy", "w"))).items():
            values[name].copy_(value)

    operands = {
        "x": Operand((M, N), dtype),
        "dy": Operand((M, N), dtype),
        "w": Operand((N,), dtype),
        "dx": Operand((M, N), dtype, "out"),
        "dw": Operand((N,), "fp32", "out"),
        "mean": Operand((M,), "fp32", "out"),
    }
    return _with(operands, reference, vendor, lambda problem: 0)


def _with(operands: dict[str, Operand], reference: Any, vendor: Any, flops: Any) -> tuple[Kernel, Problem]:
    kernel = replace(
        catalog.resolve(toy("double")),
        operands=lambda problem: operands,
        reference=reference,
        vendor=vendor,
        flops=flops,
    )
    return kernel, kernel.signature.problem({"N": 4})


def checked_vendor(kernel: Kernel, problem: Problem, device: str, case: str = "") -> None:
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, device)
    for seed in (0, 1):
        tensors.draw(operands, values, seed)
        show(*(line(case or problem.text, found) for found in vendors(kernel, problem, values).values()))
        allowed = calibrated(kernel, problem, operands, values)
        show(*(f"    tolerance of {name} {limit.allowed:.2e}" for name, limit in allowed.items()))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("S", [128, 4096])
def test_a_users_attention_passes(dtype: str, S: int) -> None:
    checked_vendor(*attention(dtype, S), "cuda", f"attention S={S} dtype={dtype}")


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("tokens", [1, 16, 2048])
def test_a_users_gated_layer_passes(dtype: str, tokens: int) -> None:
    checked_vendor(*gated(dtype, tokens, 2048, 8192), "cuda", f"gated layer tokens={tokens} dtype={dtype}")


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_users_gradient_passes(dtype: str) -> None:
    checked_vendor(*norm_gradient(dtype, 70_000, 1024), "cuda", f"gradient of a norm M=70000 dtype={dtype}")
