"""Counts of one import: each answer and config that was read is stored or skipped, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tuner.db.import_rules import ImportOutcome
from tuner.exchange.imported import Skipped

_REPLACED = (ImportOutcome.REPLACED_IMPORTED, ImportOutcome.REPLACED_MEASURED)


@dataclass(frozen=True)
class ImportReport:
    """Counts and reasons of one import."""

    files: int
    read: int
    outcomes: Counter[ImportOutcome]
    skipped: tuple[Skipped, ...]
    not_understood: tuple[Skipped, ...]
    """Files of which nothing could be read."""

    @property
    def stored(self) -> int:
        """Number of answers that were written."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.is_stored)

    @property
    def is_empty(self) -> bool:
        """True if none of these answers is in the store, neither written now nor before."""
        return not self.stored and not self.outcomes[ImportOutcome.ALREADY_STORED]

    def as_json(self) -> dict[str, Any]:
        """Return the document that `tuner import --json` prints."""
        return {
            "files": self.files,
            "read": self.read,
            "stored": self.stored,
            "replaced": sum(self.outcomes[outcome] for outcome in _REPLACED),
            "skipped": len(self.skipped),
            "reasons": [{"file": file, "reason": reason, "count": n} for file, reason, n in _counted(self.skipped)],
            "not_understood": [{"file": file.file, "reason": file.reason} for file in self.not_understood],
        }

    def reasons(self) -> Iterator[str]:
        """Yield a line for each file and reason of what was skipped."""
        for file, reason, count in _counted(self.skipped):
            yield f"{file}: {reason}{f' ({count:,} configs)' if count > 1 else ''}"
        for skipped in self.not_understood:
            yield f"{skipped.file}: {skipped.reason}"

    def summary(self) -> Iterator[str]:
        """Yield a line for each kind of replaced answer, then the counts."""
        for outcome in _REPLACED:
            if self.outcomes[outcome]:
                yield f"{self.outcomes[outcome]:,} {outcome}"
        not_understood = f", {len(self.not_understood):,} of them not understood" if self.not_understood else ""
        counts = f"{self.read:,} read, {self.stored:,} stored, {len(self.skipped):,} skipped"
        yield f"{self.files:,} file{'' if self.files == 1 else 's'}{not_understood}: {counts}"


def _counted(skipped: Iterable[Skipped]) -> list[tuple[str, str, int]]:
    """Return the number of skipped configs by file and reason, in the order of the files."""
    return [(one.file, one.reason, count) for one, count in Counter(skipped).items()]
