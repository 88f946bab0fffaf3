"""The recorded spaces that ship with the package, found by name, by problem and by card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import as_file
from importlib.resources import files as resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.recorded.outline import Outline
from tuner.recorded.space import RESULTS, RecordedSpace, loads, problem_stem
from tuner.records import Device, files

_SUFFIX = ".json.gz"


@dataclass(frozen=True)
class ShippedSettings:
    """Settings of name suggestions and of reading a file's head."""

    min_similarity: float = 0.9
    """Least similarity of a suggested name, by `difflib`'s ratio from 0 to 1."""
    max_name: int = 120
    """Characters of an unknown name that are matched and shown."""
    head_bytes: int = 1 << 16
    """Bytes of a file that are read first for its head; doubled until they hold it."""


_SETTINGS = ShippedSettings()


def names(op: str | None = None) -> list[str]:
    """Return the names of the shipped spaces, of one op if it is given, sorted."""
    start = "" if op is None else f"{op}-"
    shipped = (file.name for file in _folder().iterdir() if file.name.endswith(_SUFFIX))
    return sorted(name.removesuffix(_SUFFIX) for name in shipped if name.startswith(start))


def load(name: str, op: str | None = None) -> RecordedSpace:
    """Return the shipped space called `name`, or the one in the file `name`.

    Args:
        op: Op of the problem, if known: an error then names its spaces only.

    Raises:
        UnknownName: No shipped space and no file has the name.
        UsageError: The file cannot be read or is not a recorded space.
    """
    if name in names():
        return _loaded(name)
    if name.endswith((_SUFFIX, ".json")) and Path(name).is_file():
        return loads(_read(Path(name)), name)
    raise UnknownName(f"no recorded space is called {name[: _SETTINGS.max_name]!r}; {suggestion(name, op)}")


@lru_cache(maxsize=8)  # the largest take 0.3 s and 10 MB
def _loaded(name: str) -> RecordedSpace:
    """Return a shipped space. The last ones are kept: commands on several problems ask for the same ones again."""
    return loads(_shipped(name).read_bytes(), name)


def outline(name: str) -> Outline:
    """Return the outline of a space, named as for `load`. It is read much faster than the space if that ships.

    Raises:
        UnknownName, UsageError: As `load`.
    """
    return Outline.read(_shipped(name).read_bytes(), name) if name in names() else Outline.of(load(name))


def suggestion(name: str, op: str | None = None, settings: ShippedSettings = _SETTINGS) -> str:
    """Return the end of an error about an unknown name: similar names, else the names of its op.

    Args:
        op: As for `load`.
    """
    known = names(name.partition("-")[0] if op is None else op)
    longer = [other for other in known if name and other.startswith(name)]
    similar = get_close_matches(name[: settings.max_name], known, cutoff=settings.min_similarity)
    if longer or similar:
        return f"did you mean {' or '.join(longer or similar)}?"
    if known:
        return f"there are {', '.join(known)}"
    return "tuner spaces lists all" if op is None else f"there are none of {op}"


def of_problem(problem: Problem) -> list[RecordedSpace]:
    """Return the shipped spaces of a problem, sorted by card: the card with the most shipped spaces first.

    The first spaces of several problems are thus of one card, if it has them all.
    """
    start = f"{problem_stem(problem)}-"
    spaces = [space for name in names() if name.startswith(start) and (space := load(name)).problem == problem]
    return sorted(spaces, key=lambda space: _cards().index(space.device.id))


def on_one_card(found: Sequence[Sequence[RecordedSpace]]) -> list[RecordedSpace]:
    """Return one space for each problem, all of the first card that has all of them, or [] if no card has.

    Args:
        found: The result of `of_problem` for each problem.
    """
    by_card = [{space.device.id: space for space in spaces} for spaces in found]
    complete = [card for card in by_card[0] if all(card in spaces for spaces in by_card)]
    return [spaces[complete[0]] for spaces in by_card] if complete else []


def signatures() -> dict[str, Signature]:
    """Return the signatures of the recorded ops, used if their code cannot be loaded."""
    return {head["signature"]["op"]: Signature.from_json(head["signature"]) for head in _heads()}


def devices() -> dict[str, Device]:
    """Return the recorded cards by id, each as its newest space describes it."""
    cards = [Device.from_json(head["device"]) for head in _heads()]
    return {card.id: card for card in cards}


@cache
def _cards() -> Sequence[str]:
    """Return the ids of the recorded cards: the card with the most spaces first, then by name."""
    counts = Counter(Device.from_json(head["device"]).id for head in _heads())
    return sorted(counts, key=lambda card: (-counts[card], card))


@cache
def _heads() -> Sequence[Mapping[str, Any]]:
    """Return the heads of all shipped files, the oldest first."""
    return sorted(map(_head, names()), key=lambda head: str(head["recorded_at"]))


def _head(name: str, settings: ShippedSettings = _SETTINGS) -> Mapping[str, Any]:
    """Return the fields under `tuner` of a shipped file without parsing its results, which are 100 times as long."""
    size = settings.head_bytes
    with as_file(_shipped(name)) as file:
        start = files.read_start(file, size)
        while RESULTS not in start and len(start) == size:
            size *= 2
            start = files.read_start(file, size)
    head: Mapping[str, Any] = json.loads(start.partition(RESULTS)[0] + b"}")["tuner"]
    return head


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error


def _folder() -> Traversable:
    return resources("tuner") / "recorded"


def _shipped(name: str) -> Traversable:
    return _folder() / f"{name}{_SUFFIX}"
