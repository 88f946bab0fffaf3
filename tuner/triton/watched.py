"""The `cache` of an autotuner, watched for changes from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class WatchedCache(dict[Any, Any]):
    """The configs that an autotuner has chosen, by key. A change of one that is in use drops the kept launches."""

    def __init__(self, values: Mapping[Any, Any], changed: Callable[[], object]) -> None:
        super().__init__(values)
        self._changed = changed

    def __setitem__(self, key: Any, value: Any) -> None:
        other = key in self and self[key] is not value
        super().__setitem__(key, value)
        if other:
            self._changed()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._changed()

    def __ior__(self, values: Any) -> Any:  # type: ignore[misc]
        self.update(values)
        return self

    def clear(self) -> None:
        """Drop all."""
        super().clear()
        self._changed()

    def pop(self, *args: Any) -> Any:
        """Drop one, as a dictionary does."""
        try:
            return super().pop(*args)
        finally:
            self._changed()

    def popitem(self) -> tuple[Any, Any]:
        """Drop the newest."""
        try:
            return super().popitem()
        finally:
            self._changed()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several."""
        super().update(*args, **kwargs)
        self._changed()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
