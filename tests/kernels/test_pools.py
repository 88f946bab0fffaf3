"""Pooling: numbers of windows as torch's, special values, which path runs, and what it compiles to."""

from __future__ import annotations

import mmap
import random
from textwrap import dedent
from typing import Any

import pytest
import torch
from forks import printed
from helpers import H200
from torch import Tensor
from torch.nn import functional

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.shared.windows import axis, windows
from tuner.kernels.shared.windows_accesses import LINE, stored
from tuner.kernels.shared.windows_estimate import estimate, share_of_rows
from tuner.kernels.shared.windows_launch import unrolled
from tuner.kernels.shared.windows_shared import reads_one_by_one, shared_estimate
from tuner.kernels.shared.windows_space import known
from tuner.kernels.shared.windows_work import work
from tuner.kernels.spec import Kernel, Problem
from tuner.measure import tensors
from tuner.measure.bounds import within
from tuner.search.space import feasible

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
MAX, AVG = catalog.load("max_pool2d"), catalog.load("avg_pool2d")
INF, NAN = float("inf"), float("nan")
MAP_NORESERVE = 0x4000
"""Flag of Linux: only memory that is written takes room."""


def window(R: int, stride: int = 1, padding: int = 0, S: int | None = None) -> dict[str, Any]:
    return {"R": R, "S": S or R, "stride_h": stride, "padding_h": padding, "padding_w": padding}


def problem(kernel: Kernel, x: Tensor, **values: Any) -> Problem:
    sizes = dict(zip("BCHW", x.shape, strict=True))
    return kernel.signature.problem({**sizes, "dtype": x.dtype, **values})


def pooled(kernel: Kernel, x: Tensor, given: Problem, divisor: float = 0.0, **knobs: Any) -> Tensor:
    """Return the result of the default, or of the default with other knobs."""
    config = kernel.signature.config({**kernel.default_config(given, H200.limits), **knobs})
    assert kernel.valid(given, config, H200.limits)
    out = torch.full(kernel.operands(given)["out"].shape, NAN, dtype=x.dtype)
    work = tensors.workspace(kernel.workspace(given, config, H200.limits), "cpu")
    scalars = {"divisor_override": divisor} if kernel.scalars else {}
    with within([x, out, *work.values()]):
        for _ in range(2):  # a second launch finds the workspace as the first has left it
            for launch in kernel.launch(given, config, {"x": x, "out": out, **work, **scalars}):
                launch()
    return out


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_there_are_as_many_windows_as_in_torch() -> None:
    dice = random.Random(1)
    for _ in range(300):
        size, R, stride, dilation = (dice.randint(1, most) for most in (20, 7, 6, 3))
        padding, ceil = dice.randint(0, R // 2), dice.random() < 0.5
        try:
            x = torch.empty(1, 1, size, 1)
            expected = functional.max_pool2d(x, (R, 1), (stride, 1), (padding, 0), (dilation, 1), ceil).shape[2]
        except RuntimeError:  # no window fits
            expected = 0
        assert axis(size, R, stride, padding, dilation, ceil).count == expected


def test_a_problem_without_windows_is_refused() -> None:
    for values in (window(9), window(3, padding=2)):
        with pytest.raises(
            UsageError, match=r"max_pool2d: (a window spans at most the 8 rows|the padding of rows is 0)"
        ):
            MAX.operands(problem(MAX, torch.empty(1, 1, 8, 8), **values))


ONE_WARP = {"VARIANT": "tiles", "TILE_Q": 2, "BLOCK_Q": 8, "num_warps": 1}
PATHS: dict[str, tuple[tuple[int, int], dict[str, Any], dict[str, Any]]] = {
    "in registers": ((7, 16), window(3, 2, 1), {**ONE_WARP, "TILE_P": 2, "BLOCK_N": 2}),
    "rows in a loop": ((9, 8), window(9, 1, 4), {**ONE_WARP, "TILE_P": 1, "BLOCK_N": 16}),
    "shared rows in a loop": ((23, 8), window(9, 2, 4), {**ONE_WARP, "TILE_P": 4, "BLOCK_N": 4, "BLOCK_Q": 4}),
    "a long window": ((5, 40), window(5, 1, 2, S=33), {"VARIANT": "reduced", "BLOCK_K": 32, "BLOCK_N": 32}),
    "whole rows": ((11, 7), window(9, S=7), {"VARIANT": "reduced", "SPLIT": 1}),
    "parts of whole rows": ((52, 40), window(52, S=40), {"SPLIT": 2, "BLOCK_K": 512, "num_stages": 1}),
}


@pytest.mark.parametrize("path", PATHS)
def test_nan_wins_and_padding_is_smaller_than_all(path: str) -> None:
    (H, W), values, knobs = PATHS[path]
    x = drawn(1, 1, H, W) - 100  # a padding of 0 would be larger
    x[0, 0, 0, 5], x[0, 0, H // 2, W // 2 :] = NAN, INF
    x[0, 0, H // 2 + 1 :] = -INF
    given = problem(MAX, x, **values)
    found = pooled(MAX, x, given, **knobs)
    pads = (given["padding_h"], given["padding_w"])
    expected = functional.max_pool2d(x, (given["R"], given["S"]), (given["stride_h"], given["stride_w"]), pads)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(nan=7), expected.nan_to_num(nan=7))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("divisor", [0, -3])
def test_sums_are_divided_by_their_elements_or_by_a_number(path: str, divisor: int) -> None:
    (H, W), values, knobs = PATHS[path]
    x = drawn(1, 1, H, W)
    given = problem(AVG, x, **values, count_include_pad=False)
    pads = (given["padding_h"], given["padding_w"])
    expected = functional.avg_pool2d(
        x, (given["R"], given["S"]), (given["stride_h"],) * 2, pads, False, False, divisor or None
    )
    assert torch.allclose(pooled(AVG, x, given, divisor, **knobs), expected, atol=1e-6)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("high", [1, 2, 4, 8])
def test_rows_of_outputs_share_rows_in_a_loop(layout: str, high: int) -> None:
    x = drawn(2, 5, 29, 13)
    values = {"R": 10, "S": 3, "stride_h": 3, "padding_h": 4, "ceil": True, "layout": layout}
    given = problem(AVG, x, **values, count_include_pad=False)
    knobs: dict[str, Any] = {**ONE_WARP, "TILE_P": high, "TILE_Q": 1, "BLOCK_N": 8}
    memory = x.contiguous(memory_format=torch.channels_last) if layout == "nhwc" else x
    expected = functional.avg_pool2d(x, (10, 3), (3, 3), (4, 0), True, False)
    found = pooled(AVG, memory, given, **knobs)
    if layout == "nhwc":
        B, C, P, Q = expected.shape
        found = found.view(B, P, Q, C).permute(0, 3, 1, 2)
    assert torch.allclose(found, expected, atol=1e-6)


def test_dilated_rows_in_a_loop_are_not_shared() -> None:
    def most(**values: int) -> int:
        given = MAX.signature.problem({"B": 2, "C": 8, "H": 64, "R": 9, "stride_h": 1, **values})
        return max(int(str(config["TILE_P"])) for config in feasible(MAX, given, H200.limits))

    assert (most(), most(dilation_h=2), most(stride_h=9)) == (8, 1, 1)


def test_windows_that_reach_out_of_the_image_are_padding_there() -> None:
    """With a dilation, a window may have no element: torch's result is -inf."""
    x = drawn(1, 2, 1, 1)
    given = problem(MAX, x, **window(2, 1, 1), dilation_h=2, dilation_w=2)
    assert pooled(MAX, x, given).flatten().tolist() == [-INF, -INF]


@pytest.mark.parametrize(("offset", "group"), [(0, 8), (1, 1)])
def test_groups_of_16_bytes_are_read_if_the_tensor_begins_with_one(offset: int, group: int) -> None:
    image = drawn(160).half()
    x = image[offset : offset + 70].view(2, 1, 5, 7)
    given = problem(AVG, x, **window(5, S=7))
    out = torch.empty(2, 1, 1, 1, dtype=torch.half)
    (launch,) = AVG.launch(given, AVG.default_config(given, H200.limits), {"x": x, "out": out})
    launch()
    assert launch.kwargs["GROUP"] == group
    assert torch.allclose(out, x.float().mean((2, 3), keepdim=True).half(), atol=1e-3)


@pytest.mark.parametrize(("high", "wide", "split"), [(41, 1, 1), (9, 3, 1), (901, 3, 2)])
def test_nothing_is_read_after_the_last_elements_which_are_no_group(high: int, wide: int, split: int) -> None:
    """Windows share rows, so the last elements belong to several of them."""
    x = drawn(1, 3, high, wide).half()
    x[0, 2, -1, -1] = 9
    given = problem(MAX, x, **window(high - 2, S=wide))
    expected = functional.max_pool2d(x, (high - 2, wide), 1)
    assert torch.equal(pooled(MAX, x, given, VARIANT="reduced", SPLIT=split, num_stages=1), expected)


def test_rows_of_a_tile_lie_past_32_bits() -> None:
    memory = mmap.mmap(-1, 18 * 2**29, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    written = mmap.mmap(-1, 16 * 2**29, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    x = torch.frombuffer(memory, dtype=torch.half).view(1, 1, 9, 2**29)
    out = torch.frombuffer(written, dtype=torch.half).view(1, 1, 8, 2**29)
    x[..., :8] = drawn(9, 8)
    config = {"TILE_P": 8, "TILE_Q": 8, "BLOCK_Q": 8, "BLOCK_N": 1, "num_warps": 1, "num_stages": 1}
    full = MAX.signature.config({"VARIANT": "tiles", "BLOCK_K": 1, "SPLIT": 1, **config})
    (launch,) = MAX.launch(problem(MAX, x, **window(2, S=1)), full, {"x": x, "out": out})
    with within([x, out]):
        launch.fn[(1,)](*launch.args, **launch.kwargs)
    assert torch.equal(out[..., :8], functional.max_pool2d(x[..., :8], (2, 1), 1))


def test_a_short_window_is_read_at_once_and_a_long_one_in_a_loop() -> None:
    def blocks(values: dict[str, Any]) -> int:
        given = AVG.signature.problem(values)
        return unrolled(known(given), AVG.default_config(given, H200.limits))

    assert blocks({"B": 256, "C": 2048, "H": 7, "R": 7}) == 1
    assert blocks({"B": 32, "C": 2048, "H": 7, "R": 7, "layout": "nhwc"}) == 13
    assert blocks({"B": 2, "C": 64, "H": 224, "R": 224}) == 0
    few = AVG.signature.problem({"B": 1, "C": 64, "H": 224, "R": 224})
    assert AVG.default(few, H200.limits)["SPLIT"] == 16


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        pytest.param(  # odd rows of outputs are stored one element at a time: 4 columns of a thread are 4 sectors
            {"B": 40, "C": 2048, "H": 60, "R": 3, "stride_h": 2}, lambda c: c["TILE_Q"] <= 2 and c["TILE_P"] >= 4,
            id="stores of neighbours",
        ),
        pytest.param(  # programs of 4 rows of 26 outputs take longer to start than to run
            {"B": 48, "C": 2048, "H": 52, "R": 2, "stride_h": 2}, lambda c: c["TILE_P"] * c["BLOCK_N"] >= 16,
            id="time to start programs",
        ),
        pytest.param(  # rows of outputs of a thread are whole lines, not each fourth of them
            {"B": 192, "C": 1024, "H": 16, "R": 1}, lambda c: c["TILE_P"] == 1, id="rows that are neighbours",
        ),
        pytest.param(  # 8 pixels at once leave 4 of 32 threads idle in a row of 28
            {"B": 48, "C": 512, "H": 28, "R": 9, "padding_h": 4, "padding_w": 4, "layout": "nhwc"},
            lambda c: 28 % c["BLOCK_Q"] == 0, id="pixels of a row",
        ),
        pytest.param(  # 128 channels at once leave 32 of them idle
            {"B": 8, "C": 96, "H": 208, "R": 5, "padding_h": 2, "padding_w": 2, "layout": "nhwc"},
            lambda c: 96 % c["BLOCK_N"] == 0, id="channels",
        ),
        pytest.param(  # 32 of 64 neighbouring channels are half a line
            {"B": 42, "C": 384, "H": 128, "R": 3, "stride_h": 2, "layout": "nhwc"}, lambda c: c["BLOCK_N"] >= 64,
            id="channels of a line",
        ),
        pytest.param(  # rows of 158 outputs are stored by pairs: 8 columns of a thread are 4 stores to each sector
            {"B": 8, "C": 480, "H": 416, "W": 160, "R": 1, "S": 13, "padding_w": 5},
            lambda c: c["TILE_Q"] <= 4 or c["BLOCK_Q"] // c["TILE_Q"] >= 32, id="stores of several rows",
        ),
        pytest.param(  # lanes in rows reach a few lines, in planes of 7 x 7 one for each: 56 to 64 us and 101
            {"B": 256, "C": 1601, "H": 7, "R": 3, "padding_h": 1, "padding_w": 1}, lambda c: c["TILE_P"] == 1,
            id="lines of planes",
        ),
        pytest.param(  # each load of a warp reaches eight half lines if a program has 32 channels: 1,962 us, else 1,445
            {"B": 11, "C": 1280, "H": 128, "W": 112, "R": 9, "padding_h": 4, "padding_w": 4, "layout": "nhwc",
             "dilation_h": 2, "dilation_w": 2},
            lambda c: c["BLOCK_N"] >= 64, id="lines of channels",
        ),
        pytest.param(  # 1,248 warps read all 17 MB before one writes: 8.8 us, and 7.1 with one output for each thread
            {"B": 96, "C": 128, "H": 26, "R": 2, "stride_h": 2, "ceil": True, "layout": "nhwc"},
            lambda c: c["TILE_P"] * c["TILE_Q"] <= 2, id="one wave",
        ),
        pytest.param(  # one warp that shares windows; others would exchange more in the end
            {"B": 55, "C": 112, "H": 224, "W": 192, "R": 224, "S": 192, "layout": "nhwc"},
            lambda c: (c["VARIANT"], c["SPLIT"], c["num_warps"]) == ("reduced", 8, 1), id="whole images",
        ),
        pytest.param(  # 576 programs of one warp would read 18 KB at once on each multiprocessor
            {"B": 36, "C": 56, "H": 359, "R": 359, "layout": "nhwc"},
            lambda c: (c["SPLIT"], c["BLOCK_K"], c["num_warps"]) == (16, 64, 2), id="whole images in few programs",
        ),
        pytest.param(  # a program has two blocks of the 25 of a window
            {"B": 2, "C": 256, "H": 40, "R": 40, "layout": "nhwc"},
            lambda c: (c["SPLIT"], c["BLOCK_K"], c["num_warps"]) == (16, 64, 1), id="few whole images",
        ),
        pytest.param(  # windows of less than 256 pixels are not split
            {"B": 2, "C": 256, "H": 14, "R": 14, "layout": "nhwc"},
            lambda c: (c["VARIANT"], c["SPLIT"]) == ("reduced", 1), id="small whole images",
        ),
        pytest.param(  # 128 programs of eight warps read their windows at once; parts would wait for each other
            {"B": 16, "C": 256, "H": 20, "R": 20, "layout": "nhwc"},
            lambda c: (c["SPLIT"], c["BLOCK_K"], c["num_warps"]) == (1, 64, 8), id="few windows at once",
        ),
        pytest.param(  # a thread with 4 channels of each pixel computes few addresses: 95 us, with one 144
            {"B": 10, "C": 1715, "H": 7, "W": 1023, "R": 7, "S": 1023, "layout": "nhwc"},
            lambda c: (c["BLOCK_N"], c["num_warps"]) == (256, 2), id="odd channels of whole images",
        ),
        pytest.param(  # 16 programs, whose threads load 21 elements each: 2.4 us, with 83 elements 4.5
            {"B": 8, "C": 33, "H": 15, "W": 11, "S": 11, "R": 15, "layout": "nhwc"},
            lambda c: (c["BLOCK_N"], c["num_warps"]) == (32, 8), id="few whole images of odd channels",
        ),
        pytest.param(  # a thread for eight channels of each window would be 48 warps: 12.6 us, shared 7.1
            {"B": 1, "C": 2048, "H": 28, "W": 26, "S": 21, "layout": "nhwc",
             "R": 14, "stride_h": 6, "stride_w": 10, "padding_h": 1, "padding_w": 5},
            lambda c: (c["VARIANT"], c["SPLIT"], c["BLOCK_K"]) == ("reduced", 4, 32), id="few large windows",
        ),
    ],
)  # fmt: skip
def test_the_default_of_a_thread_goes_by_what_it_reads_holds_and_stores(values: dict[str, Any], fits: Any) -> None:
    default = {"stride_h": 1, "dtype": "bf16"} | values
    assert fits(MAX.default_config(MAX.signature.problem(default), H200.limits))


def test_threads_that_loop_over_rows_of_windows_have_outputs_of_several_rows_that_share_them() -> None:
    def config(columns: int, side: int, **values: Any) -> Any:
        given = {"B": 4, "C": 512, "H": 40, "W": columns, "R": side, "padding_h": side // 2, "padding_w": side // 2}
        problem = MAX.signature.problem(given | {"stride_h": 1, "dtype": "bf16"} | values)
        return MAX.default_config(problem, H200.limits)

    looped = config(459, 13)
    assert (looped["TILE_P"], looped["TILE_Q"], looped["BLOCK_Q"] * looped["BLOCK_N"]) == (8, 4, 4 * 32)
    pixels = config(459, 13, layout="nhwc")
    assert (pixels["TILE_P"], pixels["TILE_Q"]) == (8, 1)  # 16 columns of 13 and 4 outputs would be 255 registers
    assert config(459, 13, stride_h=13)["TILE_P"] == 1


@pytest.mark.parametrize(
    ("values", "knobs", "measured_us"),
    [
        ({"B": 48, "C": 2048, "H": 52, "R": 2, "stride_h": 2}, (1, 2, 32, 4, 2), 389.4),
        ({"B": 48, "C": 2048, "H": 52, "R": 2, "stride_h": 2}, (4, 2, 32, 4, 1), 166.5),
        ({"B": 42, "C": 24, "H": 512, "R": 3, "padding_h": 1, "padding_w": 1}, (1, 1, 16, 4, 2), 2486.3),
        ({"B": 42, "C": 24, "H": 512, "R": 3, "padding_h": 1, "padding_w": 1}, (4, 8, 512, 1, 2), 254.3),
        ({"B": 256, "C": 384, "H": 32, "R": 3, "stride_h": 2}, (8, 1, 16, 4, 2), 87.1),
        ({"B": 256, "C": 384, "H": 32, "R": 3, "stride_h": 2}, (1, 4, 16, 8, 1), 117.0),
        (
            {"B": 8, "C": 96, "H": 208, "R": 5, "padding_h": 2, "padding_w": 2, "layout": "nhwc"},
            (2, 1, 16, 32, 2),
            94.4,
        ),
    ],
)
def test_the_estimate_is_within_a_third_of_a_measurement(
    values: dict[str, Any], knobs: tuple[int, ...], measured_us: float
) -> None:
    """H200, 2026-11-30, on a cold L2; the last of avg_pool2d."""
    assert estimated(values, knobs, maximum="layout" not in values) == pytest.approx(measured_us, rel=1 / 3)


def estimated(values: dict[str, Any], knobs: tuple[int, ...], *, maximum: bool = True) -> float:
    given = windows(MAX.signature.problem({"stride_h": 1, "dtype": "bf16"} | values))
    config = dict(zip(("TILE_P", "TILE_Q", "BLOCK_Q", "BLOCK_N", "num_warps"), knobs, strict=True))
    return estimate(given, config | {"VARIANT": "tiles"}, H200.limits, maximum=maximum)


@pytest.mark.parametrize(
    ("knobs", "measured_us"), [((4, 1, 1, 64, 1), 3.37), ((2, 1, 1, 64, 1), 3.48), ((1, 1, 4, 64, 1), 5.91)]
)
def test_a_loop_waits_for_each_row_unless_the_compiler_unrolls_it(knobs: tuple[int, ...], measured_us: float) -> None:
    """H200, 2026-11-30, on a cold L2. Threads of the first two have two channels at once, those of the last eight."""
    values = {"B": 23, "C": 64, "H": 38, "R": 10, "S": 2, "stride_h": 3, "padding_h": 5, "layout": "nhwc"}
    assert estimated(values, knobs) == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("values", "knobs", "measured_us"),
    [
        ((10, 1715, 7, 1023), (256, 16, 8, 2), 95.1),
        ((10, 1715, 7, 1023), (64, 64, 2, 2), 144.1),
        ((10, 1715, 7, 1023), (32, 16, 1, 1), 367.4),
        ((96, 67, 17, 45), (128, 16, 8, 1), 9.6),
        ((96, 67, 17, 45), (32, 64, 1, 1), 25.3),
        ((8, 33, 15, 11), (32, 16, 1, 8), 2.39),
        ((8, 33, 15, 11), (32, 128, 1, 2), 4.54),
    ],
)
def test_the_estimate_of_shared_odd_channels_is_within_a_fifth_of_a_measurement(
    values: tuple[int, ...], knobs: tuple[int, ...], measured_us: float
) -> None:
    """H200, 2026-11-30, on a cold L2."""
    B, C, H, W = values
    whole = {"B": B, "C": C, "H": H, "W": W, "R": H, "S": W, "dtype": "bf16", "layout": "nhwc"}
    config = dict(zip(("BLOCK_N", "BLOCK_K", "SPLIT", "num_warps"), knobs, strict=True))
    found = windows(AVG.signature.problem(whole))
    assert reads_one_by_one(found)
    assert shared_estimate(found, config | {"VARIANT": "reduced"}, H200.limits) == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(
    "values", [(1, 1, 200, 1, 100, 1), (1, 3, 101, 3, 100, 2), (2, 1, 65, 3, 65, 3), (1, 7, 3, 99, 3, 40)]
)
def test_shared_windows_of_odd_channels_have_a_default_however_narrow_they_are(values: tuple[int, ...]) -> None:
    sizes = dict(zip(("B", "C", "H", "W", "R", "S"), values, strict=True))
    given = MAX.signature.problem({**sizes, "stride_h": 1, "dtype": "bf16", "layout": "nhwc"})
    config = MAX.default_config(given, H200.limits)
    assert config["VARIANT"] == "reduced"
    assert MAX.valid(given, config, H200.limits)


def test_lanes_in_neighbouring_rows_reach_the_same_lines() -> None:
    def lines(high: int, wide: int) -> float:
        given = windows(AVG.signature.problem({"B": 256, "C": 64, "H": 7, "dtype": "bf16", **window(3, 1, 1)}))
        config = {"TILE_P": high, "TILE_Q": wide, "BLOCK_Q": 8, "BLOCK_N": 32 * wide // 8}
        return stored(given, work(given, high, wide, False), config, LINE)

    assert lines(1, 8) == pytest.approx(1 + (31 * 14) / 128, abs=0.1)  # 32 rows of 14 bytes
    assert lines(8, 2) == pytest.approx(1 + (7 * 98 + 12) / 128, abs=0.1)  # a row of each of 8 planes


def test_rows_that_no_window_reads_are_not_counted() -> None:
    def share(R: int, stride: int, dilation: int = 1) -> float:
        return share_of_rows(axis(64, R, stride, 0, dilation, False))

    assert (share(2, 2), share(2, 2, 2), share(3, 4), share(9, 1)) == (1, 1 / 2, 3 / 4, 1)


def test_halves_that_one_maximum_needs_are_compared_in_pairs() -> None:
    values = {"B": 192, "C": 1280, "H": 56, "W": 8, "dtype": "bf16", "layout": "nhwc", **window(3, 1, 1)}
    maxima, averages = (kernel.default_config(kernel.signature.problem(values), H200.limits) for kernel in (MAX, AVG))
    assert (maxima["TILE_P"], maxima["TILE_Q"]) == (8, 1)  # 112 to 123 us; 4 x 2, whose outputs share columns: 132
    assert averages["TILE_Q"] > 1

    def count(high: int, wide: int, maximum: bool, dtype: str = "bf16") -> float:
        return work(windows(MAX.signature.problem(values | {"dtype": dtype})), high, wide, maximum).values

    assert count(8, 1, True) < count(8, 1, False) / 2
    assert count(4, 2, True) > count(4, 2, False) / 2
    assert count(8, 1, True, "fp32") > count(8, 1, True) / 2  # half as many channels, one by one


def test_a_thread_has_further_channels_if_it_reads_them_one_by_one() -> None:
    values = {"B": 1, "C": 625, "H": 469, "R": 5, "dilation_h": 2, "dilation_w": 2, "padding_h": 2, "padding_w": 2}
    problem = MAX.signature.problem(values | {"stride_h": 1, "dtype": "fp16", "layout": "nhwc"})
    config = MAX.default_config(problem, H200.limits)
    assert (config["BLOCK_Q"], config["TILE_Q"]) == (8, 8)
    assert config["BLOCK_N"] == 2 * 32 * config["num_warps"]  # 685 us; 784 with one channel, 963 with other pixels


@pytest.mark.parametrize(
    ("values", "good"),
    [
        ({**window(3, 2, 1), "H": 112, "layout": "nchw"}, {"TILE_P": 4, "TILE_Q": 4, "BLOCK_Q": 64, "BLOCK_N": 8}),
        ({**window(3, 2, 1), "H": 112, "layout": "nhwc"}, {"TILE_P": 2, "TILE_Q": 2, "BLOCK_Q": 32, "BLOCK_N": 64}),
        ({**window(3, 1, 1), "H": 56, "layout": "nchw"}, {"TILE_P": 4, "TILE_Q": 8, "BLOCK_Q": 64, "BLOCK_N": 16}),
        ({**window(2, 2), "H": 224, "layout": "nchw"}, {"TILE_P": 1, "TILE_Q": 8, "BLOCK_Q": 128, "BLOCK_N": 8}),
    ],
)
def test_spaces_are_small_and_have_tiles_in_registers(values: dict[str, Any], good: dict[str, int]) -> None:
    given = MAX.signature.problem({"B": 32, "C": 64, **values})
    space = list(feasible(MAX, given, H200.limits))
    assert 50 < len(space) < 700
    rest: dict[str, Any] = {"VARIANT": "tiles", "BLOCK_K": 1, "SPLIT": 1, "num_warps": 4, "num_stages": 1}
    assert MAX.signature.config({**good, **rest}) in space


COMPILED = """
    import re
    from collections import Counter
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import compile_launches, set_target

    set_target(H200.limits)
    kernel = catalog.load("max_pool2d")
    halved = {"B": 32, "C": 64, "H": 112, "R": 3, "stride_h": 2, "padding_h": 1, "padding_w": 1}
    whole = {"B": 2, "C": 5, "H": 301, "W": 203, "R": 301, "S": 203}
    for layout, values in (("nchw", halved), ("nhwc", {**halved, "layout": "nhwc"}), ("nchw", whole)):
        problem = kernel.signature.problem(values)
        config = kernel.default_config(problem, H200.limits)
        (code,) = compile_launches(kernel, problem, config, H200.limits)
        found = Counter(re.findall(r"(?:ld|st)\\.(?:global|shared)[.\\w]*", code.asm["ptx"]))
        print(layout, code.metadata.shared, *sorted(found.items()))
"""


LANES = """
    import re
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import compile_launches, set_target

    set_target(H200.limits)
    kernel = catalog.load("max_pool2d")
    problem = kernel.signature.problem({"B": 32, "C": 64, "H": 112, "R": 3, "stride_h": 2})
    knobs = {"TILE_P": 2, "TILE_Q": 2, "BLOCK_Q": 16, "BLOCK_N": 32, "num_warps": 4, "num_stages": 1}
    config = kernel.signature.config({"VARIANT": "tiles", "BLOCK_K": 1, "SPLIT": 1, **knobs})
    (code,) = compile_launches(kernel, problem, config, H200.limits)
    for lanes in re.findall(r"threadsPerWarp = \\[([\\d, ]+)\\]", code.asm["ttgir"]):
        print("lanes", lanes)
"""


def test_a_thread_reads_16_bytes_at_a_time_and_exchanges_nothing() -> None:
    nchw, nhwc, whole = [line for line in printed(dedent(COMPILED)).splitlines() if line.startswith("n")]
    assert nchw == "nchw 0 ('ld.global.v4.b32', 20) ('st.global.v2.b32', 4)"  # 5 rows for 2 rows of outputs, not 6
    assert nhwc == "nhwc 0 ('ld.global.v4.b32', 15) ('st.global.v4.b32', 2)"  # 5 x 3 pixels for 2 x 1 outputs
    assert "('ld.global.v4.b32', 2)" in whole  # from rows that begin anywhere


def test_the_lanes_of_a_warp_are_along_a_row() -> None:
    found = [line.split(" ", 1)[1] for line in printed(dedent(LANES)).splitlines() if line.startswith("lanes")]
    assert "1, 32, 1" in found
    assert all("32" in lanes.split(", ") for lanes in found)
