"""The page to look up the config of a problem: a form for each op, and the result as the API gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.api.pages import near
from tuner.api.pages.answer_facts import Figure, State, address_of, figures
from tuner.api.pages.copies import Copy, request_of
from tuner.api.pages.links import Links
from tuner.api.pages.near import Near
from tuner.api.pages.site import Content, Query, Site
from tuner.api.query import parse_device, parse_query, parse_signatures
from tuner.api.view import View
from tuner.errors import TunerError
from tuner.kernels.parameters import LONGEST_OPEN
from tuner.kernels.spec import Attribute, Dim, Signature
from tuner.lookup.table import LookupResult
from tuner.report.text import short
from tuner.report.vendor import vendor_speedup

_VERSIONS = {
    "triton": "Triton version",
    "source": "Source hash",
    "definition": "Definition hash",
    "driver": "Driver version",
    "ptxas": "ptxas release",
    "policy": "Policy",
}
"""Fields of a query that are compared if they are given, with their labels."""
_STATES = {
    "exact": State("exact", "good", "All fields of the query equal those of the answer."),
    "stale": State("stale", "warn", "The answer differs from the query in the fields below."),
    "neighbour": State("neighbour", "warn", "It is the config of a near problem."),
    "none": State("no answer", "bad", "A client launches the kernel's default."),
}


@dataclass(frozen=True)
class Choice:
    """An option of a list."""

    value: str
    label: str


@dataclass(frozen=True)
class Field:
    """One field of the form."""

    name: str
    label: str
    value: str
    """Value that was asked with; empty: none."""
    about: str = ""
    hint: str = ""
    """Value that it has if it is left empty."""
    choices: tuple[Choice, ...] = ()
    """Empty for a field of text."""
    is_whole: bool = False
    is_needed: bool = False
    longest: int = LONGEST_OPEN


@dataclass(frozen=True)
class Result:
    """The result of a lookup."""

    found: LookupResult
    state: State
    figures: Sequence[Figure]
    json: str
    curl: Copy
    address: str
    """Address of the page of the problem."""
    neighbour: Near | None
    """The problem whose answer serves in place of a missing one."""
    nearest: Sequence[Near]
    """The nearest problems with an answer, if none serves."""


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page to look up a problem: `/pages/lookup?op=gemm&M=4096`. Empty values count as left out."""
    given = {name: value for name, value in query.given.items() if value}
    ops = sorted(site.view.signatures)
    values: dict[str, Any] = {"ops": ops, "op": given.get("op", ""), "error": "", "result": None, "form": None}
    values["short"] = short
    if not given:
        return Content("lookup.html", "Look up", values)
    try:
        signatures = parse_signatures(given, site.view)
    except TunerError as error:
        return Content("lookup.html", "Look up", values | {"error": str(error)}, error.http_status)
    values["form"] = form_of(signatures, given, site.view)
    if len(query.given) == 1:  # an op was chosen, and nothing is asked yet
        return Content("lookup.html", f"Look up {signatures[0].op}", values)
    try:
        values["result"] = _result(site, given, links)
    except TunerError as error:
        return Content("lookup.html", "Look up", values | {"error": str(error)}, error.http_status)
    return Content("lookup.html", f"Look up {signatures[0].op}", values)


@dataclass(frozen=True)
class Form:
    """The form of an op."""

    signature: Signature
    problem: tuple[Field, ...]
    device: Field
    versions: tuple[Field, ...]
    strict: bool
    """True if only exact answers are wanted."""

    @property
    def is_compared(self) -> bool:
        """True if a version was given, or only exact answers are wanted."""
        return self.strict or any(field.value for field in self.versions)


def form_of(signatures: Sequence[Signature], given: Mapping[str, str], view: View) -> Form:
    """Return the form of an op with the values that were asked with.

    Args:
        signatures: those of the op, the newest first. The captured calls of an op may have several.
    """
    fields: dict[str, Field] = {}
    for signature in signatures:
        for field in _fields(signature, given):
            fields.setdefault(field.name, field)
    if len(signatures) > 1:  # no field is in all of them, so that none can be demanded
        fields = {name: replace(field, is_needed=False) for name, field in fields.items()}
    versions = tuple(Field(name, label, given.get(name, "")) for name, label in _VERSIONS.items())
    device = _device(signatures[0].op, view, given)
    return Form(signatures[0], tuple(fields.values()), device, versions, given.get("strict") == "1")


def _fields(signature: Signature, given: Mapping[str, str]) -> Iterator[Field]:
    """Yield the fields of a problem, in the order of its parameters."""
    for dim in signature.dims:
        yield _dim(dim, given)
    default, *others = signature.dtypes
    choices = (Choice("", f"{default} (default)"), *(Choice(each, each) for each in others))
    yield Field("dtype", "dtype", _unless(default, given.get("dtype", "")), "Type of the inputs", choices=choices)
    for attribute in signature.attributes:
        yield _attribute(attribute, given)


def _dim(dim: Dim, given: Mapping[str, str]) -> Field:
    hint = "" if dim.default is None else f"as {dim.default}" if isinstance(dim.default, str) else str(dim.default)
    value = given.get(dim.name, "")
    return Field(dim.name, dim.name, value, dim.help, hint, is_whole=True, is_needed=dim.default is None, longest=10)


def _attribute(attribute: Attribute, given: Mapping[str, str]) -> Field:
    value = given.get(attribute.name, "")
    only = f" (only {', '.join(attribute.dtypes)})" if attribute.dtypes else ""
    about = f"{attribute.help}{only}"
    if attribute.choices is None:
        return Field(attribute.name, attribute.name, value, about, f"{attribute.default}")
    default = str(attribute.default)
    others = (str(choice) for choice in attribute.choices if str(choice) != default)
    choices = (Choice("", f"{default} (default)"), *(Choice(each, each) for each in others))
    return Field(attribute.name, attribute.name, _unless(default, value), about, choices=choices)


def _device(op: str, view: View, given: Mapping[str, str]) -> Field:
    """Return the list of the cards with answers: first that of a query that names none, then those with the op's.

    Without such a card, the first choice names none, and the form needs another one.
    """
    devices, value = view.devices(), given.get("device", "")
    own = view.lookup.own_device or (devices[0] if len(devices) == 1 else None)
    named = {*devices, *([value] if value else [])} - {own}
    none_named = "choose a card" if own is None else f"{own} (default)"
    choices = (
        *([Choice("", none_named)] if named or own else []),
        *(Choice(each, each) for each in sorted(named, key=lambda each: ((op, each) not in view.tables, each))),
    )
    about = "The card that the answer is for"
    return Field("device", "Device", _unless(own, value), about, choices=choices, is_needed=own is None)


def _unless(default: str | None, value: str) -> str:
    """Return a value, or an empty text for the default, whose choice has no value."""
    return "" if value == default else value


def _result(site: Site, given: Mapping[str, str], links: Links) -> Result:
    """Look a problem up as `GET /best-config` does, without counting a miss.

    Raises:
        TunerError: the request is refused, with the message of the API.
    """
    view = site.view
    query, signature = parse_query(given, view)
    found = replace(view.lookup.find(query, parse_device(given)), captured=signature.captured)
    known: list[Figure] = []
    if found.stored is not None and found.neighbour is None:
        known = list(figures(found.stored, vendor_speedup(site.store, found.stored), None, ""))
    return Result(
        found=found,
        state=_STATES[found.match],
        figures=known,
        json=json.dumps(found.as_json(view.snapshot), indent=2),
        curl=request_of(given, links),
        address=links.to("problem", **address_of(found.problem, found.device)),
        neighbour=near.neighbour(found, links),
        nearest=list(near.nearest(found, view, links)),
    )
