"""Files of other systems in the database of this process, for code that runs inside of them.

No error reaches the engine. After the first one the files are no longer used, so that a process waits only once for a
database that does not respond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tuner.client.environment import is_disabled
from tuner.client.settings import ClientSettings
from tuner.client.warn import WarnOnce

if TYPE_CHECKING:
    from tuner.db.engines import EngineFiles

T = TypeVar("T")


class SharedFiles:
    """The files of one engine in the database that `TUNER_DB` names, else the one in the user's data folder.

    Args:
        engine: `triton`, `helion` or `inductor`.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._warn = WarnOnce(ClientSettings().max_warnings)
        self._is_usable = True

    def get(self, key: str) -> str | None:
        """Return the content of a file, or None if there is none or the database cannot be read."""
        return self._read(lambda files: files.get(self._engine, key))

    def newest(self, limit: int) -> list[str]:
        """Return the contents of the newest files, at most `limit`."""
        return self._read(lambda files: files.newest(self._engine, limit)) or []

    def put(self, key: str, content: str) -> None:
        """Write a file, replacing one with its key. An error is logged."""
        self._guarded(lambda files: files.put(self._engine, key, content), writes=True)

    def _read(self, read: Callable[[EngineFiles], T]) -> T | None:
        return self._guarded(read, writes=False)

    def _guarded(self, work: Callable[[EngineFiles], T], *, writes: bool) -> T | None:
        if not self._is_usable or is_disabled(self._warn):
            return None
        try:
            return _with_files(work, writes=writes)
        except Exception as error:  # noqa: BLE001  no error may stop an engine
            self._is_usable = False
            self._warn(f"files of {self._engine} are not shared by this process any more: {error}")
            return None


def _with_files(work: Callable[[EngineFiles], T], *, writes: bool) -> T | None:
    from tuner.db.store import Store, default_database

    database = default_database()
    if not writes and not database.exists():
        return None
    store = Store.open(database, create=writes)
    try:
        return work(store.engine_files)
    finally:
        store.close()
