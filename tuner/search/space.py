"""The feasible configs of a problem on a card, kept as one number each."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index as as_index
from typing import overload

from tuner.kernels.spec import Config, Kernel, Limits, Problem, Signature, Value
from tuner.kernels.values import canonical_text
from tuner.kernels.watched import Watched


class Space(Sequence[Config]):
    """Configs in a fixed order, each at most once, with an index of each."""

    @overload
    def __getitem__(self, index: int) -> Config: ...

    @overload
    def __getitem__(self, index: slice) -> list[Config]: ...

    def __getitem__(self, index: int | slice) -> Config | list[Config]:
        """Return the config at an index, or a list of those of a slice."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = as_index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"a space of {len(self):,} configs has no index {place}")
        return self._at(place % len(self))

    def __contains__(self, config: object) -> bool:
        """Return whether a config is in the space."""
        return self.find(config) is not None

    def index(self, config: object, start: int = 0, stop: int | None = None) -> int:
        """Return the index of a config. Raises ValueError if it is not in the space."""
        found = self.find(config)
        if found is None or not start <= found < (len(self) if stop is None else stop):
            raise ValueError(f"{config!r} is not in the space")
        return found

    @abstractmethod
    def find(self, config: object) -> int | None:
        """Return the index of a config, or None if it is not in the space."""

    @abstractmethod
    def column(self, knob: str) -> Sequence[Value]:
        """Return the value of a knob in each config."""

    @abstractmethod
    def kept(self, keeps: Callable[[Config], bool]) -> Space:
        """Return the configs that a function keeps, in the same order."""

    @abstractmethod
    def _at(self, place: int) -> Config:
        """Return the config at an index from 0 on."""


class ListedSpace(Space):
    """A space of given configs."""

    def __init__(self, configs: Collection[Config]) -> None:
        self._configs = list(configs)
        self._index = {config: index for index, config in enumerate(self._configs)}

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs)

    def find(self, config: object) -> int | None:
        """Return the index of a config, or None if it is not in the space."""
        return self._index.get(config)  # type: ignore[call-overload, no-any-return]

    def column(self, knob: str) -> Sequence[Value]:
        """Return the value of a knob in each config."""
        return [config[knob] for config in self._configs]

    def kept(self, keeps: Callable[[Config], bool]) -> ListedSpace:
        """Return the configs that a function keeps, in the same order."""
        return ListedSpace([config for config in self._configs if keeps(config)])

    def _at(self, place: int) -> Config:
        return self._configs[place]


@dataclass(frozen=True)
class _Part:
    """All combinations of some choices of the knobs, numbered in the order of `itertools.product` from `first` on."""

    first: int
    choices: Mapping[str, tuple[Value, ...]]
    texts: Mapping[str, tuple[str, ...]]
    """Canonical text of each choice, sorted by knob; empty for a default."""
    codes: Mapping[str, Mapping[Value, int]]
    """Index of each choice."""
    strides: Mapping[str, int]
    """Difference of the numbers of two combinations with adjacent choices of a knob."""

    @staticmethod
    def of(signature: Signature, choices: Mapping[str, tuple[Value, ...]], first: int) -> _Part:
        some = {name: of[0] for name, of in choices.items()}
        canonical = {
            name: tuple(signature.config({**some, name: choice})[name] for choice in of) for name, of in choices.items()
        }
        defaults = {knob.name: knob.default for knob in signature.knobs}
        texts = {
            name: tuple("" if value == defaults[name] else canonical_text({name: value}) for value in canonical[name])
            for name in sorted(canonical)
        }
        codes = {name: {value: code for code, value in enumerate(of)} for name, of in canonical.items()}
        strides, stride = dict[str, int](), 1
        for name in reversed(canonical):
            strides[name], stride = stride, stride * len(canonical[name])
        return _Part(first, canonical, texts, codes, {name: strides[name] for name in canonical})

    @property
    def end(self) -> int:
        """Number after that of the last combination."""
        return self.first + prod(map(len, self.choices.values()))

    def number(self, config: Mapping[str, Value]) -> int | None:
        """Return the number of a config, or None if it is no combination of the part's choices."""
        number = self.first
        for name, codes in self.codes.items():
            code = codes.get(config[name])
            if code is None:
                return None
            number += code * self.strides[name]
        return number

    def config(self, number: int) -> Config:
        """Return the config of a number."""
        rank = number - self.first
        codes = {name: rank // stride % len(self.choices[name]) for name, stride in self.strides.items()}
        text = " ".join(filter(None, [of[codes[name]] for name, of in self.texts.items()]))
        return Config({name: self.choices[name][code] for name, code in codes.items()}, text)


class FeasibleSpace(Space):
    """The feasible configs of a problem: 8 bytes for each, from which a config is made when it is asked for.

    The combinations of the choices are numbered part by part, in the order of the choices, so that the numbers of the
    feasible ones ascend.
    """

    def __init__(self, parts: list[_Part], numbers: array[int]) -> None:
        self._parts, self._numbers = parts, numbers

    @staticmethod
    def of(kernel: Kernel, problem: Problem, limits: Limits) -> FeasibleSpace:
        """Return the configs that the kernel's rules allow."""
        space, first = FeasibleSpace([], array("Q")), 0
        for choices in _choices(kernel):
            part, before = _Part.of(kernel.signature, choices, first), len(space)
            found = _allowed(kernel, choices, problem, limits)
            space._numbers.extend(first + rank for rank, values in found if not before or values not in space)
            space._parts.append(part)
            first = part.end
        return space

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Config]:
        return map(self._made, self._numbers)

    def find(self, config: object) -> int | None:
        """Return the index of a config, or None if it is not in the space."""
        if not isinstance(config, Mapping) or config.keys() != self._parts[0].choices.keys():
            return None
        for part in self._parts:
            number = part.number(config)
            if number is not None:
                place = bisect_left(self._numbers, number)
                if place < len(self._numbers) and self._numbers[place] == number:
                    return place
        return None

    def column(self, knob: str) -> Sequence[Value]:
        """Return the value of a knob in each config."""
        values, start = list[Value](), 0
        for part in self._parts:
            end = bisect_left(self._numbers, part.end, start)
            choices, stride, first, count = part.choices[knob], part.strides[knob], part.first, len(part.choices[knob])
            values += [choices[(number - first) // stride % count] for number in self._numbers[start:end]]
            start = end
        return values

    def kept(self, keeps: Callable[[Config], bool]) -> FeasibleSpace:
        """Return the configs that a function keeps, in the same order."""
        numbers = (number for number in self._numbers if keeps(self._made(number)))
        return FeasibleSpace(self._parts, array("Q", numbers))

    def _at(self, place: int) -> Config:
        return self._made(self._numbers[place])

    def _made(self, number: int) -> Config:
        part = self._parts[0]
        if number >= part.end:
            part = next(part for part in self._parts if number < part.end)
        return part.config(number)


class Unseen(Collection[Config]):
    """The configs of a space that were not taken yet, in its order."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._taken = bytearray(len(space))
        self._left = len(space)
        self._first = 0
        """Index below which all are taken."""

    def __len__(self) -> int:
        return self._left

    def __contains__(self, config: object) -> bool:
        place = self._space.find(config)
        return place is not None and not self._taken[place]

    def __iter__(self) -> Iterator[Config]:
        place = self._next(self._first)
        while place < len(self._taken):
            yield self._space[place]
            place = self._next(place + 1)

    def take(self, config: Config) -> Config | None:
        """Take a config and return the space's own; None if it is not in the space or was taken."""
        place = self._space.find(config)
        if place is None or self._taken[place]:
            return None
        self._taken[place] = 1
        self._left -= 1
        self._first = self._next(self._first)
        return self._space[place]

    def _next(self, place: int) -> int:
        """Return the first index from `place` on that is not taken; the number of configs if there is none."""
        found = self._taken.find(0, place)
        return len(self._taken) if found < 0 else found


def as_space(configs: Collection[Config]) -> Space:
    """Return configs as a space: themselves if they are one."""
    return configs if isinstance(configs, Space) else ListedSpace(configs)


def feasible(kernel: Kernel, problem: Problem, limits: Limits) -> Iterator[Config]:
    """Yield the configs that the kernel's rules allow, part by part and in the order of the choices."""
    for choices in _choices(kernel):
        for _, values in _allowed(kernel, choices, problem, limits):
            yield kernel.signature.config(values)


def feasible_among(kernel: Kernel, problem: Problem, limits: Limits, configs: Collection[Config]) -> ListedSpace:
    """Return those of some configs that the kernel's rules allow, in the same order."""
    knobs = {knob.name for knob in kernel.signature.knobs}

    def allowed(config: Config) -> bool:
        return (
            config.keys() == knobs
            and any(all(config[name] in choices[name] for name in knobs) for choices in _choices(kernel))
            and bool(kernel.valid(problem, config, limits))
        )

    return ListedSpace([config for config in configs if allowed(config)])


def common(spaces: Sequence[Collection[Config]]) -> Space:
    """Return the configs that are in all of these spaces, in the order of the first."""
    first, *others = map(as_space, spaces)
    return first.kept(lambda config: all(config in other for other in others)) if others else first


def _choices(kernel: Kernel) -> Iterator[Mapping[str, tuple[Value, ...]]]:
    """Yield the choices of each knob, for each part of a kernel."""
    for part in kernel.parts:
        yield {knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs}


def _allowed(
    kernel: Kernel, choices: Mapping[str, tuple[Value, ...]], problem: Problem, limits: Limits
) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield each feasible combination of some choices, with its number among all of them.

    A refusal depends on the knobs that a rule has read. All other combinations with the same values up to the last of
    these are passed over.
    """
    varying = [(name, of) for name, of in choices.items() if len(of) > 1]
    steps = [prod(len(of) for _, of in varying[place + 1 :]) for place in range(len(varying))]
    values = {name: of[0] for name, of in choices.items() if of}
    places = dict.fromkeys(choices, -1) | {name: place for place, (name, _) in enumerate(varying)}
    watched, total, rank = Watched(values, places), prod(map(len, choices.values())), 0
    while rank < total:
        place = kernel.valid.last_refused(problem, watched, limits)
        if place is None:
            yield rank, dict(values)
            place = len(varying) - 1
        if place < 0:
            break
        rank = (rank // steps[place] + 1) * steps[place]
        while place > 0 and rank % steps[place - 1] == 0:
            place -= 1  # the knob before takes its next value too
        for (name, of), step in zip(varying[place:], steps[place:], strict=True):
            values[name] = of[rank // step % len(of)]
