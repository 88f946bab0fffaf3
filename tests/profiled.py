"""Configs that are compiled for a card that is not here, and judged with stated latencies."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping
from functools import cache
from typing import Any

from forks import printed
from helpers import H200, toy

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.profiling.analysis import LaunchFacts, analyse
from tuner.profiling.compiled import CompiledLaunch
from tuner.profiling.subject import Subject
from tuner.records import RooflineLimits

ROOFLINE = RooflineLimits(4100.0, {"bf16": 690.0, "fp16": 690.0, "tf32": 350.0, "fp32": 50.0}, {})
"""Roofline limits as an H200 has them."""
TILES = {
    "VARIANT": "tiles", "STORES": 1, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3,
    "num_warps": 8,
}  # fmt: skip
LONG_ROWS = {"SHARED": False, "num_stages": 1}
CASES: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, Any]]] = {
    "transpose": ("transpose", {"M": 8192}, {}),
    "without pad": ("transpose", {"M": 8192}, {"PAD": 0, "VEC": 1}),
    "row-wise": (toy("row_wise"), {"M": 8192}, {}),
    "softmax": ("softmax", {"M": 4096, "N": 4096, "dtype": "bf16"}, {}),
    "too small": ("softmax", {"M": 264, "N": 1024, "dtype": "bf16"}, LONG_ROWS | {"ROWS": 1, "num_warps": 4}),
    "one warp": (
        "softmax", {"M": 132, "N": 65536, "dtype": "bf16"}, LONG_ROWS | {"BLOCK_N": 1024, "num_warps": 1},
    ),
    "few programs": (
        "softmax", {"M": 16, "N": 65536, "dtype": "bf16"}, LONG_ROWS | {"BLOCK_N": 8192, "num_warps": 16},
    ),
    "gemm": ("gemm", {"M": 4096, "K": 1024, "dtype": "bf16"}, TILES),
    "133 tiles": ("gemm", {"M": 128 * 7, "N": 128 * 19, "K": 1024, "dtype": "bf16"}, TILES),
    "tiny tiles": (
        "gemm", {"M": 4096, "K": 1024, "dtype": "bf16"}, TILES | {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 2},
    ),
    "persistent": (
        "gemm", {"M": 128 * 7, "N": 256 * 19, "K": 1024, "dtype": "bf16"},
        {"VARIANT": "persistent", "STORES": 2, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8,
         "num_stages": 4, "num_warps": 8},
    ),
}  # fmt: skip
"""Kernel, problem, and the knobs that differ from the default, by the name of a case."""
_COMPILE = """
import base64, json, pickle, sys
from profiled import task
from tuner.profiling.worker import compile_only
found = {name: compile_only(task(name)).launches for name in json.loads(%r)}
print(base64.b64encode(pickle.dumps(found)).decode())
"""


def case(name: str) -> tuple[Kernel, Problem, Config]:
    """Return kernel, problem and config of a case."""
    reference, values, knobs = CASES[name]
    kernel = catalog.resolve(reference)
    problem = kernel.signature.problem(values)
    return kernel, problem, kernel.signature.config({**kernel.default_config(problem, H200.limits), **knobs})


def task(name: str) -> Any:
    """Return the request that compiles a case."""
    from tuner.profiling.messages import ProfileTask

    _, problem, config = case(name)
    return ProfileTask(CASES[name][0], problem, config, H200.limits, launches=False)


@cache
def compiled() -> Mapping[str, tuple[CompiledLaunch, ...]]:
    """Return the compiled launches of all cases."""
    found: dict[str, tuple[CompiledLaunch, ...]] = pickle.loads(
        base64.b64decode(printed(_COMPILE % json.dumps([*CASES])))
    )
    return found


@cache
def analysed(name: str) -> tuple[LaunchFacts, ...]:
    """Return the facts of the launches of a case."""
    return tuple(analyse(launch, H200.limits) for launch in compiled()[name])


def subject(name: str, latency_us: float | None = None, empty_us: float = 2.0) -> Subject:
    """Return a case with a stated latency, for the rules."""
    kernel, problem, config = case(name)
    return Subject(
        problem, kernel.signature.knobs, config, kernel.bytes(problem), kernel.flops(problem), ROOFLINE, analysed(name),
        latency_us, empty_us,
    )  # fmt: skip
