"""Convolution: sizes as torch's, patches and their views, special values, slices, and what variants compile to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product as product_of
from textwrap import dedent
from typing import Any

import pytest
import torch
from forks import printed
from helpers import A100, B200, H200, possible
from placed import At
from torch import Tensor
from torch.nn import functional

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.conv2d.copies import convolved, copy_of
from tuner.kernels.conv2d.layer import MOST_ROWS, filters_at_once, layer, steps
from tuner.kernels.conv2d.patches import Patch, View, count, has_view, is_even, outputs, patches, view
from tuner.kernels.conv2d.space import patch_of, tile_count
from tuner.kernels.spec import Config, Launch, Problem
from tuner.measure import check, tensors
from tuner.search.space import feasible

KERNEL = catalog.load("conv2d")
PAD = {"padding_h": 1, "padding_w": 1}
Pair = tuple[int, ...]
NAN, INF = float("nan"), float("inf")
TILE: dict[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 1, "num_warps": 4, "num_stages": 3}


def problem(B: int, C: int, H: int, W: int, O: int, R: int = 3, **values: object) -> Problem:  # noqa: E741
    given = {"B": B, "C": C, "H": H, "W": W, "O": O, "R": R, "dtype": "fp16", **values}
    return KERNEL.signature.problem(given)


SEVEN = {"padding_h": 3, "padding_w": 3, "stride_h": 2}
FEW_CHANNELS = [
    (problem(32, 3, 224, 224, 64, 7, **SEVEN), ("direct", False, 64, 64, 32)),
    (problem(32, 3, 224, 224, 64, **PAD), ("direct", False, 64, 64, 32)),
    (problem(64, 3, 224, 224, 32, stride_h=2, **PAD), ("direct", False, 64, 32, 32)),
    (problem(8, 4, 64, 64, 320, bias=True, **PAD), ("direct", False, 128, 64, 16)),
    (problem(5, 3, 229, 231, 48, 7, **SEVEN), ("direct", False, 128, 64, 32)),
    (
        problem(8, 5, 197, 161, 72, 5, S=3, padding_h=2, padding_w=2, stride_h=1, stride_w=2),
        ("direct", False, 64, 128, 16),
    ),
    (problem(8, 315, 57, 57, 320, **PAD), ("specialized", True, 128, 320, 64)),
    (problem(32, 3, 224, 224, 768, 16, stride_h=16), ("tiles", True, 64, 128, 64)),
]
"""Layers of few or odd channels, and the fastest of their configs that were measured (H200, 2026-11-30)."""


def inputs(asked: Problem) -> dict[str, Any]:
    operands = KERNEL.operands(asked)
    values: dict[str, Any] = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    tensors.poison(operands, values)
    return values


def run(asked: Problem, knobs: Mapping[str, Any], values: Mapping[str, Any]) -> Tensor:
    """Return out of a config; limits are those of a card whose variants the interpreter runs."""
    config = KERNEL.signature.config({**TILE, **knobs})
    work = tensors.workspace(KERNEL.workspace(asked, config, B200.limits), "cpu")
    for launch in KERNEL.launch(asked, config, {**values, **work}):
        launch()
    out: Tensor = values["out"].clone()
    return out


def wrong(asked: Problem, values: Mapping[str, Any]) -> bool:
    return bool(check.error(KERNEL, asked, values, {"out": values["out"]}) > torch.finfo(torch.float16).eps)


class TestLayer:
    def test_outputs_have_the_sizes_of_torch(self) -> None:
        dice = random.Random(1)
        for _ in range(200):
            H, W, R, S = (dice.randint(1, most) for most in (20, 20, 7, 5))
            numbers = {name: dice.randint(least, 4) for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))}
            values = {f"{name}_{letter}": size for name, size in numbers.items() for letter in "hw"}
            asked = possible(KERNEL, {"B": 1, "C": 1, "H": H, "W": W, "O": 1, "R": R, "S": S, **values})
            try:
                shape = functional.conv2d(torch.empty(1, 1, H, W), torch.empty(1, 1, R, S), **numbers).shape
            except RuntimeError:  # no window fits
                assert asked is None
                continue
            assert asked is not None
            assert KERNEL.operands(asked)["out"].shape == tuple(shape)

    def test_more_pixels_than_32_bits_count_are_refused(self) -> None:
        with pytest.raises(UsageError) as refused:
            KERNEL.operands(problem(512, 1, 2048, 2048, 1, 1))
        assert str(refused.value) == (
            f"conv2d: output pixels are at most {MOST_ROWS}, since the kernel counts in 32 bits, not 2147483648; "
            "split the problem"
        )

    def test_flops_are_those_of_the_product(self) -> None:
        assert KERNEL.flops(problem(32, 128, 28, 28, 256, **PAD)) == 2 * (32 * 28 * 28) * 256 * (9 * 128)


class TestPatches:
    @pytest.mark.parametrize(
        ("asked", "patch"),
        [
            (problem(32, 64, 56, 56, 64, **PAD), Patch(2, 8, 8)),
            (problem(32, 64, 28, 28, 64, **PAD), Patch(8, 4, 4)),
            (problem(8, 320, 64, 64, 320, **PAD), Patch(1, 2, 64)),
            (problem(32, 256, 56, 56, 64, 1), Patch(1, 1, 128)),
        ],
    )
    def test_the_first_covers_the_outputs_with_fewest_tiles(self, asked: Problem, patch: Patch) -> None:
        first, *others = patches(asked, 128)
        assert first == patch
        assert all(count(asked, first) <= count(asked, other) for other in others)
        assert count(asked, first) * 128 == outputs(asked).images * outputs(asked).rows * outputs(asked).columns

    def test_half_of_a_patch_has_successive_pixels(self) -> None:
        assert [Patch(*sides).halved() for sides in ((4, 2, 16), (1, 8, 16), (1, 1, 128))] == [
            Patch(2, 2, 16), Patch(1, 4, 16), Patch(1, 1, 64),
        ]  # fmt: skip

    def test_a_stride_of_two_reads_images_of_every_other_pixel(self) -> None:
        halved = problem(2, 64, 18, 16, 64, stride_h=2, **PAD)
        x = torch.arange(2 * 64 * 18 * 16).view(2, 64, 18, 16).contiguous(memory_format=torch.channels_last)
        seen = view(halved)
        phases = x.as_strided(seen.shape, seen.strides)
        assert seen.phases == (2, 2)
        assert torch.equal(phases[1, 3, 1, 5, 64 + 7], x[1, 7, 2 * 3 + 1, 2 * 5 + 1])
        assert has_view(halved, 64)
        odd = problem(2, 64, 17, 16, 64, stride_h=2, **PAD)
        assert has_view(odd, 64)
        assert is_even(halved)
        assert not is_even(odd)
        assert view(odd).longer_shape(rows=True, columns=False) == (2, 9, 1, 8, 128)
        assert view(odd).longer_shape(rows=False, columns=True) is None
        assert not has_view(problem(2, 64, 1, 16, 64, 1, stride_h=2, **PAD), 64)  # the second phase has no row
        assert not has_view(problem(2, 96, 18, 16, 64, stride_h=2, **PAD), 64)

    def test_one_pixel_of_a_window_is_read_with_gaps(self) -> None:
        seen = view(problem(2, 64, 9, 7, 64, 1, stride_h=3, stride_w=2))
        assert (seen.shape, seen.strides) == ((2, 3, 4, 64), (9 * 7 * 64, 3 * 7 * 64, 2 * 64, 1))


COPIED: dict[str, Any] = {"VARIANT": "boxes", "COPY": True}
WAYS: dict[str, tuple[Problem, dict[str, Any]]] = {
    "tiles": (problem(2, 40, 7, 6, 24, **PAD), {}),
    "few channels": (problem(1, 5, 9, 8, 20, **PAD, stride_h=2), {}),
    "few channels in slices": (problem(2, 24, 9, 5, 20, **PAD, bias=True), {"SPLIT_K": 2}),
    "slices": (problem(1, 128, 5, 7, 40, **PAD), {"SPLIT_K": 6}),
    "boxes": (problem(3, 64, 9, 7, 72, **PAD), {"VARIANT": "boxes"}),
    "boxes in slices": (problem(1, 64, 12, 8, 64, **PAD, dilation_h=2), {"VARIANT": "boxes", "SPLIT_K": 4, "PATCH": 1}),
    "phases": (problem(2, 32, 10, 9, 64, 3, S=2, stride_h=2, stride_w=3, **PAD), {"VARIANT": "boxes"}),
    "a product": (problem(2, 40, 7, 6, 64, 1), {"VARIANT": "boxes"}),
    "a product of every other pixel": (problem(4, 64, 9, 6, 64, 1, stride_h=2), {"VARIANT": "boxes", "PATCH": 2}),
    "copied pixels": (problem(2, 3, 11, 9, 20, 5, S=7, stride_h=2, padding_h=3, padding_w=3), {"COPY": True}),
    "copied pixels in slices": (problem(1, 20, 9, 7, 24, **PAD, bias=True), {"COPY": True, "SPLIT_K": 3}),
    "copied windows": (problem(2, 3, 11, 9, 64, 5, S=7, stride_h=2, padding_h=3, padding_w=3), {**COPIED}),
    "copied windows in turn": (problem(1, 5, 9, 10, 72, **PAD, dilation_h=2), {**COPIED, "SPLIT_K": 2, "PATCH": 1}),
    "copied windows with gaps": (problem(2, 3, 14, 17, 64, 2, S=3, stride_h=3, stride_w=4), {**COPIED}),
    "a product of copied pixels": (problem(2, 20, 7, 6, 64, 1), {**COPIED}),
}  # fmt: skip
"""Ways that the interpreter runs."""


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
class TestResults:
    @pytest.mark.parametrize("way", WAYS)
    def test_each_way_is_right_and_repeats(self, way: str) -> None:
        asked, knobs = WAYS[way]
        values = inputs(asked)
        first = run(asked, knobs, values)
        assert not wrong(asked, values)
        tensors.poison(KERNEL.operands(asked), values)
        assert torch.equal(run(asked, knobs, values), first)

    @pytest.mark.parametrize("way", ["tiles", "boxes"])
    def test_nan_and_infinities_reach_the_windows_that_have_them(self, way: str) -> None:
        asked = problem(2, 32, 8, 9, 64, **PAD, bias=True, activation="relu")
        values = inputs(asked)
        values["x"][0, 3, 2, 2], values["x"][1, 0, 7, 8], values["bias"][5] = NAN, -INF, NAN
        out = run(asked, {"VARIANT": way}, values).double()
        expected = KERNEL.reference(asked, values, slice(None))["out"]
        assert torch.equal(out.isnan(), expected.isnan())
        assert torch.allclose(out, expected, atol=0.02, rtol=0.01, equal_nan=True)

    @pytest.mark.parametrize("knobs", [{}, {"COPY": True}, COPIED], ids=["tiles", "copied pixels", "copied windows"])
    def test_what_lies_beside_windows_is_not_multiplied(self, knobs: dict[str, Any]) -> None:
        """Loads reach into the windows beside, and padding would make NaN of infinite filters."""
        asked = problem(1, 3, 16, 16, 64, 7, stride_h=2, padding_h=3, padding_w=3)
        values = inputs(asked)
        values["x"][0, 2, 7, 6], values["x"][0, 0, 3, 9], values["weight"][3, 1, 2, 2] = NAN, INF, INF
        out = run(asked, knobs, values)
        expected = KERNEL.reference(asked, values, slice(None))["out"]
        kept = [n for n in range(64) if n != 3]
        assert torch.equal(out[:, kept].isnan(), expected[:, kept].isnan())
        assert torch.equal(out[:, kept].isinf(), expected[:, kept].isinf())

    @pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
    @pytest.mark.parametrize("way", ["tiles", "boxes"])
    def test_sums_that_the_dtype_cannot_hold_are_infinite_as_in_torch(self, way: str) -> None:
        asked = problem(1, 32, 8, 9, 64, **PAD)
        values = inputs(asked)
        values["x"].fill_(0.0)
        values["x"][0, 0], values["weight"][0, 0], values["weight"][1, 0] = 60000.0, 1.0, -1.0
        out = run(asked, {"VARIANT": way}, values)
        expected = functional.conv2d(values["x"], values["weight"], padding=1)
        assert (out[0, 0] == INF).all()
        assert (out[0, 1] == -INF).all()
        assert torch.equal(out.isinf(), expected.isinf())

    @pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu"])
    def test_bias_and_activation_follow_the_sum(self, activation: str) -> None:
        asked = problem(1, 16, 5, 5, 20, **PAD, bias=True, activation=activation)
        values = inputs(asked)
        run(asked, {"BLOCK_K": 16}, values)
        assert not wrong(asked, values)


def launched(asked: Problem, knobs: Mapping[str, Any], address: int = 0) -> Launch:
    config = KERNEL.signature.config({**TILE, **knobs})
    given = {name: At(operand, address) for name, operand in KERNEL.tensors(asked, config, H200.limits).items()}
    (launch,) = KERNEL.launch(asked, config, given)
    assert isinstance(launch, Launch)
    return launch


class TestLaunch:
    @pytest.mark.parametrize("variant", ["boxes", "specialized"])
    def test_tensors_that_are_not_aligned_go_through_pointers(self, variant: str) -> None:
        asked = problem(8, 320, 64, 64, 320, **PAD)
        knobs = {"VARIANT": variant, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}
        assert launched(asked, knobs, 32).fn.__name__ == f"conv2d_{variant}"
        through_pointers = launched(asked, knobs, 8)
        assert through_pointers.fn.__name__ == "conv2d_tiles"
        assert through_pointers.kwargs["BLOCK_N"] == 128

    def test_warps_with_roles_are_one_program_for_each_multiprocessor_or_slice(self) -> None:
        roles = {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
        assert launched(problem(8, 320, 64, 64, 320, **PAD), roles).grid == (132,)
        small = problem(2, 1280, 8, 8, 1280, **PAD)
        assert launched(small, {**roles, "SPLIT_K": 8}).grid == (80,)

    @pytest.mark.parametrize("variant", ["tiles", "boxes", "specialized"])
    def test_a_copy_precedes_its_convolution(self, variant: str) -> None:
        stem = problem(2, 3, 33, 35, 64, 7, stride_h=2, padding_h=3, padding_w=3)
        config = KERNEL.signature.config({**TILE, "BLOCK_M": 128, "VARIANT": variant, "COPY": True})
        operands = KERNEL.tensors(stem, config, H200.limits)
        assert operands["x_copy"].shape == (2, 40, 42, 4)
        assert operands["weight_copy"].shape == (64, 7, 28 if variant == "tiles" else 32)
        tensors_at = {name: At(operand, 16) for name, operand in operands.items()}
        names = [launch.fn.__name__ for launch in KERNEL.launch(stem, config, tensors_at)]
        assert names == ["conv2d_copy", f"conv2d_{variant}"]
        unaligned = {**tensors_at, "out": At(operands["out"], 8)}
        if variant != "tiles":
            assert [launch.fn.__name__ for launch in KERNEL.launch(stem, config, unaligned)] == ["conv2d_tiles"]

    def test_windows_of_a_copy_overlap(self) -> None:
        """Windows are two pixels of four channels apart, which is 16 bytes, and as wide as seven pixels."""
        stem = problem(2, 3, 33, 35, 64, 7, stride_h=2, padding_h=3, padding_w=3)
        config = KERNEL.signature.config({**TILE, **COPIED})
        seen, row = copy_of(stem, config).seen, 42 * 4
        assert seen.shape == (2, 20, 2, 18, 28)
        assert seen.strides == (40 * row, 2 * row, row, 8, 1)
        read = convolved(stem, config)
        assert [read[name] for name in ("C", "S", "W", "stride_w", "padding_w")] == [32, 1, 18, 1, 0]
        assert outputs(read) == outputs(stem)

    def test_steps_go_along_rows_of_windows_if_that_takes_fewer(self) -> None:
        stem = problem(1, 3, 32, 32, 64, 7, stride_h=2, padding_h=3, padding_w=3)
        assert [launched(stem, {}).kwargs[name] for name in ("RUN", "BEFORE", "UNIT")] == [True, 1, 2]
        assert steps(stem, 32) == 7
        apart = problem(1, 3, 32, 32, 64, 7, dilation_w=2)
        assert (launched(apart, {}).kwargs["RUN"], steps(apart, 32)) == (False, 49)
        assert not launched(problem(1, 64, 32, 32, 64), {}).kwargs["RUN"]


class TestSpace:
    def test_each_card_has_the_variants_that_it_can_run(self) -> None:
        asked = problem(32, 128, 28, 28, 128, **PAD)
        for card, variants in (
            (A100, {"tiles"}),
            (B200, {"tiles", "boxes"}),
            (H200, {"tiles", "boxes", "specialized"}),
        ):
            space = list(feasible(KERNEL, asked, card.limits))
            assert {config["VARIANT"] for config in space} == variants
            assert len(space) < 6000

    @pytest.mark.parametrize(
        "asked",
        [
            problem(32, 3, 224, 224, 64, 7, stride_h=2),  # channels that are not aligned
            problem(32, 128, 28, 28, 4, **PAD),  # filters that are not aligned
        ],
    )
    def test_what_descriptors_cannot_describe_is_left_to_pointers(self, asked: Problem) -> None:
        default = KERNEL.default_config(asked, H200.limits)
        assert default["COPY"] or default["VARIANT"] in ("tiles", "direct")
        assert not KERNEL.valid(asked, KERNEL.signature.config({**TILE, "VARIANT": "boxes"}), H200.limits)

    @pytest.mark.parametrize(("asked", "way"), FEW_CHANNELS)
    def test_few_channels_have_the_default_that_measured_best(self, asked: Problem, way: tuple[object, ...]) -> None:
        default = KERNEL.default_config(asked, H200.limits)
        assert tuple(default[name] for name in ("VARIANT", "COPY", "BLOCK_M", "BLOCK_N", "BLOCK_K")) == way

    def test_what_is_counted_in_32_bits_limits_direct_and_copies(self) -> None:
        def ways(asked: Problem) -> set[tuple[object, object]]:
            full = [KERNEL.signature.config({**TILE, "BLOCK_M": 128, "num_warps": 4, **way}) for way in tried]
            return {(c["VARIANT"], c["COPY"]) for c in full if KERNEL.valid(asked, c, H200.limits)}

        tried: list[dict[str, Any]] = [
            {"VARIANT": "direct", "BLOCK_N": 16, "BLOCK_K": 16, "num_stages": 2},
            {"VARIANT": "tiles", "COPY": True, "BLOCK_N": 16, "BLOCK_K": 32},
        ]
        both = {("direct", False), ("tiles", True)}
        tall = {"S": 1, "padding_h": 1, "dilation_h": 64}
        assert ways(problem(1, 3, 130, 2**18, 8, 3, **tall)) == both
        assert ("direct", False) not in ways(problem(1, 3, 130, 2**23, 8, 3, **tall))  # from a window's row to its last
        sliding = {"S": 1, "stride_h": 16, "stride_w": 1}
        assert ("tiles", True) in ways(problem(2**10, 1, 1024, 1, 8, 16, **sliding))
        assert ("tiles", True) not in ways(problem(2**21 + 1, 1, 1024, 1, 8, 16, **sliding))  # rows of all copies
        assert ways(problem(1, 65537, 7, 7, 64, 1)) == set()  # channels that a program copies at once

    def test_threads_store_as_many_filters_at_once_as_all_pixels_are_aligned_for(self) -> None:
        """Triton knows of a number only whether it is a multiple of 16: 72 filters were stored one by one."""
        at_once = {filters: filters_at_once(problem(8, 5, 196, 160, filters, **PAD)) for filters in (64, 72, 76, 77)}
        assert at_once == {64: 8, 72: 8, 76: 4, 77: 1}
        assert filters_at_once(problem(8, 5, 196, 160, 72, dtype="fp32", **PAD)) == 4

    def test_only_channels_that_are_not_aligned_are_copied(self) -> None:
        def ways(asked: Problem) -> set[tuple[object, object]]:
            pairs = product_of(variants, (False, True))
            configs = [{**TILE, "BLOCK_M": 128, "VARIANT": variant, "COPY": copies} for variant, copies in pairs]
            full = [KERNEL.signature.config(config) for config in configs]
            return {(config["VARIANT"], config["COPY"]) for config in full if KERNEL.valid(asked, config, H200.limits)}

        variants = ("tiles", "boxes", "specialized")
        assert ways(problem(32, 3, 56, 56, 64)) == {("tiles", False), *((variant, True) for variant in variants)}
        assert ways(problem(32, 32, 56, 56, 64)) == {(variant, False) for variant in variants}
        assert ways(problem(32, 3, 56, 56, 33)) == {("tiles", False), ("tiles", True)}
        assert ways(problem(32, 3, 56, 56, 64, dilation_w=2)) == {("tiles", False)}
        assert ways(problem(32, 3, 56, 56, 64, 1, S=3)) == {("tiles", False), ("tiles", True)}
        assert ways(problem(32, 3, 56, 56, 64, dtype="fp32", precision="ieee")) == set()  # a tile is too large

    def test_boxes_have_two_stages_only_in_short_loops(self) -> None:
        boxes = replace(KERNEL, parts=tuple(part for part in KERNEL.parts if part["VARIANT"] == ("boxes",)))

        def stages(channels: int) -> set[object]:
            space = feasible(boxes, problem(32, channels, 28, 28, 256, 1), H200.limits)
            return {config["num_stages"] for config in space if config["BLOCK_K"] == 64}

        assert stages(512) == {2, 3, 4, 5, 6}
        assert stages(576) == {3, 4, 5, 6}

    def test_small_outputs_are_cut_along_k(self) -> None:
        asked = problem(2, 1280, 8, 8, 1280, **PAD)
        default: Config = KERNEL.default_config(asked, H200.limits)
        assert default["SPLIT_K"] > 1
        assert tile_count(asked, default) * default["SPLIT_K"] >= 2 * H200.limits.sm_count // 3
        assert KERNEL.default_config(problem(32, 64, 56, 56, 64, **PAD), H200.limits)["SPLIT_K"] == 1

    def test_rows_of_tall_tiles_are_read_by_eight_warps(self) -> None:
        """Registers of four hold the sums of 256 x 64, and hardly the addresses of its rows beside them."""
        for asked in (problem(24, 111, 43, 43, 139, bias=True, **PAD), problem(192, 48, 40, 40, 48, **PAD)):
            default = KERNEL.default_config(asked, H200.limits)
            assert (default["VARIANT"], default["BLOCK_M"], default["BLOCK_N"]) == ("tiles", 256, 64)
            assert default["num_warps"] == 8

    def test_phases_of_images_that_a_stride_does_not_divide_hold_their_pixels_alone(self) -> None:
        """Each place of a window, addressed as `specialized` does, is the pixel of x, or outside if that is."""
        dice = random.Random(5)
        for _ in range(60):
            strides = {"stride_h": dice.randint(1, 4), "stride_w": dice.randint(1, 4)}
            around = {"padding_h": dice.randint(0, 3), "padding_w": dice.randint(0, 3)}
            spaced = {"dilation_h": dice.randint(1, 3), "dilation_w": dice.randint(1, 3)}
            asked = problem(2, 8, dice.randint(9, 20), dice.randint(9, 20), 8, 3, S=2, **strides, **around, **spaced)
            seen, found = view(asked), layer(asked)
            if seen.phases == (1, 1):
                continue
            for taps in product_of(range(3), range(2)):
                for outs in product_of(range(found.rows.count), range(found.columns.count)):
                    self.check_address(asked, seen, taps, outs)

    def check_address(self, asked: Problem, seen: View, taps: Pair, outs: Pair) -> None:
        axes = (layer(asked).rows, layer(asked).columns)
        firsts = [tap * axis.dilation - axis.padding for tap, axis in zip(taps, axes, strict=True)]
        row, column = (out + first // each for out, first, each in zip(outs, firsts, seen.phases, strict=True))
        row_phase, column_phase = (first % each for first, each in zip(firsts, seen.phases, strict=True))
        longer = row_phase < seen.longer[0], column_phase < seen.longer[1]
        shape = seen.longer_shape(*longer) if any(longer) else seen.shape
        assert shape is not None
        corner = (row, row_phase, column, column_phase * 8)
        h, w = row * seen.phases[0] + row_phase, column * seen.phases[1] + column_phase
        inside = all(0 <= at < size for at, size in zip(corner, shape[1:], strict=True))
        assert inside == (0 <= h < axes[0].size and 0 <= w < axes[1].size)
        address = sum(at * stride for at, stride in zip(corner, seen.strides[1:], strict=True))
        assert address == (h * axes[1].size + w) * 8

    def test_a_patch_has_the_pixels_of_its_tile(self) -> None:
        asked = problem(32, 128, 28, 28, 128, **PAD)
        for config in feasible(KERNEL, asked, H200.limits):
            if config["VARIANT"] != "tiles":
                images, rows, columns = patch_of(asked, config)
                assert images * rows * columns == config["BLOCK_M"]
        assert layer(asked).pixels == 25088


COMPILED = """
    import re
    from collections import Counter
    from helpers import A100, H200
    from tuner import catalog
    from tuner.measure.compile import compile_launches, set_target

    kernel, card = catalog.load("conv2d"), {card}
    same = {{"B": 8, "C": 320, "H": 64, "dtype": "fp16", "padding_h": 1, "padding_w": 1, "bias": True}}
    stem = {{"B": 32, "C": 3, "H": 224, "O": 64, "R": 7, "stride_h": 2, "padding_h": 3, "padding_w": 3}}
    small = {{"B": 2, "C": 1280, "H": 8, "padding_h": 1, "padding_w": 1}}
    halved = {{**same, "stride_h": 2}}
    odd = {{**same, "H": 65, "W": 64, "stride_h": 2, "stride_w": 3}}
    unused = {{"PATCH": 0, "COPY": False, "GROUPS": 2, "PINGPONG": False, "WIDE": False}}
    tile = {{**unused, "BLOCK_K": 64, "GROUP_M": 8, "SPLIT_K": 1, "num_warps": 4}}
    tiles = {{**tile, "VARIANT": "tiles", "BLOCK_M": 128, "BLOCK_N": 128, "num_stages": 3}}
    boxes = {{**tile, "VARIANT": "boxes", "BLOCK_M": 256, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3}}
    roles = {{**tile, "VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 192, "num_stages": 4}}
    windows = {{**boxes, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "COPY": True}}
    pixels = {{**windows, "VARIANT": "tiles", "BLOCK_M": 128, "num_stages": 4}}
    slices = {{**roles, "GROUP_M": 1, "SPLIT_K": 8}}
    set_target(card.limits)
    for values, config in {pairs}:
        problem = kernel.signature.problem(values)
        config = config or kernel.default(problem, card.limits)
        assert kernel.valid(problem, config, card.limits), config
        *before, code = compile_launches(kernel, problem, kernel.signature.config(config), card.limits)
        names = r"wgmma.mma_async|mma.sync|cp.async.bulk.tensor|cp.async.c[ga]|[ls][dt].local|st.shared.b16|ldmatrix"
        found = Counter(re.findall(names, "".join(each.asm["ptx"] for each in (*before, code))))
        counts = (f"{{name}} {{count}}" for name, count in sorted(found.items()))
        print("found", code.metadata.shared <= card.limits.shared_bytes, *counts)
"""


def instructions(card: str, pairs: str) -> list[str]:
    """Return the instructions of problems and configs compiled for a card, all of which fit its shared memory."""
    code = dedent(COMPILED).format(card=card, pairs=pairs)
    lines = [line.split(" ", 2) for line in printed(code).splitlines() if line.startswith("found ")]
    assert all(fits == "True" for _, fits, _ in lines)
    assert not any(".local" in names for *_, names in lines)  # spilled registers
    return [names for *_, names in lines]


def test_threads_copy_pixels_asynchronously() -> None:
    for names in instructions("A100", "((same, tiles), (small, None))"):
        assert "cp.async.cg" in names
        assert "mma.sync" in names


def test_copied_pixels_are_read_8_bytes_at_once_and_windows_by_the_copy_engine() -> None:
    pixels, windows = instructions("H200", "((stem, pixels), (stem, windows))")
    assert "cp.async.ca" in pixels
    assert "cp.async.bulk.tensor" in windows
    for names in (pixels, windows):
        assert "wgmma" in names
        assert "st.shared.b16" not in names  # filters are copied asynchronously too


def test_the_tensor_cores_of_hopper_read_pixels_and_filters_from_shared_memory() -> None:
    through_pointers, *others = instructions(
        "H200",
        "((same, tiles), (halved, boxes), (same, roles), (halved, roles), (odd, roles), (small, slices), "
        "(small, None), (same, None))",
    )
    assert "cp.async.cg" in through_pointers
    assert len(others) == 7
    for names in (through_pointers, *others):
        assert "wgmma" in names
        assert "mma.sync" not in names
    for names in others:
        assert "cp.async.bulk.tensor" in names
        assert "ldmatrix" not in names  # nothing goes through registers on its way to the tensor cores
