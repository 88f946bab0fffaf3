"""The one lookup of stored answers, for the command line, the HTTP service and the client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from tuner.kernels.spec import Kernel, Problem, Signature
from tuner.lookup import devices
from tuner.lookup.completed import completed
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult, Table
from tuner.records import Device, Environment, StoredAnswer, Transfer

Fits = Callable[[Problem, StoredAnswer], bool]
"""Return whether the config of another problem's answer is valid for a problem."""


class AnswerReader(Protocol):
    """Stored answers, such as those of a database or of a bundle."""

    def devices(self) -> Sequence[str]:
        """Return the ids of the devices with answers, sorted."""
        ...

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of all known devices, with answers or without."""
        ...

    def answers(self, *, op: str | None = None, device: str | None = None) -> Iterable[StoredAnswer]:
        """Return the answers in service, the oldest first."""
        ...

    def transfers(
        self, *, op: str | None = None, device: str | None = None
    ) -> Mapping[tuple[str, str], Collection[Transfer]]:
        """Return the measured transfer losses by op and device, the oldest first."""
        ...


class Tables(Protocol):
    """Tables of answers: read on demand, kept in memory by the HTTP service, or kept by a client."""

    def devices(self) -> Sequence[str]:
        """Return the ids of the devices with answers, sorted."""
        ...

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of all known devices, with answers or without."""
        ...

    def table(self, op: str, device: str) -> Table:
        """Return the answers of an op on a device with the transfer losses; the table may be empty."""
        ...


class StoredTables:
    """Tables of a reader, each read on first use and kept."""

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader
        self._tables: dict[tuple[str, str], Table] = {}

    def devices(self) -> Sequence[str]:
        """Return the ids of the devices with answers, sorted."""
        return self._reader.devices()

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of all known devices, with answers or without."""
        return self._reader.cards()

    def table(self, op: str, device: str) -> Table:
        """Return the answers of an op on a device with the transfer losses; the table may be empty."""
        key = (op, device)
        if key not in self._tables:
            transfers = self._reader.transfers(op=op, device=device).get(key, ())
            self._tables[key] = Table(device, self._reader.answers(op=op, device=device), transfers)
        return self._tables[key]


class LookupService:
    """Lookup of stored answers.

    Device names and aliases are resolved as they are at the first use, and stay so for the life of the service.

    Args:
        tables: the stored answers.
        card: card of the caller, which queries without a device are about.
        environment: software of the caller, which an answer is compared with.
        device: id of the device of queries that name none; None is that of `card`.
        cards: cards beside the stored ones whose names may be aliases, `card` among them or not.
        fits: whether the config of another problem's answer is valid; None takes every config for valid.
        refused: the reason for which an answer may not serve, such as that the kernel no longer has its config.
        signature_of: the newest signature of an op, whose knobs the configs of results have; None leaves them as they
            are stored.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        card: Device | None = None,
        environment: Environment | None = None,
        device: str | None = None,
        cards: Sequence[Device] = (),
        fits: Fits | None = None,
        refused: Callable[[StoredAnswer], str] | None = None,
        signature_of: Callable[[str], Signature | None] = lambda op: None,
    ) -> None:
        self._tables, self._environment, self._fits, self._refused = tables, environment, fits, refused
        self._signature_of = signature_of
        self._cards = cards if card is None else (*cards, card)
        self._own = device if device is not None or card is None else card.id

    @cached_property
    def devices(self) -> Sequence[str]:
        """Ids of the devices with answers, sorted."""
        return self._tables.devices()

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Ids of cards without answers, each with the id under which the same card's answers are stored."""
        return devices.aliases(self.devices, [*self._tables.cards(), *self._cards])

    @property
    def own_device(self) -> str | None:
        """Id under which the answers of the caller's device are stored; None without a device of the caller."""
        return None if self._own is None else self.stored_as(self._own)

    def stored_as(self, device: str) -> str:
        """Return the id under which the answers of a device are stored; an unknown name is returned as it is."""
        return self.aliases.get(device, device)

    def resolve_device(self, named: str | None = None, *, known: Collection[str] = ()) -> str:
        """Return the device that a query is about: the one it names, else the caller's, else the only one stored.

        Args:
            named: id or alias of a device.
            known: ids that are accepted beside those of the devices with answers.

        Raises:
            UnknownName: no card and no answer has the name.
            UsageError: no device is named, and there is not exactly one with answers.
        """
        stored = sorted({*self.devices, *known}) if known else self.devices
        return devices.resolve_device(named, self._own, stored, self.aliases)

    def table(self, op: str, device: str) -> Table:
        """Return the answers of an op on a resolved device; the table may be empty."""
        return self._tables.table(op, device)

    def query(
        self,
        problem: Problem,
        *,
        device: str | None = None,
        triton: str | None = None,
        kernel: Callable[[], Kernel | None] = lambda: None,
        policy: str | None = None,
        strict: bool = False,
    ) -> Query:
        """Return the query for a problem, compared with the caller's environment unless another one is named.

        Args:
            device: device that the query names, whose environment is not known here.
            triton: Triton version to compare with in place of the caller's environment.
            kernel: returns the caller's kernel, whose hashes are compared; called only if they are.
            policy: measuring policy to compare with.
            strict: take neither a stale answer nor a neighbour's.
        """
        if self._environment is None or device is not None or triton is not None:
            return Query(problem, triton=triton, policy=policy, strict=strict)
        code = kernel()
        source, definition = (None, None) if code is None else (code.source, code.definition)
        return Query.for_environment(
            problem, self._environment, source, definition=definition, policy=policy, strict=strict
        )

    def find(self, query: Query, device: str | None = None, *, neighbours: bool = True) -> LookupResult:
        """Return the answer for a query, with the alias if the device has another name where its answers are stored.

        Args:
            device: id or alias of the device; None is the caller's, else the only one stored.
            neighbours: whether the answer may be another problem's.

        Raises:
            UnknownName: no card and no answer has the name.
            UsageError: no device is named, and there is not exactly one with answers.
        """
        resolved = self.resolve_device(device)
        found = self.find_on(resolved, query, neighbours=neighbours)
        called = device or self._own
        return found if called in (None, resolved) else replace(found, alias=called)

    def find_on(self, device: str, query: Query, *, neighbours: bool = True) -> LookupResult:
        """Return the answer for a query on a resolved device."""
        table = self.table(query.problem.op, device)
        found = table.find(query, lambda stored: neighbours and self._is_valid(query.problem, stored), self._refused)
        if found.stored is None or (stored := self.completed(found.stored)) is found.stored:
            return found
        return replace(found, stored=stored)

    def neighbour_on(self, device: str, query: Query) -> LookupResult | None:
        """Return the result with another problem's answer on a resolved device, or None if none serves.

        Far faster than `find_on` if none does, since that also names the nearest problems.
        """
        table = self.table(query.problem.op, device)
        return table.neighbour(query, lambda stored: self._is_valid(query.problem, stored))

    def completed(self, stored: StoredAnswer) -> StoredAnswer:
        """Return an answer whose config has the knobs of the newest signature of its op, as in results of lookups."""
        return completed(stored, self._signature_of(stored.answer.problem.op))

    def refusal(self, stored: StoredAnswer) -> str:
        """Return the reason for which an answer may not serve, or an empty text."""
        return "" if self._refused is None else self._refused(stored)

    def _is_valid(self, problem: Problem, stored: StoredAnswer) -> bool:
        return not self.refusal(stored) and (self._fits is None or self._fits(problem, stored))
