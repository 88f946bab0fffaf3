"""rms_norm and layer_norm on a real card: rows of any length and place, and programs that share rows."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from helpers import drawn, wrongness

from tuner import catalog
from tuner.kernels.spec import Kernel, Limits
from tuner.measure.check import error
from tuner.measure.tensors import allocate, draw, workspace, written
from tuner.search.space import feasible

pytestmark = pytest.mark.gpu
RMS, LAYER = catalog.load("rms_norm"), catalog.load("layer_norm")
BOTH = pytest.mark.parametrize("kernel", [RMS, LAYER], ids=lambda kernel: kernel.op)


def limits() -> Limits:
    from tuner.measure.device import describe

    return describe(0).limits


def of_variant(kernel: Kernel, values: dict[str, Any], variant: str, count: int) -> list[Any]:
    problem = kernel.signature.problem(values)
    space = [config for config in feasible(kernel, problem, limits()) if config["VARIANT"] == variant]
    return [(problem, config) for config in random.Random(problem.text).sample(space, min(count, len(space)))]


@BOTH
@pytest.mark.parametrize(("M", "N"), [(3, 8191), (1, 262_144), (64, 32_768), (300, 70_001)])
def test_programs_that_share_rows_agree_with_all_that_run_beside_them(kernel: Kernel, M: int, N: int) -> None:
    """Each launch gives the same bits on two streams at once, and leaves the workspaces unchanged."""
    more = {"residual": True} if kernel is RMS else {"stats": True}
    for problem, config in of_variant(kernel, {"M": M, "N": N, "dtype": "bf16", **more}, "shared", 4):
        operands = kernel.operands(problem)
        tensors = allocate(operands, "cuda")
        draw(operands, tensors, seed=1)
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        works, results = [], []
        for stream in streams:
            with torch.cuda.stream(stream):
                works.append(workspace(kernel.workspace(problem, config, limits()), "cuda"))
                results.append([torch.full_like(tensors["out"], float("nan")) for _ in range(8)])
        for nth in range(8):
            for stream, work, outs in zip(streams, works, results, strict=True):
                with torch.cuda.stream(stream):
                    (launch,) = kernel.launch(problem, config, {**tensors, "out": outs[nth], **work})
                    launch()
        torch.cuda.synchronize()
        assert all(torch.equal(out, results[0][0]) for outs in results for out in outs)
        assert all(not bool(work[name].any()) for work in works for name in ("started", "arrived"))
        tensors["out"] = results[0][0]
        assert error(kernel, problem, tensors, written(operands, tensors)) <= 2 * torch.finfo(torch.bfloat16).eps


@BOTH
@pytest.mark.parametrize("N", [257, 999, 1017, 4353, 8191, 12_289, 32_761])
def test_odd_rows_in_16_bytes_are_right(kernel: Kernel, N: int) -> None:
    for dtype in ("bf16", "fp16"):
        for problem, config in of_variant(kernel, {"M": 1311, "N": N, "dtype": dtype}, "odd", 3):
            found, allowed = wrongness(kernel, problem, config, "cuda", limits())
            assert found <= allowed, config


@BOTH
@pytest.mark.parametrize("N", [1, 3, 1000, 5120, 32_768, 131_072, 150_000, 1_048_577])
def test_rows_of_any_length(kernel: Kernel, N: int) -> None:
    problem = kernel.signature.problem({"M": 3, "N": N})
    for config in [kernel.default_config(problem, limits()), *drawn(kernel, problem, limits(), 3)]:
        found, allowed = wrongness(kernel, problem, config, "cuda", limits())
        assert found <= allowed, config
