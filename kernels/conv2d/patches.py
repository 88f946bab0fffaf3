"""Patches: the output pixels of a tile of variant `boxes`, and x as the copy engine reads it for them."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

from tuner.kernels.conv2d.layer import layer
from tuner.kernels.spec import Problem, cdiv, next_power_of_2

CHOICES = 3
"""Number of patches of each size that are tried."""


class Patch(NamedTuple):
    """Number of images of a tile, and of rows and columns of each: powers of two."""

    images: int
    rows: int
    columns: int

    def halved(self) -> Patch:
        """Return half of the patch, whose pixels are successive: half of the images, else of the rows or columns."""
        if self.images > 1:
            return self._replace(images=self.images // 2)
        if self.rows > 1:
            return self._replace(rows=self.rows // 2)
        return self._replace(columns=self.columns // 2)


def outputs(problem: Problem) -> Patch:
    """Return the numbers of images, rows and columns that are cut into patches.

    Pixels of a product of matrices are one long row.
    """
    found = layer(problem)
    if found.is_matrix:
        return Patch(1, 1, found.pixels)
    return Patch(found.images, found.rows.count, found.columns.count)


def count(problem: Problem, patch: Patch) -> int:
    """Return the number of patches."""
    images, rows, columns = outputs(problem)
    return cdiv(images, patch.images) * cdiv(rows, patch.rows) * cdiv(columns, patch.columns)


@cache
def patches(problem: Problem, pixels: int) -> tuple[Patch, ...]:
    """Return the patches with a number of pixels that cover the outputs with fewest tiles, widest first.

    A patch has at most the next power of two of images, rows and columns, and 256 of each, as many as the copy engine
    takes.
    """
    most = [min(256, next_power_of_2(size)) for size in outputs(problem)]
    powers = [[2**power for power in range(size.bit_length())] for size in most]
    found = [Patch(*sides) for sides in product(*powers) if sides[0] * sides[1] * sides[2] == pixels]
    return tuple(sorted(found, key=lambda patch: (count(problem, patch), -patch.columns, -patch.rows))[:CHOICES])


class View(NamedTuple):
    """x as the copy engine reads it, channels last: one element from each of `rows` x `columns` pixels is a phase."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    phases: tuple[int, int]
    """Rows and columns of a phase; (1, 1) if windows are neighbours."""
    longer: tuple[int, int] = (0, 0)
    """Number of phases, along rows and along columns, that have one pixel more than `shape` says. They come first."""

    def longer_shape(self, rows: bool, columns: bool) -> tuple[int, ...] | None:
        """Return the shape of the phases that are longer along rows, columns or both; None if there are none."""
        if (rows and not self.longer[0]) or (columns and not self.longer[1]):
            return None
        images, high, in_high, wide, across = self.shape
        if rows:
            high, in_high = high + 1, self.longer[0]
        if columns:
            wide, across = wide + 1, across // self.phases[1] * self.longer[1]
        return images, high, in_high, wide, across


class Lying(NamedTuple):
    """Elements from image to image, from row to row and from pixel to pixel, and those of a pixel that are read."""

    image: int
    row: int
    pixel: int
    channels: int


def view(problem: Problem, lying: Lying | None = None) -> View:
    """Return the view of x in which neighbouring windows are neighbours.

    With strides, pixels of a phase (row % stride, column % stride) are an image of their own: (B, H / stride, stride,
    W / stride, stride x C). If a stride does not divide the image, the first phases are longer. Windows of one pixel
    without padding have only the first phase.

    Args:
        lying: how x lies, if its pixels do not follow each other. They may overlap if the columns have a stride of 1.
    """
    found = layer(problem)
    rows, columns = found.rows, found.columns
    row = columns.size * found.channels
    image, row, pixel, C = lying or Lying(rows.size * row, row, found.channels, found.channels)
    if found.is_matrix:
        return View((1, 1, found.pixels, C), (found.pixels * pixel, found.pixels * pixel, pixel, 1), (1, 1))
    if found.taps == 1 and rows.padding == columns.padding == 0:
        shape = (found.images, rows.count, columns.count, C)
        return View(shape, (image, rows.stride * row, columns.stride * pixel, 1), (1, 1))
    if rows.stride == columns.stride == 1:
        return View((found.images, rows.size, columns.size, C), (image, row, pixel, 1), (1, 1))
    high, wide = rows.stride, columns.stride
    return View(
        (found.images, rows.size // high, high, columns.size // wide, wide * C),
        (image, high * row, row, wide * pixel, 1),
        (high, wide),
        (rows.size % high, columns.size % wide),
    )


def has_view(problem: Problem, block_k: int) -> bool:
    """Return whether each phase has a pixel or more, and each step along K lies in one phase."""
    seen = view(problem)
    return seen.phases == (1, 1) or (
        min(seen.shape[1], seen.shape[3]) > 0 and (seen.phases[1] == 1 or layer(problem).channels % block_k == 0)
    )


def is_even(problem: Problem) -> bool:
    """Return whether all phases are images of one size."""
    return view(problem).longer == (0, 0)
