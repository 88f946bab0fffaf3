"""The service's tables of answers in memory, and the watcher that keeps them up to date with the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from time import monotonic

from tuner.api.reply import Reply
from tuner.db.store import Store, Tip
from tuner.errors import StoreError
from tuner.kernels.spec import Signature
from tuner.lookup.offered import not_offered_now
from tuner.lookup.service import LookupService
from tuner.lookup.table import Table
from tuner.records import Device, StoredAnswer, Transfer

Tables = Mapping[tuple[str, str], Table]


@dataclass(frozen=True)
class View:
    """The store's answers as of one snapshot. A view never changes; a newer one replaces it."""

    tip: Tip
    signatures: Mapping[str, Signature]
    tables: Tables
    """Tables by op and device."""
    answers: int
    """Number of answers."""
    in_use: Mapping[tuple[str, str], Signature] = field(default_factory=dict)
    """Signatures in use, by op and source hash. An answer whose config they do not have does not serve."""
    patterns: Mapping[str, Sequence[Signature]] = field(default_factory=dict)
    """Signatures of the ops whose captured calls have several, the newest first."""
    known_cards: Sequence[Device] = ()
    """Descriptions of the store's devices, with answers or without."""
    own_device: str | None = None
    """Id of the device of queries that name none."""
    replies: dict[bytes, Reply] = field(default_factory=dict)
    """Replies already made from this view, by query string."""
    packed: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Compressed documents of whole tables already made, by op and device."""

    @property
    def snapshot(self) -> str:
        """Id of the snapshot."""
        return self.tip.snapshot

    @cached_property
    def lookup(self) -> LookupService:
        """The lookup over these tables."""
        refused, signature_of = not_offered_now(self.in_use), self.signatures.get
        return LookupService(self, device=self.own_device, refused=refused, signature_of=signature_of)

    def devices(self) -> list[str]:
        """Return the ids of the devices with answers, sorted."""
        return sorted({device for _, device in self.tables})

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of the store's devices, with answers or without."""
        return self.known_cards

    def table(self, op: str, device: str) -> Table:
        """Return the answers of an op on a device; the table may be empty."""
        found = self.tables.get((op, device))
        return Table(device, ()) if found is None else found


class Watcher:
    """The newest view of a store. Any thread may read `view`.

    Args:
        signatures: signatures of ops that need no search to be known; the store's are added.
        failed: called with the error of each poll that could not read the store.
        device: id of the device of queries that name none.
    """

    def __init__(
        self,
        store: Store,
        signatures: Mapping[str, Signature],
        failed: Callable[[StoreError], object],
        device: str | None = None,
    ) -> None:
        self._store, self._known, self._failed, self._device = store, signatures, failed, device
        self.view = self._empty("")
        self._read_at: float | None = None
        self._lock = Lock()

    @property
    def age_s(self) -> float | None:
        """Seconds since the view was last known to be up to date; None if the store was never read."""
        return None if self._read_at is None else monotonic() - self._read_at

    @property
    def unreadable(self) -> Mapping[str, int]:
        """Number of rows that the store could not read, by table."""
        return self._store.unreadable.counts

    def poll(self) -> None:
        """Replace the view if the store has changed. The view stays as it is if the store cannot be read."""
        with self._lock:
            began = monotonic()
            try:
                tip = self._store.tip()
                if tip != self.view.tip:
                    self.view = self._newer(tip)
            except StoreError as error:
                self._failed(error)
            else:
                self._read_at = began

    def _empty(self, uuid: str) -> View:
        return View(Tip(uuid, 0, 0), self._known, {}, 0, own_device=self._device)

    def _newer(self, tip: Tip) -> View:
        old = self.view
        if tip.uuid != old.tip.uuid or tip.answer < old.tip.answer:
            old = self._empty(tip.uuid)
        signatures, patterns = old.signatures, old.patterns
        if tip.kernel != old.tip.kernel:
            signatures, patterns = {**self._known, **self._store.signatures()}, self._store.patterns()
        answers = self._store.answers_between(old.tip.answer, tip.answer)
        transfers = self._store.transfers(after=old.tip.transfer, upto=tip.transfer)
        tables = _without(old.tables, self._store.forgotten_between(old.tip.answer, tip.answer))
        tables = _extended(tables, answers, transfers)
        count = sum(map(len, tables.values()))
        in_use = self._store.signatures_by_source()
        return View(tip, signatures, tables, count, in_use, patterns, self._store.cards(), self._device)


def _without(tables: Tables, ids: Collection[int]) -> Tables:
    """Return the tables without the answers of these ids."""
    return {key: table.without(ids) for key, table in tables.items()} if ids else tables


def _extended(
    tables: Tables,
    answers: list[StoredAnswer],
    transfers: Mapping[tuple[str, str], list[Transfer]],
) -> Tables:
    """Return the tables with further answers and transfer losses; a table that gets none is the same object."""
    added: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in answers:
        added.setdefault((stored.answer.problem.op, stored.provenance.device.id), []).append(stored)
    found = {}
    for key in {**tables, **added}:
        table = tables.get(key, Table(key[1], ()))
        if key in added or key in transfers:
            table = table.extended(added.get(key, ()), transfers.get(key, ()))
        if len(table):
            found[key] = table
    return found
