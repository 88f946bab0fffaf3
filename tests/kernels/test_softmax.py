"""Softmax: which path runs, special rows, and properties that need no reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import H200

from tuner import catalog
from tuner.kernels.softmax.one_pass import softmax_one_pass
from tuner.kernels.softmax.online import softmax_online
from tuner.kernels.softmax.shared_rows import softmax_shared
from tuner.kernels.spec import Config
from tuner.measure.stand_ins import StandIn

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
KERNEL = catalog.load("softmax")
ONE_PASS = {"BLOCK_N": 512, "ROWS": 2, "num_warps": 4, "num_stages": 1}
ONLINE = {"BLOCK_N": 256, "ROWS": 2, "num_warps": 4, "num_stages": 2}
SHARED = {"BLOCK_N": 256, "ROWS": 1, "SHARED": True, "num_warps": 4, "num_stages": 1}


def run(x: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    M, N = x.shape
    problem = KERNEL.signature.problem({"M": M, "N": N})
    out = torch.full_like(x, float("nan"))
    for launch in KERNEL.launch(problem, KERNEL.signature.config(config), {"x": x, "out": out}):
        launch()
    return out


@pytest.mark.parametrize(
    ("N", "config", "path"),
    [
        (512, ONE_PASS, softmax_one_pass),
        (300, ONE_PASS, softmax_one_pass),
        (513, ONE_PASS, softmax_online),
        (300, ONLINE, softmax_online),
        (513, SHARED, softmax_shared),
        (300, SHARED | {"BLOCK_N": 512}, softmax_one_pass),
    ],
)
def test_a_row_that_fits_takes_one_pass_and_any_longer_one_is_online_or_shared(
    N: int, config: dict[str, Any], path: object
) -> None:
    problem = KERNEL.signature.problem({"M": 4, "N": N})
    full = KERNEL.signature.config(config)
    stand_ins = {name: StandIn(operand) for name, operand in KERNEL.tensors(problem, full, H200.limits).items()}
    (launch,) = KERNEL.launch(problem, full, stand_ins)
    assert launch.fn is path


def test_both_paths_are_in_the_space() -> None:
    problem = KERNEL.signature.problem({"M": 8192})

    def valid(**knobs: Any) -> bool:
        config: Config = KERNEL.signature.config(knobs)
        return KERNEL.valid(problem, config, H200.limits)

    assert valid(BLOCK_N=8192, ROWS=1, num_warps=16, num_stages=1)
    assert valid(BLOCK_N=2048, ROWS=1, num_warps=8, num_stages=3)
    assert not valid(BLOCK_N=8192, ROWS=1, num_warps=16, num_stages=2)  # no loop to pipeline
    assert not valid(BLOCK_N=16384, ROWS=1, num_warps=16, num_stages=1)  # more than the row
    assert not valid(BLOCK_N=128, ROWS=1, num_warps=4, num_stages=1)  # a long loop of short steps
    assert not valid(BLOCK_N=1024, ROWS=1, SHARED=True, num_warps=4, num_stages=1)  # one program can hold it


def test_blocks_in_flight_fit_in_shared_memory() -> None:
    """A block of 32,768 fp32 columns has 128 KB; with three stages two of them wait, beside the card's 227 KB."""
    wide = {"BLOCK_N": 32_768, "ROWS": 1, "SHARED": False, "num_warps": 32}
    for dtype, most_stages in (("fp32", 2), ("fp16", 4)):
        problem = KERNEL.signature.problem({"M": 64, "N": 65_537, "dtype": dtype})
        fits = [stages for stages in (1, 2, 3, 4) if KERNEL.valid(problem, wide | {"num_stages": stages}, H200.limits)]
        assert fits == [*range(1, most_stages + 1)]


def test_one_warp_does_not_pipeline_several_rows() -> None:
    problem = KERNEL.signature.problem({"M": 1823, "N": 513})
    loop = {"BLOCK_N": 512, "SHARED": False, "num_stages": 3}
    assert not KERNEL.valid(problem, loop | {"ROWS": 2, "num_warps": 1}, H200.limits)
    assert KERNEL.valid(problem, loop | {"ROWS": 1, "num_warps": 1}, H200.limits)
    assert KERNEL.valid(problem, loop | {"ROWS": 2, "num_warps": 2}, H200.limits)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"M": 64, "N": 50_257}, {"BLOCK_N": 8192, "SHARED": True}),
        ({"M": 64, "N": 151_936}, {"BLOCK_N": 32_768, "SHARED": True}),
        ({"M": 1024, "N": 151_936, "dtype": "bf16"}, {"BLOCK_N": 8192, "SHARED": False}),
        ({"M": 200, "N": 151_936, "dtype": "bf16"}, {"BLOCK_N": 32_768, "SHARED": True}),
        ({"M": 200, "N": 65_537, "dtype": "bf16"}, {"BLOCK_N": 8192, "SHARED": False}),
        ({"M": 8, "N": 300_001}, {"BLOCK_N": 8192, "SHARED": False, "num_stages": 3}),
    ],
)
def test_the_default_shares_long_rows_or_loops_over_them(values: dict[str, Any], expected: dict[str, Any]) -> None:
    problem = KERNEL.signature.problem(values)
    config = KERNEL.default(problem, H200.limits)
    assert {name: config[name] for name in expected} == expected
    assert KERNEL.valid(problem, config, H200.limits)


def test_long_rows_are_shared_by_as_many_programs_as_may_wait_for_each_other() -> None:
    problem = KERNEL.signature.problem({"M": 4096, "N": 65536})

    def valid(**knobs: Any) -> bool:
        config: Config = KERNEL.signature.config({"SHARED": True, "num_stages": 1, **knobs})
        return KERNEL.valid(problem, config, H200.limits)

    assert valid(BLOCK_N=8192, ROWS=1, num_warps=4)
    assert not valid(BLOCK_N=4096, ROWS=1, num_warps=4)  # 16 programs that wait
    assert not valid(BLOCK_N=8192, ROWS=2, num_warps=16)
    assert not valid(BLOCK_N=65536, ROWS=1, num_warps=32)  # one program, which shares nothing
    assert KERNEL.default(problem, H200.limits)["SHARED"]
    longest = KERNEL.signature.problem({"M": 2, "N": 2_000_003})
    assert not KERNEL.default(longest, H200.limits)["SHARED"]


@pytest.mark.parametrize("config", [ONE_PASS, ONLINE], ids=["one pass", "online"])
class TestRows:
    def test_rows_sum_to_one_and_are_invariant_to_a_shift(self, config: dict[str, Any]) -> None:
        x = torch.randn(5, 400, generator=torch.Generator().manual_seed(1))
        out = run(x, config)
        assert torch.allclose(out.sum(dim=1), torch.ones(5), atol=1e-6)
        assert torch.allclose(run(x + 100, config), out, atol=1e-6)

    def test_special_rows_are_as_in_torch(self, config: dict[str, Any]) -> None:
        inf, nan = float("inf"), float("nan")
        x = torch.randn(6, 300, generator=torch.Generator().manual_seed(2))
        x[0] = -inf  # nothing to attend to
        x[1, :280] = -inf  # a masked beginning, blocks of it
        x[2, 7] = inf
        x[3, 299] = nan
        x[4] = -1e38
        assert torch.equal(run(x, config).isnan(), torch.softmax(x, dim=1).isnan())
        assert torch.allclose(run(x, config), torch.softmax(x, dim=1), atol=1e-6, equal_nan=True)


INF = float("inf")


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.0, 0.0), (-INF, 0.0), (0.0, -INF), (-INF, -1000.0), (-1000.0, -INF), (200.0, -200.0), (-INF, -INF), (INF, 0.0)],
)
def test_a_program_that_shares_a_row_computes_its_part(first: float, second: float) -> None:
    """The interpreter runs one program after the other, so one of two runs, with the other's results prepared."""
    x = torch.randn(1, 512, generator=torch.Generator().manual_seed(1))
    x[0, :256] += first
    x[0, 256:] += second
    out = torch.full_like(x, float("nan"))
    started, arrived = torch.tensor([1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    top = x[0, :256].max()
    total = (x[0, :256] - (0.0 if top == -INF else top)).exp().sum()
    found = torch.tensor([[[top, total], [0.0, 0.0]]])
    work = (started, arrived, found)
    softmax_shared[(1,)](x, out, *work, 1, 512, 512, 512, BLOCK_N=256, PARTS=2, ALIGN=1, num_warps=1)
    assert torch.allclose(out[0, 256:], x.softmax(1)[0, 256:], rtol=1e-6, atol=0.0, equal_nan=True)
    assert started.item() == 0  # the last to start leaves it as it was
    assert arrived.item() == 3  # both are here, and one has read
