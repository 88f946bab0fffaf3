"""Variants of gemm: which card runs which, and the instructions that each compiles to."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
from compiled_gemm import compiled, of_variant, problem, ptx
from helpers import A100, B200, H200

from tuner import catalog
from tuner.kernels.gemm import KERNEL
from tuner.kernels.gemm.default import by_rules
from tuner.kernels.gemm.space import VARIANTS
from tuner.kernels.shared import stream_k
from tuner.kernels.shared.roles_space import shared_tiles
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Config, cdiv
from tuner.measure.tolerance import tolerances
from tuner.search.space import feasible


def variants(space: list[Config]) -> set[object]:
    return {config["VARIANT"] for config in space}


def test_each_card_has_the_variants_that_it_can_run() -> None:
    large = problem(M=4096)
    found = {card.id: variants(list(feasible(KERNEL, large, card.limits))) for card in (A100, H200, B200)}
    assert found == {
        A100.id: {"tiles"},
        H200.id: {"tiles", "persistent", "specialized", "swapped"},
        B200.id: {"tiles", "persistent"},
    }


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({"M": 5120}, True),  # 6.06 waves of 128 x 256
        ({"M": 2048, "N": 5120, "K": 5120}, False),  # 2.42
        ({"M": 2048}, False),  # less than one
        ({"M": 5120, "dtype": "fp32"}, False),
    ],
)
def test_the_last_waves_are_shared_if_little_is_left_of_them(values: dict[str, object], there: bool) -> None:
    space = of_variant("stream_k", problem(**values), H200.limits)
    assert bool(space) is there
    for config in space:
        tiles = tile_count(problem(**values), config)
        assert tiles > 132
        assert 0 < tiles % 132 <= 33
    assert (by_rules(problem(**values), H200.limits)["VARIANT"] == "stream_k") is there


def pieces(program: int, programs: int, tiles: int, shared: int, steps: int) -> list[tuple[int, int, int]]:
    """Return the pieces of a program (tile, first step, the one after its last), by the device code run on the CPU."""
    language = SimpleNamespace(program_id=lambda axis: program, num_programs=lambda axis: programs, cdiv=cdiv)
    names: dict[str, Any] = {"gl": language, "min": min, "max": max}
    for jitted in (stream_k.share_of, stream_k.pieces_of, stream_k.piece_of):
        names[jitted.fn.__name__] = FunctionType(jitted.fn.__code__, names)
    return [
        names["piece_of"](nth, shared, steps, True) for nth in range(names["pieces_of"](tiles, shared, steps, True))
    ]


def cut_evenly(programs: int, tiles: int, shared: int, steps: int) -> list[list[tuple[int, int, int]]]:
    """Return the pieces of each program, which compute each step of each tile once, in even shares."""
    walked = [pieces(program, programs, tiles, shared, steps) for program in range(programs)]
    done = [(tile, step) for of_one in walked for tile, first, end in of_one for step in range(first, end)]
    assert sorted(done) == [(tile, step) for tile in range(tiles) for step in range(steps)]
    taken = [sum(end - first for _, first, end in of_one) for of_one in walked]
    assert max(taken) - min(taken) <= 1
    return walked


@pytest.mark.parametrize(
    "values", [{"M": 5120}, {"M": 4096, "N": 28672, "K": 4096}, {"M": 2056, "N": 2056, "K": 520}, {"M": 8192}]
)
def test_shared_tiles_are_cut_evenly_and_joined_in_turn(values: dict[str, object]) -> None:
    asked, programs = problem(**values), H200.limits.sm_count
    space = of_variant("stream_k", asked, H200.limits)
    for config in {(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]): config for config in space}.values():
        tiles, steps = tile_count(asked, config), cdiv(asked["K"], int(config["BLOCK_K"]))
        shared = shared_tiles(asked, config, programs)
        for before, of_one in pairwise(cut_evenly(programs, tiles, shared, steps)):
            *others, (tile, first, _) = [piece for piece in of_one if piece[0] < shared]
            assert all(begun_by_another == 0 for _, begun_by_another, _ in others)
            assert first == 0 or before[0] == (tile, 0, first)  # the first thing that the program before does


@pytest.mark.parametrize(("tiles", "programs"), [(64, 128), (96, 132), (32, 64), (1, 2), (132, 132)])
@pytest.mark.parametrize("steps", [112, 32, 9])
def test_of_fewer_tiles_than_programs_a_program_leaves_one_piece_at_most_and_that_first(
    tiles: int, programs: int, steps: int
) -> None:
    """As in scaled_gemm. Three programs may share a tile, of which the middle one waits and writes its sum."""
    for before, of_one in pairwise(cut_evenly(programs, tiles, tiles, steps)):
        assert all(end == steps for _, _, end in of_one[1:])
        for tile, first, _ in of_one:
            assert first == 0 or (before[0][0], before[0][2]) == (tile, first)


@pytest.mark.parametrize(("warps", "stages"), [(4, 5), (8, 4)])
def test_halves_that_change_threads_take_shared_memory(warps: int, stages: int) -> None:
    """Compiled with eight warps, 64 x 256 takes 253,992 bytes with five stages: the sums of a half are exchanged."""
    space = of_variant("persistent", problem(M=512, N=4096, K=4096), H200.limits)
    tile = {"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64, "STORES": 2, "num_warps": warps}
    assert max(each["num_stages"] for each in space if tile.items() <= each.items()) == stages


def test_tiles_of_one_step_are_not_shared() -> None:
    assert not of_variant("stream_k", problem(M=5120, N=5120, K=64), H200.limits)


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({"M": 4, "N": 4096, "K": 4096}, True),
        ({"M": 4096, "N": 1, "K": 4096, "dtype": "fp32"}, True),
        ({"M": 1, "N": 4096, "K": 4096, "dtype": "fp32", "precision": "tf32"}, False),
        ({"M": 5, "N": 4096, "K": 4096}, False),
    ],
)
def test_few_rows_or_columns_need_no_tensor_cores(values: dict[str, object], there: bool) -> None:
    for card in (A100, H200):
        assert bool(of_variant("vectors", problem(**values), card.limits)) is there


@pytest.mark.parametrize(
    ("values", "tile"),
    [
        ({"M": 1, "N": 4096, "K": 4096, "layout": "nt"}, {"BLOCK_N": 1, "BLOCK_K": 4096, "num_warps": 8}),
        ({"M": 1, "N": 4096, "K": 14336, "layout": "nt"}, {"BLOCK_N": 1, "BLOCK_K": 2048, "num_warps": 4}),
        ({"M": 1, "N": 3712, "K": 1408, "layout": "nt"}, {"BLOCK_N": 2, "BLOCK_K": 1024, "num_warps": 2}),
        ({"M": 1, "N": 1664, "K": 6656, "layout": "nt"}, {"BLOCK_N": 1, "BLOCK_K": 1024, "num_warps": 2}),
        ({"M": 2, "N": 1685, "K": 2376, "layout": "nt"}, {"BLOCK_N": 2, "BLOCK_K": 512, "num_warps": 2}),
        ({"M": 1, "N": 5120, "K": 4096}, {"BLOCK_N": 64, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 1, "N": 2592, "K": 2240}, {"BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 1, "N": 1024, "K": 4096}, {"BLOCK_N": 16, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 1, "N": 28672, "K": 4096}, {"BLOCK_N": 64, "BLOCK_K": 128, "num_warps": 4}),
        ({"M": 4096, "N": 1, "K": 4096}, {"BLOCK_M": 1, "BLOCK_K": 4096, "num_warps": 8}),
        ({"M": 5120, "N": 1, "K": 4096, "layout": "tn"}, {"BLOCK_M": 64, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 1, "N": 5120, "K": 4096, "dtype": "fp32"}, {"BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 1, "N": 4096, "K": 4096, "layout": "nt", "dtype": "fp32"}, {"BLOCK_K": 4096, "num_warps": 8}),
        ({"M": 2, "N": 4096, "K": 4096, "layout": "nt"}, {"BLOCK_M": 2, "BLOCK_N": 2, "BLOCK_K": 2048, "num_warps": 2}),
        ({"M": 2, "N": 4096, "K": 3072, "layout": "nt"}, {"BLOCK_M": 2, "BLOCK_N": 2, "BLOCK_K": 1024, "num_warps": 2}),
        ({"M": 3, "N": 4096, "K": 4096, "layout": "nt"}, {"BLOCK_M": 4, "BLOCK_N": 4, "BLOCK_K": 512, "num_warps": 2}),
        ({"M": 4, "N": 5184, "K": 1024, "layout": "nt"}, {"BLOCK_M": 4, "BLOCK_N": 4, "BLOCK_K": 512, "num_warps": 2}),
    ],
)
def test_a_matrix_times_a_vector_goes_without_tensor_cores_unless_tuned(
    values: dict[str, object], tile: dict[str, int]
) -> None:
    for card in (A100, H200):
        default = KERNEL.default(problem(**values), card.limits)
        assert {name: default[name] for name in ("VARIANT", *tile)} == {"VARIANT": "vectors", **tile}


@pytest.mark.parametrize(
    ("values", "tile"),
    [
        ({"M": 1, "N": 15680, "K": 80, "layout": "nt"}, {"BLOCK_N": 16, "BLOCK_K": 128, "num_warps": 4}),
        ({"M": 1, "N": 5056, "K": 80, "layout": "nt"}, {"BLOCK_N": 8, "BLOCK_K": 128, "num_warps": 2}),
        ({"M": 1, "N": 1664, "K": 504, "layout": "nt"}, {"BLOCK_N": 2, "BLOCK_K": 512, "num_warps": 2}),  # few rows
        ({"M": 2, "N": 5504, "K": 976, "layout": "nt"}, {"BLOCK_M": 2, "BLOCK_N": 4, "BLOCK_K": 1024, "num_warps": 2}),
        ({"M": 1, "N": 1408, "K": 984}, {"BLOCK_N": 16, "BLOCK_K": 1024, "num_warps": 4}),
        ({"M": 1, "N": 5120, "K": 480, "layout": "nt"}, {"BLOCK_N": 4, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 1, "N": 7168, "K": 320, "layout": "nt"}, {"BLOCK_N": 8, "BLOCK_K": 512, "num_warps": 4}),  # many rows
        ({"M": 1, "N": 640, "K": 712, "layout": "nt"}, {"BLOCK_N": 2, "BLOCK_K": 1024, "num_warps": 4}),
        ({"M": 3, "N": 1344, "K": 104, "layout": "nt"}, {"BLOCK_M": 1, "BLOCK_N": 4, "BLOCK_K": 128, "num_warps": 2}),
        ({"M": 1, "N": 9984, "K": 112}, {"BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 2}),
        ({"M": 1, "N": 640, "K": 192}, {"BLOCK_N": 16, "BLOCK_K": 256, "num_warps": 4}),
        ({"M": 1, "N": 10816, "K": 704}, {"BLOCK_N": 32, "BLOCK_K": 256, "num_warps": 4}),
    ],
)
def test_a_short_k_is_read_at_once(values: dict[str, object], tile: dict[str, int]) -> None:
    """At most 3 % slower than the best of 9 to 40 configs; tensor cores take 1.2 to 2.2 times as long (H200)."""
    default = KERNEL.default(problem(**values), H200.limits)
    assert {name: default[name] for name in ("VARIANT", *tile)} == {"VARIANT": "vectors", **tile}


@pytest.mark.parametrize(
    ("values", "tile"),
    [
        ({"M": 1, "N": 2048, "K": 33, "layout": "nt"}, {"VARIANT": "tiles"}),  # odd rows
        ({"M": 1, "N": 2048, "K": 40, "layout": "nt"}, {"BLOCK_N": 8, "BLOCK_K": 64, "num_warps": 2}),
        ({"M": 1, "N": 1024, "K": 128, "layout": "nt"}, {"BLOCK_N": 4, "BLOCK_K": 128, "num_warps": 2}),
        ({"M": 1, "N": 70_000, "K": 64, "layout": "nt"}, {"BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4}),
        ({"M": 1, "N": 500_000, "K": 512, "layout": "nt"}, {"BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 1, "N": 8512, "K": 312, "layout": "nt"}, {"BLOCK_N": 8, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 1, "N": 8512, "K": 312, "layout": "tt"}, {"BLOCK_N": 8, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 2, "N": 5184, "K": 312, "layout": "nt"}, {"BLOCK_M": 2, "BLOCK_N": 4, "BLOCK_K": 512, "num_warps": 2}),
        ({"M": 1, "N": 4104, "K": 297}, {"BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 4}),  # an odd vector
    ],
)
def test_programs_with_a_short_k_have_as_many_rows_as_each_thread_needs_and_holds(
    values: dict[str, object], tile: dict[str, object]
) -> None:
    default = KERNEL.default(problem(**values), H200.limits)
    tile = {"VARIANT": "vectors", **tile}
    assert {name: default[name] for name in tile} == tile


@pytest.mark.parametrize(
    "values",
    [
        {"M": 1, "N": 8512, "K": 316, "layout": "nt"},  # rows that are loaded 8 bytes at a time
        {"M": 2, "N": 5184, "K": 316, "layout": "nt"},
        {"M": 2, "N": 4096, "K": 64, "layout": "nt"},
        {"M": 1, "N": 4096, "K": 32, "layout": "nt"},
        {"M": 1, "N": 4096, "K": 512, "dtype": "fp32", "precision": "tf32"},
        {"M": 1, "N": 1, "K": 4096},
        {"M": 2, "N": 4096, "K": 4096},
        {"M": 3, "N": 6352, "K": 20480, "layout": "nt"},
    ],
)
def test_other_products_with_few_rows_take_tensor_cores_unless_tuned(values: dict[str, object]) -> None:
    assert KERNEL.default(problem(**values), H200.limits)["VARIANT"] in ("tiles", "persistent", "streamed")


@pytest.mark.parametrize(
    ("values", "tile"),
    [
        ({"M": 16, "N": 4096}, {"BLOCK_M": 16, "BLOCK_N": 64, "SPLIT_K": 1}),
        ({"M": 32, "N": 4096}, {"BLOCK_M": 16, "BLOCK_N": 64, "SPLIT_K": 1}),  # two rows of 64 tiles on 132
        ({"M": 32, "N": 6144}, {"BLOCK_M": 32, "BLOCK_N": 64, "SPLIT_K": 1}),  # 96 tiles, which twice are too many
        ({"M": 48, "N": 4096}, {"BLOCK_M": 64, "BLOCK_N": 64, "SPLIT_K": 2}),
        ({"M": 256, "N": 4096, "K": 14336}, {"BLOCK_M": 128, "BLOCK_N": 128, "SPLIT_K": 2}),
        ({"M": 384, "N": 4096, "K": 14336}, {"BLOCK_M": 128, "BLOCK_N": 128, "SPLIT_K": 1}),  # no last wave is cut
    ],
)
def test_few_rows_are_cut_until_they_fill_the_card_once(values: dict[str, object], tile: dict[str, int]) -> None:
    default = by_rules(problem(**{"K": 4096, **values}), H200.limits)
    assert {name: default[name] for name in tile} == tile


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"N": 4096}, {"BLOCK_N": 64, "BLOCK_K": 256, "num_stages": 5}),
        ({"N": 6144}, {"BLOCK_N": 64, "BLOCK_K": 128, "num_stages": 6}),  # 96 tiles want shallower steps than 64
        ({"N": 14336}, {"BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 6}),
        ({"N": 28672}, {"BLOCK_N": 256, "BLOCK_K": 64, "num_stages": 4}),  # one wave of 112, not two of 224
        ({"N": 128256}, {"BLOCK_N": 256, "BLOCK_K": 64, "num_stages": 3}),
        ({"N": 4096, "layout": "nt"}, {"VARIANT": "streamed", "BLOCK_N": 16, "BLOCK_K": 512}),
        ({"N": 6144, "layout": "nt", "M": 5}, {"VARIANT": "streamed", "BLOCK_N": 16, "BLOCK_K": 256}),
        ({"N": 4096, "layout": "nt", "dtype": "fp32"}, {"VARIANT": "tiles", "BLOCK_N": 32, "BLOCK_K": 128}),
        ({"N": 28672, "layout": "nt"}, {"VARIANT": "tiles", "BLOCK_N": 256, "BLOCK_K": 128}),
        ({"N": 28672, "M": 2}, {"BLOCK_N": 256, "VARIANT": "persistent", "num_warps": 4}),
        ({"N": 2048, "M": 8}, {"BLOCK_K": 256, "VARIANT": "persistent", "num_stages": 5}),  # as many as fit
        ({"N": 2816, "M": 14, "K": 1408}, {"BLOCK_N": 32, "BLOCK_K": 256}),  # 44 tiles of 64 are few
        ({"N": 2816, "M": 14}, {"BLOCK_N": 64}),
        ({"N": 1408, "M": 14, "K": 1408}, {"BLOCK_N": 64}),  # 44 of 32 are no more than few either
        ({"N": 28672, "M": 8, "dtype": "fp32"}, {"BLOCK_N": 256, "VARIANT": "tiles", "num_warps": 2}),
        ({"N": 28672, "M": 17}, {"BLOCK_M": 32}),
        ({"N": 10496, "K": 584, "layout": "nt"}, {"BLOCK_N": 128}),  # one wave of a short K
    ],
)
def test_up_to_16_rows_read_b_in_wide_tiles_and_deep_steps(values: dict[str, object], expected: dict[str, int]) -> None:
    default = by_rules(problem(**{"M": 16, "K": 4096} | values), H200.limits)
    assert {name: default[name] for name in expected} == expected


def test_two_warps_multiply_tf32_that_does_not_lie_along_k_on_hopper() -> None:
    tf32 = {"M": 2048, "dtype": "fp32", "precision": "tf32"}
    warps = {
        (card.id, layout): KERNEL.default(problem(**tf32, layout=layout), card.limits)["num_warps"]
        for card in (A100, H200)
        for layout in ("nn", "nt")
    }
    assert warps == {(A100.id, "nn"): 4, (A100.id, "nt"): 4, (H200.id, "nn"): 2, (H200.id, "nt"): 8}


def test_an_uneven_wave_takes_192_columns_and_two_rows_of_tiles_are_walked_together() -> None:
    uneven = by_rules(problem(M=3072), H200.limits)
    assert (uneven["BLOCK_M"], uneven["BLOCK_N"], uneven["VARIANT"]) == (128, 192, "specialized")
    two = by_rules(problem(M=256, N=4096, K=14336), H200.limits)
    assert (two["BLOCK_M"], two["GROUP_M"]) == (128, 2)


@pytest.mark.parametrize("op", ["gemm", "softmax", "transpose"])
def test_the_parts_of_a_space_leave_nothing_out(op: str) -> None:
    """Of all combinations of choices, the valid ones are those that are enumerated."""
    kernel = catalog.load(op)
    draw = random.Random(op)
    for values in ({"M": 3, "N": 2048, "K": 1024}, {"M": 1024}):
        asked = kernel.signature.problem({d.name: values[d.name] for d in kernel.signature.dims if d.name in values})
        space = set(feasible(kernel, asked, H200.limits))
        seen = 0
        for _ in range(20_000):
            part = draw.choice(kernel.parts)  # most knobs as in one part, since few other combinations are valid
            config = {
                knob.name: draw.choice(part.get(knob.name, knob.choices) if draw.random() < 0.9 else knob.choices)
                for knob in kernel.signature.knobs
            }
            if kernel.valid(asked, config, H200.limits):
                seen += 1
                assert kernel.signature.config(config) in space
        assert seen > 0


def test_warps_with_roles_copy_multiply_and_hand_over_registers() -> None:
    """192 columns, both inputs transposed, bias and activation."""
    asked: dict[str, object] = {"M": 3072, "layout": "tt", "bias": True, "activation": "silu"}
    code = ptx(asked, VARIANT="specialized", BLOCK_M=128, BLOCK_N=192, BLOCK_K=64, num_stages=14)
    for instruction in ("m64n128k16", "m64n64k16", "cp.async.bulk.tensor.2d.shared", "setmaxnreg.inc", "ex2.approx"):
        assert instruction in code
    assert "atom.global" not in code


def test_sums_are_left_and_joined_in_pairs_of_columns_between_acquire_and_release() -> None:
    code = ptx({"M": 5120}, VARIANT="stream_k", BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_stages=14)
    for instruction in ("st.global.v2.b32", "ld.global.cg.v2.b32"):
        assert code.count(instruction) == 2 * 64, instruction  # of both groups, 128 sums a thread
    assert len(re.findall(r"atom\.global\.(gpu\.release\.exch|acquire\.gpu\.cas)", code)) == 4


def test_vectors_use_no_tensor_core_and_load_16_bytes_at_once() -> None:
    code = ptx(
        {"M": 1, "N": 4096, "K": 4096, "layout": "nt"},
        VARIANT="vectors", BLOCK_M=1, BLOCK_N=4, BLOCK_K=1024, num_stages=1,
    )  # fmt: skip
    assert "mma" not in code
    assert "L2::cache_hint.v4.b32" in code


@pytest.mark.parametrize(
    ("values", "tile"),
    [
        ({"M": 1, "layout": "nt"}, {"BLOCK_M": 1, "BLOCK_N": 1, "BLOCK_K": 4096, "num_warps": 8}),
        ({"M": 1, "layout": "nn"}, {"BLOCK_M": 1, "BLOCK_N": 64, "BLOCK_K": 512, "num_warps": 16}),
        ({"M": 4096, "N": 1, "layout": "nn"}, {"BLOCK_M": 4, "BLOCK_N": 1, "BLOCK_K": 2048, "num_warps": 4}),
        ({"M": 4096, "N": 1, "layout": "tn"}, {"BLOCK_M": 32, "BLOCK_N": 1, "BLOCK_K": 256, "num_warps": 4}),
        ({"M": 1, "layout": "nt", "dtype": "fp32"}, {"BLOCK_M": 1, "BLOCK_N": 2, "BLOCK_K": 1024, "num_warps": 4}),
        ({"M": 1, "K": 4100, "layout": "nt"}, {"BLOCK_M": 1, "BLOCK_N": 1, "BLOCK_K": 4096, "num_warps": 8}),
        ({"M": 1, "K": 4099, "layout": "nt"}, {"BLOCK_M": 1, "BLOCK_N": 8, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 1, "N": 4100, "layout": "nn"}, {"BLOCK_M": 1, "BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 4}),
        ({"M": 1, "N": 4099, "layout": "nn"}, {"BLOCK_M": 1, "BLOCK_N": 32, "BLOCK_K": 512, "num_warps": 4}),
    ],
)
def test_threads_add_up_what_they_loaded_themselves_until_the_loop_ends(
    values: dict[str, object], tile: dict[str, int]
) -> None:
    code = ptx({"N": 4096, "K": 4096, **values}, VARIANT="vectors", num_stages=1, **tile)
    (loop,) = re.findall(r"^(\$L__BB0_\d+):(?=.*bra(?:\.uni)? \t?\1;)", code, re.MULTILINE | re.DOTALL)
    end = [found.end() for found in re.finditer(rf"bra(?:\.uni)? \t?{re.escape(loop)};", code)][-1]
    assert "shfl.sync" not in code[:end]
    assert "shfl.sync" in code[end:]


@pytest.mark.parametrize(
    ("layout", "row", "access"),
    [
        ("nt", 4104, "v4.b32"),
        ("nt", 4100, "v2.b32"),
        ("nt", 4098, "b32"),
        ("nt", 4099, "b16"),
        ("nn", 4104, "v4.b32"),
        ("nn", 4100, "v2.b32"),
        ("nn", 4099, "b16"),
    ],
)
def test_vectors_load_as_many_elements_at_once_as_divide_a_row(layout: str, row: int, access: str) -> None:
    sizes = {"N": 4096, "K": row} if layout == "nt" else {"N": row, "K": 4096}
    code = ptx(
        {"M": 1, **sizes, "layout": layout},
        VARIANT="vectors", BLOCK_M=1, BLOCK_N=32, BLOCK_K=128, num_stages=1,
    )  # fmt: skip
    of_b = set(re.findall(r"ld\.global\S*evict_first\S*cache_hint\.(\S+)", code))
    assert of_b == {access}


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_lanes_load_neighbours_of_a_row_also_if_rows_are_odd_and_wrap_around(layout: str) -> None:
    code = compiled(
        {"M": 1001, "N": 1003, "K": 1005, "layout": layout},
        {"VARIANT": "tiles", "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 2},
        "ttgir",
    )
    lanes = {name: [int(each) for each in found.split(", ")] for name, found in
             re.findall(r"^(#\w+) = #ttg\.blocked<.*threadsPerWarp = \[([\d, ]+)\]", code, re.MULTILINE)}  # fmt: skip
    a, b = (lanes[name] for name in re.findall(r"tt\.load .*tensor<64x64x!tt\.ptr<bf16>, (#\w+)>", code))
    assert a == ([32, 1] if layout[0] == "t" else [1, 32])  # (M, K)
    assert b == ([32, 1] if layout[1] == "t" else [1, 32])  # (K, N)


@pytest.mark.parametrize(("M", "rows", "hints"), [(1, 1, True), (4, 4, True), (4, 1, False)])
def test_a_matrix_that_is_read_once_leaves_the_cache_first(M: int, rows: int, hints: bool) -> None:
    code = ptx({"M": M, "N": 4096, "K": 4096, "layout": "nt"},
               VARIANT="vectors", BLOCK_M=rows, BLOCK_N=2, BLOCK_K=1024, num_warps=4, num_stages=1)  # fmt: skip
    assert ("createpolicy.fractional.L2::evict_first" in code) is hints


def test_b_streams_into_the_registers_of_the_tensor_cores_and_leaves_the_cache_first() -> None:
    """Of 16 columns of b and 512 along K, each of 128 threads loads 8 times 16 bytes in a step, and stores none."""
    code = ptx({"M": 16, "N": 4096, "K": 4096, "layout": "nt"},
               VARIANT="streamed", BLOCK_M=16, BLOCK_N=16, BLOCK_K=512, num_warps=4, num_stages=3)  # fmt: skip
    assert code.count("L2::cache_hint.v4.b32") == 3 * 8  # the first step, and two of the loop
    assert code.count("mma.sync") == 2 * 2 * 128 // 16
    first, last = code.index("mma.sync"), code.rindex("mma.sync")
    assert "st.shared" not in code[first:last]
    assert "shfl.sync" not in code[:last]


def test_rows_of_a_multiple_of_8_are_copied_16_bytes_at_once() -> None:
    """The compiler looks for multiples of 16 only, and refuses to copy 2 bytes."""
    code = ptx({"M": 13, "N": 1044, "K": 2056, "layout": "nt", "dtype": "fp16", "bias": True},
               VARIANT="streamed", BLOCK_M=16, BLOCK_N=16, BLOCK_K=512, num_warps=4, num_stages=3)  # fmt: skip
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+)", code)
    assert copies == ["0x10"] * 4 * 8  # 16 rows of 512 by 128 threads: two steps ahead of the loop, two in it
    assert code.count("L2::cache_hint.v4.b32") == 3 * 8


def test_activations_of_16_bit_results_take_few_instructions() -> None:
    """The library's erf took a third of the time of 1792 x 49152 x 3072."""
    tile = {"VARIANT": "tiles", "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_stages": 2}
    counts = {}
    for activation in ("none", "gelu", "silu"):
        code = ptx({"M": 64, "N": 64, "K": 64, "activation": activation}, **tile)
        counts[activation] = len(re.findall(r"^\s*\w+\.(?:\w+\.)*f32\b", code, re.MULTILINE))
    elements = 32 * 32 // 128
    assert counts["silu"] - counts["none"] <= 5 * elements
    assert counts["gelu"] - counts["none"] <= 16 * elements


def test_rows_of_a_that_are_4_gb_apart_are_found_by_64_bit_offsets() -> None:
    """The stride in eighths fits 32 bits, and the stride does not."""
    config = {"VARIANT": "streamed", "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 512, "num_stages": 3}
    code = compiled({"M": 5, "N": 4096, "K": 4096, "layout": "nt"}, config, "ttgir", 2**31)
    uses = re.findall(r"= (\S+) %am_eighths\b.*: (.*?) loc", code)
    assert uses
    assert all((op, types) in {("arith.extsi", "i32 to i64"), ("tt.splat", "i64")} for op, types in uses), uses


def test_columns_of_b_that_lie_along_k_may_be_any_number() -> None:
    """No step crosses a row, so none is too many elements for 32 bits: 4096 deep and 600,000 columns."""
    assert KERNEL.default(problem(M=1, N=600_000, K=4096, layout="nt"), H200.limits)["BLOCK_K"] == 4096
    assert KERNEL.default(problem(M=1, N=600_000, K=4096), H200.limits)["VARIANT"] == "vectors"
    assert max(int(config["BLOCK_K"]) for config in feasible(KERNEL, problem(M=2, N=2**24, K=4096), H200.limits)) == 64


def test_steps_of_all_slices_are_counted_in_32_bits() -> None:
    asked = problem(M=16, N=16, K=2**30 + 64, layout="nt")
    deep, shallow = (
        dict(KERNEL.default(asked, H200.limits)) | {"BLOCK_K": depth, "num_stages": 2} for depth in (64, 32)
    )
    assert deep["SPLIT_K"] == 64
    assert KERNEL.valid(asked, deep, H200.limits)
    assert not KERNEL.valid(asked, shallow, H200.limits)


def test_sums_in_fp32_stray_with_their_length_and_shorter_types_do_not() -> None:
    """A sum in parts, as in cuBLAS, strays by 1.7e-7; a running sum by 9.8e-7 (33 x 48 x 1032, an H200)."""
    asked = problem(M=33, N=48, K=1032, dtype="fp32")
    assert 9.8e-7 < tolerances(KERNEL, asked)["out"].beside(1.7e-7).allowed < 1e-5
    assert KERNEL.rounding(problem(M=33, N=48, K=1032)) == 0
    assert KERNEL.rounding(problem(M=33, N=48, K=1032, dtype="fp32", precision="tf32")) == 2**-10


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({"M": 2, "layout": "nt"}, True),
        ({"M": 16, "layout": "nt"}, True),
        ({"M": 1, "layout": "nt"}, False),
        ({"M": 17, "layout": "nt"}, False),
        ({"M": 16, "layout": "nn"}, False),
        ({"M": 16, "layout": "tt"}, False),
        ({"M": 16, "layout": "nt", "dtype": "fp32"}, False),
        ({"M": 16, "layout": "nt", "K": 4100}, False),  # no 16 bytes
    ],
)
def test_b_is_streamed_to_up_to_16_rows_if_it_lies_along_k(values: dict[str, object], there: bool) -> None:
    for card in (A100, H200, B200):
        space = of_variant("streamed", problem(**{"N": 4096, "K": 4096} | values), card.limits)
        assert bool(space) is there


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"M": 13, "N": 2304, "K": 1280}, {"VARIANT": "tiles", "BLOCK_N": 16, "BLOCK_K": 256, "num_warps": 2}),
        ({"M": 16, "N": 4096, "K": 4096}, {"VARIANT": "streamed", "BLOCK_N": 16, "BLOCK_K": 512}),
        ({"M": 12, "N": 6144, "K": 4096}, {"VARIANT": "streamed", "BLOCK_N": 16, "BLOCK_K": 256}),
        ({"M": 14, "N": 7200, "K": 4992}, {"VARIANT": "streamed", "BLOCK_N": 32, "BLOCK_K": 256, "num_stages": 4}),
        ({"M": 14, "N": 7200, "K": 1280}, {"VARIANT": "tiles", "BLOCK_N": 64}),
        ({"M": 11, "N": 14336, "K": 5120}, {"VARIANT": "tiles", "BLOCK_N": 128}),
    ],
)
def test_up_to_16_rows_are_streamed_if_all_programs_run_at_once_and_k_is_long(
    values: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The fastest configs of searches on an H200 (2026-11-30)."""
    default = by_rules(problem(layout="nt", **values), H200.limits)
    assert {name: default[name] for name in expected} == expected


def test_every_variant_states_its_choices() -> None:
    knobs = {knob.name: set(knob.choices) for knob in KERNEL.signature.knobs}
    assert set(VARIANTS) == knobs["VARIANT"]
    for choices in VARIANTS.values():
        assert all(set(values) <= knobs[name] for name, values in choices.items())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"M": 4097, "N": 4097, "K": 4097}, {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 16, "SPLIT_K": 1}),
        ({"M": 134, "N": 157, "K": 91, "layout": "nt"}, {"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 4, "SPLIT_K": 1}),
        ({"M": 1, "N": 285, "K": 297, "layout": "nt"}, {"VARIANT": "vectors", "BLOCK_N": 2, "BLOCK_K": 512}),
        ({"M": 1, "N": 1001, "K": 255, "layout": "nt"}, {"VARIANT": "vectors", "BLOCK_N": 8, "BLOCK_K": 256}),
        ({"M": 1023, "N": 1023, "K": 1023}, {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "SPLIT_K": 1}),
        ({"M": 2049, "N": 257, "K": 8191}, {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "SPLIT_K": 4}),
        ({"M": 40, "N": 3001, "K": 2049, "layout": "nt"}, {"BLOCK_M": 64, "BLOCK_N": 128, "SPLIT_K": 4}),
        ({"M": 3, "N": 4097, "K": 4095}, {"VARIANT": "vectors", "BLOCK_M": 4, "BLOCK_K": 128}),
        ({"M": 4097, "N": 4096, "K": 4096}, {"VARIANT": "persistent"}),
        ({"M": 4097, "N": 4097, "K": 4097, "dtype": "fp32"}, {"VARIANT": "tiles", "num_warps": 4}),
    ],
)
def test_rows_of_an_odd_number_of_16_bit_elements_have_rules_of_their_own(
    values: dict[str, Any], expected: dict[str, Any]
) -> None:
    default = by_rules(problem(**values), H200.limits)
    assert {name: default[name] for name in expected} == expected


def test_slices_of_a_single_column_compile() -> None:
    """Rows of out are one element apart then, and Triton takes that stride for a constant."""
    asked = {"M": 300, "N": 1, "K": 1003, "dtype": "bf16", "layout": "nt"}
    tile = {"VARIANT": "tiles", "BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 64, "SPLIT_K": 4, "num_stages": 2}
    assert "atom" in ptx(asked, **tile)
