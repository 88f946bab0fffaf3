"""What the service answers, as its OpenAPI page shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

Value = int | bool | str


class Tie(BaseModel):
    """A config that was not shown to be more than 1 % slower than the fastest."""

    config: dict[str, Value]
    slowdown: float = Field(description="Its latency over the winner's, round by round.")


class Checked(BaseModel):
    """On what a config was found right."""

    inputs: list[str] = Field(description="The kind of every set of inputs: `normal`, `special`.")
    launches: int = Field(description="How many launches' outputs were compared.")


class TunedWith(BaseModel):
    """What compiled and timed the config."""

    triton: str
    ptxas: str
    torch: str
    driver: str
    source: str = Field(description="Hash of the kernel's code.")
    policy: str = Field(description="How it was timed.")
    tuner: str


class BestConfig(BaseModel):
    """The best known config of a problem. Latencies are microseconds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "op": "gemm",
                    "problem": {"M": 4096, "N": 4096, "K": 4096, "dtype": "bf16", "layout": "nn"},
                    "device": "nvidia-h200",
                    "config": {
                        "BLOCK_M": 128,
                        "BLOCK_N": 256,
                        "BLOCK_K": 64,
                        "GROUP_M": 8,
                        "num_warps": 8,
                        "num_stages": 3,
                    },
                    "match": "exact",
                    "kind": "tuned",
                    "latency_us": 185.2,
                    "interval_us": [184.9, 186.2],
                    "speedup": 1.058,
                    "speedup_interval": [1.055, 1.06],
                    "tflops": 742.0,
                    "gb_per_s": 543.4,
                    "default_latency_us": 196.1,
                    "vendor_latency_us": 174.5,
                    "ties": [],
                    "unresolved": False,
                    "marks": [],
                    "recorded": None,
                    "max_error": 0.0029,
                    "tolerance": 0.0156,
                    "checked": {"inputs": ["normal", "normal", "special"], "launches": 54},
                    "tuned_with": {
                        "triton": "3.6.0",
                        "ptxas": "12.8",
                        "torch": "2.11.0",
                        "driver": "580.159.04",
                        "source": "84575b0fb4f2ff6a",
                        "policy": "cold-events-1",
                        "tuner": "0.1.0",
                    },
                    "stale": [],
                    "tuned_at": "2026-11-27T23:00:00.000+00:00",
                    "snapshot": "94f9af6d-62ee-4270-b435-4432600de399:1",
                }
            ]
        }
    )

    op: str
    problem: dict[str, Value] = Field(description="In full: dims, dtype and attributes.")
    device: str
    config: dict[str, Value]
    match: str = Field(description="`exact`, or `stale` with the reasons.")
    kind: str = Field(description="`tuned`, or `default` where nothing beat the kernel's default.")
    latency_us: float
    interval_us: tuple[float, float]
    speedup: float | None = Field(description="Over the kernel's default.")
    speedup_interval: tuple[float, float] | None
    tflops: float | None
    gb_per_s: float
    default_latency_us: float | None
    vendor_latency_us: float | None
    ties: list[Tie]
    unresolved: bool = Field(description="Some configs were shown to be neither within 1 % of the fastest nor beyond.")
    marks: list[str] = Field(
        description="`launch_bound`: nothing but launching is timed; `contended`: others used the card meanwhile; "
        "`throttled`: its clocks were held down."
    )
    recorded: str | None = Field(description="The recorded space it was replayed from; null: measured on the device.")
    max_error: float | None = Field(description="Largest deviation from a reference over its largest value.")
    tolerance: float | None
    checked: Checked
    tuned_with: TunedWith
    stale: list[str]
    tuned_at: str
    snapshot: str


class Miss(BaseModel):
    """There is no answer."""

    op: str
    problem: dict[str, Value]
    device: str
    match: str = "none"
    reason: str
    nearest: list[str] = Field(description="Problems that do have one.")
    command: str = Field(description="What would tune it.")
    snapshot: str


class Refusal(BaseModel):
    """The question cannot be understood, or the store cannot be read."""

    error: str


class Health(BaseModel):
    """The service is up and reads its store."""

    status: str
    version: str
    snapshot: str
