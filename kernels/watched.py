"""Values of knobs that record which a constraint reads, so that a list of all combinations may skip many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.kernels.values import Value


class Watched(Mapping[str, Value]):
    """One value for each knob, and the last knob that was read since `last_place` was set to -1.

    What depends only on knobs up to the last one read is the same for all combinations that share their values.

    Args:
        values: read at each access, so that the caller may change them.
        places: place of each knob among those that vary, from 0 on; -1 for a knob that does not.
    """

    __slots__ = ("_places", "_values", "last_place")

    def __init__(self, values: Mapping[str, Value], places: Mapping[str, int]) -> None:
        self._values, self._places = values, places
        self.last_place = -1
        """Largest place of a knob that was read; -1 if none was."""

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        place = self._places[name]
        if place > self.last_place:
            self.last_place = place
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values  # the same for all combinations

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: Mapping[str, Value]) -> dict[str, Value]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Value]) -> dict[str, Value]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, Value]:
        """Return a dictionary of all values; each counts as read."""
        return dict(self)
