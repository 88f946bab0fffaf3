"""The grid of a call for each config: the caller's function, evaluated for the knobs that it depends on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from tuner.captured.call import CapturedCall, Grids
from tuner.captured.widened import choices
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Value
from tuner.triton.refusal import CannotCapture

_LARGEST = 2**31 - 1
_Values = tuple[Value, ...]


def grids_of(call: CapturedCall, autotuner: Autotuner, given: Mapping[str, Any], grid: Any, most: int) -> Grids:
    """Return the grids of a call's configs and of their neighbours.

    Args:
        given: all arguments of the call by name, with `grid` and `warmup`.
        grid: the grid as the caller gives it.
        most: number of grids that are evaluated.

    Raises:
        CannotCapture: there is no grid, or it can be evaluated for no config.
    """
    if not callable(grid):
        return Grids((), {(): _checked(grid)})
    evaluation = _Evaluation(autotuner, given, grid)
    knobs: tuple[str, ...] = ()
    while True:
        sizes, read = _table(evaluation, call.configs, knobs, most)
        if read <= set(knobs):
            break
        knobs = tuple(name for name in call.configs[0] if name in {*knobs, *read})
    if not sizes:
        raise CannotCapture(f"the grid is evaluated for each config, and raises {evaluation.error}; correct it")
    return Grids(knobs, sizes)


def _table(
    evaluation: _Evaluation, configs: Sequence[Mapping[str, Value]], knobs: tuple[str, ...], most: int
) -> tuple[dict[_Values, tuple[int, ...]], set[str]]:
    """Return the grids by the values of some knobs, and the knobs that were read."""
    sizes: dict[_Values, tuple[int, ...]] = {}
    read: set[str] = set()
    for values in _combined(configs, knobs, most):
        size, own = evaluation.of({**configs[0], **dict(zip(knobs, values, strict=True))})
        read |= own
        if size is not None:
            sizes[values] = size
    return sizes, read & set(configs[0])


def _combined(configs: Sequence[Mapping[str, Value]], knobs: tuple[str, ...], most: int) -> Iterator[_Values]:
    """Yield the values of knobs: those of the configs, then all others of them and their neighbours unless too many."""
    listed = list(dict.fromkeys(tuple(config[name] for name in knobs) for config in configs))[:most]
    yield from listed
    widened = [choices(name, [config[name] for config in configs]) for name in knobs]
    if prod(map(len, widened)) <= most:
        yield from (values for values in product(*widened) if values not in set(listed))


class _Evaluation:
    """Evaluates a grid with the arguments that Triton passes to it.

    Args:
        given: the arguments of the call by name.
    """

    def __init__(self, autotuner: Autotuner, given: Mapping[str, Any], grid: Any) -> None:
        self._given, self._grid = given, grid
        self._dtypes = {
            name for config in autotuner.configs for name, value in config.kwargs.items() if _is_dtype(value)
        }
        self._heuristics: list[tuple[str, Any]] = []
        inner = autotuner.fn
        while isinstance(inner, Heuristics):
            self._heuristics += inner.values.items()
            inner = inner.fn
        if not isinstance(inner, JITFunction):
            raise CannotCapture(
                f"only heuristics may be between autotune and jit, not a {type(inner).__name__}; remove it"
            )
        signature = inspect.signature(inner.fn).parameters
        self._parameters = set(signature)
        self._defaults = {name: each.default for name, each in signature.items() if each.default is not each.empty}
        self.error = ""

    def of(self, config: Mapping[str, Value]) -> tuple[tuple[int, ...] | None, set[str]]:
        """Return the grid of a config, None if evaluating it fails, and the knobs that it depends on."""
        options = {name: self._value(name, value) for name, value in config.items() if value is not None}
        values: dict[str, Any] = {**self._given, **options}
        reads: dict[str, set[str]] = {name: {name} for name in config}
        given = _Read(values, reads)
        try:
            for name, heuristic in self._heuristics:
                given = _Read(values, reads)
                values[name] = heuristic(given)
                reads[name] = given.read
            everything = {**self._defaults, **values}
            given = _Read({name: each for name, each in everything.items() if name in self._parameters}, reads)
            return _checked(self._grid(given)), given.read
        except Exception as error:  # noqa: BLE001  the caller's code was not written for such values
            self.error = self.error or f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return None, given.read

    def _value(self, name: str, value: Value) -> Any:
        return getattr(tl, str(value)) if name in self._dtypes else value


class _Read(dict[str, Any]):
    """Arguments by name that note which knobs are read.

    Args:
        reads: knobs that each name depends on; other names depend on none.
    """

    def __init__(self, values: Mapping[str, Any], reads: Mapping[str, set[str]]) -> None:
        super().__init__(values)
        self._reads = reads
        self.read: set[str] = set()

    def _note(self, name: Any) -> None:
        self.read |= self._reads.get(name, set())

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._note(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or `default`."""
        self._note(name)
        return super().get(name, default)

    def _note_all(self) -> None:
        for name in super().__iter__():
            self._note(name)

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:
        """Return the names; all are read."""
        self._note_all()
        return super().keys()

    def values(self) -> Any:
        """Return the values; all are read."""
        self._note_all()
        return super().values()

    def items(self) -> Any:
        """Return names and values; all are read."""
        self._note_all()
        return super().items()


def _is_dtype(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tl.constexpr) else value, tl.dtype)


def _checked(grid: Any) -> tuple[int, ...]:
    """Return a grid as numbers. Raises CannotCapture if it is none."""
    try:
        sizes = tuple(int(size) for size in grid)
    except (TypeError, ValueError) as error:
        raise CannotCapture(f"a grid is a tuple of one to three numbers, not {shown(grid)}; correct it") from error
    if not 1 <= len(sizes) <= 3 or not all(0 <= size <= _LARGEST for size in sizes):
        raise CannotCapture(f"a grid is a tuple of one to three numbers, not {shown(sizes)}; correct it")
    return sizes
