"""Comparison of an answer with a query, and the order in which answers to one problem are preferred."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tuner.lookup.query import Query
from tuner.records import IMPORTED, StoredAnswer
from tuner.records.answer import AGREEMENT, UNVERIFIED


def serving(several: Sequence[StoredAnswer], triton: str | None = None) -> StoredAnswer:
    """Return the answer, of those to one problem on one device, that serves a query which compares Triton at most."""
    return max(several, key=lambda stored: preference(stored, Query(stored.answer.problem, triton=triton)))


def not_replaced(answers: Iterable[StoredAnswer]) -> list[StoredAnswer]:
    """Return the answers that serve the kernel and the software that any of them was found with, in the same order.

    Those of several versions serve beside each other. Answers that later ones replaced are left out.
    """
    answers = list(answers)
    by_query: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in answers:
        by_query.setdefault((stored.answer.problem.text, stored.provenance.device.id), []).append(stored)
    kept = {stored.id for several in by_query.values() for stored in _serving_own(several)}
    return [stored for stored in answers if stored.id in kept]


def _serving_own(several: Sequence[StoredAnswer]) -> Iterator[StoredAnswer]:
    """Yield, of the answers to one problem on one device, those that serve the query of one of them."""
    if len(several) == 1:
        yield several[0]
        return
    for query in {_own_query(stored, strict) for stored in several for strict in (False, True)}:
        yield max(several, key=lambda stored: preference(stored, query))


def _own_query(stored: StoredAnswer, strict: bool) -> Query:
    """Return the query that the answer equals in every field that it states."""
    problem, made = stored.answer.problem, stored.provenance
    source, policy = made.source or None, made.policy or None
    return Query.for_environment(
        problem, made.environment, source, definition=made.definition, policy=policy, strict=strict
    )


def differences(stored: StoredAnswer, query: Query) -> tuple[str, ...]:
    """Return a sentence for each field of the query in which the answer differs."""
    provenance = stored.provenance
    fields = {
        "source": (provenance.source, query.source),
        "definition": (provenance.definition or query.definition, query.definition),
        "triton": (provenance.environment.triton, query.triton),
        "driver": (provenance.environment.driver, query.driver),
        "ptxas": (provenance.environment.ptxas, query.ptxas),
        "policy": (provenance.policy, query.policy),
    }
    found = [
        f"{name}: tuned with {has or 'none'}, the query has {wants}"
        for name, (has, wants) in fields.items()
        if wants not in (None, has)
    ]
    if stored.answer.kind == IMPORTED:  # differs from every query, since nothing was measured here
        left_out = [name for name in ("num_warps", "num_stages") if name not in stored.answer.config]
        default = f"; Triton's default holds for {' and '.join(left_out)}" if left_out else ""
        found.append(f"imported: taken from {stored.imported_from}, not measured here{default}")
    return tuple(found)


def replayed_from(space: str) -> str:
    """Return the difference of an answer that was found in a recorded space."""
    return f"recorded: replayed from {space}, not measured here"


def unverified() -> str:
    """Return the reason for which a strict query refuses an answer whose basis is agreement."""
    return f"basis: {UNVERIFIED}: its outputs were compared with those of other configs, not with a reference"


def is_exact(stored: StoredAnswer, query: Query) -> bool:
    """Return whether the answer was measured on a card and agrees with the query in every compared field."""
    return not differences(stored, query) and stored.provenance.recorded is None


def is_verified(stored: StoredAnswer) -> bool:
    """Return whether the outputs were compared with a reference, not with those of other configs alone."""
    return stored.answer.basis != AGREEMENT


def same_policy(stored: StoredAnswer, query: Query) -> bool:
    """Return whether the answer was measured with the query's policy: latencies of two policies are not comparable."""
    return query.policy in (None, stored.provenance.policy)


def preference(stored: StoredAnswer, query: Query) -> tuple[Any, ...]:
    """Return the sort key of an answer; the largest serves.

    In order: exact; with a reference, if the query is strict; measured before recorded before imported; same source;
    same definition; nearest Triton not newer than the query's; newest.
    """
    provenance = stored.provenance
    return (
        same_policy(stored, query),
        is_exact(stored, query),
        is_verified(stored) or not query.strict,
        stored.answer.kind != IMPORTED,
        provenance.recorded is None,
        query.source in (None, provenance.source),
        not provenance.definition or query.definition in (None, provenance.definition),
        _triton_preference(provenance.environment.triton, query.triton),
        stored.id,
    )


def _triton_preference(has: str, wants: str | None) -> tuple[bool, tuple[int, ...]]:
    """Rank versions up to the wanted one first, the highest best; then newer ones, the lowest best."""
    if wants is None:
        return True, ()
    version = release(has)
    if version <= release(wants):
        return True, version
    return False, tuple(-part for part in version)


def release(text: str) -> tuple[int, ...]:
    """Return the numbers of the release: `3.7.0rc1` and `3.7.0+git` are (3, 7, 0)."""
    release = re.match(r"[0-9.]*", text)
    return tuple(int(part) for part in re.findall(r"[0-9]+", release[0] if release else ""))
