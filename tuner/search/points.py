"""The configs of a space as points, whose distances the covariance weighs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from tuner.kernels.spec import Value
from tuner.search.covariance import Codes, Floats, Indices, blocks, coded

Flags = npt.NDArray[np.bool_]


class Points:
    """Points of configs, which are named by their index. Only the codes of all choices are kept.

    Args:
        knobs: for each knob, its value in each config. A knob with one value has no column.
    """

    def __init__(self, knobs: Iterable[Sequence[Value]]) -> None:
        changing = [coded(values) for values in knobs if len(set(values)) > 1]
        no_knob = np.zeros((1, 0), np.int16)
        self.codes: Codes = np.column_stack([codes for codes, _ in changing]) if changing else no_knob
        """Index of each knob's choice: (configs, knobs)."""
        of_knobs = [[*blocks(choices)] for _, choices in changing]
        self._columns = [np.hstack([columns for columns, _ in of_knob]) for of_knob in of_knobs]
        self.starts: Indices = np.cumsum([0, *(columns.shape[1] for columns, _ in chain(*of_knobs))])[:-1]
        """First column of each block."""
        self.log_weights: Floats = np.array([weight for _, weight in chain(*of_knobs)])
        """Prior mean of the log weight of each block."""

    def __len__(self) -> int:
        return len(self.codes)

    def of(self, configs: Indices) -> Floats:
        """Return a row for each config with the columns of its choices. Rows of all configs would fill the memory."""
        return np.hstack([columns[codes] for columns, codes in zip(self._columns, self.codes[configs].T, strict=True)])

    def distances(self, configs: Sequence[int]) -> Floats:
        """Return squared distances by block of columns: (blocks, configs, configs)."""
        points = self.of(np.array(configs))
        squares = (points[:, None] - points) ** 2
        return np.asarray(np.moveaxis(np.add.reduceat(squares, self.starts, axis=2), 2, 0))

    def near(self, config: int, others: Indices) -> Flags:
        """Return which of the others differ from a config in one knob."""
        return np.asarray((self.codes[others] != self.codes[config]).sum(1) == 1)

    def neglected(self, free: Flags, min_per_choice: int, max_choices: int) -> Flags:
        """Return which configs are free and have a choice that was taken too seldom.

        Args:
            free: which configs were not taken yet.
            min_per_choice: number of times that a choice is taken at least.
            max_choices: largest number of choices of a knob for which this holds.
        """
        taken = self.codes[~free]
        neglected = np.zeros(len(self), np.bool_)
        for codes, taken_codes in zip(self.codes.T, taken.T, strict=True):
            counts = np.bincount(taken_codes, minlength=int(codes.max()) + 1)
            if len(counts) <= max_choices:
                neglected |= (counts < min_per_choice)[codes]
        return neglected & free
