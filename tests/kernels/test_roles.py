"""Warps with roles: which elements each program, stage and slot has, by the device code run on the CPU."""

from __future__ import annotations

import random
import re
from itertools import product
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled_gemm import compiled, of_variant, problem
from helpers import H200

from tuner.kernels.gemm import KERNEL
from tuner.kernels.shared import products, roles_parts, roles_stores, specialized, stream_k
from tuner.kernels.shared.roles import (
    MOST_PARTS,
    SHARED_BYTES,
    WIDTHS,
    Roles,
    is_narrowest,
    parts,
    walked_together,
    waves,
)
from tuner.kernels.shared.roles_space import staging_slots, tile_of_roles
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.shared.wide_wgmma import is_kept
from tuner.kernels.spec import cdiv

NT = {"layout": "nt"}
PRODUCTS: list[dict[str, object]] = [
    {"M": 512, "N": 2560, "K": 9728, **NT},
    {"M": 42, "N": 3072, "K": 10752, **NT},
    {"M": 160, "N": 2816, "K": 8192, **NT},
    {"M": 1088, "N": 1544, "K": 6144},
    {"M": 2168, "N": 4608, "K": 2304, "layout": "tt"},
    {"M": 4096, "layout": "tn"},
]


def on_cpu(jitted: Any, program: int = 0, programs: int = 1, **names: Any) -> Any:
    """Return a device function as one of Python."""
    language = SimpleNamespace(
        program_id=lambda axis: program, num_programs=lambda axis: programs, cdiv=cdiv, constexpr=Any,
        where=lambda condition, x, y: x if condition else y, int32=int, SliceLayout=lambda dim, layout: None,
        arange=lambda first, end, layout: np.arange(first, end),
    )  # fmt: skip
    return FunctionType(jitted.fn.__code__, {"gl": language, "tl": language, "min": min, "max": max, **names})


def test_columns_are_composed_of_at_most_three_powers_of_two() -> None:
    for width in WIDTHS:
        found = parts(width)
        assert sum(found) == width
        assert list(found) == sorted(set(found), reverse=True)
        assert all(part & part - 1 == 0 for part in found)
        assert len(found) <= MOST_PARTS
    assert parts(256, True) == (128, 128)


@pytest.mark.parametrize("each", [0, 1, 8])
@pytest.mark.parametrize(("M", "N"), [(64, 8), (200, 1000), (65, 81), (40, 2048), (513, 160), (1, 1)])
def test_tiles_cover_each_element_and_move_back_inside(M: int, N: int, each: int) -> None:
    corner = on_cpu(specialized.place_of_tile, corner_of=on_cpu(products.corner_of), inside=on_cpu(products.inside))
    for block_m, block_n, group_m in product((64, 192), (8, 80, 104), (1, 2, 3, 16)):
        tiles = cdiv(M, block_m) * cdiv(N, block_n)
        corners = [corner(tile, M, N, group_m, block_m, block_n, each, each) for tile in range(tiles)]
        covered = np.zeros((M, N), dtype=int)
        for m, n in corners:
            assert 0 <= m < M
            assert 0 <= n < N
            covered[m : m + block_m, n : n + block_n] += 1
            if each:
                assert m % each == n % each == 0
                assert m + block_m < M + each or block_m > M
                assert n + block_n < N + each or block_n > N
        assert covered.min() == 1 if tiles == len(set(corners)) else False
        assert each or covered.max() == 1


def test_neighbours_share_the_tile_of_the_longer_side() -> None:
    """GROUP_M as many as there are rows of tiles: programs that run together read the same columns of b."""
    corner = on_cpu(specialized.place_of_tile, corner_of=on_cpu(products.corner_of), inside=on_cpu(products.inside))
    assert [corner(tile, 256, 4096, 4, 64, 128, 1, 1)[1] for tile in range(8)] == [0, 0, 0, 0, 128, 128, 128, 128]
    assert [corner(tile, 256, 4096, 1, 64, 128, 1, 1)[0] for tile in range(8)] == [0] * 8


def test_all_rows_of_tiles_are_walked_together_if_few_else_eight_unless_columns_are_few() -> None:
    tile = Roles(groups=2, rows=64, columns=128, block_k=64, element=2, most_stages=14)
    sizes = ((300, 4096), (1024, 4096), (4096, 4096), (4096, 1024))
    assert [walked_together(left, right, tile) for left, right in sizes] == [3, 8, 8, 1]


def test_deep_steps_are_for_small_tiles() -> None:
    asked = problem(M=128, N=2880, K=2304, **NT)
    deep = {
        (config["VARIANT"], config["BLOCK_M"], config["BLOCK_N"])
        for variant in ("specialized", "swapped")
        for config in of_variant(variant, asked, H200.limits)
        if config["BLOCK_K"] == 128
    }
    assert ("specialized", 64, 64) in deep
    assert all(min(tile[1:]) <= max(tile[1:]) == 64 for tile in deep)


@pytest.mark.parametrize(("tiles", "steps"), [(44, 128), (1, 7), (66, 5), (20, 99)])
@pytest.mark.parametrize("slices", [2, 3, 4, 6, 8])
def test_slices_have_each_step_of_each_tile_once(tiles: int, steps: int, slices: int) -> None:
    found = [
        on_cpu(specialized.slice_of, program, tiles * slices)(tiles, steps, slices) for program in range(tiles * slices)
    ]
    assert sorted((tile, step) for tile, first, end in found for step in range(first, end)) == [
        (tile, step) for tile in range(tiles) for step in range(steps)
    ]
    # The last to arrive adds up slots `tile`, `tile + tiles` and so on: slots are programs, in the order of steps.
    assert [tile for tile, _, _ in found] == [program % tiles for program in range(tiles * slices)]
    for tile in range(tiles):
        ends = [found[tile + nth * tiles] for nth in range(slices)]
        assert [first for _, first, _ in ends] == [0, *(end for _, _, end in ends[:-1])]
        assert ends[-1][2] == steps


def test_a_stage_is_written_again_after_all_have_read_it() -> None:
    """The fetcher waits for the parity that the groups' last reading of the stage leaves, and they for its writing."""
    after = on_cpu(roles_parts.after)
    for stages in (3, 7, 13):
        written, read = (0, 1), (0, 0)
        for step in range(5 * stages):
            assert written == (step % stages, step // stages % 2 ^ 1)
            assert read == (step % stages, step // stages % 2)
            written, read = after(*written, stages), after(*read, stages)


def test_a_group_passes_the_stages_of_tiles_that_are_not_its_turn() -> None:
    after, later = on_cpu(roles_parts.after), on_cpu(roles_parts.later)
    for stages in (3, 7, 13):
        for steps in (0, 1, 6, 7, 8, 26, 40):
            one_by_one = passed = (2, 1)
            for _ in range(steps):
                one_by_one = after(*one_by_one, stages)
            assert later(*passed, steps, stages) == one_by_one


def test_sums_lie_apart_in_the_workspace() -> None:
    """Each sum of each slot, group and part has a place of its own, and none is left over."""
    for groups, rows, columns in ((1, 64, 160), (2, 128, 96), (3, 64, 104)):
        places: list[int] = []
        for slot, group in product(range(3), range(groups)):
            for nth, part in enumerate(parts(columns)):
                like = SimpleNamespace(shape=(rows, part), type=SimpleNamespace(layout=None))
                column = sum(parts(columns)[:nth])
                found = on_cpu(stream_k.place_of)(like, slot, column, columns, group, groups)
                assert len({*found[0, :2]}) == 2
                assert found[0, 1] == found[0, 0] + 1  # a thread's two neighbours
                places += found.ravel().tolist()
        assert sorted(places) == list(range(3 * groups * rows * columns))


def test_what_is_staged_in_the_ring_fits_the_rows_of_its_group() -> None:
    """Each piece has a stage of its own, and takes no more bytes than the group's rows there."""
    seen = set()
    for values in PRODUCTS:
        asked = problem(**values)
        for variant in ("specialized", "swapped"):
            for config in of_variant(variant, asked, H200.limits):
                tile, slots = tile_of_roles(asked, config), staging_slots(asked, config, 132)
                stages = tile.stages(slots)
                staged = tile.all_groups * slots * tile.rows * tile.chunk(tile.parts[0]) * 2
                assert stages * tile.stage_bytes + staged + 1024 <= SHARED_BYTES
                before = [sum(cdiv(part, tile.chunk(64)) for part in tile.parts[:nth]) for nth in range(3)]
                last = before[len(tile.parts) - 1] + cdiv(tile.parts[-1], 64)
                assert last == tile.chunks
                seen.add(slots > 0)
                if slots == 0:
                    assert tile_count(asked, config) * config["SPLIT_K"] <= 132
                    assert tile.chunks <= stages
                    assert tile.rows * tile.chunk(tile.parts[0]) * 2 <= tile.rows * tile.block_k * tile.element
    assert seen == {False, True}


@pytest.mark.parametrize("widths", [(256,), (128, 64), (128, 64, 8), (64, 32, 8), (128,), (16,)])
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 14])
def test_a_slot_is_written_after_the_copy_engine_has_read_it(widths: tuple[int, ...], slots: int) -> None:
    """Over several tiles: pieces are stored in their order, and the copy engine may be behind by all that it may."""
    stored: list[tuple[int, int, int]] = []
    reading: list[int] = []  # slots, the oldest first

    def wait(pending: int) -> None:
        del reading[: len(reading) - pending]

    def copy(out: Any, there: list[int], slot: Any) -> None:
        reading.append(slot.number)
        stored.append((*there, slot.sums))

    def write(slot: Any, sums: Any) -> None:
        assert slot.number not in reading
        slot.sums = sums.shape[1]

    def index(number: int) -> Any:
        slot = SimpleNamespace(number=number, sums=0)
        slot.store = lambda sums: write(slot, sums)
        return slot

    def sums_of(columns: int) -> Any:
        sums = SimpleNamespace(shape=(64, columns), type=SimpleNamespace(layout=None))
        sums.to = lambda dtype: sums
        return sums

    gluon = SimpleNamespace(
        constexpr=Any, arange=lambda first, end, layout: 0, SliceLayout=lambda dim, layout: None,
        reshape=lambda sums, shape: sums, permute=lambda sums, order: sums,
        split=lambda sums: (sums_of(sums.shape[1] // 2), sums_of(sums.shape[1] // 2)),
    )  # fmt: skip
    engine = SimpleNamespace(
        store_wait=wait, async_copy_shared_to_global=copy, viewed=lambda slot, dtype, shape, layout: slot
    )
    names: dict[str, Any] = {
        "gl": gluon,
        "tma": engine,
        "fence_async_shared": lambda: None,
        "finished": lambda sums, *_: sums,
    }
    names["store"] = FunctionType(roles_stores.store.fn.__code__, names)
    before = roles_parts.chunks_before.fn
    for tile in range(3):
        for nth, part in enumerate(widths):
            out = SimpleNamespace(block_shape=[64, min(64, part)], dtype=None, layout=None)
            first = sum(widths[:nth])
            pieces_before = before(widths, nth, 64)
            piece = (sums_of(part), None, None, out, SimpleNamespace(index=index), tile, first, 0, 0)
            names["store"](*piece, pieces_before, 0, 1, slots, False, "none")
    columns = [sorted(set(range(n, n + width)) for m, n, width in stored if m == tile) for tile in range(3)]
    assert all(sorted(n for piece in of_tile for n in piece) == list(range(sum(widths))) for of_tile in columns)


def test_no_narrower_tile_takes_as_many_waves() -> None:
    for values in PRODUCTS:
        asked = problem(**values)
        M, N, _ = asked.sizes
        for config in random.Random(0).sample(of_variant("specialized", asked, H200.limits) or [None], 1):
            if config is None:
                continue
            tile = tile_of_roles(asked, config)
            count = [waves(M, N, tile.left_rows, width, config["SPLIT_K"], 132) for width in (8, tile.columns)]
            assert tile.columns == 8 or count[0] > count[1]
    tile = tile_of_roles(problem(**PRODUCTS[0]), of_variant("specialized", problem(**PRODUCTS[0]), H200.limits)[0])
    assert is_narrowest(512, 2560, tile, 1, 132)


@pytest.mark.parametrize(
    ("values", "config", "products_of_a_step"),
    [
        (PRODUCTS[0], {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 80, "GROUPS": 2}, {"n64": 8, "n16": 8}),
        (
            PRODUCTS[0],
            {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 80, "GROUPS": 2, "WIDE": True},
            {"n80": 8},
        ),
        (PRODUCTS[1], {"VARIANT": "swapped", "BLOCK_M": 24, "BLOCK_N": 64, "GROUPS": 1}, {"n16": 4, "n8": 4}),
        (
            {"M": 200, "N": 10240, "K": 5120, "bias": True, "activation": "silu", **NT},
            {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 192, "GROUPS": 3, "WIDE": True},
            {"n104": 12},
        ),
        (
            {"M": 1000, "N": 5472, "K": 1856, **NT},
            {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 176, "GROUPS": 1, "PINGPONG": True},
            {"n128": 16, "n32": 16, "n16": 16},
        ),
        (
            {"M": 1000, "N": 5472, "K": 1856, **NT},
            {"VARIANT": "swapped", "BLOCK_M": 176, "BLOCK_N": 128, "GROUPS": 1, "PINGPONG": True, "WIDE": True},
            {"n176": 16},
        ),
        (
            PRODUCTS[2],
            {"VARIANT": "swapped", "BLOCK_M": 160, "BLOCK_N": 64, "GROUPS": 1, "SPLIT_K": 3},
            {"n128": 4, "n32": 4},
        ),
    ],
)
def test_each_group_issues_the_products_of_its_rows(
    values: dict[str, object], config: dict[str, object], products_of_a_step: dict[str, int]
) -> None:
    if config.get("WIDE") and not is_kept():
        pytest.skip("in this version of Triton, columns are composed")
    code = compiled(values, {"BLOCK_K": 64, "num_stages": 14, **config}, "ptx")
    issued = re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64(n\d+)k16", code)
    assert {shape: issued.count(shape) for shape in set(issued)} == products_of_a_step
    assert ("stmatrix" in code) is (config.get("VARIANT") != "none")
    assert (".trans" in code) is (config["VARIANT"] == "swapped")
    assert ("atom.global" in code) is ("SPLIT_K" in config)


def test_the_ring_is_the_first_thing_in_shared_memory() -> None:
    """One wgmma for all columns reads the ring from the address `global_smem` on, so the fetched rows must go there."""
    if not is_kept():
        pytest.skip("in this version of Triton, columns are composed")
    config = {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 80, "GROUPS": 2, "WIDE": True}
    code = compiled(PRODUCTS[0], {"BLOCK_K": 64, "num_stages": 14, **config}, "ptx")
    copies = re.findall(r"cp\.async\.bulk\.tensor\.2d\.shared\S+ \[(%r\d+)\]", code)
    assert [in_first_stage(code, register) for register in copies] == [0, 64 * 128, 8 * 128 * 128, 8 * 128 * 128 + 8192]


def test_sums_outside_of_tensor_cores_take_the_products_of_one_step() -> None:
    """In each step, both groups' first product of four begins at zero, and they wait once for all columns."""
    if not is_kept():
        pytest.skip("in this version of Triton, columns are composed")
    tile = {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 144, "GROUPS": 2, "WIDE": True}
    code = compiled(
        {"M": 747, "N": 9408, "K": 12544}, {"BLOCK_K": 128, "num_stages": 14, **tile}, "ptx", op="scaled_gemm"
    )
    assert products_in(code) == 2 * [("n144k32", "0"), *3 * [("n144k32", "1")]]
    assert code.count("wgmma.wait_group.sync.aligned 0;") == 2 * 2  # for the products, and to hold those of one step


def products_in(code: str) -> list[tuple[str, str]]:
    """Return the columns and elements along K of each product, and whether it is added to sums."""
    return re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64(n\d+k\d+)\S* \{.*\}, left, right, (\d)", code)


def test_deep_steps_have_two_halves_of_128_bytes_along_k() -> None:
    """Each half begins at zero, and lies in shared memory behind the other one."""
    if not is_kept():
        pytest.skip("in this version of Triton, columns are composed")
    tile = {"VARIANT": "swapped", "BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256, "GROUPS": 1, "WIDE": True}
    code = compiled({"M": 26, "N": 2944, "K": 2800}, {"num_stages": 14, **tile}, "ptx", op="scaled_gemm")
    assert products_in(code) == 2 * [("n16k32", "0"), *3 * [("n16k32", "1")]]
    copies = re.findall(r"cp\.async\.bulk\.tensor\.2d\.shared\S+ \[(%r\d+)\]", code)
    right = 11 * 64 * 256  # behind the rows of the left factor in all stages
    assert [in_first_stage(code, register) for register in copies] == [0, 64 * 128, right, right + 16 * 128]


def in_first_stage(code: str, register: str) -> int:
    """Return the constant part of an address: what registers hold if the stage, and `global_smem`, are 0."""
    (made,) = re.findall(rf"^\s*(\w+)\.\w+\s+{register}, (.*);", code, re.MULTILINE)[:1] or [("", "")]
    operation, operands = made
    values = [
        int(operand) if operand.isdecimal() else in_first_stage(code, operand) if operand[:2] == "%r" else 0
        for operand in operands.split(", ")
    ]
    if operation == "add":
        return sum(values)
    if operation in ("shl", "mul", "mad"):
        return values[0] << values[1] if operation == "shl" else values[0] * values[1] + sum(values[2:])
    return values[0] if operation == "mov" else 0


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((512, 2560, 9728), ("specialized", 128, 80, 2)),
        ((512, 2560, 9728), ("specialized", 64, 160, 1)),
        ((200, 10240, 5120), ("swapped", 104, 192, 3)),
        ((128, 5120, 5120), ("specialized", 64, 80, 1)),
        ((160, 2816, 8192), ("swapped", 160, 64, 1, 3)),
        ((2048, 2304, 9216), ("specialized", 192, 192, 3)),
        ((512, 7168, 16384), ("specialized", 128, 224, 2)),
        ((512, 7168, 16384), ("specialized", 256, 112, 2)),
        ((96, 9216, 2304), ("specialized", 64, 144, 1)),
        ((162, 3072, 4096), ("specialized", 64, 72, 1)),
        ((313, 37984, 2304), ("swapped", 160, 192, 3)),
        ((335, 8000, 1024), ("swapped", 112, 192, 3)),
        ((512, 1536, 4096), ("specialized", 64, 96, 1)),
        ((346, 3072, 4096), ("specialized", 128, 72, 2)),
        ((1088, 1536, 6144), ("swapped", 104, 128, 2)),
        ((768, 2304, 6912), ("swapped", 112, 128, 2)),
        ((2167, 4608, 2304), ("swapped", 200, 192, 3)),
        ((42, 3072, 10752), ("swapped", 24, 64, 1)),
    ],
)
def test_tiles_that_were_the_fastest_are_feasible(sizes: tuple[int, int, int], tile: tuple[Any, ...]) -> None:
    """Tiles that were the fastest of many on an H200 (2026-11-29), by one product for all columns or by several."""
    variant, block_m, block_n, groups, *slices = tile
    asked = problem(**dict(zip("MNK", sizes, strict=True)), **NT)
    config: dict[str, Any] = {
        "VARIANT": variant, "BLOCK_M": block_m, "BLOCK_N": block_n, "GROUPS": groups, "SPLIT_K": (*slices, 1)[0],
        "BLOCK_K": 64, "GROUP_M": 1, "num_warps": 4, "num_stages": 14,
    }  # fmt: skip
    ways = [{**config, "WIDE": wide, "STORES": 1} for wide in (False, True)]
    assert any(KERNEL.valid(asked, KERNEL.signature.config(way), H200.limits) for way in ways)
