"""Files of other tools with faults put in at random, the same ones for a seed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.0, 2.5, 3, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "16", "time",
    "x" * 300, "\x00", "\ud800", "N\u0661", [], [[]], {}, {"": {}}, [1, [2]], {"time": "InvalidConfig"},
]  # fmt: skip
_SPELLINGS = (
    "NaN",
    "-Infinity",
    "1e999",
    "-0",
    "1e5000",
    "9" * 5000,
    '"\\ud800"',
    "[",
    "{",
    "null",
    "tru",
    "0x10",
    "'a'",
)


def mutated(document: Any, random: Random) -> bytes:
    """Return the JSON of a document with one to four faults: of its values, of its text or of its bytes."""
    if random.random() < 0.6:
        for _ in range(random.randint(1, 4)):
            document = _with_fault(document, random)
    text = json.dumps(document, indent=random.choice((None, 1)))
    if random.random() < 0.5:
        text = random.choice(_TEXT_FAULTS)(text, random)
    data = text.encode(random.choice(("utf-8",) * 6 + ("utf-8-sig", "utf-16", "utf-32-be")), "surrogatepass")
    if random.random() < 0.1:
        at = random.randrange(len(data) + 1)
        data = data[:at] + bytes(random.randrange(256) for _ in range(random.randint(0, 4))) + data[at + 1 :]
    return data


def _with_fault(document: Any, random: Random) -> Any:
    """Return the document with one value replaced, removed, wrapped or under another name."""
    if not isinstance(document, dict | list) or not document or random.random() < 0.1:
        return random.choice((*_VALUES, [document], {"a": document}, str(document)))
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key = random.choice(list(keys))
    copy: Any = document.copy()
    match random.randrange(6):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, dict):
            copy[random.choice(("", "0", "-1", "1e3", "\u0661", "triton_version", "../x", "a" * 99))] = copy.pop(key)
        case 2:
            copy[key] = random.choice(_VALUES)
        case _:
            copy[key] = _with_fault(copy[key], random)
    return copy


def _without_a_line(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    return "".join(lines)


def _with_a_number_spelled_otherwise(text: str, random: Random) -> str:
    numbers = list(re.finditer(r"-?[0-9.]+", text))
    if not numbers:
        return text
    found = random.choice(numbers)
    return text[: found.start()] + random.choice(_SPELLINGS) + text[found.end() :]


def _with_a_key_twice(text: str, random: Random) -> str:
    pairs = list(re.finditer(r'"[^"]*": [^,{}\[\]]+', text))
    return text.replace(random.choice(pairs)[0], ", ".join([random.choice(pairs)[0]] * 2), 1) if pairs else text


def _nested(text: str, random: Random) -> str:
    depth = random.choice((10, 300, random.randint(850, 1000), 50_000))
    opened, closed = random.choice((("[", "]"), ('{"a": ', "}")))
    numbers = list(re.finditer(r"-?[0-9.]+", text))
    found = random.choice(numbers) if numbers else re.search("", text)
    assert found is not None
    return text[: found.start()] + opened * depth + (found[0] or "1") + closed * depth + text[found.end() :]


def _cut(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


_TEXT_FAULTS: tuple[Callable[[str, Random], str], ...] = (
    _without_a_line,
    _with_a_number_spelled_otherwise,
    _with_a_key_twice,
    _nested,
    _cut,
    lambda text, _: text.replace("\n", "\r\n"),
    lambda text, _: f"\ufeff{text}",
    lambda text, _: f"{text}{text}",
)
