"""What the service answers, as its OpenAPI page shows it."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Value = int | bool | str


class TieDocument(BaseModel):
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


class NeighbourDocument(BaseModel):
    """That the config was tuned for another problem, and what that should cost."""

    problem: dict[str, Value] = Field(description="Which it was tuned for: the nearest, no dim more than 2x off.")
    distance: float = Field(description="Octaves to it: over all dims, the length of the log2 of their ratios.")
    expected_loss: float = Field(description="How much longer than the problem's own best it should take: 0.02 is 2 %.")
    transfers: int = Field(description="How many measurements of configs on near problems say so.")


class BestConfig(BaseModel):
    """The best known config of a problem. Latencies are microseconds.

    Where `match` is `neighbour`, whoever launches must check first that the config is valid for the problem. What was
    measured on the other problem is not told: those fields are null or empty.
    """

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
                    "neighbour": None,
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
                    "imported": None,
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
    alias: str | None = Field(None, description="What was asked for, if that is another name of the same card.")
    config: dict[str, Value]
    match: str = Field(description="`exact`; `stale`, with the reasons; or `neighbour`: another problem's.")
    neighbour: NeighbourDocument | None
    kind: str = Field(
        description="`tuned`; `default` where nothing beat the kernel's default; `imported` where a file of others "
        "says so, and nobody measured it here."
    )
    latency_us: float | None = Field(
        description="null where no timing came with what was imported, and where it is another problem's."
    )
    interval_us: tuple[float, float] | None
    speedup: float | None = Field(description="Over the kernel's default.")
    speedup_interval: tuple[float, float] | None
    tflops: float | None
    gb_per_s: float | None
    default_latency_us: float | None
    vendor_latency_us: float | None
    ties: list[TieDocument]
    unresolved: bool = Field(description="Some configs were shown to be neither within 1 % of the fastest nor beyond.")
    marks: list[str] = Field(
        description="`launch_bound`: nothing but launching is timed; `contended`: others used the card meanwhile; "
        "`throttled`: its clocks were held down."
    )
    recorded: str | None = Field(description="The recorded space it was replayed from; null: measured on the device.")
    imported: str | None = Field(description="The file or store it was taken from; null: found by a search of ours.")
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
    """The process is up."""

    status: Literal["ok"]
    version: str


class ReadyDocument(BaseModel):
    """The service has a view of its store, and it is young."""

    status: Literal["ready"]
    snapshot: str
    answers: int
    age_s: float = Field(description="Since the store was last seen to have nothing newer.")


class Problems(BaseModel):
    """Many questions. Each has the names that `GET /best-config` takes as its query."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"problems": [{"op": "gemm", "M": 4096}, {"op": "softmax", "M": 8192}]}]},
    )

    problems: list[dict[str, Value]] = Field(min_length=1, max_length=1000)


class Results(BaseModel):
    """What each of many questions gets, in their order."""

    snapshot: str
    results: list[BestConfig | Miss | Refusal]


class StoredAnswerDocument(BaseModel):
    """One answer: the fields of `BestConfig` that do not depend on who asks."""

    model_config = ConfigDict(extra="allow")

    id: int
    problem: dict[str, Value]
    config: dict[str, Value]
    kind: str
    latency_us: float | None
    tuned_with: TunedWith
    recorded: str | None
    tuned_at: str


class TableAnswer(StoredAnswerDocument):
    """One answer in full: its numbers are not rounded, and what its search was asked for is told."""

    op: str
    device: int = Field(description="Place of its card in `devices`.")


class WholeTable(BaseModel):
    """Everything that serves an op on a device: a file of it is what `tuner export` writes and `TUNER_SNAPSHOT` names.

    A problem may have several answers: of other versions, and older.
    """

    sha256: str = Field(description="Of the bytes that follow it.")
    format: int
    op: str
    device: str
    snapshot: str
    signatures: list[dict[str, Any]] = Field(description="What reads the answers: the op's dims, dtypes and knobs.")
    devices: list[dict[str, Any]] = Field(description="The cards that were measured, by field.")
    answers: list[TableAnswer]
    transfers: list[tuple[int, int, int, float, float | None]] = Field(
        description="What configs lost on each other's problems: id, ids of the answer that was tried and of the one "
        "on whose problem, octaves between them, how many times as long it takes; null: it did not run right."
    )


class Ladder(BaseModel):
    """Configs by the first dim, all else fixed: what a server that buckets by M takes over."""

    op: str
    device: str
    snapshot: str
    over: str = Field(description="The dim that `configs` goes by.")
    problem: dict[str, Value] = Field(description="The rest of the problem.")
    configs: dict[str, dict[str, Value]]


class RunDocument(BaseModel):
    """One search."""

    run: int
    op: str
    problem: dict[str, Value]
    device: str
    recorded: str | None
    status: str = Field(description="`running` (or killed), `done`, `failed` or `interrupted`.")
    stopped: str | None
    started_at: str
    ended_at: str | None
    measured: int
    taken_over: int
    answer_us: float | None


class RunInFull(RunDocument):
    """One search, with what it was asked for and what it answered."""

    settings: dict[str, Any]
    seconds: dict[str, float] = Field(description="Wall time by stage.")
    tuned_with: TunedWith
    answers: list[StoredAnswerDocument]


class StoredProblem(BaseModel):
    """A problem that was ever searched."""

    id: int
    op: str
    text: str = Field(description="Canonical.")
    parameters: dict[str, Value]


class StoredKernel(BaseModel):
    """A kernel as it was when it was searched: its signature and the hash of its code, never the code."""

    id: int
    op: str
    source: str
    digest: str = Field(description="Of the signature.")
    signature: dict[str, Any]
    created_at: str


class StoredDevice(BaseModel):
    """A card that was ever searched on."""

    id: int
    slug: str = Field(description="What questions call it.")
    facts: dict[str, Any] = Field(description="Numbers are 0 where an import told nothing but the name.")
    roofline_limits: dict[str, Any] | None = Field(description="What it was seen to reach; null until it was measured.")


class StoredRequest(BaseModel):
    """A problem that was asked for and missed."""

    id: int
    op: str
    problem: str
    device: str
    count: int
    first_at: str
    last_at: str


class AskedJob(BaseModel):
    """A problem that should be tuned: its op and dims, dtype and attributes where they matter."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"op": "gemm", "M": 4096, "device": "nvidia-h200"}]}
    )

    op: str
    device: str | None = Field(None, description="Else the server's own card, or the only one stored.")
    priority: int = Field(0, ge=-1000, le=1000, description="Higher ones are taken first.")


class JobDocument(BaseModel):
    """A problem that somebody asked to have tuned."""

    id: int
    op: str
    problem: str
    device: str
    priority: int
    status: str = Field(description="`pending`, `running` once a worker took it, then `done` or `failed`.")
    tries: int = Field(description="Times that it was taken; the third failure is final.")
    worker: str | None = Field(description="Who is at it, or was last.")
    lease_until: str | None = Field(description="When another may take it, unless the worker asks for more time.")
    error: str | None = Field(description="Why the last try came to nothing.")
    run_id: int | None = Field(description="The search whose answer serves.")
    created_at: str
    ended_at: str | None


Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    items: list[Item]
    next: int | None = Field(description="Send it as `after` for the next part; null: this was the last.")
