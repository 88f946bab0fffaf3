"""Readers of stored answers beside the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tuner.lookup.bundle import Bundle
from tuner.records import Device, StoredAnswer, Transfer


class BundleReader:
    """The answers of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def devices(self) -> Sequence[str]:
        """Return the ids of the devices with answers, sorted."""
        return sorted({card.id for card in self._cards})

    def cards(self) -> Sequence[Device]:
        """Return the descriptions of the devices with answers."""
        return [*self._cards]

    def answers(self, *, op: str | None = None, device: str | None = None) -> Sequence[StoredAnswer]:
        """Return the answers, the oldest first."""
        return [
            stored
            for stored in self._bundle.answers
            if op in (None, stored.answer.problem.op) and device in (None, stored.provenance.device.id)
        ]

    def transfers(
        self, *, op: str | None = None, device: str | None = None
    ) -> Mapping[tuple[str, str], Sequence[Transfer]]:
        """Return the measured transfer losses by op and device, the oldest first."""
        places = {
            stored.id: (stored.answer.problem.op, stored.provenance.device.id)
            for stored in self.answers(op=op, device=device)
        }
        found: dict[tuple[str, str], list[Transfer]] = {}
        for transfer in self._bundle.transfers:
            if transfer.to_answer in places:
                found.setdefault(places[transfer.to_answer], []).append(transfer)
        return found

    @cached_property
    def _cards(self) -> set[Device]:
        return {stored.provenance.device for stored in self._bundle.answers}
