"""Finding the files that are to be imported, and reading them within bounds."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError, reason
from tuner.exchange import autotune, ladder, t4
from tuner.exchange.claim import NOT_KNOWN, Claim, Given, Refused, TunedFile
from tuner.lookup import bundle
from tuner.lookup.bundle import Bundle

MOST_BYTES = 64_000_000
"""Of a file, unpacked."""
_ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True)
class Reading:
    """What files say."""

    files: int
    claims: tuple[Claim, ...]
    bundles: tuple[tuple[str, Bundle], ...]
    """With the names of their files."""
    refused: tuple[Refused, ...]
    """Of files that are understood."""
    not_understood: tuple[Refused, ...]
    """Files that gave nothing at all."""

    @property
    def count(self) -> int:
        """Answers and configs that were met."""
        held = sum(len(held.answers) for _, held in self.bundles)
        return len(self.claims) + held + len(self.refused)


def read(paths: Sequence[Path], given: Given) -> Reading:
    """Reads files, and all of folders that end like one.

    Raises:
        UsageError: a path leads nowhere.
    """
    claims, refused, not_understood = list[Claim](), list[Refused](), list[Refused]()
    bundles = list[tuple[str, Bundle]]()
    files = list(_found(paths))
    for path in files:
        try:
            if _starts(path).startswith(bundle.BEGINS):
                held = bundle.read(path)
                bundles.append((path.name, held))
                refused += [Refused(path.name, reason) for reason in held.skipped]
                continue
            said = list(_claims(TunedFile(path, _document(path)), given))
        except UsageError as error:
            not_understood.append(Refused(path.name, str(error)))
            continue
        claims += [one for one in said if isinstance(one, Claim)]
        refused += [one for one in said if isinstance(one, Refused)]
    return Reading(len(files), tuple(claims), tuple(bundles), tuple(refused), tuple(not_understood))


def _found(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.name.endswith(_ENDINGS) and file.is_file())
            yield from sorted(inside, key=lambda file: (", " in file.name, str(file)))  # `[128,128]` is vLLM's own
        elif path.exists():
            yield path
        else:
            raise UsageError(f"there is no file or folder {path}")


def _claims(file: TunedFile, given: Given) -> Iterator[Claim | Refused]:
    said = ladder.claims(file)
    if said is not None:
        yield from said
        return
    claim = autotune.claim(file, given) or t4.claim(file, given)
    if claim is None:
        raise UsageError(NOT_KNOWN)
    yield claim


def _document(path: Path) -> object:
    data = _starts(path, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"it is larger than {MOST_BYTES:,} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {reason(error)}") from error


def _starts(path: Path, size: int = 100) -> bytes:
    """The first bytes of a file, unpacked."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            return file.read(size)
    except (EOFError, zlib.error) as error:
        raise UsageError(f"it is damaged: {error}") from error
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror or error}") from error
