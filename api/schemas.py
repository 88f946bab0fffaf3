"""The documents and bodies of the service, as its OpenAPI page shows them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from tuner.api.examples import example
from tuner.api.stated import stated_by
from tuner.kernels.spec import Config, Problem
from tuner.records import Answer, Evidence, Tie
from tuner.records.document import DERIVED, served_names

Value = int | float | bool | str | None
Values = dict[str, Value]
_TYPES: dict[Any, Any] = {Config: Values, Problem: Values, Evidence: dict[str, Any], tuple[str, ...]: list[str]}
"""Types of documents for those of records."""


@stated_by(Tie, served_names(Tie), _TYPES)
class TieDocument(BaseModel):
    """A config that was not shown to be more than 1 % slower than the fastest."""


_TYPES[tuple[Tie, ...]] = list[TieDocument]


@stated_by(Evidence, ("inputs", "launches"), _TYPES)
class ChecksDocument(BaseModel):
    """Inputs that a config was checked on."""


class TunedWithDocument(BaseModel):
    """Versions that compiled and timed the config."""

    triton: str
    ptxas: str
    torch: str
    driver: str
    source: str = Field(description="Hash of the kernel's code.")
    definition: str = Field(
        description="Hash of what decides the kernel's inputs and which outputs are right; empty if it is not known."
    )
    policy: str = Field(description="Timing policy.")
    tuner: str


class NeighbourDocument(BaseModel):
    """The problem that the config was tuned for, and the expected transfer loss."""

    problem: Values = Field(description="The nearest problem with an answer; no dim is more than 2x off.")
    distance: float = Field(description="Octaves to it: over all dims, the length of the log2 of their ratios.")
    expected_loss: float = Field(description="Expected slowdown against the problem's own best: 0.02 is 2 %.")
    transfers: int = Field(description="Number of measured transfers between near problems that it rests on.")


@stated_by(Evidence, ("max_error", "tolerance"), _TYPES)
@stated_by(Answer, (*served_names(Answer), *DERIVED), _TYPES)
class AnswerDocument(BaseModel):
    """An answer with its evidence. Latencies are microseconds."""

    problem: Values = Field(description="In full: dims, dtype and attributes.")
    vendor: str | None = Field(description="Name of the vendor that was timed, such as torch; null: none was.")
    recorded: str | None = Field(description="The recorded space it was replayed from; null: measured on the device.")
    imported: str | None = Field(description="The file or store it was imported from; null: found by a search.")
    checked: ChecksDocument
    tuned_with: TunedWithDocument
    tuned_at: str


class RunAnswerDocument(AnswerDocument):
    """An answer of a run."""

    id: int
    forgotten_at: str | None = Field(description="Time at which it was retired by hand; null: it is in service.")


class BestConfigDocument(AnswerDocument):
    """The best known config of a problem. Latencies are microseconds.

    If `match` is `neighbour`, check before launching that the config is valid for the problem. What was measured on the
    other problem is left out: those fields are null or empty.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [example()]})

    op: str
    device: str
    alias: str | None = Field(None, description="The device of the query, if that is another name of the same card.")
    match: str = Field(description="`exact`; `stale`, with the reasons; or `neighbour`: another problem's.")
    neighbour: NeighbourDocument | None
    stale: list[str]
    snapshot: str


class MissDocument(BaseModel):
    """A problem without an answer."""

    op: str
    problem: Values
    device: str
    match: str = "none"
    reason: str
    nearest: list[str] = Field(description="The nearest problems that have one.")
    command: str = Field(description="The command that tunes it.")
    snapshot: str


class ErrorDocument(BaseModel):
    """A refused request, or a store that cannot be read."""

    error: str


class HealthDocument(BaseModel):
    """The state of the process."""

    status: Literal["ok"]
    version: str


class ReadyDocument(BaseModel):
    """The state of the service's view of its store."""

    status: Literal["ready"]
    snapshot: str
    answers: int
    age_s: float = Field(description="Seconds since the store was last read.")


class ProblemsBody(BaseModel):
    """Many queries, each with the names that `GET /best-config` takes."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"problems": [{"op": "gemm", "M": 4096}, {"op": "softmax", "M": 8192}]}]},
    )

    problems: list[Values] = Field(min_length=1, max_length=1000)


class ResultsDocument(BaseModel):
    """The results of many queries, in their order."""

    snapshot: str
    results: list[BestConfigDocument | MissDocument | ErrorDocument]


@stated_by(Answer, [each.name for each in fields(Answer)], _TYPES)
class TableAnswerDocument(BaseModel):
    """One answer in full: its numbers are not rounded."""

    id: int
    op: str
    device: int = Field(description="Index of its device in `devices`.")
    recorded: str | None
    tuned_with: TunedWithDocument
    tuned_at: str
    run: int
    trials: int
    settings: dict[str, Any] = Field(description="Settings of its search.")


class TableDocument(BaseModel):
    """All answers of an op on a device, as `tuner export` writes them and `TUNER_SNAPSHOT` names them.

    A problem may have several answers: of other versions, and older.
    """

    sha256: str = Field(description="Hash of the bytes that follow it.")
    format: int
    op: str
    device: str
    snapshot: str
    signatures: list[dict[str, Any]] = Field(description="Dims, dtypes and knobs, by which answers are read.")
    devices: list[dict[str, Any]] = Field(description="The cards of the answers, by field.")
    answers: list[TableAnswerDocument]
    transfers: list[tuple[int, int, int, float, float | None]] = Field(
        description="Transfer losses: id, id of the answer whose config was measured, id of the answer on whose "
        "problem, octaves between the two, slowdown; null if the config did not run right."
    )


class LadderDocument(BaseModel):
    """Configs by the first dim, the rest of the problem fixed, for a server that has one config for each M."""

    op: str
    device: str
    snapshot: str
    over: str = Field(description="The first dim, whose values are the keys of `configs`.")
    problem: Values = Field(description="The rest of the problem.")
    configs: dict[str, Values]


class RunDocument(BaseModel):
    """One search."""

    run: int
    op: str
    problem: Values
    device: str
    recorded: str | None
    status: str = Field(description="`running` (or killed), `done`, `failed` or `interrupted`.")
    stopped: str | None
    started_at: str
    ended_at: str | None
    measured: int
    taken_over: int
    answer_us: float | None


class RunInFullDocument(RunDocument):
    """One search with its settings and answers."""

    settings: dict[str, Any]
    seconds: dict[str, float] = Field(description="Wall time by stage.")
    tuned_with: TunedWithDocument
    answers: list[RunAnswerDocument]


class ProblemDocument(BaseModel):
    """A problem that has runs."""

    id: int
    op: str
    text: str = Field(description="Canonical text.")
    parameters: Values


class KernelDocument(BaseModel):
    """A kernel at the time of a search: its signature and the hash of its code, never the code."""

    id: int
    op: str
    source: str
    digest: str = Field(description="Hash of the signature.")
    signature: dict[str, Any]
    created_at: str


class DeviceDocument(BaseModel):
    """A card that has runs."""

    id: int
    slug: str = Field(description="Id of the device.")
    facts: dict[str, Any] = Field(description="Its fingerprint; all numbers are 0 if only the name is known.")
    roofline_limits: dict[str, Any] | None = Field(description="Measured best rates; null if they were not measured.")


class RequestDocument(BaseModel):
    """A missed query."""

    id: int
    op: str
    problem: str
    device: str
    count: int
    first_at: str
    last_at: str


class JobBody(BaseModel):
    """A problem to be tuned: its op and dims; dtype and attributes if they are not the defaults."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"op": "gemm", "M": 4096, "device": "nvidia-h200"}]}
    )

    op: str
    device: str | None = Field(None, description="Default: the server's own card, or the only one stored.")
    priority: int = Field(0, ge=-1000, le=1000, description="Higher ones are taken first.")


class JobDocument(BaseModel):
    """A problem to be tuned, and the state of that."""

    id: int
    op: str
    problem: str
    device: str
    priority: int
    status: str = Field(description="`pending`, `running`, `done` or `failed`.")
    tries: int = Field(description="Number of times that a worker took it; the third failure is final.")
    worker: str | None = Field(description="Name of the worker that has it, or had it last.")
    lease_until: str | None = Field(description="End of the lease, unless the worker renews it.")
    error: str | None = Field(description="Reason of the last failure.")
    run_id: int | None = Field(description="The run whose answer serves.")
    created_at: str
    ended_at: str | None
    missed: int = Field(description="Misses of the problem; of equal priority, the most missed is taken first.")


Item = TypeVar("Item")


class PageDocument(BaseModel, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next: int | None = Field(description="`after` of the next page; null: this is the last.")
