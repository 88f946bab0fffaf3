"""Problems and configs of products, and what they compile to for Hopper, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from forks import printed

from tuner.kernels.gemm import KERNEL
from tuner.kernels.spec import Config, Limits, Problem
from tuner.search.space import feasible


def problem(**values: object) -> Problem:
    return KERNEL.signature.problem(values)


def of_variant(variant: str, asked: Problem, limits: Limits) -> list[Config]:
    """Return the feasible configs of a variant, without enumerating the others."""
    parts = tuple(part for part in KERNEL.parts if variant in part.get("VARIANT", (variant,)))
    return [config for config in feasible(replace(KERNEL, parts=parts), asked, limits) if config["VARIANT"] == variant]


COMPILE = """
    import sys, triton
    from dataclasses import replace
    from triton.backends.compiler import GPUTarget
    from tuner import catalog
    from tuner.measure.stand_ins import StandIn
    sys.path.insert(0, {tests!r})
    from helpers import H200

    class Driver:
        def get_current_device(self): return 0
        def get_current_stream(self, device): return 0
        def get_current_target(self): return GPUTarget("cuda", 90, 32)

    triton.runtime.driver.set_active(Driver())
    kernel = catalog.load({op!r})
    problem, config = kernel.signature.problem({problem!r}), kernel.signature.config({config!r})
    assert kernel.valid(problem, config, H200.limits), config
    operands = dict(kernel.tensors(problem, config, H200.limits))
    if {apart!r}:
        operands["a"] = replace(operands["a"], strides=({apart!r}, 1))
    tensors = {{name: StandIn(operand) for name, operand in operands.items()}}
    (launch,) = kernel.launch(problem, config, tensors)
    print(launch.fn.warmup(*launch.args, grid=launch.grid, **launch.kwargs).asm[{form!r}])
"""


def compiled(
    values: Mapping[str, object],
    config: Mapping[str, object],
    form: str,
    apart: int | None = None,
    op: str = "gemm",
) -> str:
    """Compile for Hopper in a fork of its own, since a process has one target.

    Args:
        form: "ptx", or "ttgir" for what Triton makes of it before.
        apart: elements from one row of a to the next.
    """
    own = {"STORES": 1} if op == "gemm" else {}
    full = {**own, "SPLIT_K": 1, "GROUP_M": 1, "num_warps": 4, **config}
    given = {"op": op, "problem": values, "config": full, "form": form, "apart": apart}
    return printed(dedent(COMPILE).format(tests=str(Path(__file__).parent), **given))


def ptx(values: Mapping[str, object], **config: object) -> str:
    return compiled(values, config, "ptx")
