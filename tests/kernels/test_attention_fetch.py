"""The role of attention that loads: each block of keys and values from its pages, in the order in which it is used."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from gluon_on_cpu import on_cpu

from tuner.kernels.attention.fetch import fetch
from tuner.kernels.spec import cdiv

HEAD, SEQUENCE, STRIDE, BLOCK_N, BLOCK_D = 3, 2, 40, 128, 128


class Copied(NamedTuple):
    """A copy by the copy engine: of `name`, from a corner, to a place in shared memory."""

    name: str
    corner: list[int]
    place: tuple[Any, ...]


class Address(NamedTuple):
    """An address in the page table. It is read only where a mask allows."""

    table: list[int]
    place: int

    def __add__(self, further: int) -> Address:  # type: ignore[override]
        return Address(self.table, self.place + further)


class Row(int):
    """A whole number with what device code asks of a scalar tensor."""

    def to(self, dtype: object) -> Row:
        return self


class Shared(NamedTuple):
    """Shared memory by its name and index."""

    place: tuple[Any, ...]

    def index(self, nth: Any) -> Shared:  # type: ignore[override]
        return Shared((*self.place, nth))


def read(address: Address, mask: bool = True, other: int = 0) -> int:
    return address.table[address.place] if mask else other


def copies(page: int, keys: int, blocks: range, stages: int, table: list[int]) -> list[Copied]:
    """Return the copies of keys and values that the role makes for some blocks, in their order."""
    found: list[Copied] = []

    def copy(source: Any, corner: list[int], full: Shared, tile: Shared) -> None:
        found.append(Copied(source.name, corner, tile.place))

    work = (0, Row(SEQUENCE), 0, HEAD, 0, 0, 1, 0, keys, blocks.start, blocks.stop, 0, 0)
    names = {
        "gl": SimpleNamespace(constexpr=Any, static_range=range, load=read, int64=None, cdiv=cdiv),
        "mbarrier": SimpleNamespace(wait=lambda *of: None, expect=lambda *of: None),
        "tma": SimpleNamespace(
            async_copy_global_to_shared=copy, viewed=lambda tile, dtype, shape, layout: Shared((*tile.place, "part"))
        ),
        "count_of": lambda sizes, splits: 1,
        "nth_of": lambda nth: nth,
        "work_of": lambda *of: work,
        "fetch_rows": lambda *of: None,
    }
    dtype = SimpleNamespace(primitive_bitwidth=16)
    box = [1, 1, page, 64] if 0 < page < BLOCK_N else [1, 1, BLOCK_N, BLOCK_D]
    q, k, v = (SimpleNamespace(name=name, block_shape=box, dtype=dtype, layout=None) for name in "qkv")
    tiles = [Shared((name,)) for name in ("q", "k", "v")]
    barriers = [Shared((name,)) for name in ("q_free", "q_full", "k_free", "k_full", "v_free", "v_full")]
    run: Callable[..., None] = on_cpu(fetch, names, {})
    run(
        q, k, v, *tiles, *barriers, None, None, None, Address(table, 0), STRIDE, None,
        128, BLOCK_N, BLOCK_D, stages, 1, page, True, False,
    )  # fmt: skip
    return found


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("blocks", [range(8), range(3, 7), range(1), range(5, 5)])
@pytest.mark.parametrize("page", [0, 16, 64, 128, 256])
def test_each_block_is_read_from_its_own_pages(page: int, blocks: range, stages: int) -> None:
    """The last block first; keys past the last are read from page 0, which exists."""
    keys = 1000  # the eighth block has 104
    table = [0] * SEQUENCE * STRIDE + Random(1).sample(range(1, 1000), cdiv(keys, page or keys))
    expected: list[Copied] = []
    for step, block in enumerate(reversed(blocks)):
        first = block * BLOCK_N
        for name in ("k", "v"):
            if 0 < page < BLOCK_N:
                for nth, n in enumerate(range(first, first + BLOCK_N, page)):
                    entry = table[SEQUENCE * STRIDE + n // page] if n < keys else 0
                    for panel in range(BLOCK_D // 64):
                        place = (name, step % stages, "part", panel * (BLOCK_N // page) + nth)
                        expected.append(Copied(name, [entry, HEAD, 0, panel * 64], place))
            else:
                entry = table[SEQUENCE * STRIDE + first // page] if page else SEQUENCE
                row = first % page if page else first
                expected.append(Copied(name, [entry, HEAD, row, 0], (name, step % stages)))
    assert copies(page, keys, blocks, stages, table) == expected
