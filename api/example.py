"""The example of `/best-config` on the OpenAPI page."""

from __future__ import annotations

from typing import Any

from tuner.kernels.spec import Attribute, Dim, Knob, Signature
from tuner.lookup.table import LookupResult
from tuner.records import Answer, Device, Environment, Evidence, Provenance, StoredAnswer

_CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
_SIGNATURE = Signature(
    op="gemm",
    summary="",
    dims=(Dim("M"), Dim("N"), Dim("K")),
    dtypes=("bf16",),
    knobs=tuple(Knob(name, ()) for name in _CONFIG),
    attributes=(Attribute("layout", ("nn",), "nn"),),
)


def example() -> dict[str, Any]:
    """Return the document of an exact answer."""
    answer = Answer(
        problem=_SIGNATURE.problem({"M": 4096, "N": 4096, "K": 4096}),
        kind="tuned",
        config=_SIGNATURE.config(_CONFIG),
        latency_us=185.2,
        interval_us=(184.9, 186.2),
        speedup=1.058,
        speedup_interval=(1.055, 1.06),
        default_latency_us=196.1,
        vendor_latency_us=174.5,
        evidence=Evidence(0.0029, 0.0156, ("normal", "normal", "special"), 54),
        flops=2 * 4096**3,
        bytes=3 * 2 * 4096**2,
    )
    provenance = Provenance(
        device=Device.called("NVIDIA H200"),
        environment=Environment("3.6.0", "12.8", "2.11.0", "580.159.04"),
        source="84575b0fb4f2ff6a",
        policy="cold-events-1",
        tuner="0.1.0",
        definition="624f3a0e3791ecc1",
    )
    stored = StoredAnswer(1, answer, provenance, "2026-11-27T23:00:00.000+00:00", 1)
    found = LookupResult(answer.problem, provenance.device.id, "exact", stored)
    return found.as_json("94f9af6d-62ee-4270-b435-4432600de399:1")
