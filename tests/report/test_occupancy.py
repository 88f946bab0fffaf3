"""Occupancy in cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import A100, H200, RTX_4090

from tuner.kernels.spec import Limits
from tuner.report.occupancy import Occupancy, occupancy

H, A, ADA = H200.limits, A100.limits, RTX_4090.limits


@pytest.mark.parametrize(
    ("limits", "warps", "registers", "shared_bytes", "blocks", "most_warps", "limited_by"),
    [
        # 168 x 32 = 5376 registers a warp, 3 warps in each quarter's 16384: 12 warps, so one block of 8
        pytest.param(H, 8, 168, 0, 1, 64, ("registers",), id="168-registers-8-warps"),
        # the same 12 warps hold three blocks of 4
        pytest.param(H, 4, 168, 0, 3, 64, ("registers",), id="168-registers-4-warps"),
        # 128 x 32 = 4096: 4 in each quarter, 16 warps
        pytest.param(H, 8, 128, 0, 2, 64, ("registers",), id="128-registers"),
        # 129 x 32 = 4128, handed out as 4352: 3 in each quarter
        pytest.param(H, 8, 129, 0, 1, 64, ("registers",), id="129-registers-round-up"),
        # 228 KB of shared memory: two blocks of 113 + 1 KB, one of 113 KB and a byte
        pytest.param(H, 4, 32, 113 * 1024, 2, 64, ("shared",), id="shared-fits-twice"),
        pytest.param(H, 4, 32, 113 * 1024 + 1, 1, 64, ("shared",), id="shared-and-a-byte"),
        pytest.param(H, 8, 178, 122_880, 1, 64, ("registers", "shared"), id="both"),
        # 32 x 32 = 1024: 16 in each quarter, 64 warps
        pytest.param(H, 16, 32, 0, 4, 64, ("registers", "warps"), id="full"),
        pytest.param(H, 16, 24, 0, 4, 64, ("warps",), id="warps"),
        pytest.param(H, 1, 16, 0, 32, 64, ("blocks",), id="blocks"),
        pytest.param(A, 4, 32, 40 * 1024, 4, 64, ("shared",), id="a100-164-kb"),
        pytest.param(ADA, 8, 32, 0, 6, 48, ("warps",), id="4090-48-warps"),
        pytest.param(ADA, 1, 16, 0, 24, 48, ("blocks",), id="4090-24-blocks"),
        # more than a block may have: none fits, and it says why
        pytest.param(H, 16, 255, 0, 0, 64, ("registers",), id="too-many-registers"),
    ],
)
def test_resident_blocks_and_their_limit(
    limits: Limits,
    warps: int,
    registers: int,
    shared_bytes: int,
    blocks: int,
    most_warps: int,
    limited_by: tuple[str, ...],
) -> None:
    found = occupancy(limits, warps, registers, shared_bytes)
    assert found == Occupancy(blocks, blocks * warps, most_warps, limited_by)


def test_the_share_is_of_all_warps_of_the_sm() -> None:
    found = occupancy(H, 8, 168, 0)
    assert found is not None
    assert found.share == 0.125


def test_an_unknown_capability_has_no_occupancy() -> None:
    assert occupancy(replace(H, capability=(7, 0)), 8, 168, 0) is None
