"""The transactions that the parts of a store share."""

from __future__ import annotations

from tuner.db.opening import OpenDatabase
from tuner.db.unreadable import UnreadableRows


class Part:
    """A part of a store, with the transactions that it reads and writes in."""

    def __init__(self, opened: OpenDatabase) -> None:
        self._opened, self._database, self._engine = opened, opened.database, opened.engine
        self._read, self._write, self._write_in_order = opened.read, opened.write, opened.write_in_order
        self._put, self._take_turn = opened.put, opened.take_turn
        self.unreadable = UnreadableRows(str(opened.database))
        """Rows that were left out of a result, since they cannot be read."""
