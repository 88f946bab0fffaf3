"""What the service answers from: everything the store has answered, in memory, and what keeps it young."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from tuner.api.reply import Reply
from tuner.db.store import Store, Tip
from tuner.errors import StoreError
from tuner.kernels.spec import Signature
from tuner.lookup.aliases import aliases
from tuner.lookup.table import Table
from tuner.records import StoredAnswer, Transfer

Tables = Mapping[tuple[str, str], Table]


@dataclass(frozen=True)
class View:
    """The store as it was at one snapshot. A newer one takes its place; itself it never changes."""

    tip: Tip
    signatures: Mapping[str, Signature]
    tables: Tables
    """By op and device."""
    answers: int
    replies: dict[bytes, Reply] = field(default_factory=dict)
    """What was answered from it, by query string."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of the devices that answers are stored for."""
    packed: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Its tables as they are sent, compressed."""

    @property
    def snapshot(self) -> str:
        return self.tip.snapshot

    @property
    def devices(self) -> list[str]:
        """Those that answers are stored for."""
        return sorted({device for _, device in self.tables})

    def table(self, op: str, device: str) -> Table:
        """The answers of one op on one device; there may be none."""
        found = self.tables.get((op, device))
        return Table(device, ()) if found is None else found


class Watcher:
    """Holds the newest view. `poll` is called by one thread at a time; readers take `view` whenever they like."""

    def __init__(
        self, store: Store, signatures: Mapping[str, Signature], failed: Callable[[StoreError], object]
    ) -> None:
        self._store, self._known, self._failed = store, signatures, failed
        self.view = View(Tip("", 0, 0), signatures, {}, 0)
        self._read_at: float | None = None

    @property
    def age_s(self) -> float | None:
        """Time since the store was last seen to have nothing newer; None: it never was read."""
        return None if self._read_at is None else monotonic() - self._read_at

    def poll(self) -> None:
        """Brings the view up to the store. A store that cannot be read leaves the view as it is."""
        began = monotonic()
        try:
            tip = self._store.tip()
            if tip != self.view.tip:
                self.view = self._newer(tip)
        except StoreError as error:
            self._failed(error)
        else:
            self._read_at = began

    def _newer(self, tip: Tip) -> View:
        old = self.view
        if tip.uuid != old.tip.uuid or tip.answer < old.tip.answer:
            old = View(Tip(tip.uuid, 0, 0), self._known, {}, 0)
        signatures = old.signatures
        if tip.kernel != old.tip.kernel:
            signatures = {**self._known, **self._store.signatures()}
        answers, out = self._store.answers_between(old.tip.answer, tip.answer)
        transfers = self._store.transfers(after=old.tip.transfer, upto=tip.transfer)
        tables = _extended(old.tables, answers, out, transfers)
        count = sum(map(len, tables.values())) if out else old.answers + len(answers)
        return View(tip, signatures, tables, count, aliases=aliases({key[1] for key in tables}, self._store.cards()))


def _extended(
    tables: Tables,
    answers: list[StoredAnswer],
    out: frozenset[int],
    transfers: Mapping[tuple[str, str], list[Transfer]],
) -> Tables:
    added: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in answers:
        added.setdefault((stored.answer.problem.op, stored.provenance.device.id), []).append(stored)
    found = {}
    for key in {**tables, **added}:
        table = tables.get(key, Table(key[1], ()))
        if out or key in added or key in transfers:
            table = table.extended(added.get(key, ()), out, transfers.get(key, ()))
        if len(table):
            found[key] = table
    return found
