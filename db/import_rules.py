"""Imported answers, and the rule that decides which of them are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.kernels.spec import Signature
from tuner.records import Answer, Provenance


@dataclass(frozen=True)
class ImportedAnswer:
    """An answer of another store or tool, ready to be stored."""

    signature: Signature
    answer: Answer
    provenance: Provenance
    origin: str
    """Name of the file or the store it comes from, shown with the answer."""
    created_at: str = ""
    """Time it was found, UTC in ISO 8601; empty if unknown."""


class ImportOutcome(StrEnum):
    """Outcome of the import of one answer."""

    STORED = "stored"
    REPLACED_IMPORTED = "stored in place of another imported answer"
    REPLACED_MEASURED = "stored in place of an answer measured here"
    ALREADY_STORED = "already stored"
    KEPT_MEASURED = "an answer measured here is stored; --replace imports this one in its place"
    KEPT_NEWER = "a newer imported answer is stored"
    KEPT_PINNED = "the stored answer is pinned; tuner unpin lets it be replaced"

    @property
    def is_stored(self) -> bool:
        """True if the answer was written."""
        return self in (ImportOutcome.STORED, ImportOutcome.REPLACED_IMPORTED, ImportOutcome.REPLACED_MEASURED)


@dataclass(frozen=True)
class ExistingAnswer:
    """A stored answer with the key of an imported one."""

    kind: str
    config: dict[str, object] = field(hash=False)
    latency_us: float | None
    created_at: str
    imported: bool
    definition: str = ""
    """Definition hash; empty if it is not known."""

    @staticmethod
    def of(imported: ImportedAnswer) -> ExistingAnswer:
        """Return an imported answer as it is once it is stored."""
        answer = imported.answer
        return ExistingAnswer(
            answer.kind,
            dict(answer.config),
            answer.latency_us,
            imported.created_at,
            True,
            imported.provenance.definition,
        )


def outcome_of(
    imported: ImportedAnswer, existing: Sequence[ExistingAnswer], *, replace: bool, is_pinned: bool = False
) -> ImportOutcome:
    """Return the outcome of importing an answer.

    An answer that is stored already is not stored again. An answer measured here goes on serving unless `replace` is
    set. Of two imported answers the one with the later time serves, or the one imported later if a time is unknown.
    Answers whose definition hashes are known and differ are not compared.

    Args:
        existing: Stored answers of the same key, oldest first.
        is_pinned: Whether an answer to the problem is pinned on the device; then none is stored.
    """
    definition = imported.provenance.definition
    existing = [one for one in existing if _agree(one.definition, definition)]
    if not existing:
        return ImportOutcome.KEPT_PINNED if is_pinned else ImportOutcome.STORED
    same = [one for one in existing if _is_same(imported, one)]
    newest, dated = existing[-1], bool(imported.created_at)
    if newest in same or (same and dated):
        return ImportOutcome.ALREADY_STORED
    if is_pinned:
        return ImportOutcome.KEPT_PINNED
    if not all(one.imported for one in _serving(existing)):
        return ImportOutcome.REPLACED_MEASURED if replace else ImportOutcome.KEPT_MEASURED
    older = dated and imported.created_at < newest.created_at
    return ImportOutcome.KEPT_NEWER if older and not replace else ImportOutcome.REPLACED_IMPORTED


def _agree(definition: str, other: str) -> bool:
    """Return whether two definition hashes are equal, or one is not known."""
    return definition == other or "" in (definition, other)


def _serving(existing: Sequence[ExistingAnswer]) -> list[ExistingAnswer]:
    """Return the answers that serve, each for another definition: those that no later one replaces."""
    serving = list[ExistingAnswer]()
    for one in existing:
        serving = [*(before for before in serving if not _agree(before.definition, one.definition)), one]
    return serving


def _is_same(imported: ImportedAnswer, one: ExistingAnswer) -> bool:
    found = (imported.answer.kind, dict(imported.answer.config), imported.answer.latency_us)
    same_time = imported.created_at in ("", one.created_at)
    return same_time and found == (one.kind, one.config, one.latency_us)
