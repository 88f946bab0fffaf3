"""Counts of one import: each answer and config that was read is stored or skipped, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.db.import_rules import ImportOutcome
from tuner.exchange.imported import Skipped

_SHOWN = 5
"""Places in a file that are listed for one reason."""
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
            "reasons": [
                {"file": file, "reason": reason, "count": len(places), "at": [*filter(None, places)]}
                for file, reason, places in _by_reason(self.skipped)
            ],
            "not_understood": [{"file": file.file, "reason": file.reason} for file in self.not_understood],
        }

    def reasons(self) -> Iterator[str]:
        """Yield a line for each file and reason of what was skipped."""
        for file, reason, places in _by_reason(self.skipped):
            yield f"{file}: {reason}{_where(places)}"
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


def _by_reason(skipped: Iterable[Skipped]) -> list[tuple[str, str, list[str]]]:
    """Return the places of the skipped configs by file and reason, in the order of the files."""
    places: dict[tuple[str, str], list[str]] = {}
    for one in skipped:
        places.setdefault((one.file, one.reason), []).append(one.at)
    return [(file, reason, several) for (file, reason), several in places.items()]


def _where(places: Sequence[str]) -> str:
    """Return the number of configs in brackets, and where the first few are; empty for one without a place."""
    known = list(filter(None, places))
    first = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else "")
    count = [] if len(places) == 1 else [f"{len(places):,} configs"]
    text = ": ".join([*count, *filter(None, [first])])
    return f" ({text})" if text else ""
