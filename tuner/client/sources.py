"""Where the client's answers come from: a file, a server or a database, whichever the environment names first.

    TUNER_SNAPSHOT   a file that `tuner export` wrote
    TUNER_URL        a service that `tuner serve` runs
    TUNER_DB         a database; else the one in the user's data folder

There is no second choice behind the first: what a process launches with must not depend on whether a server was slow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlencode

from tuner.errors import StoreError, reason
from tuner.kernels.spec import Signature
from tuner.lookup import bundle
from tuner.lookup.aliases import aliases
from tuner.lookup.bundle import Bundle
from tuner.lookup.table import Table
from tuner.measure import device as local
from tuner.records import Device

if TYPE_CHECKING:
    from tuner.client.remote import Got
    from tuner.db.store import Store

T = TypeVar("T")

ANSWER_S = 10.0
"""A server's whole answer takes no longer, or it is done without."""
_MOST_RECEIVED = 64 << 20
"""Bytes of it, compressed."""
_MOST_DEVICES = 1000
"""A service tells no more at once."""
_NOTHING = "nothing"
"""The version of what is not there."""


@dataclass(frozen=True)
class Loaded:
    """What a source has of one op on one device."""

    signature: Signature | None
    """None: it knows no such op."""
    table: Table
    version: str = field(compare=False)
    """Two of one version hold the same; two of others may."""
    skipped: tuple[str, ...] = ()
    """Why some answers of it cannot be used."""


class AnswerSource(Protocol):
    """Answers, a whole table at a time."""

    @property
    def origin(self) -> str:
        """What it is called in a log."""
        ...

    @property
    def waits(self) -> bool:
        """Whether reading it is up to somebody elsewhere."""
        ...

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Everything of an op on a device; `known` itself where that is still all.

        Raises:
            TunerError: it cannot be read.
        """
        ...

    def devices(self) -> set[str]:
        """Ids of all devices that it knows, with answers or without.

        Raises:
            TunerError: it cannot be read.
        """
        ...


def chosen() -> AnswerSource:
    """The source that the environment names."""
    snapshot, url = os.environ.get("TUNER_SNAPSHOT"), os.environ.get("TUNER_URL")
    if snapshot:
        return BundleFile(Path(snapshot))
    return RemoteService(url) if url else LocalDatabase()


class BundleFile:
    """A bundle on disk, read once."""

    waits = False

    def __init__(self, path: Path) -> None:
        self.origin, self._path = str(path), path

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        held = self._held
        if known is not None and known.version == held.sha256:
            return known
        return _of(held, op, device, held.sha256)

    def devices(self) -> set[str]:
        return {stored.provenance.device.id for stored in self._held.answers}

    @cached_property
    def _held(self) -> Bundle:
        return bundle.read(self._path)


class RemoteService:
    """A service. One that did not answer in time is not asked again: nobody waits twice."""

    waits = True

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        self.origin, self._answer_s = url, answer_s
        self._away: StoreError | None = None

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        headers = {"Accept-Encoding": "gzip"}
        if known is not None and known.version != _NOTHING:
            headers["If-None-Match"] = known.version
        target = f"/table?{urlencode({'op': op, 'device': device})}"
        return self._get(target, headers, lambda got: self._read(got, op, device, known))

    def devices(self) -> set[str]:
        return self._get(f"/devices?limit={_MOST_DEVICES}", {}, self._slugs)

    def _get(self, target: str, headers: Mapping[str, str], read: Callable[[Got], T]) -> T:
        from tuner.client import remote

        if self._away is not None:
            raise self._away.with_traceback(None)
        at = remote.address(self.origin)
        try:
            return remote.get(at, target, headers, read, seconds=self._answer_s, most_bytes=_MOST_RECEIVED)
        except StoreError as error:
            self._away = error
            raise

    def _slugs(self, got: Got) -> set[str]:
        try:
            return {str(row["slug"]) for row in json.loads(got.body)["items"]}
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise StoreError(f"{self.origin} does not say which devices it knows: {reason(error)}") from error

    def _read(self, got: Got, op: str, device: str, known: Loaded | None) -> Loaded:
        if got.status == 304 and known is not None:
            return known
        if got.status == 404 and _says_why(got):  # it has heard of no such op, or of no such device
            return Loaded(None, Table(device, ()), _NOTHING)
        if got.status != 200:
            raise StoreError(f"{self.origin} answers {got.status} when it is asked for a table")
        held = bundle.unpacked(got.body, self.origin)
        return _of(held, op, device, got.headers.get("etag", "")[:200] or held.sha256)


class LocalDatabase:
    """`TUNER_DB`, else the database in the user's data folder."""

    origin = "the database"

    @property
    def waits(self) -> bool:
        return "://" in os.environ.get("TUNER_DB", "")

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        with _opened() as store:
            tip = None if store is None else store.tip()
            version = _NOTHING if tip is None else f"{tip.snapshot}:{tip.kernel}:{tip.transfer}"
            if known is not None and known.version == version:
                return known
            if store is None:
                return Loaded(None, Table(device, ()), version)
            stored_as = _stored_as(device, store.devices(), store.cards())
            transfers = store.transfers(op=op, device=stored_as).get((op, stored_as), ())
            table = Table(stored_as, store.answers(op=op, device=stored_as), transfers)
            return Loaded(store.signatures().get(op), table, version)

    def devices(self) -> set[str]:
        with _opened() as store:
            return set() if store is None else {card.id for card in store.cards()}


@contextmanager
def _opened() -> Iterator[Store | None]:
    """The store, for as long as it is read; None where there is none."""
    from tuner.db.store import Store, default_database

    database = default_database()
    store = Store.open(database, create=False) if database.exists() else None
    try:
        yield store
    finally:
        if store is not None:
            store.close()


def _of(held: Bundle, op: str, device: str, version: str) -> Loaded:
    """What a bundle holds of one op on one device, whatever else it holds."""
    cards = {stored.provenance.device for stored in held.answers}
    stored_as = _stored_as(device, {card.id for card in cards}, cards)
    answers = [
        stored for stored in held.answers if stored.answer.problem.op == op and stored.provenance.device.id == stored_as
    ]
    ids = {stored.id for stored in answers}
    transfers = [transfer for transfer in held.transfers if transfer.to_answer in ids]
    return Loaded(held.signatures.get(op), Table(stored_as, answers, transfers), version, held.skipped)


def _stored_as(asked: str, answered: Collection[str], cards: Collection[Device]) -> str:
    """What a device is called where its answers are stored: a card here may have another name there."""
    here = [local.describe(index) for index in range(local.count())]
    return aliases(answered, [*cards, *here]).get(asked, asked)


def _says_why(got: Got) -> bool:
    """Whether this is a service of ours that refuses, and not a web server that has no such page."""
    try:
        document = json.loads(got.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, Mapping) and isinstance(document.get("error"), str)
