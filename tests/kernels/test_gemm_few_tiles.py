"""Defaults of gemm for few tiles and long K: slices that fill the card, and sums that stay exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from compiled_gemm import of_variant, problem
from helpers import A100, H200

from tuner.kernels.gemm import KERNEL
from tuner.kernels.gemm.default import by_rules
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.filling import depths_of
from tuner.kernels.gemm.space import reads_elements
from tuner.kernels.gemm.tall import tall
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import cdiv
from tuner.records import Device


def programs(values: dict[str, object]) -> int:
    default = KERNEL.default(problem(**values), H200.limits)
    return tile_count(problem(**values), default) * int(str(default["SPLIT_K"]))


@pytest.mark.parametrize(
    "values",
    [
        {"M": 41, "N": 41, "K": 104704},
        {"M": 178, "N": 178, "K": 38464, "layout": "nt"},
        {"M": 253, "N": 253, "K": 77504, "layout": "nt", "bias": True},
        {"M": 7, "N": 1344, "K": 1344, "layout": "tn"},
        {"M": 2, "N": 1408, "K": 2816},
        {"M": 64, "N": 64, "K": 46976, "layout": "nt"},
    ],
)
def test_long_k_is_cut_so_that_bytes_are_in_flight_on_most_multiprocessors(values: dict[str, object]) -> None:
    """Measured on an H200: the rules alone took 1.15 to 17 times as long as the best config."""
    asked = problem(**values)
    rules, default = by_rules(asked, H200.limits), KERNEL.default(asked, H200.limits)
    assert tile_count(asked, rules) * int(str(rules["SPLIT_K"])) < 132
    assert 66 < programs(values) <= 4 * 132
    assert KERNEL.valid(asked, default, H200.limits)
    assert estimate(asked, default, H200.limits).us < estimate(asked, rules, H200.limits).us / 1.06


@pytest.mark.parametrize(
    "values", [{"M": 16, "N": 512, "K": 512}, {"M": 16, "N": 4096, "K": 4096, "layout": "nt"}, {"M": 1, "K": 8192}]
)
def test_short_k_and_products_that_fill_the_card_are_not_cut(values: dict[str, object]) -> None:
    asked = problem(**{"N": 4096, **values})
    assert KERNEL.default(asked, H200.limits) == by_rules(asked, H200.limits)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((13, 2048, 2880), (32, 64, 4, 6)),
        ((9, 1344, 3840), (32, 64, 8, 6)),
        ((11, 3520, 2688), (32, 256, 1, 5)),
        ((16, 3008, 3392), (32, 64, 4, 6)),
    ],
)
def test_up_to_16_rows_along_k_are_cut_until_each_multiprocessor_has_three(
    sizes: tuple[int, ...], tile: tuple[int, ...]
) -> None:
    """Each is at most 1 % slower than the best of 40 configs, and `streamed` 15 to 33 % (H200, 2026-12-01)."""
    default = KERNEL.default(problem(**dict(zip("MNK", sizes, strict=True)), layout="nt"), H200.limits)
    assert tuple(default[name] for name in ("BLOCK_N", "BLOCK_K", "SPLIT_K", "num_stages")) == tile
    assert default["VARIANT"] == "tiles"


def test_many_bytes_of_up_to_16_rows_are_streamed() -> None:
    """6 x 3584 x 7168 takes 22.5 us, in tiles of 32 columns 24 (H200, 2026-11-30)."""
    assert KERNEL.default(problem(M=6, N=3584, K=7168, layout="nt"), H200.limits)["VARIANT"] == "streamed"


@pytest.mark.parametrize(
    ("sizes", "tile"), [((55, 1088, 448), (64, 16)), ((43, 7040, 768), (64, 64)), ((23, 1856, 1088), (32, 16))]
)
def test_few_rows_with_a_short_k_are_computed_in_tiles(sizes: tuple[int, ...], tile: tuple[int, int]) -> None:
    """Warps with roles take 1.02 to 1.19 times as long (H200, 2026-12-01)."""
    default = KERNEL.default(problem(**dict(zip("MNK", sizes, strict=True)), layout="nt"), H200.limits)
    assert (default["VARIANT"], default["BLOCK_M"], default["BLOCK_N"]) == ("tiles", *tile)


@pytest.mark.parametrize(
    ("sizes", "layout", "tile"),
    [
        ((21696, 38, 156), "nt", (64, 64, 32, 4)),
        ((43904, 22, 84), "nt", (64, 32, 32, 4)),
        ((32192, 18, 72), "nt", (128, 32, 32, 8)),
        ((39168, 52, 304), "nt", (128, 64, 64, 4)),
        ((18176, 35, 140), "tn", (128, 16, 64, 4)),
        ((20224, 60, 100), "tn", (64, 64, 64, 4)),
    ],
)
def test_many_rows_with_few_columns_and_a_short_k_are_computed_in_small_tiles(
    sizes: tuple[int, ...], layout: str, tile: tuple[int, ...]
) -> None:
    """At most 2 % slower than the best of 12 to 40 configs; the rules before took 1.18 to 1.44 times as long (H200)."""
    default = KERNEL.default(problem(**dict(zip("MNK", sizes, strict=True)), layout=layout), H200.limits)
    assert tuple(default[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")) == tile
    assert (default["VARIANT"], default["ALIGN"]) == ("tiles", False)


@pytest.mark.parametrize("N", [17, 24, 32, 40, 48, 63])
@pytest.mark.parametrize("K", [8, 16, 24, 32, 40, 48, 64, 96, 128])
def test_small_tiles_of_tall_products_are_feasible_for_any_short_k(N: int, K: int) -> None:
    asked = problem(M=10_000, N=N, K=K, layout="nt")
    assert [KERNEL.valid(asked, config, H200.limits) for config in tall(asked, H200.limits)] == [True]


@pytest.mark.parametrize("card", [A100, H200], ids=lambda card: card.id)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("M", "N"), [(16, 16), (3, 3), (1, 1)])
def test_one_tile_is_cut_in_the_most_slices(M: int, N: int, dtype: str, card: Device) -> None:
    """64 slices are less than half of 132 multiprocessors."""
    assert KERNEL.default(problem(M=M, N=N, K=2**20, layout="nt", dtype=dtype), card.limits)["SPLIT_K"] == 64


def test_vectors_of_few_programs_are_cut_for_a_large_gain() -> None:
    """By the estimate, which is up to 1.5 times too long for vectors: 159 us and 8, 42 and 7; then 3.5 and 6."""
    assert KERNEL.default(problem(M=1, N=64, K=65536), H200.limits)["SPLIT_K"] == 32
    assert KERNEL.default(problem(M=1, N=128, K=16384), H200.limits)["SPLIT_K"] == 16
    assert KERNEL.default(problem(M=1, N=100, K=4096, layout="nt"), H200.limits)["VARIANT"] == "vectors"


def test_few_rows_are_cut_only_for_a_large_gain() -> None:
    """On an H200, slices take 1.06 times as long as whole tiles of 6 x 12288 x 4608, estimated 0.88 times."""
    uncut = problem(M=6, N=12288, K=4608)
    assert KERNEL.default(uncut, H200.limits) == by_rules(uncut, H200.limits)
    assert KERNEL.default(problem(M=2, N=1024, K=2752), H200.limits)["SPLIT_K"] == 4


def test_more_than_16_slices_are_for_products_that_do_not_fill_the_card_with_16() -> None:
    def most(**values: object) -> int:
        return max(int(str(config["SPLIT_K"])) for config in of_variant("tiles", problem(**values), H200.limits))

    assert most(M=41, N=41, K=104704) == 64
    assert most(M=512, N=1024, K=8192) == 16
    asked = problem(M=64, K=65536)
    tiles = of_variant("tiles", asked, H200.limits)
    one = {tile_count(asked, config) for config in tiles if config["SPLIT_K"] == 64}
    assert max(one) * 64 < 2 * 132


def strays(a: np.ndarray, b: np.ndarray, slices: int) -> float:
    """Return the error of sums in slices, each added up one by one in fp32 as threads do, then in order."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    edges = [len(b) * nth // slices for nth in range(slices + 1)]
    total = np.zeros(exact.shape, np.float32)
    for first, end in pairwise(edges):
        terms = a[:, None, first:end] * b.T[None, :, first:end]
        total = total + np.cumsum(terms, axis=2, dtype=np.float32)[:, :, -1]
    return float(np.abs(total - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("values", [{"M": 16, "N": 512, "K": 16384}, {"M": 64, "N": 64, "K": 131072}])
def test_long_sums_of_exact_products_are_cut_to_stay_as_exact_as_those_of_torch(values: dict[str, int]) -> None:
    """One running sum had 7 and 15 times the error of torch on an H200."""
    dice = np.random.default_rng(0)
    a = dice.standard_normal((4, values["K"]), np.float32)
    b = dice.standard_normal((values["K"], 8), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    torch_error = np.abs((torch.from_numpy(a) @ torch.from_numpy(b)).numpy() - exact).max() / np.abs(exact).max()
    for card in (A100, H200):
        default = KERNEL.default(problem(**values, dtype="fp32"), card.limits)
        slices = int(str(default["SPLIT_K"]))
        assert slices == min(64, values["K"] // 1024)
        assert strays(a, b, slices) <= 3 * torch_error  # which differs by the instructions of the CPU
    assert strays(a, b, 1) > 2 * strays(a, b, slices)


def test_exact_products_that_fit_fewer_slices_have_the_most_that_fit() -> None:
    """With two slices, as the rules choose, the error was 3.6 times torch's on an H200."""
    for card in (A100, H200):
        assert int(str(KERNEL.default(problem(M=300, N=200, K=65536, dtype="fp32"), card.limits)["SPLIT_K"])) >= 16


def test_rows_of_an_odd_number_of_elements_are_loaded_one_by_one() -> None:
    assert not reads_elements(problem(M=64, K=2048, layout="nt"))
    assert not reads_elements(problem(M=64, K=2050, layout="nt"))
    assert reads_elements(problem(M=64, K=2049, layout="nt"))
    assert reads_elements(problem(M=41, N=41, K=104704))
    assert not reads_elements(problem(M=41, N=41, K=104705, dtype="fp32"))


def test_few_steps_leave_shared_memory_to_other_programs() -> None:
    """54592 x 20 x 80 had one program a multiprocessor, of five stages for one step mostly beyond the end of K."""
    assert depths_of(80) == (32,)
    assert depths_of(4096) == (256, 128, 64, 32)
    for values in ({"M": 54592, "N": 20, "K": 80}, {"M": 54592, "N": 32, "K": 80}):
        default = KERNEL.default(problem(**values, layout="nn"), A100.limits)
        step = (int(str(default["BLOCK_M"])) + int(str(default["BLOCK_N"]))) * int(str(default["BLOCK_K"])) * 2
        assert int(str(default["num_stages"])) <= max(2, cdiv(80, int(str(default["BLOCK_K"]))))
        assert int(str(default["num_stages"])) * step * 4 <= A100.limits.shared_bytes
