"""The sources of a client's answers: a file, a service or a database, whichever the environment names first.

    TUNER_SNAPSHOT   a file that `tuner export` wrote
    TUNER_URL        a service that `tuner serve` runs
    TUNER_DB         a database; else the one in the user's data folder

If the first one fails, no other is tried: the configs of a process must not depend on whether a server was slow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlencode

from tuner.client.settings import RemoteSettings
from tuner.errors import StoreError, reason, unraised
from tuner.kernels.spec import Signature
from tuner.lookup import bundle
from tuner.lookup.bundle import Bundle
from tuner.lookup.readers import BundleReader
from tuner.lookup.service import LookupService, StoredTables
from tuner.lookup.table import Table
from tuner.measure import device as cards
from tuner.records import Device

if TYPE_CHECKING:
    from tuner.client.remote import Received
    from tuner.db.store import Store

T = TypeVar("T")

_REMOTE = RemoteSettings()
_ABSENT = "absent"
"""Version of a table that its source does not have."""


@dataclass(frozen=True)
class Loaded:
    """The answers of one op on one device, as a source has them."""

    signature: Signature | None
    """Signature of the op; None if the source does not know it."""
    table: Table
    version: str = field(compare=False)
    """Version of the table. Tables of the same version are equal."""
    skipped: tuple[str, ...] = ()
    """Reasons why answers cannot be used, one for each."""


class AnswerSource(Protocol):
    """A source of answers, which are read a whole table at a time."""

    @property
    def origin(self) -> str:
        """Name of the source in a log."""
        ...

    @property
    def waits(self) -> bool:
        """True if reading may wait for another machine."""
        ...

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Return the answers of an op on a device; `known` itself if it is up to date.

        Raises:
            TunerError: they cannot be read.
        """
        ...

    def devices(self) -> set[str]:
        """Return the ids of all devices of the source, with answers or without.

        Raises:
            TunerError: they cannot be read.
        """
        ...

    def ops(self) -> set[str]:
        """Return the ops of the source, with answers or without.

        Raises:
            TunerError: they cannot be read.
        """
        ...

    def reopened(self) -> AnswerSource:
        """Return the same source without what it keeps in memory, such as that a service did not answer."""
        ...


def source_from_environment() -> AnswerSource:
    """Return the source that the environment names."""
    snapshot, url = os.environ.get("TUNER_SNAPSHOT"), os.environ.get("TUNER_URL")
    if snapshot:
        return BundleSource(Path(snapshot))
    return ServiceSource(url, name="TUNER_URL") if url else DatabaseSource()


def local_cards() -> list[Device]:
    """Return the descriptions of this machine's GPUs."""
    return [cards.describe(index) for index in range(cards.count())]


class HeldSource:
    """A bundle in memory, whose answers stay the same.

    Args:
        origin: name of the source in a log.
    """

    waits = False

    def __init__(self, held: Bundle, origin: str) -> None:
        self.origin, self._held = origin, held

    @property
    def sha256(self) -> str:
        """Hash of the content."""
        return self._held.sha256

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Return the answers of an op on a device; `known` itself if it is up to date."""
        held = self._held
        return known if known is not None and known.version == held.sha256 else _of(held, op, device, held.sha256)

    def devices(self) -> set[str]:
        """Return the ids of the devices with answers."""
        return set(BundleReader(self._held).devices())

    def ops(self) -> set[str]:
        """Return the ops of the bundle."""
        return set(self._held.signatures)

    def reopened(self) -> HeldSource:
        """Return this source."""
        return self


class BundleSource:
    """A bundle on disk, read once."""

    waits = False

    def __init__(self, path: Path) -> None:
        self.origin, self._path = str(path), path

    @cached_property
    def held(self) -> HeldSource:
        """The content of the file.

        Raises:
            BadBundle: it cannot be read.
        """
        return HeldSource(bundle.read(self._path), self.origin)

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Return the answers of an op on a device; `known` itself if it is up to date."""
        return self.held.load(op, device, known)

    def devices(self) -> set[str]:
        """Return the ids of the devices with answers."""
        return self.held.devices()

    def ops(self) -> set[str]:
        """Return the ops of the bundle."""
        return self.held.ops()

    def reopened(self) -> BundleSource:
        """Return the source of the same path, which reads it again."""
        return BundleSource(self._path)


class ServiceSource:
    """A service. After a request that timed out no other is sent, so that a process waits only once.

    Args:
        name: name of the URL in an error about it.
    """

    waits = True

    def __init__(self, url: str, settings: RemoteSettings = _REMOTE, *, name: str = "the URL of a service") -> None:
        self.origin, self._settings, self._name = url, settings, name
        self._error: StoreError | None = None

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Return the answers of an op on a device; `known` itself if it is up to date."""
        headers = {"Accept-Encoding": "gzip"}
        if known is not None and known.version != _ABSENT:
            headers["If-None-Match"] = known.version
        target = f"/table?{urlencode({'op': op, 'device': device})}"
        return self._get(target, headers, lambda received: self._read(received, op, device, known))

    def devices(self) -> set[str]:
        """Return the ids of all devices of the service."""
        return self._listed("devices", "slug")

    def ops(self) -> set[str]:
        """Return the ops of the service."""
        return self._listed("kernels", "op")

    def reopened(self) -> ServiceSource:
        """Return a new source of the same URL, which sends requests again."""
        return ServiceSource(self.origin, self._settings, name=self._name)

    def _get(self, target: str, headers: Mapping[str, str], read: Callable[[Received], T]) -> T:
        from tuner.client import remote

        if self._error is not None:
            raise unraised(self._error)
        address = remote.parse_url(self.origin, self._name)
        try:
            return remote.get(address, target, headers, read, self._settings)
        except StoreError as error:
            self._error = unraised(error)
            raise

    def _listed(self, path: str, column: str) -> set[str]:
        """Return the values of a column of a list, which the service sends in pages."""
        found: set[str] = set()
        page = f"/{path}?limit={self._settings.page}"
        after: int | None = 0
        while after is not None:
            at = after
            values, after = self._get(f"{page}&after={at}" if at else page, {}, partial(self._page, path, column))
            found |= values
            if after is not None and after <= at:
                raise StoreError(f"{self.origin} does not list its {path}: the page after {at} is followed by itself")
        return found

    def _page(self, path: str, column: str, received: Received) -> tuple[set[str], int | None]:
        """Return the values of a page, and the id after which the next one begins, or None."""
        try:
            document = json.loads(received.body)
            following = document.get("next")
            return {str(row[column]) for row in document["items"]}, None if following is None else int(following)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{self.origin} does not list its {path}: {reason(error)}") from error

    def _read(self, received: Received, op: str, device: str, known: Loaded | None) -> Loaded:
        if received.status == 304 and known is not None:
            return known
        if received.status == 404 and _is_refusal(received):  # the service knows no such op or device
            return Loaded(None, Table(device, ()), _ABSENT)
        if received.status != 200:
            raise StoreError(f"{self.origin} answers {received.status} to a request for a table")
        held = bundle.unpacked(received.body, self.origin)
        return _of(held, op, device, received.headers.get("etag", "")[:200] or held.sha256)


class DatabaseSource:
    """The database that `TUNER_DB` names, else the one in the user's data folder."""

    origin = "the database"

    @property
    def waits(self) -> bool:
        """True if the database is on a server."""
        return "://" in os.environ.get("TUNER_DB", "")

    def load(self, op: str, device: str, known: Loaded | None = None) -> Loaded:
        """Return the answers of an op on a device; `known` itself if it is up to date."""
        with _opened() as store:
            tip = None if store is None else store.tip()
            version = _ABSENT if tip is None else f"{tip.snapshot}:{tip.kernel}:{tip.transfer}"
            if known is not None and known.version == version:
                return known
            if store is None:
                return Loaded(None, Table(device, ()), version)
            lookup = LookupService(StoredTables(store), cards=local_cards())
            return Loaded(store.signatures(op).get(op), lookup.table(op, lookup.stored_as(device)), version)

    def devices(self) -> set[str]:
        """Return the ids of all devices in the database."""
        with _opened() as store:
            return set() if store is None else {card.id for card in store.cards()}

    def ops(self) -> set[str]:
        """Return the ops in the database."""
        with _opened() as store:
            return set() if store is None else set(store.signatures())

    def reopened(self) -> DatabaseSource:
        """Return this source, which opens the database for each read."""
        return self


@contextmanager
def _opened() -> Iterator[Store | None]:
    """Open the store for a read; None if there is no database."""
    from tuner.db.store import Store, default_database

    database = default_database()
    store = Store.open(database, create=False) if database.exists() else None
    try:
        yield store
    finally:
        if store is not None:
            store.close()


def _of(held: Bundle, op: str, device: str, version: str) -> Loaded:
    """Return a bundle's answers of one op on one device."""
    lookup = LookupService(StoredTables(BundleReader(held)), cards=local_cards())
    table = lookup.table(op, lookup.stored_as(device))
    return Loaded(held.signatures.get(op), table, version, held.skipped)


def _is_refusal(received: Received) -> bool:
    """Return whether a reply is a refusal of our service, not a web server's page for an unknown address."""
    try:
        document = json.loads(received.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, Mapping) and isinstance(document.get("error"), str)
