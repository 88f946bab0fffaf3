"""Good and bad configs, compiled for an H200 without one: the profile names what limits each, and its knob."""

from __future__ import annotations

from dataclasses import replace

import pytest
from profiled import subject

from tuner import catalog
from tuner.profiling.accesses import Access
from tuner.profiling.rules import Diagnosis, diagnose
from tuner.profiling.subject import Subject


def worst(found: Subject, space: str) -> Access:
    """Return the most wasteful access to a kind of memory."""
    (launch,) = found.launches
    assert launch.accesses is not None
    return max(launch.accesses.of(space), key=lambda access: access.excess)


def levers(found: Diagnosis) -> list[str]:
    """Return the first finding's knobs, each with its direction."""
    return [f"{lever.direction} {lever.name}" for lever in found.findings[0].levers]


def test_a_good_transpose_is_at_the_bandwidth_of_a_copy() -> None:
    found = subject("transpose", 141.0)
    assert worst(found, "global").excess == 1
    assert diagnose(found).text == "memory: 93 % of the bandwidth of a copy: at its limit, no knob moves it"


@pytest.mark.parametrize("latency_us", [320.0, None])
def test_a_transpose_without_pad_has_bank_conflicts(latency_us: float | None) -> None:
    found = subject("without pad", latency_us)
    conflicts = worst(found, "shared")
    assert (conflicts.kind, conflicts.excess) == ("load", 32)  # a column of rows of 64 words
    diagnosis = diagnose(found)
    assert diagnosis.bottleneck == "bank conflicts"
    assert "the load at tiles.py:49 takes 32.0 times the fewest cycles" in diagnosis.text
    assert "raise PAD (0; elements between the tile's rows in shared memory)" in diagnosis.text


@pytest.mark.parametrize("latency_us", [640.0, None])
def test_a_row_wise_transpose_is_uncoalesced_and_no_knob_moves_it(latency_us: float | None) -> None:
    found = subject("row-wise", latency_us)
    stores = worst(found, "global")
    assert (stores.line, stores.kind, stores.excess) == ("row_wise.py:15", "store", 8)
    diagnosis = diagnose(found)
    assert diagnosis.bottleneck == "uncoalesced"
    assert "the store at row_wise.py:15 touches 32.0 sectors of 32 bytes a request, and 4.0 would do" in diagnosis.text
    assert "no knob of this kernel moves it: let neighbouring lanes access neighbouring addresses" in diagnosis.text


def test_a_good_softmax_is_at_the_bandwidth_of_a_copy_and_a_short_one_at_the_launch() -> None:
    assert diagnose(subject("softmax", 18.5)).bottleneck == "memory"
    short = diagnose(subject("softmax", 3.1))
    assert short.bottleneck == "launch"
    assert "3.10 us, and an empty kernel takes 2.00 us; no knob moves it" in short.text


def test_a_softmax_of_huge_rows_by_one_warp_waits_for_memory() -> None:
    found = subject("one warp", 75.0)
    assert found.launches[0].bytes_in_flight == 2048  # 32 lanes, 4 loads of 16 bytes each
    diagnosis = diagnose(found)
    assert diagnosis.bottleneck == "latency"
    assert "2.0 KB of loads in flight, and full bandwidth takes 21 KB; raise BLOCK_N (1024; " in diagnosis.text
    assert levers(diagnosis)[1:] == ["raise ROWS", "raise num_stages", "raise num_warps"]


def test_a_softmax_of_few_rows_leaves_the_card_idle() -> None:
    diagnosis = diagnose(subject("few programs", 20.0))
    assert diagnosis.bottleneck == "waves"
    assert "16 programs keep 16 of 132 SMs busy; raise SHARED (False; programs share a row" in diagnosis.text


def test_a_good_gemm_is_at_the_rate_of_a_large_matmul() -> None:
    found = subject("gemm", 56.0)
    assert found.launches[0].accesses is not None
    assert found.launches[0].accesses.uses_tensor_cores
    assert diagnose(found).text == "compute: 89 % of the rate of a large matmul: at its limit, no knob moves it"


def test_a_tile_more_than_a_wave_costs_a_second_one() -> None:
    diagnosis = diagnose(subject("133 tiles", 16.0))
    assert diagnosis.bottleneck == "waves"
    assert "133 programs on 132 SMs are up to 2 each, and 1.01 in the mean" in diagnosis.text
    assert levers(diagnosis)[:2] == ["raise SPLIT_K", "lower BLOCK_M"]


def test_a_tile_more_than_a_wave_costs_a_persistent_kernel_as_much() -> None:
    found = subject("persistent", 33.0)
    assert found.launches[0].programs == 132
    assert found.launches[0].evenness < 0.65
    diagnosis = diagnose(found)
    assert diagnosis.bottleneck == "waves"
    assert "times the work of the mean" in diagnosis.text


def test_tiny_tiles_load_the_operands_again_and_again() -> None:
    diagnosis = diagnose(subject("tiny tiles", 740.0))
    assert diagnosis.bottleneck == "rereads"
    assert "load 85.3 times the bytes of the problem" in diagnosis.text
    assert levers(diagnosis)[:2] == ["raise BLOCK_M", "raise BLOCK_N"]


def test_what_no_rule_explains_is_left_to_a_search() -> None:
    diagnosis = diagnose(subject("transpose", 300.0))
    assert diagnosis.bottleneck == "memory"
    assert diagnosis.text.endswith("no rule explains the rest; tuner search compares the other configs")


def test_a_problem_of_which_all_is_in_flight_at_once_is_too_small() -> None:
    found = subject("too small", 5.0)
    diagnosis = diagnose(found)
    assert diagnosis.bottleneck == "too small"
    assert diagnosis.text.endswith("no knob of this kernel moves it: fuse it with its neighbours")
    assert "latency" not in [finding.rule for finding in diagnosis.findings]


def test_an_empty_grid_has_no_bottleneck_of_its_own() -> None:
    found = subject("transpose")
    empty = replace(found, launches=tuple(replace(launch, grid=(0,)) for launch in found.launches))
    assert diagnose(empty).findings == ()


def test_an_operand_on_the_host_is_the_bottleneck() -> None:
    kernel = catalog.resolve("copy_column")
    found = subject("transpose", 100.0)
    knobs, config = kernel.signature.knobs, {"WAY": "kernel"}
    diagnosis = diagnose(replace(found, knobs=knobs, config=config, is_on_host=True))
    assert diagnosis.bottleneck == "host"
    assert "change WAY (kernel; " in diagnosis.text


def test_narrow_loads_cost_their_requests_even_if_they_are_coalesced() -> None:
    found = subject("row-wise", 640.0)
    (launch,) = found.launches
    assert launch.accesses is not None
    narrow = Access("kernel.py:1", "load", "global", 1.0, 4096.0, 7000.0, 4096.0, 4800.0)
    narrowed = replace(launch, accesses=replace(launch.accesses, lines=(narrow,)), touched_bytes=0.0)
    costs = {each.rule: each.cost_us for each in diagnose(replace(found, launches=(narrowed,))).findings}
    assert costs["uncoalesced"] == pytest.approx((4800 - 4096) * 8192 / (132 * 1700), rel=0.01)
