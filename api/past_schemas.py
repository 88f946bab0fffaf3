"""The documents of histories and retunes, as the OpenAPI page shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from tuner.api.schemas import RunAnswerDocument, Values


class MadeByDocument(BaseModel):
    """The retune that stored an answer, and its finding."""

    id: int
    cause: str
    action: str
    text: str = Field(description="One sentence with the figures that decided.")


class GenerationDocument(RunAnswerDocument):
    """One generation of an answer. Latencies are microseconds."""

    restored: int | None = Field(description="Id of the answer that a rollback restored, whose measurements it has.")
    changed: list[str] = Field(description="Fields of the key in which it differs from the generation before.")
    retune: MadeByDocument | None


class PinnedDocument(BaseModel):
    """The pin of a problem: no search, retune or import replaces its answer."""

    answer: int
    note: str
    pinned_at: str


class HistoryDocument(BaseModel):
    """All generations of the answer to a problem on a device, oldest first."""

    op: str
    problem: Values
    device: str
    serves: int | None = Field(description="Id of the answer that serves; null: none does.")
    pinned: PinnedDocument | None
    generations: list[GenerationDocument]
    snapshot: str


class RetuneDocument(BaseModel):
    """One retune: stored answers of a card, measured again."""

    id: int
    device: str
    status: str = Field(description="`running` (or killed), `done`, `interrupted` or `failed`.")
    started_at: str
    ended_at: str | None
    summary: dict[str, Any] = Field(description="Counts by cause and action, regressions, gains.")


class RetuneInFullDocument(RetuneDocument):
    """One retune with its findings."""

    settings: dict[str, Any]
    environment: dict[str, str]
    planned: list[int] = Field(description="Ids of the answers to be measured again, in order.")
    left: list[int] = Field(description="Those of them without a finding yet.")
    findings: list[dict[str, Any]] = Field(
        description="Of each answer: cause, action, and the latencies beside vendor, default and runner-up, "
        "then and now."
    )
