"""Products of 8-bit floats: scales, the kernel that runs, and the cards that can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import A100, B200, H200, RTX_4090, drawn
from placed import At

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.scaled_gemm.default import by_rules
from tuner.kernels.scaled_gemm.space import tile_of_roles
from tuner.kernels.shared.wide_wgmma import compiled_tile
from tuner.kernels.spec import Config, Launch, Operand, Problem, Value
from tuner.measure import check, tensors
from tuner.measure.stand_ins import StandIn
from tuner.records import Device
from tuner.search.space import feasible

KERNEL = catalog.load("scaled_gemm")
TILE: dict[str, Value] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 1, "num_warps": 4, "num_stages": 3}
FEW: dict[str, Value] = {**TILE, "BLOCK_M": 16}
VECTORS: dict[str, Value] = {
    "BLOCK_M": 1, "BLOCK_N": 2, "BLOCK_K": 1024, "GROUP_M": 1, "VARIANT": "vectors", "num_warps": 2, "num_stages": 1,
}  # fmt: skip


def problem(M: int, N: int, K: int, **attributes: object) -> Problem:
    return KERNEL.signature.problem({"M": M, "N": N, "K": K, **attributes})


def inputs(problem: Problem) -> dict[str, torch.Tensor]:
    operands = KERNEL.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    tensors.poison(operands, values)
    return values


def launched(
    problem: Problem,
    knobs: Mapping[str, Value] = TILE,
    apart: int = 0,
    scale_a: tuple[int, int] | None = None,
    address: int = 0,
    copied: int = 0,
) -> Launch:
    """Return the last launch of a config on the problem's tensors, after `copied` copies.

    There may be gaps between rows of a, and other strides or another address of its scales.
    """
    config = KERNEL.signature.config(knobs)
    described = dict(KERNEL.tensors(problem, config, H200.limits))
    described["a"] = Operand((problem["M"], problem["K"]), "fp8e4m3", strides=(problem["K"] + apart, 1))
    described["scale_a"] = replace(described["scale_a"], strides=scale_a or described["scale_a"].strides)
    given = {name: StandIn(operand) for name, operand in described.items()}
    given["scale_a"] = At(described["scale_a"], address)
    *copies, launch = KERNEL.launch(problem, config, given)
    assert len(copies) == copied
    assert isinstance(launch, Launch)
    return launch


class TestOperands:
    def test_b_and_all_scales_lie_as_torch_wants_them(self) -> None:
        given = KERNEL.operands(problem(300, 144, 400, scales="block", out_dtype="fp16"))
        assert {name: (o.shape, o.element_strides, o.dtype, o.role) for name, o in given.items()} == {
            "a": ((300, 400), (400, 1), "fp8e4m3", "in"),
            "b": ((400, 144), (1, 400), "fp8e4m3", "in"),
            "scale_a": ((300, 4), (1, 300), "fp32", "in"),
            "scale_b": ((4, 2), (1, 4), "fp32", "in"),
            "out": ((300, 144), (144, 1), "fp16", "out"),
        }

    def test_a_tensor_has_one_scale(self) -> None:
        given = KERNEL.operands(problem(300, 144, 400))
        assert (given["scale_a"].shape, given["scale_b"].shape, given["out"].dtype) == ((1,), (1,), "bf16")

    def test_scales_are_positive_and_differ(self) -> None:
        values = inputs(problem(300, 144, 400, scales="block"))
        for scale in (values["scale_a"], values["scale_b"]):
            assert 0.5 <= float(scale.min()) < float(scale.max()) <= 2.0
            assert len(scale.unique()) > 0.99 * scale.numel()


class TestReference:
    def test_every_block_has_its_own_scale(self) -> None:
        asked = problem(3, 130, 260, scales="block")
        values = inputs(asked)
        out = KERNEL.reference(asked, values, slice(1, 3))["out"]
        a, b = values["a"].double(), values["b"].double()
        for m, n in ((1, 0), (2, 127), (1, 128), (2, 129)):
            expected = sum(
                (a[m, k] * values["scale_a"][m, k // 128]) * (b[k, n] * values["scale_b"][k // 128, n // 128])
                for k in range(260)
            )
            assert float(out[m - 1, n]) == pytest.approx(float(expected), rel=1e-5)

    @pytest.mark.parametrize("scales", ["tensor", "block"])
    def test_a_problem_that_torch_refuses_is_multiplied_in_fp32(self, scales: str) -> None:
        """Sizes that are not multiples of 16, and tensors on the CPU."""
        asked = problem(5, 33, 130, scales=scales)
        values = inputs(asked)
        assert KERNEL.vendor is not None
        KERNEL.vendor(asked, values)
        assert check.error(KERNEL, asked, values, {"out": values["out"]}) <= torch.finfo(torch.bfloat16).eps


class TestLaunch:
    @pytest.mark.parametrize("variant", ["persistent", "specialized"])
    def test_what_descriptors_cannot_describe_goes_through_pointers(self, variant: str) -> None:
        large = problem(4096, 4096, 4096)
        kernel = {"persistent": "scaled_persistent", "specialized": "gemm_specialized"}[variant]
        assert launched(large, {**TILE, "VARIANT": variant}).fn.__name__ == kernel
        assert launched(large, {**TILE, "VARIANT": variant}, apart=8).fn.__name__ == "scaled_tiles"

    def test_scales_of_blocks_are_taken_from_columns(self) -> None:
        """As torch takes them, with gaps or without; else they are copied before."""
        asked = problem(4096, 4096, 4096, scales="block")
        specialized = {**TILE, "VARIANT": "specialized"}
        assert launched(asked, specialized).fn.__name__ == "gemm_specialized"
        apart = launched(asked, specialized, scale_a=(1, 5000))
        scales = apart.args[8]
        assert (scales.shape, scales.strides, scales.block_shape) == ([31 * 5000 + 4096], [1], [64])
        assert launched(asked, specialized, scale_a=(32, 1), copied=1).fn.__name__ == "gemm_specialized"

    @pytest.mark.parametrize(("address", "copied"), [(32, 0), (8, 1)])
    def test_they_begin_where_the_copy_engine_can(self, address: int, copied: int) -> None:
        asked = problem(4096, 4096, 4096, scales="block")
        launch = launched(asked, {**TILE, "VARIANT": "specialized"}, address=address, copied=copied)
        assert launch.fn.__name__ == "gemm_specialized"

    def test_columns_of_scales_that_are_not_aligned_to_16_bytes_are_not_for_the_copy_engine(self) -> None:
        """Other coordinates are an illegal instruction: 1,025 rows one after the other."""
        specialized = {**TILE, "VARIANT": "specialized", "num_stages": 14}
        aligned = problem(1024, 4096, 4096, scales="block")
        assert launched(aligned, specialized, scale_a=(1, 1028)).fn.__name__ == "gemm_specialized"
        assert launched(aligned, specialized, scale_a=(1, 1030), copied=1).fn.__name__ == "gemm_specialized"
        for rows, there in ((1024, True), (1025, False), (1026, False)):
            asked = problem(rows, 4096, 4096, scales="block")
            for align in (False, True):
                config = KERNEL.signature.config({**specialized, "ALIGN": align})
                assert KERNEL.valid(asked, config, H200.limits) is (there is not align)
            assert (KERNEL.default(asked, H200.limits)["ALIGN"]) is not there
            assert KERNEL.valid(problem(rows, 4096, 4096), KERNEL.signature.config(specialized), H200.limits)

    def test_shared_tiles_go_there_whole_since_the_workspace_is_not_for_slices(self) -> None:
        shared = {**TILE, "VARIANT": "specialized", "BLOCK_N": 128, "SPLIT_K": 2}
        through_pointers = launched(problem(1024, 2048, 4096), shared, apart=8)
        assert (through_pointers.fn.__name__, through_pointers.kwargs["SPLIT_K"]) == ("scaled_tiles", 1)
        assert through_pointers.grid == (128,)

    def test_few_rows_take_the_columns_of_the_tensor_cores(self) -> None:
        """The transpose of out is computed: b's 128 rows are on the left, and the scales are swapped."""
        few = launched(problem(16, 4096, 4096, scales="block"), FEW)
        assert (few.kwargs["BLOCK_M"], few.kwargs["BLOCK_N"]) == (128, 16)
        assert (few.kwargs["SHARE_A"], few.kwargs["SHARE_B"]) == (128, 1)
        many = launched(problem(4096, 4096, 4096, scales="block"))
        assert (many.kwargs["SHARE_A"], many.kwargs["SHARE_B"]) == (1, 128)

    def test_sums_leave_the_tensor_cores_when_they_are_to_be_in_fp32(self) -> None:
        fp32, fast = (launched(problem(4096, 4096, 4096, accumulate=how)) for how in ("fp32", "fast"))
        assert (fp32.kwargs["IMPRECISE"], fast.kwargs["IMPRECISE"]) == (128, None)

    def test_slices_of_few_tiles_fill_the_card(self) -> None:
        asked = problem(16, 4096, 4096)
        default = KERNEL.default_config(asked, H200.limits)
        assert int(default["SPLIT_K"]) > 1
        assert H200.limits.sm_count <= launched(asked, default).grid[0] <= 4 * H200.limits.sm_count
        assert KERNEL.default_config(problem(4, 2048, 256), H200.limits)["SPLIT_K"] == 1


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # rows past the end, never stored
@pytest.mark.parametrize(
    ("knobs", "attributes"),
    [
        ({**FEW, "SPLIT_K": 2, "BLOCK_K": 64}, {"scales": "block"}),
        ({**FEW, "VARIANT": "persistent"}, {"scales": "block"}),
        ({**TILE, "VARIANT": "persistent"}, {}),
        (VECTORS, {}),
        ({**VECTORS, "BLOCK_M": 2, "BLOCK_N": 1}, {}),
    ],
)
def test_what_is_multiplied_and_scaled_is_right(knobs: dict[str, Value], attributes: dict[str, object]) -> None:
    """Under the interpreter, which has no products of 8-bit floats: the same values in 16 bits."""
    asked = problem(3 if knobs["num_stages"] == 1 else 20, 144, 528, out_dtype="fp16", **attributes)
    config = KERNEL.signature.config(knobs)
    values = inputs(asked)
    work = tensors.workspace(KERNEL.workspace(asked, config, H200.limits), "cpu")
    wide = {"a": values["a"].half(), "b": values["b"].t().half().t()}
    for launch in KERNEL.launch(asked, config, {**values, **wide, **work}):
        launch()
    assert check.error(KERNEL, asked, values, {"out": values["out"]}) <= torch.finfo(torch.float16).eps


class TestVectors:
    @pytest.mark.parametrize(
        ("sizes", "tile"),
        [
            ((1, 4096, 4096), (1, 2, 4096)),
            ((1, 4096, 14336), (1, 1, 2048)),
            ((2, 4096, 4096), (2, 2, 1024)),
            ((4096, 1, 4096), (2, 1, 4096)),
        ],
    )
    def test_one_or_two_go_without_tensor_cores_unless_tuned(
        self, sizes: tuple[int, int, int], tile: tuple[int, int, int]
    ) -> None:
        for card in (H200, RTX_4090):
            for accumulate in ("fp32", "fast"):
                default = KERNEL.default(problem(*sizes, accumulate=accumulate), card.limits)
                assert default["VARIANT"] == "vectors"
                assert (default["BLOCK_M"], default["BLOCK_N"], default["BLOCK_K"]) == tile

    @pytest.mark.parametrize(
        ("sizes", "scales"), [((4, 4096, 4096), "tensor"), ((1, 4096, 4096), "block"), ((1, 4096, 512), "tensor")]
    )
    def test_more_and_those_of_blocks_take_tiles(self, sizes: tuple[int, int, int], scales: str) -> None:
        assert KERNEL.default(problem(*sizes, scales=scales), H200.limits)["VARIANT"] == "tiles"

    @pytest.mark.parametrize(
        ("sizes", "tile"), [((1, 4092, 14321), (1, 8)), ((2, 4092, 14321), (2, 4)), ((1, 400, 14321), (1, 2))]
    )
    def test_rows_that_are_loaded_byte_by_byte_share_the_loads_of_the_vectors(
        self, sizes: tuple[int, int, int], tile: tuple[int, int]
    ) -> None:
        """On an H200, 1 x 4092 x 14321 takes 64 us with eight rows in a program and 88 with one."""
        default = KERNEL.default(problem(*sizes), H200.limits)
        assert (default["BLOCK_M"], default["BLOCK_N"], default["BLOCK_K"]) == (*tile, 512)

    @pytest.mark.parametrize(
        ("sizes", "depth", "warps"),
        [
            ((2, 960, 5568), 2048, 4),  # steps of 4096 would reach 8192
            ((2, 960, 8192), 4096, 8),
            ((2, 100, 16384), 4096, 8),
            ((1, 300, 6144), 2048, 2),
        ],
    )
    def test_few_programs_have_more_bytes_in_flight(self, sizes: tuple[int, int, int], depth: int, warps: int) -> None:
        """On an H200, 2 x 960 x 5568 takes 4.8 us in steps of 2048 and 6.0 in steps of 1024."""
        default = KERNEL.default(problem(*sizes), H200.limits)
        assert (default["BLOCK_K"], default["num_warps"]) == (depth, warps)

    def test_what_is_read_once_is_the_weights(self) -> None:
        one, several = (launched(problem(rows, 4096, 4096), VECTORS) for rows in (1, 4))
        assert one.fn.__name__ == "gemm_vectors"
        assert (one.kwargs["A_ONCE"], one.kwargs["B_ONCE"]) == (False, True)
        assert (several.kwargs["A_ONCE"], several.kwargs["B_ONCE"]) == (False, False)


class TestSpace:
    def test_tensor_cores_of_ampere_have_no_8_bit_floats(self) -> None:
        asked = problem(512, 512, 512)
        assert next(feasible(KERNEL, asked, A100.limits), None) is None
        with pytest.raises(UsageError) as refused:
            KERNEL.default(asked, A100.limits)
        assert str(refused.value) == (
            "scaled_gemm multiplies 8-bit floats on cards of compute capability 8.9 and up, and this one has 8.0; "
            "call gemm on 16-bit floats instead"
        )

    @pytest.mark.parametrize(
        ("card", "accumulate", "variants"),
        [
            (RTX_4090, "fp32", {"tiles"}),
            (H200, "fp32", {"tiles", "persistent", "specialized", "swapped"}),
            (H200, "fast", {"tiles", "persistent", "specialized", "swapped"}),
            (B200, "fp32", {"tiles", "persistent"}),
        ],
    )
    def test_each_card_has_the_variants_that_it_can_run(
        self, card: Device, accumulate: str, variants: set[str]
    ) -> None:
        space = drawn(KERNEL, problem(2048, 2048, 512, accumulate=accumulate), card.limits, count=40)
        assert {config["VARIANT"] for config in space} == variants

    def test_a_step_has_one_scale_of_each_block(self) -> None:
        space = drawn(KERNEL, problem(512, 512, 512, scales="block"), H200.limits, count=40)
        assert {config["BLOCK_K"] for config in space} == {64, 128}

    def test_scales_that_come_with_the_tiles_take_memory(self) -> None:
        """Six steps of 32 KB and 512 bytes each do not fit beside the staged output."""
        config = KERNEL.signature.config({**TILE, "VARIANT": "specialized", "num_stages": 14})
        for scales, fits in (("tensor", 6), ("block", 5)):
            asked = problem(4096, 4096, 4096, scales=scales)
            assert KERNEL.valid(asked, config, H200.limits)
            assert launched(asked, config).kwargs["STAGES"] == fits


@pytest.mark.parametrize(
    ("values", "variant"),
    [
        ({"M": 4096}, "specialized"),
        ({"M": 4096, "scales": "block"}, "specialized"),
        ({"M": 4096, "accumulate": "fast"}, "persistent"),  # its tensor cores have work all the time
    ],
)
def test_warps_have_roles_if_sums_leave_the_tensor_cores(values: dict[str, object], variant: str) -> None:
    asked = KERNEL.signature.problem(values)
    assert by_rules(asked, H200.limits)["VARIANT"] == variant
    assert KERNEL.default(asked, B200.limits)["VARIANT"] != "specialized"


@pytest.mark.parametrize(
    ("asked", "depth"),
    [
        (problem(1592, 640, 3072, accumulate="fast"), 256),
        (problem(1592, 640, 3072), 128),  # sums leave the tensor cores every 128 products
        (problem(1592, 640, 1120, accumulate="fast"), 128),  # 160 of 1280 would be beyond the end
        (problem(4096, 4096, 4096, accumulate="fast"), 128),  # fewer than four stages of 256 fit
    ],
)
def test_steps_are_deep_if_enough_of_them_fit(asked: Problem, depth: int) -> None:
    """On an H200, 1592 x 640 x 3072 takes 8.1 us in steps of 256 and 9.1 in steps of 128."""
    assert by_rules(asked, H200.limits)["BLOCK_K"] == depth


def launched_with_workspace(asked: Problem, config: Config) -> tuple[Launch, Mapping[str, Operand]]:
    stand_ins = {name: StandIn(operand) for name, operand in KERNEL.tensors(asked, config, H200.limits).items()}
    (launch,) = KERNEL.launch(asked, config, stand_ins)
    return launch, KERNEL.workspace(asked, config, H200.limits)


def test_warps_with_roles_share_tiles_that_would_leave_half_of_the_card_idle() -> None:
    asked = problem(256, 4096, 14336)
    config = KERNEL.signature.config(by_rules(asked, H200.limits))
    assert (config["VARIANT"], config["BLOCK_N"], config["SPLIT_K"]) == ("specialized", 128, 2)
    launch, work = launched_with_workspace(asked, config)
    assert launch.grid == (128,)  # half of one of 64 tiles for each
    assert (work["arrived"].shape, work["partials"].shape) == ((2 * 132,), (132, 128, 128))
    more = problem(256, 6144, 4096)
    assert launched_with_workspace(more, config)[0].grid == (132,)  # 8 of 11 of one of 96


def test_where_one_product_of_all_columns_is_unknown_steps_are_short() -> None:
    """Deep steps of sums outside of the tensor cores need two such products."""
    deep: dict[str, Any] = {"VARIANT": "swapped", "BLOCK_M": 16, "BLOCK_N": 64, "GROUPS": 1}
    asked = problem(26, 2944, 2800)
    config = KERNEL.signature.config({**TILE, **deep, "BLOCK_K": 256, "WIDE": True, "num_stages": 14})
    assert KERNEL.valid(asked, config, H200.limits)
    tile = tile_of_roles(asked, config)
    assert compiled_tile(tile, True) == tile
    assert compiled_tile(tile, False) == replace(tile, block_k=128, wide=False)


@pytest.mark.parametrize(("slices", "programs", "split_k"), [(2, 64, 1), (3, 96, 3), (4, 128, 4)])
def test_two_slices_are_even_shares_and_more_are_equal_parts(slices: int, programs: int, split_k: int) -> None:
    asked = problem(256, 2048, 8192)
    config = KERNEL.signature.config({**TILE, "VARIANT": "specialized", "SPLIT_K": slices, "num_stages": 14})
    launch, work = launched_with_workspace(asked, config)
    assert launch.grid == (programs,)
    assert (launch.kwargs["SPLIT_K"], launch.kwargs["STREAM_K"]) == (split_k, slices == 2)
    assert work["arrived"].shape == (2 * (132 if slices == 2 else 32),)
    assert work["partials"].shape == (132 if slices == 2 else programs, 128, 128)


@pytest.mark.parametrize(
    "asked", [problem(256, 6144, 4096), problem(1024, 4096, 14336, scales="block")], ids=["96 tiles", "256 tiles"]
)
def test_warps_with_roles_have_whole_tiles_that_fill_more_of_it(asked: Problem) -> None:
    config = KERNEL.signature.config(by_rules(asked, H200.limits))
    assert (config["VARIANT"], config["BLOCK_N"], config["SPLIT_K"]) == ("specialized", 128, 1)
    launch, work = launched_with_workspace(asked, config)
    assert set(work) == {"arrived", *["aligned_scale_a"] * (asked["scales"] == "block")}
    assert launch.grid == (min(132, (asked["M"] // 128) * (asked["N"] // 128)),)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"M": 326, "N": 2417, "K": 2546, "accumulate": "fast"}, 0.00243),
        ({"M": 326, "N": 2416, "K": 2546, "accumulate": "fast"}, 0.00243),
        ({"M": 326, "N": 2417, "K": 100001, "accumulate": "fast"}, 0.0078),
        ({"M": 326, "N": 2416, "K": 2544, "accumulate": "fast"}, 0.0),  # cuBLAS shows it
        ({"M": 326, "N": 2417, "K": 2546}, 0.0),
        ({"M": 326, "N": 2417, "K": 2546, "scales": "block"}, 0.0),
    ],
)
def test_fast_sums_state_their_rounding_where_no_vendor_shows_it(values: dict[str, object], expected: float) -> None:
    assert KERNEL.rounding(KERNEL.signature.problem(values)) == pytest.approx(expected, rel=0.01)
