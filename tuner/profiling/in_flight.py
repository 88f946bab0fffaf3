"""Bytes that a program has requested from memory and not yet needed, while its instructions are evaluated."""

from __future__ import annotations

from collections.abc import Iterable


class InFlight:
    """Loads that no instruction has waited for. Loads return in order, so that one that is needed ends those before."""

    def __init__(self) -> None:
        self.most = 0
        """Most bytes that were in flight at once."""
        self._loads: dict[int, int] = {}
        self._loaded: dict[str, int] = {}
        self._count = 0
        self._group = 0
        self._groups: list[int] = []
        self._bulk: list[int] = []

    def load(self, bytes: int, registers: Iterable[str]) -> None:
        """Begin a load into registers."""
        self._count += 1
        self._loads[self._count] = bytes
        for register in registers:
            self._loaded[register] = self._count
        self._note()

    def move(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Copy, split or join registers, whose loads may be in flight."""
        last = max((self._loaded.get(source, 0) for source in sources), default=0)
        for target in targets:
            self._loaded[target] = last

    def need(self, registers: Iterable[str]) -> None:
        """Wait for the loads of registers."""
        if not self._loads:
            return
        last = max((self._loaded.get(register, 0) for register in registers), default=0)
        for number in [number for number in self._loads if number <= last]:
            del self._loads[number]

    def overwrite(self, registers: Iterable[str]) -> None:
        """Forget the loads into registers that now hold something else."""
        for register in registers:
            self._loaded.pop(register, None)

    def copy(self, bytes: int) -> None:
        """Begin an asynchronous copy, which belongs to the open group."""
        self._group += bytes
        self._note()

    def commit(self) -> None:
        """Close the group of asynchronous copies."""
        self._groups.append(self._group)
        self._group = 0

    def wait_group(self, newest: int) -> None:
        """Wait for all groups of copies but the `newest`."""
        self._groups = self._groups[max(0, len(self._groups) - newest) :]

    def expect(self, bytes: int) -> None:
        """Begin the copies of tensor memory that a barrier waits for."""
        self._bulk.append(bytes)
        self._note()

    def wait_barrier(self) -> None:
        """Wait for the oldest of those."""
        self._bulk = self._bulk[1:]

    def _note(self) -> None:
        now = sum(self._loads.values()) + self._group + sum(self._groups) + sum(self._bulk)
        self.most = max(self.most, now)
