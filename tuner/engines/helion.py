"""Helion's remote cache of tuned configs, in the store.

    HELION_AUTOTUNE_CACHE=RemoteAutotuneCache HELION_REMOTE_CACHE_BACKEND=tuner.engines.helion.StoreBackend

Helion's key is a hash over the kernel's source, its inputs, the card and the versions, so equal keys may share a
config on any machine. `list` lets a search start from the newest configs of all machines.
"""

from __future__ import annotations

import json

from helion.autotuner.remote_cache import RemoteCacheBackend

from tuner.client.engine_files import SharedFiles

_NEWEST = 1000
"""Number of configs that are listed if no limit is given."""
_files = SharedFiles("helion")


class StoreBackend(RemoteCacheBackend):  # type: ignore[misc]  # Helion is not installed where types are checked
    """Configs in the database that `TUNER_DB` names, else the one in the user's data folder."""

    def get(self, key: str) -> str | None:
        """Return the JSON of a tuned config, or None."""
        data = _files.get(key)
        return data if data is not None and _is_sound(data) else None

    def put(self, key: str, data: str) -> None:
        """Store the JSON of a tuned config."""
        _files.put(key, data)

    def list(self, max_results: int | None = None) -> list[str]:
        """Return the JSON of the newest configs, the newest first."""
        return [data for data in _files.newest(_NEWEST if max_results is None else max_results) if _is_sound(data)]


def _is_sound(data: str) -> bool:
    """Return whether Helion finds a config in the JSON."""
    try:
        return isinstance(json.loads(data)["config"], str)
    except (ValueError, KeyError, TypeError):
        return False
