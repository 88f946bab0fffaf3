"""rms_norm and layer_norm: which variant runs, what the space holds, sums that do not cancel, and shared rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import B200, H200, RTX_4090

from tuner import catalog
from tuner.kernels.layer_norm.looped import layer_norm_looped
from tuner.kernels.layer_norm.odd_rows import layer_norm_odd
from tuner.kernels.layer_norm.shared_rows import layer_norm_shared
from tuner.kernels.layer_norm.whole import layer_norm_whole
from tuner.kernels.rms_norm.looped import rms_norm_looped
from tuner.kernels.rms_norm.odd_rows import rms_norm_odd
from tuner.kernels.rms_norm.shared_rows import rms_norm_shared
from tuner.kernels.rms_norm.whole import rms_norm_whole
from tuner.kernels.shared.rows_launch import alignment
from tuner.kernels.shared.rows_space import SHARED_REGISTERS, most_parts
from tuner.kernels.spec import Config, Kernel, Operand, Problem
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

RMS, LAYER = catalog.load("rms_norm"), catalog.load("layer_norm")
WHOLE: dict[str, Any] = {"VARIANT": "whole", "ROWS": 1, "STEPS": 1, "LATE": False, "num_warps": 4, "num_stages": 1}
LOOPED = WHOLE | {"VARIANT": "looped"}
SHARED = WHOLE | {"VARIANT": "shared"}
BOTH = pytest.mark.parametrize("kernel", [RMS, LAYER], ids=lambda kernel: kernel.op)


def run(kernel: Kernel, problem: Problem, config: dict[str, Any], x: torch.Tensor, **given: Any) -> dict[str, Any]:
    """Return the operands after an interpreted launch."""
    tensors = {"x": x, **given}
    for name, operand in kernel.operands(problem).items():
        if operand.role == "out":
            dtype = x.dtype if len(operand.shape) == 2 else torch.float32
            tensors[name] = torch.full(operand.shape, float("nan"), dtype=dtype)
    for launch in kernel.launch(problem, kernel.signature.config(config), tensors):
        launch()
    return tensors


@pytest.mark.parametrize(
    ("kernel", "config", "function"),
    [
        (RMS, WHOLE, rms_norm_whole),
        (RMS, LOOPED, rms_norm_looped),
        (RMS, SHARED, rms_norm_shared),
        (LAYER, WHOLE, layer_norm_whole),
        (LAYER, LOOPED, layer_norm_looped),
        (LAYER, SHARED, layer_norm_shared),
    ],
)
def test_each_variant_has_its_kernel(kernel: Kernel, config: dict[str, Any], function: object) -> None:
    problem = kernel.signature.problem({"M": 4, "N": 4096})
    full = kernel.signature.config(config | {"BLOCK_N": 1024})
    stand_ins = {name: StandIn(operand) for name, operand in kernel.tensors(problem, full, H200.limits).items()}
    (launch,) = kernel.launch(problem, full, stand_ins)
    assert launch.fn is function


@pytest.mark.parametrize(
    ("values", "configs"),
    [
        ({"M": 4096, "N": 4096}, [{"BLOCK_N": 4096}, {"BLOCK_N": 4096, "STEPS": 4, "num_stages": 2}]),
        ({"M": 4096, "N": 5120}, [{"BLOCK_N": 1024}, {"BLOCK_N": 2048}, {"BLOCK_N": 8192, "num_warps": 8}]),
        ({"M": 262_144, "N": 128}, [{"BLOCK_N": 128, "ROWS": 16}, {"BLOCK_N": 128, "ROWS": 32, "STEPS": 8}]),
        ({"M": 32, "N": 65_536}, [SHARED | {"BLOCK_N": 2048}, LOOPED | {"BLOCK_N": 8192, "num_warps": 16}]),
        ({"M": 1, "N": 262_144}, [SHARED | {"BLOCK_N": 8192}]),
    ],
)
@BOTH
def test_the_space_is_small_and_has_what_is_fast(
    kernel: Kernel, values: dict[str, Any], configs: list[dict[str, Any]]
) -> None:
    problem = kernel.signature.problem(values)
    space = list(feasible(kernel, problem, H200.limits))
    assert 20 <= len(space) <= 600
    assert all(kernel.signature.config(WHOLE | config) in space for config in configs)


def test_chunks_are_only_for_rows_that_they_fit_better() -> None:
    def valid(N: int, block_n: int) -> bool:
        problem = RMS.signature.problem({"M": 4096, "N": N})
        return RMS.valid(problem, WHOLE | {"BLOCK_N": block_n, "num_warps": 2}, H200.limits)

    assert [size for size in (256, 512, 1024, 2048, 4096) if valid(3072, size)] == [1024, 4096]
    assert [size for size in (256, 512, 1024, 2048, 4096) if valid(4096, size)] == [4096]


def test_loops_over_rows_count_in_32_bits() -> None:
    """With M = 1.5 * 2^30, two steps and one row each, the counter would end at 1.5 * M > 2^31."""
    for M, feasible_steps in ((2**30, [1, 2, 16]), (3 * 2**29, [1, 16])):
        problem = RMS.signature.problem({"M": M, "N": 1, "dtype": "bf16"})
        config = WHOLE | {"BLOCK_N": 1, "num_warps": 1}
        found = [steps for steps in (1, 2, 16) if RMS.valid(problem, config | {"STEPS": steps}, H200.limits)]
        assert found == feasible_steps


@pytest.mark.parametrize("card", [H200, B200, RTX_4090], ids=lambda card: card.id)
def test_programs_that_wait_for_each_other_run_at_once(card: Any) -> None:
    """On 16 streams, each program but one of a row's may wait; the registers of all of them are on the card."""
    for warps in (1, 2, 4, 8, 16, 32):
        at_once = card.limits.registers_per_sm // (32 * warps * SHARED_REGISTERS)
        assert 16 * most_parts(warps, card.limits) <= card.limits.sm_count * at_once
    problem = RMS.signature.problem({"M": 3, "N": 65_536})
    config = RMS.signature.config(SHARED | {"BLOCK_N": 8192})
    stand_ins = {name: StandIn(operand) for name, operand in RMS.tensors(problem, config, card.limits).items()}
    (launch,) = RMS.launch(problem, config, stand_ins)
    assert (launch.grid, launch.kwargs["maxnreg"]) == ((24,), SHARED_REGISTERS)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"M": 4096, "N": 5120}, {"VARIANT": "whole", "BLOCK_N": 1024, "ROWS": 1}),
        ({"M": 131_072, "N": 64}, {"VARIANT": "whole", "BLOCK_N": 64}),
        ({"M": 8, "N": 131_072}, {"VARIANT": "shared"}),
        ({"M": 1024, "N": 131_072}, {"VARIANT": "looped"}),
        ({"M": 4, "N": 2_000_003}, {"VARIANT": "looped"}),
    ],
)
def test_the_default_holds_shares_or_loops_over_rows(values: dict[str, Any], expected: dict[str, Any]) -> None:
    problem = RMS.signature.problem(values)
    config = RMS.default(problem, H200.limits)
    assert {name: config[name] for name in expected} == expected
    assert RMS.valid(problem, config, H200.limits)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [((4, 4096), None, 8), ((4, 4104), None, 8), ((4, 4100), None, 4), ((4, 64), (66, 1), 2), ((1, 64), (3, 1), 8)],
)
def test_rows_are_as_aligned_as_length_and_stride_are(shape: Any, strides: Any, expected: int) -> None:
    """Triton sees only whether an integer is a multiple of 16."""
    problem = RMS.signature.problem({"M": shape[0], "N": shape[1], "dtype": "bf16"})
    assert alignment(problem, [StandIn(Operand(shape, "bf16", strides=strides)), None]) == expected


ODD = WHOLE | {"VARIANT": "odd", "BLOCK_N": 256}


@pytest.mark.parametrize(
    ("N", "strides", "offset", "is_odd"),
    [(257, 257, 0, True), (257, 257, 2, False), (257, 265, 0, True), (257, 258, 0, False)],
)
def test_odd_rows_are_read_in_16_bytes_if_those_of_all_matrices_begin_alike(
    N: int, strides: int, offset: int, is_odd: bool
) -> None:
    problem = RMS.signature.problem({"M": 20, "N": N, "dtype": "bf16", "weight": False})
    x = StandIn(Operand((20, N), "bf16", strides=(strides, 1), offset=offset))
    out = StandIn(Operand((20, N), "bf16"))
    (launch,) = RMS.launch(problem, RMS.signature.config(ODD | {"STEPS": 2}), {"x": x, "out": out})
    assert launch.fn is (rms_norm_odd if is_odd else rms_norm_whole)
    # Rows of a program are a multiple of 8 apart, so that all begin at the same place.
    assert launch.grid == ((16,) if is_odd else (10,))


@BOTH
def test_odd_rows_do_not_write_beside_themselves_and_may_be_in_place(kernel: Kernel) -> None:
    x = torch.randn(9, 300, generator=torch.Generator().manual_seed(1)).bfloat16()
    rows = x[:, :291]  # with a stride of 300: rows begin at 4 of 8 elements
    problem = kernel.signature.problem({"M": 9, "N": 291, "dtype": "bf16"})
    factors = torch.ones(291).bfloat16()
    expected = kernel.reference(problem, {"x": rows, "weight": factors, "bias": factors, "eps": 0.0}, slice(0, 9))
    rest, config = x[:, 291:].clone(), kernel.signature.config(ODD)
    tensors = {"x": rows, "weight": factors, "bias": factors, "eps": 0.0, "out": rows}
    if kernel is RMS:
        del tensors["bias"]
    (launch,) = kernel.launch(problem, config, tensors)
    assert launch.fn in (rms_norm_odd, layer_norm_odd)
    launch()
    assert torch.allclose(rows.double(), expected["out"], rtol=0.01, atol=0.01)
    assert torch.equal(x[:, 291:], rest)


@pytest.mark.parametrize("config", [WHOLE | {"BLOCK_N": 128}, LOOPED | {"BLOCK_N": 128}], ids=["whole", "looped"])
def test_a_variance_beside_a_large_mean_does_not_cancel(config: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    x = 1000 + torch.randn(3, 300, generator=generator)
    x[1] = 5.0  # no variance at all
    x[2, 0] = -1e6  # an outlier that is a lane's first value
    problem = LAYER.signature.problem(
        {"M": 3, "N": 300, "dtype": "fp32", "weight": False, "bias": False, "stats": True}
    )
    found = run(LAYER, problem, config, x, eps=1e-5)
    expected = LAYER.reference(problem, found, slice(0, 3))
    assert torch.allclose(found["mean"].double(), expected["mean"], rtol=1e-6)
    assert torch.allclose(found["rstd"].double(), expected["rstd"], rtol=1e-4)
    assert torch.allclose(found["out"].double(), expected["out"], atol=1e-3)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("config", [WHOLE | {"BLOCK_N": 128}, LOOPED | {"BLOCK_N": 128}], ids=["whole", "looped"])
@BOTH
def test_special_rows_are_as_in_torch(kernel: Kernel, config: dict[str, Any]) -> None:
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(2))
    x[0, 7], x[1, 299], x[2, 0], x[4] = float("inf"), float("nan"), -float("inf"), 0.0
    values = {"M": 5, "N": 300, "dtype": "fp32", "weight": False} | (
        {"stats": True, "bias": False} if kernel is LAYER else {}
    )
    problem = kernel.signature.problem(values)
    found = run(kernel, problem, config, x, eps=1e-5)
    for name, expected in kernel.reference(problem, found, slice(0, 5)).items():
        assert torch.allclose(found[name].double(), expected, atol=1e-5, equal_nan=True), name


@BOTH
def test_a_program_that_shares_a_row_computes_its_part(kernel: Kernel) -> None:
    """The interpreter runs one program after the other, so one of two runs, with the other's results prepared."""
    x = 3 + torch.randn(1, 500, generator=torch.Generator().manual_seed(1))
    factors = torch.randn(500, generator=torch.Generator().manual_seed(2))
    values = {"M": 1, "N": 500, "dtype": "fp32"} | ({"stats": True} if kernel is LAYER else {})
    problem, first = kernel.signature.problem(values), x[0, :256]
    config: Config = kernel.signature.config(SHARED | {"BLOCK_N": 256})
    numbers = [first.mean(), (first - first.mean()).square().sum()] if kernel is LAYER else [first.square().sum()]
    tensors: dict[str, Any] = {
        "x": x, "weight": factors, "bias": factors, "eps": 1e-5, "out": torch.full_like(x, float("nan")),
        "mean": torch.zeros(1), "rstd": torch.zeros(1),
        "started": torch.tensor([1], dtype=torch.int32), "arrived": torch.tensor([1], dtype=torch.int32),
        "found": torch.tensor([[numbers, [0.0] * len(numbers)]]),
    }  # fmt: skip
    tensors = {
        name: value for name, value in tensors.items() if kernel is LAYER or name not in ("bias", "mean", "rstd")
    }
    (launch,) = kernel.launch(problem, config, tensors)
    launch.fn[(1,)](*launch.args, **launch.kwargs)
    expected = kernel.reference(problem, tensors, slice(0, 1))["out"]
    assert torch.allclose(tensors["out"][0, 256:].double(), expected[0, 256:], atol=1e-5)
    assert bool(tensors["out"][0, :256].isnan().all())
    assert tensors["started"].item() == 0  # the last to start leaves it as it was
    assert tensors["arrived"].item() == 3  # both are here, and one has read
