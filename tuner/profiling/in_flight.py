"""Bytes that a program has requested from memory and not yet needed, while its instructions are evaluated."""

from __future__ import annotations

from collections.abc import Iterable


class InFlight:
    """Loads that no instruction has waited for. Loads return in order, so that one that is needed ends those before.

    Args:
        room: bytes of shared memory, which copies in flight cannot exceed; None if it is unknown. Roles of warps are
            evaluated one after the other, so that copies may seem to run ahead of those that wait for them.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self.most = 0
        """Most bytes that were in flight at once."""
        self._loads: dict[int, int] = {}
        self._loaded: dict[str, int] = {}
        self._count = 0
        self._group = 0
        self._groups: list[int] = []
        self._bulk: list[tuple[int | None, int]] = []

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

    def expect(self, bytes: int, barrier: int | None) -> None:
        """Begin the copies by descriptor that a barrier waits for, which is known by its address."""
        self._bulk.append((barrier, bytes))
        self._note()

    def wait_barrier(self, barrier: int | None) -> None:
        """Wait for the oldest copies of a barrier."""
        for place, (expected, _) in enumerate(self._bulk):
            if barrier is None or expected in (None, barrier):
                del self._bulk[place]
                return

    def _note(self) -> None:
        copied = self._group + sum(self._groups) + sum(bytes for _, bytes in self._bulk)
        copied = copied if self._room is None else min(copied, self._room)
        self.most = max(self.most, sum(self._loads.values()) + copied)
