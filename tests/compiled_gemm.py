"""Problems and configs of products, and what they compile to for Hopper, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiled import launches_compiled

from tuner.kernels.gemm import KERNEL
from tuner.kernels.spec import Config, Limits, Problem
from tuner.search.space import feasible


def problem(**values: object) -> Problem:
    return KERNEL.signature.problem(values)


def of_variant(variant: str, asked: Problem, limits: Limits) -> list[Config]:
    """Return the feasible configs of a variant, without enumerating the others."""
    parts = tuple(part for part in KERNEL.parts if variant in part.get("VARIANT", (variant,)))
    return [config for config in feasible(replace(KERNEL, parts=parts), asked, limits) if config["VARIANT"] == variant]


def compiled(
    values: Mapping[str, object],
    config: Mapping[str, object],
    form: str,
    apart: int | None = None,
    op: str = "gemm",
) -> str:
    """Return what the one launch of a config compiles to.

    Args:
        form: as `launches_compiled` takes it.
        apart: elements from one row of a to the next.
    """
    own = {"STORES": 1} if op == "gemm" else {}
    full = {**own, "SPLIT_K": 1, "GROUP_M": 1, "num_warps": 4, **config}
    (code,) = launches_compiled(op, values, full, form, {"a": (apart, 1)} if apart else None)
    return code


def ptx(values: Mapping[str, object], **config: object) -> str:
    return compiled(values, config, "ptx")
