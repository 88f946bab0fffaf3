"""Rules behind the defaults of norms, reductions, elementwise ops and copies of columns, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from helpers import B200, H200, RTX_4090

from tuner import catalog
from tuner.kernels.reduce.space import shares
from tuner.kernels.shared.rows_space import SHARED_REGISTERS, chunks
from tuner.kernels.spec import Config

SMS = H200.limits.sm_count
CARDS = pytest.mark.parametrize("card", [H200, B200, RTX_4090], ids=lambda card: card.id)


def default(op: str, **values: Any) -> Config:
    kernel = catalog.load(op)
    return kernel.default_config(kernel.signature.problem({"dtype": "bf16", **values}), H200.limits)


def has(config: Config, **knobs: Any) -> bool:
    return all(config[name] == value for name, value in knobs.items())


AXES = ("rows", "columns", "all")
SIZES = (1, 2, 3, 5, 8, 17, 33, 64, 129, 300, 513, 5000)
LENGTHS = (1, 3, 6, 8, 31, 60, 257, 1000, 4097, 16_900, 20_001, 32_768, 41_961, 131_073, 262_143, 1_000_003)


@CARDS
@pytest.mark.parametrize(
    ("op", "variants"),
    [
        ("reduce", [{"axis": axis} for axis in AXES]),
        ("reduce", [{"axis": axis, "kind": "logsumexp"} for axis in AXES]),
        ("reduce", [{"axis": axis, "kind": "max", "index": True} for axis in AXES]),
        ("rms_norm", [{}, {"residual": True}]),
        ("layer_norm", [{}, {"bias": False, "weight": False}]),
        ("silu_mul", [{"packed": True}]),
        ("add", [{}]),
        ("copy_column", [{"memory": memory} for memory in ("device", "pinned", "pageable")]),
    ],
)
def test_defaults_are_feasible_at_any_size(op: str, variants: list[dict[str, Any]], card: Any) -> None:
    kernel = catalog.load(op)
    for M in SIZES:
        for N in LENGTHS:
            for dtype in ("bf16", "fp32"):
                for variant in variants:
                    problem = kernel.signature.problem({"M": M, "N": N, "dtype": dtype, **variant})
                    config = kernel.default_config(problem, card.limits)
                    assert kernel.valid(problem, config, card.limits), (problem.text, config.text)


class TestReduce:
    def test_warps_exchange_nothing_over_few_rows(self) -> None:
        """An exchange writes a state of each column to one bank of shared memory, and takes as long as 10 rows."""
        assert has(default("reduce", M=32, N=262_144, axis="rows"), BLOCK_N=128, DEPTH=16, num_warps=1)
        assert default("reduce", M=128, N=100_000, axis="rows")["num_warps"] == 1
        assert default("reduce", M=256, N=100_000, axis="rows")["num_warps"] == 2

    def test_states_of_logsumexp_and_of_indices_leave_registers_for_fewer_rows(self) -> None:
        for values in ({"kind": "logsumexp"}, {"kind": "max", "index": True}):
            assert default("reduce", M=32, N=262_144, axis="rows", **values)["DEPTH"] == 8

    def test_a_thread_reads_the_whole_columns_of_the_fewest_rows(self) -> None:
        assert has(default("reduce", M=8, N=1_048_576, axis="rows"), BLOCK_N=2048, DEPTH=8, num_warps=8)

    @pytest.mark.parametrize(("M", "N"), [(1413, 3), (16, 128), (147, 153), (2000, 6)])
    def test_small_matrices_have_one_access_for_each_thread(self, M: int, N: int) -> None:
        """The card has more warps than they need, and a warp would make further accesses one after the other."""
        assert has(default("reduce", M=M, N=N), DEPTH=1, num_warps=1)

    def test_narrow_accesses_are_many_already(self) -> None:
        """A thread reads rows of 3 elements one by one, which are 8 loads instead of one."""
        assert default("reduce", M=262_144, N=3)["DEPTH"] == 1
        assert default("reduce", M=262_144, N=8)["DEPTH"] == 4

    def test_few_short_rows_have_several_warps_each(self) -> None:
        assert has(default("reduce", M=37, N=2048), DEPTH=2, num_warps=4)
        assert has(default("reduce", M=3, N=29_709), DEPTH=2, num_warps=8, SPLIT=8)

    def test_few_long_rows_are_read_by_one_program_each(self) -> None:
        alone: dict[str, Any] = {"BLOCK_N": 32_768, "DEPTH": 4, "num_warps": 32, "SPLIT": 1}
        assert has(default("reduce", M=64, N=28_672), **alone)
        assert has(default("reduce", M=16, N=20_000), **alone)
        for values in ({"M": 100, "N": 28_672}, {"M": 64, "N": 28_672, "kind": "logsumexp"}, {"M": 64, "N": 33_000}):
            assert default("reduce", **values)["num_warps"] < 32

    def test_programs_that_reduce_rows_take_lines_if_there_are_enough(self) -> None:
        for values, columns in (
            ({"M": 17_024, "N": 28_672}, 64),
            ({"M": 8192, "N": 16_384}, 32),
            ({"M": 5, "N": 65_536}, 32),
        ):
            assert default("reduce", axis="rows", **values)["BLOCK_N"] == columns

    def test_rows_that_the_card_can_hold_are_read_in_one_step(self) -> None:
        """They wait for memory once. The registers of logsumexp do not hold them, nor the card more rows."""
        assert has(default("reduce", M=1311, N=4353), BLOCK_N=8192, DEPTH=8, num_warps=4)
        assert default("reduce", M=1311, N=4353, kind="logsumexp")["BLOCK_N"] < 4353
        assert default("reduce", M=8192, N=4353)["BLOCK_N"] < 4353

    @pytest.mark.parametrize("N", [1_048_576, 3_656_318, 4_086_954, 30_000_000])
    def test_each_program_has_a_step_if_everything_is_reduced(self, N: int) -> None:
        """A power of two of programs shares the result; with fewer steps, half of them would have none."""
        problem = catalog.load("reduce").signature.problem({"M": 1, "N": N, "axis": "all", "dtype": "bf16"})
        config = default("reduce", M=1, N=N, axis="all")
        assert config["SPLIT"] >= 512
        assert shares(problem, config).steps >= config["SPLIT"]

    def test_one_program_reads_few_elements_at_once(self) -> None:
        """Programs that share a result wait for each other, longer than one takes to read 64 KB."""
        assert has(default("reduce", M=1, N=5377, axis="all"), SPLIT=1, BLOCK_N=8192, DEPTH=1, num_warps=32)
        assert has(default("reduce", M=1, N=32_768, axis="all"), SPLIT=1, DEPTH=4, num_warps=32)
        assert has(default("reduce", M=1, N=900, axis="all"), SPLIT=1, DEPTH=1, num_warps=4)
        assert default("reduce", M=1, N=32_896, axis="all")["SPLIT"] == 32

    def test_long_loops_over_everything_have_all_warps_and_more_programs_than_run_at_once(self) -> None:
        assert has(default("reduce", M=1, N=2**27, axis="all"), DEPTH=2, num_warps=16, SPLIT=2048)

    def test_half_of_a_last_step_is_not_beyond_the_end_of_the_row(self) -> None:
        """Indices need as many instructions there as elsewhere: three steps of 2,048 columns, not two of 4,096."""
        index: dict[str, Any] = {"M": 896, "kind": "min", "index": True}
        assert has(default("reduce", N=5106, **index), BLOCK_N=2048, DEPTH=2, num_warps=4)
        assert has(default("reduce", N=7000, **index), BLOCK_N=4096, DEPTH=4, num_warps=4)

    def test_programs_that_share_columns_run_at_once(self) -> None:
        """134 groups of columns: with two programs each, half of the card would have no more than one in flight."""
        assert default("reduce", M=11_264, N=4288, axis="rows")["SPLIT"] == 4
        assert default("reduce", M=11_264, N=4288, axis="rows", kind="logsumexp")["SPLIT"] == 2


class TestNorms:
    @pytest.mark.parametrize(
        ("op", "values"),
        [
            ("layer_norm", {"M": 5, "N": 31_497}),
            ("layer_norm", {"M": 33, "N": 73_328}),
            ("layer_norm", {"M": 7, "N": 172_357}),
            ("rms_norm", {"M": 64, "N": 65_536}),
        ],
    )
    def test_programs_that_share_few_rows_run_at_once(self, op: str, values: dict[str, int]) -> None:
        """Two or more of them run on a multiprocessor, so that one reads while the other waits."""
        config = default(op, **values)
        each = H200.limits.registers_per_sm // (config["num_warps"] * 32 * SHARED_REGISTERS)
        assert config["VARIANT"] == "shared"
        assert values["M"] * chunks(values["N"], config["BLOCK_N"]) <= each * SMS
        assert each >= 2

    def test_rows_that_do_not_all_run_at_once_are_looped_over(self) -> None:
        assert default("rms_norm", M=128, N=41_961)["VARIANT"] == "looped"

    def test_rows_that_leave_l2_before_they_are_read_again_are_shared(self) -> None:
        assert has(default("rms_norm", M=231, N=229_201, residual=True, weight=False), VARIANT="shared", BLOCK_N=8192)
        assert default("layer_norm", M=261, N=185_123, weight=False, bias=False)["VARIANT"] == "shared"
        assert default("layer_norm", M=1675, N=131_072)["VARIANT"] == "looped"
        assert default("rms_norm", M=231, N=131_072)["VARIANT"] == "looped"

    def test_odd_rows_beside_two_vectors_are_shared_if_they_leave_most_of_the_card_empty(self) -> None:
        """A program reads both vectors element by element, and its registers do not hold them."""
        assert default("layer_norm", M=SMS // 2, N=20_001)["VARIANT"] == "shared"
        assert default("layer_norm", M=SMS, N=20_001)["VARIANT"] == "odd"
        assert default("rms_norm", M=SMS // 2, N=20_001)["VARIANT"] == "odd"

    def test_few_odd_rows_are_read_16_bytes_at_once_by_more_threads(self) -> None:
        assert has(default("rms_norm", M=44, N=687), VARIANT="odd", BLOCK_N=256, num_warps=2)
        assert default("rms_norm", M=1_000, N=687)["VARIANT"] == "whole"
        warps = [default("layer_norm", M=M, N=4965)["num_warps"] for M in (1, 4096)]
        assert warps == [8, 4]

    def test_programs_have_several_rows_only_beside_enough_others(self) -> None:
        assert [default("rms_norm", M=M, N=208)["ROWS"] for M in (298, 2048, 100_000)] == [1, 2, 8]

    def test_a_warp_holds_short_rows_that_are_read_element_by_element(self) -> None:
        """Warps exchange nothing, and a lane has few registers, unless programs are many."""
        assert has(default("layer_norm", M=38_270, N=63, stats=True), BLOCK_N=64, ROWS=4, num_warps=1)
        assert [default("rms_norm", M=M, N=203)["ROWS"] for M in (298, 2048, 20_000, 400_000)] == [1, 1, 2, 4]
        assert has(default("rms_norm", M=400_000, N=63), ROWS=16, num_warps=1)

    def test_late_weights_leave_registers_for_the_two_sums_of_layer_norm(self) -> None:
        assert default("layer_norm", M=7393, N=4544, bias=False)["LATE"]
        assert not default("rms_norm", M=7393, N=4544)["LATE"]

    def test_few_aligned_weights_are_read_early(self) -> None:
        """The registers hold all programs at once, and each then waits for memory once."""
        assert not default("layer_norm", M=256, N=960)["LATE"]
        assert default("layer_norm", M=2048, N=1512)["LATE"]

    def test_weights_beside_rows_that_are_read_element_by_element_are_late(self) -> None:
        assert has(default("layer_norm", M=304, N=225), BLOCK_N=256, ROWS=1, LATE=True, num_warps=1)
        assert default("rms_norm", M=64, N=75)["LATE"]
        assert not default("rms_norm", M=64, N=75, weight=False)["LATE"]

    def test_many_short_odd_rows_are_computed_in_pairs(self) -> None:
        pairs: dict[str, Any] = {"VARIANT": "odd", "BLOCK_N": 256, "STEPS": 2, "num_warps": 2, "num_stages": 3}
        assert has(default("layer_norm", M=8192, N=723), **pairs)
        assert has(default("rms_norm", M=38_527, N=1255), **pairs)
        assert has(default("rms_norm", M=38_527, N=1255, weight=False), **pairs)
        for values in ({"M": 8192, "N": 501}, {"M": 1000, "N": 723}):
            assert default("layer_norm", **values)["VARIANT"] == "whole"

    def test_several_small_programs_loop_over_many_long_odd_rows(self) -> None:
        """Their elements are moved one by one, which takes longer than reading their bytes twice."""
        small, large = {"BLOCK_N": 2048, "num_warps": 4}, {"BLOCK_N": 8192, "num_warps": 32}
        assert has(default("rms_norm", M=2048, N=41_219, residual=True), VARIANT="looped", **small)
        assert has(default("rms_norm", M=512, N=46_567, residual=True), VARIANT="looped", **small)
        assert has(default("layer_norm", M=700, N=70_001), VARIANT="looped", BLOCK_N=2048, num_warps=8)
        for values in ({"M": 2 * SMS, "N": 46_567}, {"M": 2048, "N": 41_216}):
            assert has(default("rms_norm", **values), VARIANT="looped", **large)

    def test_sums_with_a_residual_that_leave_l2_are_not_read_again(self) -> None:
        """1,493 x 79,489 takes 351 us shared by programs, 477 in loops; with a weight registers spill (H200)."""
        assert default("rms_norm", M=1493, N=79_489, residual=True, weight=False)["VARIANT"] == "shared"
        assert default("rms_norm", M=600, N=90_001, residual=True)["VARIANT"] == "looped"
        assert default("rms_norm", M=1493, N=79_489)["VARIANT"] == "looped"

    def test_loops_run_two_rows_at_once_of_which_registers_hold_one(self) -> None:
        for M, variant in ((SMS, "whole"), (246, "looped"), (2 * SMS + 1, "whole")):
            assert default("rms_norm", M=M, N=32_768)["VARIANT"] == variant
        assert default("rms_norm", M=246, N=18_432)["VARIANT"] == "whole"

    def test_the_longest_rows_leave_no_lane_idle(self) -> None:
        """A thread would hold 32 values, of which half are beside the row, with two vectors: too many to keep."""
        assert has(default("layer_norm", M=5, N=18_432), VARIANT="whole", BLOCK_N=4096, num_warps=32)

    def test_few_long_rows_leave_lanes_to_fewer_warps(self) -> None:
        """Half of the lanes of 8,192 columns would be idle, and 16 warps would join their sums instead of 8."""
        assert has(default("rms_norm", M=1, N=4544, residual=True), VARIANT="whole", BLOCK_N=1024, num_warps=8)
        assert has(default("layer_norm", M=2, N=5376), BLOCK_N=2048, num_warps=8)
        assert has(default("rms_norm", M=8, N=10_816), BLOCK_N=4096, num_warps=8)
        for N in (1488, 3200, 8192):
            assert has(default("layer_norm", M=9, N=N), BLOCK_N=1 << (N - 1).bit_length())


class TestElementwise:
    @pytest.mark.parametrize(
        ("op", "values"), [("silu_mul", {"M": 1311, "N": 4863, "packed": True}), ("add", {"M": 1351, "N": 3975})]
    )
    def test_programs_for_rows_that_begin_anywhere_are_small(self, op: str, values: Mapping[str, Any]) -> None:
        """The card runs few waves of them, so the last should be short; and results stay in L2 behind the inputs."""
        assert has(default(op, **values), BLOCK=1024, num_warps=4, EVICT_FIRST=True)
        aligned = {**values, "N": 4096}
        assert has(default(op, **aligned), BLOCK=2048, num_warps=4, EVICT_FIRST=False)

    def test_their_threads_have_8_elements_of_any_size(self) -> None:
        """Programs of one warp fill half of a multiprocessor, which runs 32 of them."""
        for dtype in ("bf16", "fp32"):
            assert has(default("gelu", M=16_384, N=385, dtype=dtype), BLOCK=1024, num_warps=4, EVICT_FIRST=False)
        assert has(default("gelu", M=11, N=10_985), BLOCK=512, num_warps=2)
        assert has(default("gelu", M=154, N=929), BLOCK=512, num_warps=2)

    def test_they_are_large_if_the_last_wave_is_one_of_many(self) -> None:
        assert has(default("silu_mul", M=20_728, N=7307, packed=True), BLOCK=2048, num_warps=4, EVICT_FIRST=False)


class TestCopyColumn:
    def test_only_blocks_in_whole_accesses_are_wide(self) -> None:
        """Triton masks 16 bytes at once if it knows that 16 divides the number of rows."""
        assert has(default("copy_column", M=2**22, N=1), WAY="kernel", WIDE=1)
        assert has(default("copy_column", M=2_117_943, N=1), WAY="kernel", WIDE=0, BLOCK=4096, num_warps=8)
        assert default("copy_column", M=5_372_493, N=1)["WAY"] == "driver"

    def test_warps_read_adjacent_rows_that_share_sectors(self) -> None:
        for M in (3_303_669, 3_303_680):
            assert has(default("copy_column", M=M, N=2), WAY="kernel", WIDE=0, BLOCK=512, num_warps=2)

    def test_a_thread_reads_one_row_if_each_has_a_sector_of_its_own(self) -> None:
        assert has(default("copy_column", M=1_000_000, N=128), BLOCK=128, WIDE=0, num_warps=4)
