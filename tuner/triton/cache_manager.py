"""Triton's cache on disk, whose results of `triton.autotune` are shared through the store.

    TRITON_CACHE_MANAGER=tuner.triton:CacheManager TRITON_CACHE_AUTOTUNING=1

With the second variable Triton keeps `KERNEL.autotune.json`, the timings of all configs of a problem, under a hash of
its own version, the kernel's source, the environment, the problem and the configs. This manager also stores the file in
the database, by that hash and the card, so that other folders and machines need not measure again. All other files are
only on disk.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from triton.runtime.cache import FileCacheManager

from tuner.client.engine_files import SharedFiles
from tuner.measure import device as cards

_log = logging.getLogger("tuner")
_SUFFIX = ".autotune.json"
_files = SharedFiles("triton")


class CacheManager(FileCacheManager):  # type: ignore[misc]  # Triton has no types here
    """Triton's own manager of files, with the results of `triton.autotune` in the store."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        self._is_cache = not (override or dump)

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file in the cache, or None. A file that only the store has is written there first."""
        path: str | None = super().get_file(filename)
        if path is not None or not self._is_shared(filename):
            return path
        try:
            content = _files.get(self._shared_key(filename))
            return super().put(content, filename, binary=False) if content is not None and _is_sound(content) else None
        except Exception as error:  # noqa: BLE001  no error may stop Triton
            _log.warning("%s is tuned again: %s", filename, error)
            return None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write a file, and return its path."""
        path: str = super().put(data, filename, binary=binary)
        if self._is_shared(filename):
            try:
                _files.put(self._shared_key(filename), data.decode() if isinstance(data, bytes) else str(data))
            except Exception as error:  # noqa: BLE001
                _log.warning("%s is not shared: %s", filename, error)
        return path

    def _is_shared(self, filename: str) -> bool:
        return self._is_cache and filename.endswith(_SUFFIX)

    def _shared_key(self, filename: str) -> str:
        """Return the card, Triton's hash and the name. The hash has the architecture, which several cards share."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        index = cuda.current_device() if cuda is not None and cuda.is_initialized() else 0
        return f"{cards.describe(index).id}/{self.key}/{filename}"


def _is_sound(content: str) -> bool:
    """Return whether Triton can read the timings of a file."""
    try:
        timings = json.loads(content)["configs_timings"]
        return bool(timings) and all("kwargs" in config for config, _ in timings)
    except (ValueError, KeyError, TypeError):
        return False
