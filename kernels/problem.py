"""Problems and configs of an op, each a frozen value with one canonical text; standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tuner.kernels.values import Value, stated


@dataclass(frozen=True)
class Problem:
    """One op at one size, dtype and set of attributes; made by `Signature.problem`.

    Problems with the same canonical `text` are equal. It omits attributes at their default, so that an attribute added
    later does not change the texts stored before.
    """

    op: str = field(compare=False)
    dims: tuple[tuple[str, int], ...] = field(compare=False)
    dtype: str = field(compare=False)
    attributes: tuple[tuple[str, Value], ...] = field(compare=False)
    text: str

    def __getitem__(self, name: str) -> Any:
        """Return the value of a dim, of an attribute, or of `dtype`."""
        return self.values[name]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Values of the dims, in the signature's order."""
        return tuple(size for _, size in self.dims)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """All values: dims, `dtype`, attributes."""
        return {**dict(self.dims), "dtype": self.dtype, **dict(self.attributes)}

    @property
    def stated(self) -> Mapping[str, Any]:
        """Values of the canonical text: dims, `dtype`, and the attributes that are not at their default."""
        return stated(self.values, self.text)


class Config(Mapping[str, Value]):
    """One choice for each knob; made by `Signature.config`. `text` is canonical: sorted, without defaults."""

    __slots__ = ("_values", "text")

    def __init__(self, values: Mapping[str, Value], text: str) -> None:
        self._values = dict(values)
        self.text = text

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def is_among(self, choices: Set[tuple[str, Value]]) -> bool:
        """Return whether each of its knobs and values is a pair of these."""
        return self._values.items() <= choices

    @property
    def stated(self) -> Mapping[str, Value]:
        """Knobs that are not at their default."""
        return stated(self._values, self.text)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value}' for name, value in self.items())})"
