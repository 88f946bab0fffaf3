"""What came of an import, counted: of all that was read, each was stored or skipped, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tuner.db.intake import Fate
from tuner.exchange.claim import Refused

_REPLACED = (Fate.REPLACED, Fate.OVERRULED)


@dataclass(frozen=True)
class ImportReport:
    """The counts and reasons of one import."""

    files: int
    read: int
    fates: Counter[Fate]
    skipped: tuple[Refused, ...]
    not_understood: tuple[Refused, ...]
    """Files that gave nothing at all."""

    @property
    def stored(self) -> int:
        return sum(count for fate, count in self.fates.items() if fate.stored)

    @property
    def in_vain(self) -> bool:
        """Whether the store does not have anything of it, nor had before."""
        return not self.stored and not self.fates[Fate.THERE]

    def as_json(self) -> dict[str, Any]:
        """What `tuner import --json` prints."""
        return {
            "files": self.files,
            "read": self.read,
            "stored": self.stored,
            "replaced": sum(self.fates[fate] for fate in _REPLACED),
            "skipped": len(self.skipped),
            "reasons": [{"file": file, "reason": reason, "count": n} for file, reason, n in _counted(self.skipped)],
            "not_understood": [{"file": file.file, "reason": file.reason} for file in self.not_understood],
        }

    def reasons(self) -> Iterator[str]:
        """Why something was not stored, a line for every file and reason."""
        for file, reason, count in _counted(self.skipped):
            yield f"{file}: {reason}{f' ({count:,} configs)' if count > 1 else ''}"
        for refused in self.not_understood:
            yield f"{refused.file}: {refused.reason}"

    def summary(self) -> Iterator[str]:
        """What was stored in place of something else, and the line that ends an import."""
        for fate in _REPLACED:
            if self.fates[fate]:
                yield f"{self.fates[fate]:,} {fate}"
        silent = f", {len(self.not_understood):,} of them not understood" if self.not_understood else ""
        counted = f"{self.read:,} read, {self.stored:,} stored, {len(self.skipped):,} skipped"
        yield f"{self.files:,} file{'' if self.files == 1 else 's'}{silent}: {counted}"


def _counted(refused: Iterable[Refused]) -> list[tuple[str, str, int]]:
    """By file and reason, in the files' order."""
    return [(one.file, one.reason, count) for one, count in Counter(refused).items()]
