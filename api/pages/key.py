"""The key of an answer, field by field, and what follows if a query's key differs from it.

The rules are those of the lookup (`tuner.lookup.ranking`); this module only asks them one field at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.api.view import View
from tuner.errors import TunerError, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.query import COMPARED, Query
from tuner.lookup.ranking import differences, same_policy
from tuner.lookup.table import LookupResult
from tuner.records import StoredAnswer

LONGEST_KEY = 4000
"""Longest text of a pasted key, in characters, so that the address of the page stays short enough for servers."""
_ABOUT = {
    "op": "Name of the kernel.",
    "problem": "Dims, dtype and attributes.",
    "device": "The card, or the slice of one.",
    "triton": "Triton version.",
    "source": "Source hash: of launch and the functions that it reaches.",
    "definition": "Definition hash: of what decides inputs and correct outputs.",
    "policy": "How latencies are measured.",
    "driver": "Driver version.",
    "ptxas": "ptxas release.",
}
"""Fields that decide the match, in the order in which they are shown."""
_UNKNOWN = ("null", "None", "none", "unknown", "-")
"""Texts that stand for a value that is not known."""
EXACT, STALE, REFUSED, OTHER, LEFT_OUT = "exact", "stale", "refused", "another answer", "not compared"
_IF_OTHER = {
    STALE: "Stale: the answer serves and names the difference. A strict query refuses it.",
    REFUSED: "Refused: latencies of two policies are not comparable.",
    EXACT: "Not compared: this answer does not state it.",
}
_OF_A_PROBLEM = "Another problem: its own answer serves, or a neighbour's."
_OF_A_DEVICE = "Another card: its own answers serve, never these."


@dataclass(frozen=True)
class KeyField:
    """One field of an answer's key."""

    name: str
    about: str
    value: str
    """Value of the answer; empty if it is not known."""
    if_other: str
    """Consequence of another value in a query."""
    given: str | None = None
    """Value of the pasted key; None if it names none."""
    consequence: str = LEFT_OUT
    """`exact`, `stale`, `refused`, `another answer`, or `not compared` if the pasted key does not name the field."""


@dataclass(frozen=True)
class PastedKey:
    """A pasted key, and the result of a query with it."""

    text: str
    values: Mapping[str, str]
    """The fields that were found in the text, by name; those of the problem have the names of dims and attributes."""
    found: LookupResult | None = None
    """Result of the lookup with this key; None if there is none."""
    error: str = ""
    """Reason for which there was no lookup."""


def paste(text: str, view: View, shown: StoredAnswer, signature: Signature) -> PastedKey:
    """Read the key in a text, and look it up. Fields of the problem and the device that it lacks are the answer's."""
    try:
        values = key_in(text, signature.parameters)
    except UsageError as error:
        return PastedKey(text, {}, error=str(error))
    try:
        if values.get("op", signature.op) != signature.op:
            raise UsageError(f"the key is of {values['op'][:80]}, and this answer is of {signature.op}")
        problem = _problem_of(values, shown, signature)
        device = view.lookup.resolve_device(values.get("device", shown.provenance.device.id))
    except TunerError as error:
        return PastedKey(text, values, error=str(error))
    query = Query(problem, **_versions(values))
    return PastedKey(text, values, view.lookup.find_on(device, query))


def key_in(text: str, parameters: Iterable[str]) -> dict[str, str]:
    """Return the fields of a key that a text names, such as the JSON of `tuner why` or lines of `name=value`.

    Of several values of one name the first is taken: JSON of the commands has what was asked before what was found.

    Raises:
        UsageError: the text is too long, or names no field.
    """
    if len(text) > LONGEST_KEY:
        raise UsageError(
            f"a key has up to {LONGEST_KEY:,} characters, and this text has {len(text):,}; paste its fields only"
        )
    values: dict[str, str] = {}
    for name, value in _pairs(text, [*parameters]):
        values.setdefault(name, value)
    known = {name: value for name, value in values.items() if value not in _UNKNOWN}
    if not known:
        raise UsageError("no field of a key was found; write one a line, such as triton=3.6.0, or paste JSON")
    return known


def _pairs(text: str, parameters: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values: `"name": "value"`, `name=value`, `name: value`, and of versions also `name value`."""
    value = r"""(?:"(?P<{0}q>(?:[^"\\]|\\.)*)"|'(?P<{0}a>[^']*)'|(?P<{0}p>[^\s,;"'{{}}\[\]]+))"""
    spaced = "|".join(COMPARED)
    named = "|".join(
        re.escape(name) for name in sorted({"op", "device", *COMPARED, *parameters}, key=len, reverse=True)
    )
    found = re.compile(
        rf"""(?<![\w.-])["']?(?P<name>{named})["']?\s*[:=]\s*{value.format("x")}"""
        rf"""|(?<![\w.-])(?P<spaced>{spaced})[ \t]+{value.format("y")}"""
    )
    for match in found.finditer(text):
        groups = match.groupdict()
        given = next(groups[key] for key in ("xq", "xa", "xp", "yq", "ya", "yp") if groups[key] is not None)
        yield groups["name"] or groups["spaced"], given


def _problem_of(values: Mapping[str, str], shown: StoredAnswer, signature: Signature) -> Problem:
    own = shown.answer.problem.values
    given = {name: values.get(name, own.get(name)) for name in signature.parameters}
    return signature.problem({name: value for name, value in given.items() if value is not None})


def key_fields(stored: StoredAnswer, pasted: PastedKey | None = None) -> list[KeyField]:
    """Return the fields of an answer's key, compared with a pasted key if there is one."""
    provenance, problem = stored.provenance, stored.answer.problem
    of_answer = {**provenance.as_json(), "op": problem.op, "device": provenance.device.id}
    of_answer["problem"] = problem.text.removeprefix(f"{problem.op} ")
    fields = []
    for name, about in _ABOUT.items():
        value = of_answer[name]
        given = None if pasted is None else _given(name, problem, pasted)
        consequence = LEFT_OUT if given is None else _consequence(stored, name, value, given, pasted)
        fields.append(KeyField(name, about, value, _if_other(stored, name, value), given, consequence))
    return fields


def _given(name: str, problem: Problem, pasted: PastedKey) -> str | None:
    """Return the value of a field in a pasted key. That of the problem is its canonical text, if it could be read."""
    if name != "problem":
        return pasted.values.get(name)
    if not any(each in pasted.values for each in problem.values):
        return None
    if pasted.found is not None:
        return pasted.found.problem.text.removeprefix(f"{problem.op} ")
    return " ".join(f"{each}={pasted.values[each]}" for each in problem.values if each in pasted.values)


def _consequence(stored: StoredAnswer, name: str, value: str, given: str, pasted: PastedKey | None) -> str:
    if name in COMPARED:
        return effect(stored, name, given)
    if name == "device" and pasted is not None and pasted.found is not None:
        given = pasted.found.device  # an alias of the card
    return EXACT if given == value else OTHER


def effect(stored: StoredAnswer, name: str, value: str) -> str:
    """Return what a query gets that differs from the answer in this field at most: `exact`, `stale` or `refused`."""
    query = Query(stored.answer.problem, **_versions({name: value}))
    if not same_policy(stored, query):
        return REFUSED
    return STALE if any(each.startswith(f"{name}: ") for each in differences(stored, query)) else EXACT


def _versions(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a query that are compared with an answer's."""
    return {name: values.get(name) for name in COMPARED}


def _if_other(stored: StoredAnswer, name: str, value: str) -> str:
    if name in COMPARED:
        return _IF_OTHER[effect(stored, name, f"{value}?")]
    return _OF_A_DEVICE if name == "device" else _OF_A_PROBLEM
