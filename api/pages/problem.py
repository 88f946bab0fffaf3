"""The page of a problem on a card: the answer with its evidence, key and history, or what is known without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.api.pages import answer_facts, near
from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.copies import copies
from tuner.api.pages.evidence import Evidence, evidence_of
from tuner.api.pages.evidence_plots import SETTINGS, plots_of
from tuner.api.pages.key import key_fields, paste
from tuner.api.pages.links import Links
from tuner.api.pages.served import today
from tuner.api.pages.site import Content, Data, Query, Site
from tuner.api.query import parse_device, parse_problem, parse_signatures
from tuner.db.pins import Pin
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup import query as lookup
from tuner.lookup.table import LookupResult
from tuner.records import Device, StoredAnswer
from tuner.report.history import Generation, history_of
from tuner.report.text import short

_OWN = ("answer", "key")
"""Names of this page's query besides those that describe the problem, unless the op has a parameter of the name."""
_MOST_GENERATIONS = 50
"""Generations that are listed, at most; the newest ones."""


@dataclass(frozen=True)
class Asked:
    """The problem and the card that a page is about."""

    signature: Signature
    problem: Problem
    device: str
    """Device id under which the answers of the card are stored."""
    alias: str | None
    """Name of the device in the query, if it is another one of the same card."""
    answer: int | None
    """Id of the generation that is shown; None for the one that serves."""
    key: str
    """Text of a key that was pasted to be compared; empty without one."""


@dataclass(frozen=True)
class Row:
    """One generation of the answer."""

    generation: Generation
    is_shown: bool
    serves: bool
    is_pinned: bool
    address: str
    """Address of the page of this generation; empty if a report does not have it."""

    @property
    def stored(self) -> StoredAnswer:
        """The answer."""
        return self.generation.stored


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page of a problem: `/pages/problem?op=gemm&M=4096&device=nvidia-h200`."""
    asked = asked_of(site, query)
    found = _found(site, asked)
    serving = None if found.neighbour is not None else found.stored
    shown = _shown(site, asked, serving)
    history = history_of(site.store, asked.problem, asked.device)
    named = short(asked.problem)
    values: dict[str, Any] = {
        "asked": asked,
        "named": named,
        "short": short,
        "card": _card_name(site, asked.device),
        "address": address_of(asked.problem, asked.device),
        "found": found,
        "serving": serving,
        "pin": history.pin,
        "rows": list(_rows(history.generations, shown, serving, history.pin, links)),
        "earlier": max(0, len(history.generations) - _MOST_GENERATIONS),
        "elsewhere": [
            (device, links.to("problem", **address_of(asked.problem, device))) for device in _others(site, asked)
        ],
        "missed": site.store.missed(asked.problem),
        "for_newest": _for_newest(site, asked, serving, links),
    }
    if shown is None:
        values["near"] = list(near.nearest(found, site.view, links))
        values["neighbour"] = near.neighbour(found, links)
        return Content("problem_missing.html", named, values)
    values |= _answer(site, asked, shown, serving, history.pin, links)
    return Content("problem.html", named, values)


def read_points(site: Site, query: Query) -> Data:
    """Return the configs that ran, for the script that draws them: `/pages/problem.json?op=gemm&M=4096&answer=7`."""
    asked = asked_of(site, query)
    shown = _shown(site, asked, _found(site, asked).stored)
    if shown is None:
        raise UnknownName("no answer is stored for this problem, so there are no configs to draw")
    return Data(_evidence(site, shown).points, "application/json")


def asked_of(site: Site, query: Query) -> Asked:
    """Return the problem and the card of a query.

    Raises:
        UsageError: a value is missing or not understood; the message names the field.
        UnknownName: no op, card or answer has the name.
    """
    given = dict(query.given)
    signatures = _signatures(site, given)
    parameters = {name for signature in signatures for name in signature.parameters}
    own = {name: given.pop(name, "") for name in _OWN if name not in parameters}
    for name in (*lookup.COMPARED, "strict"):
        if name in given:
            raise UsageError(f"this page is of a problem and a device, whatever the {name}; leave it out")
    signature, problem = parse_problem(given, signatures)
    named = parse_device(given)
    known = {card.id for card in site.view.cards()} | {miss["device"] for miss in site.store.missed(problem)}
    device = site.view.lookup.resolve_device(named, known=known)
    answer = Query(own).whole("answer") if own.get("answer") else None
    alias = named if named not in (None, device) else None
    return Asked(signature, problem, device, alias, answer, own.get("key", "").strip())


def _signatures(site: Site, given: Mapping[str, str]) -> Sequence[Signature]:
    try:
        return parse_signatures(given, site.view)
    except UnknownName as error:
        op = given["op"]
        if site.store.captured.all(op):
            raise UnknownName(
                f"{op} has captured calls and was not searched; run tuner search {op} --captured"
            ) from error
        raise


def _found(site: Site, asked: Asked) -> LookupResult:
    found = site.view.lookup.find_on(asked.device, lookup.Query(asked.problem))
    return replace(found, captured=asked.signature.captured, alias=asked.alias)


def _shown(site: Site, asked: Asked, serving: StoredAnswer | None) -> StoredAnswer | None:
    """Return the generation that is shown.

    Raises:
        UnknownName: the query names an answer that is not one of this problem on this card.
    """
    if asked.answer is None:
        return serving
    stored = site.store.answer(asked.answer)
    if stored is None or (stored.answer.problem, stored.provenance.device.id) != (asked.problem, asked.device):
        raise UnknownName(f"answer {asked.answer} is none of {asked.problem.text} on {asked.device}")
    return site.view.lookup.completed(stored)


def _answer(
    site: Site, asked: Asked, shown: StoredAnswer, serving: StoredAnswer | None, pin: Pin | None, links: Links
) -> dict[str, Any]:
    """Return the values of the page of an answer."""
    known = _evidence(site, shown)
    explained, stale = known.explanation, today(site).newest.stale(shown)
    pasted = paste(asked.key, site.view, shown, asked.signature) if asked.key else None
    points = links.api("pages/problem.json", **address_of(asked.problem, asked.device, shown.id))
    roofline = None if explained is None else explained.roofline
    return {
        "shown": shown,
        "states": list(answer_facts.states(shown, serving, pin, stale)),
        "stale": stale,
        "kind": answer_facts.kind_text(shown),
        "figures": list(answer_facts.figures(shown, known.vendor, roofline, known.default_failure)),
        "default_failure": known.default_failure,
        "evidence": known,
        "explained": explained,
        "plots": site.of_view(("plots", shown.id, points), lambda: plots_of(known, shown, points)),
        "drawn": SETTINGS.drawn,
        "points": points,
        "checks": list(answer_facts.checks(shown)),
        "card_state": list(answer_facts.card_state(None if explained is None else explained.card)),
        "origin": list(answer_facts.origin(shown, explained)),
        "fields": key_fields(shown, pasted),
        "pasted": pasted,
        "copies": list(copies(shown, links)),
        "run": links.to("run", id=shown.measured_in),
    }


def _for_newest(site: Site, asked: Asked, serving: StoredAnswer | None, links: Links) -> tuple[int, str] | None:
    """Return the id and the page of the answer to a program with the newest kernel and software in the store.

    None if it is the one that serves, as it is unless older software was measured after newer software.
    """
    query = today(site).newest.query(asked.problem, asked.device)
    stored = site.view.lookup.find_on(asked.device, query, neighbours=False).stored
    if stored is None or serving is None or stored.id == serving.id:
        return None
    return stored.id, links.to("problem", **address_of(asked.problem, asked.device, stored.id))


def _evidence(site: Site, stored: StoredAnswer) -> Evidence:
    return site.of_view(("evidence", stored.id), lambda: evidence_of(site.store, stored))


def _rows(
    generations: Sequence[Generation],
    shown: StoredAnswer | None,
    serving: StoredAnswer | None,
    pin: Pin | None,
    links: Links,
) -> Iterator[Row]:
    """Yield the generations, the newest first."""
    for each in reversed(generations[-_MOST_GENERATIONS:]):
        stored = each.stored
        serves = serving is not None and serving.id == stored.id
        shown_by = address_of(stored.answer.problem, stored.provenance.device.id, None if serves else stored.id)
        yield Row(
            each,
            is_shown=shown is not None and shown.id == stored.id,
            serves=serves,
            is_pinned=pin is not None and pin.answer_id == stored.id,
            address=links.to("problem", **shown_by),
        )


def _others(site: Site, asked: Asked) -> list[str]:
    """Return the other devices with an answer to the problem."""
    view, query = site.view, lookup.Query(asked.problem)
    return [
        device
        for device in view.devices()
        if device != asked.device and view.lookup.find_on(device, query, neighbours=False).stored is not None
    ]


def _card_name(site: Site, device: str) -> str:
    named: Mapping[str, Device] = {card.id: card for card in site.view.cards()}
    return named[device].name if device in named else device
