"""The lines and the document of a profile, with and without a card and its counters."""

from __future__ import annotations

import json
from dataclasses import replace

from helpers import H200
from profiled import case, subject

from tuner.profiling.messages import Stalls, Times, Trace
from tuner.profiling.ncu import Counters
from tuner.profiling.profile import Profile
from tuner.profiling.report import document, lines
from tuner.profiling.rules import diagnose

MISSING = ("the driver permits no counters to this user (ERR_NVGPUCTRPERM)", "Proton could not run: error 15")


def profile(name: str, latency_us: float | None) -> Profile:
    """Return the profile of a case without counters."""
    judged = subject(name, latency_us)
    _, _, config = case(name)
    policy = "cold-events-1" if latency_us else ""
    return Profile(judged, H200, config, "given", diagnose(judged), policy, missing=MISSING)


def test_without_permission_the_rest_is_shown_and_what_is_missing_is_named() -> None:
    shown = [*lines(profile("without pad", 330.0))]
    assert shown[0] == "transpose  M=8192 N=8192 dtype=fp32  on NVIDIA H200"
    for line in (
        "  time         330.00 us by cold-events-1; an empty kernel takes 2.00 us",
        "  bandwidth    1,627 GB/s, 39.7 % of 4,100 GB/s of a copy",
        "  transpose_kernel: 16,384 programs (16384) of 4 warps",
        "    registers 48, spills 0 B a thread, shared memory 16 KiB",
        "    occupancy 62.5 % of warps, 10 programs an SM, limited by registers; 12.41 waves",
        "    shared load at tiles.py:49              4       128         32 cycles       1  <",
        "  missing: the driver permits no counters to this user (ERR_NVGPUCTRPERM)",
        "  missing: Proton could not run: error 15",
    ):
        assert line in shown, (line, shown)
    assert shown[-1].startswith("  bottleneck: bank conflicts: the load at tiles.py:49")


def test_with_permission_times_stalls_and_counters_stand_beside() -> None:
    full = replace(
        profile("without pad", 330.0),
        proton=Times({"transpose_kernel": 331.0}),
        stalls=Stalls({"short_scoreboard": 0.7, "barrier": 0.3}, {"tiles.py:49": 1.0}),
        counters=(
            Counters(
                "transpose_kernel",
                {
                    "load_sectors": 8e6, "load_requests": 2e6, "shared_conflicts": 65e6,
                    "memory_read_bytes": 268e6, "memory_written_bytes": 268e6, "occupancy_percent": 61.0,
                },
            ),
        ),
        trace=Trace("{}", "proton"),
        missing=(),
    )  # fmt: skip
    text = "\n".join(lines(full))
    for part in (
        "by Proton    331.00 us  (transpose_kernel 331.00 us)",
        "warps wait for  short_scoreboard 70 %, barrier 30 %",
        "sampled at      tiles.py:49 100 %",
        "global loads: 8,000,000 sectors (analysis 8,388,608), 4 a request",
        "shared memory: 65,000,000 cycles of bank conflicts (analysis 65,011,712)",
        "device memory: 536.0 MB moved; the problem has 536.9 MB",
        "occupancy: 61 % of warps, of 62.5 % at most",
    ):
        assert part in text, part
    assert "missing" not in text
    assert "trust the counters" not in text


def test_counters_that_differ_from_the_analysis_are_named() -> None:
    counted = Counters("transpose_kernel", {"store_sectors": 67e6, "store_requests": 2e6, "shared_conflicts": 7e6})
    hook = Counters("fill", {"store_sectors": 5.0, "store_requests": 1.0})
    found = replace(profile("without pad", 330.0), counters=(hook, counted))
    text = "\n".join(lines(found))
    for part in (
        "the card counts 67,000,000 sectors of global stores, and the analysis expects 8,388,608; trust the counters",
        "the card counts 7,000,000 cycles of bank conflicts, and the analysis expects 65,011,712; trust the counters",
        "  counters of fill:\n    global stores: 5 sectors, 5 a request\n",
    ):
        assert part in text, part
    assert [each["differing"] for each in document(found)["counters"]] == [[], ["store_sectors", "shared_conflicts"]]


def test_with_asynchronous_copies_only_stores_are_expected() -> None:
    (launch,) = subject("gemm").launches
    assert launch.expected.keys() == {"store_sectors", "store_requests"}
    assert launch.accesses is not None
    assert {access.kind for access in launch.accesses.of("global")} == {"copy", "store"}


def test_the_document_has_every_field_in_each_case() -> None:
    timed, compiled = document(profile("gemm", 56.0)), document(profile("gemm", None))
    assert timed.keys() == compiled.keys()
    assert json.loads(json.dumps(timed))["bottleneck"]["name"] == "compute"
    assert round(timed["tflops"]) == 614
    assert (compiled["latency_us"], compiled["tflops"], compiled["policy"], compiled["counters"]) == (None,) * 4
    (launch,) = compiled["launches"]
    assert (launch["warps"], launch["uses_tensor_cores"], launch["complete"]) == (8, True, True)
    assert launch["occupancy"]["blocks"] == 2
    assert {access["space"] for access in launch["accesses"]} == {"global", "shared"}
