"""Tiles of warps with roles: how they are cut into what Hopper's instructions take, and what they need of the card.

The same rules hold for elements of 8 and of 16 bits. Standard library only: the space and the launch both use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.spec import cdiv

ROWS = (64, 128, 192, 256)
"""Rows of the left factor in a tile, of all groups."""
WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 112, 128, 136, 144, 160, 176, 192, 200, 208, 224, 256)
"""Rows of the right factor in a tile, which are its columns: sums of up to three powers of two."""
SIDES = tuple(sorted({*WIDTHS, *ROWS}))
"""Rows or columns of the output in a tile."""
SHARED_BYTES = 232_448
"""Shared memory of a program on Hopper, the only architecture with wgmma, in bytes."""
BARRIER_BYTES = 1024
"""Bytes of shared memory for barriers and for the arguments of the roles."""
CHUNK_BYTES = 128
"""Bytes of a row that are stored at once: the longest swizzle."""
HELD = {1: 192, 2: 192, 3: 100}
"""Most sums and products in the registers of a thread, by the number of groups that share them; the rest holds
addresses."""
MOST_PARTS = 3
"""Most powers of two that a tile's columns are composed of; each has descriptors of its own."""
MOST_WALKED = 8
"""Most rows of tiles, or columns, that are walked together."""
MOST_DEEP_COLUMNS = 64
"""Most columns of a tile of 64 rows whose steps may take 256 bytes along K: fewer, larger loads."""
FEWEST_STAGES = 3
"""Fewest stages: with two, the copy engine waits for the tensor cores."""


WITHOUT_ROLES: Mapping[str, int] = {"GROUPS": 2, "WIDE": False}
"""Knobs of warps with roles in the configs of other variants, which do not use them."""
ONE_CHOICE: Mapping[str, tuple[int, ...]] = {name: (value,) for name, value in WITHOUT_ROLES.items()}
"""The same as choices of a variant."""


def parts(columns: int, promoted: bool = False) -> tuple[int, ...]:
    """Return the columns of each wgmma of a step: powers of two, the largest first, such as 128 and 32 of 160.

    Args:
        promoted: whether products leave the tensor cores in each step; they then have up to 128 columns, not 256.
    """
    most = 128 if promoted else 256
    found = [most] * (columns // most)
    rest = columns % most
    while rest:
        found.append(1 << rest.bit_length() - 1)
        rest -= found[-1]
    return tuple(found)


_PRODUCTS = {width: len(parts(width)) for width in WIDTHS}
"""Products of a step with each width."""


def workers(groups: int) -> tuple[list[int], list[int]]:
    """Return the warps and the registers of a thread of the roles after the first: the other groups, and the fetcher.

    A multiprocessor has 65,536 registers. The first group gets what the others leave.
    """
    registers: dict[int, list[int]] = {1: [], 2: [240], 3: [160, 160]}
    return [4] * (groups - 1) + [1], [*registers[groups], 24]


@dataclass(frozen=True)
class Roles:
    """The tile of a program as wgmma computes it: rows of the left factor by rows of the right one as its columns.

    `rows` are those that one group multiplies. `element` and `stored` are the bytes of an element of the factors and of
    the output. `scale_bytes` are those of a row of the left factor, of which each stage has a scale. If `promoted`,
    products leave the tensor cores in each step, 128 columns at a time or all if `wide`, and are added by threads.
    """

    groups: int
    rows: int
    columns: int
    block_k: int
    element: int
    most_stages: int
    scale_bytes: int = 0
    stored: int = 2
    promoted: bool = False
    wide: bool = False
    """True if one wgmma computes all columns, by PTX, instead of one for each power of two."""
    turns: int = 1
    """Number of tiles in work at once, each by groups of its own, which take turns to multiply (pingpong)."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Columns of each wgmma of a step, if it is not `wide`."""
        return parts(self.columns, self.promoted)

    @property
    def held(self) -> int:
        """Number of sums and products that each thread holds."""
        halves = 1 if self.is_shallow else 2
        multiplied = (halves * self.columns if self.wide else self.parts[0]) if self.promoted else 0
        return self.rows * (self.columns + multiplied) // 128

    @property
    def holds_sums(self) -> bool:
        """True if the registers hold all sums and products."""
        return self.held <= HELD[self.all_groups]

    @property
    def all_groups(self) -> int:
        """Number of groups of a program."""
        return self.groups * self.turns

    @property
    def left_rows(self) -> int:
        """Rows of the left factor in a tile."""
        return self.groups * self.rows

    def chunk(self, part: int) -> int:
        """Return the columns of a part that are stored at once."""
        return min(part, CHUNK_BYTES // self.stored)

    @property
    def chunks(self) -> int:
        """Number of pieces in which a group stores its sums."""
        return sum(part // self.chunk(part) for part in self.parts)

    @property
    def stage_bytes(self) -> int:
        """Bytes of a step along K in shared memory."""
        elements = (self.left_rows + self.columns) * self.block_k
        return elements * self.element + self.left_rows * self.scale_bytes

    def stages(self, slots: int) -> int:
        """Return the number of stages: as many as fit, up to `most_stages`.

        Args:
            slots: pieces that each group stages beside the ring; 0 if it stages them in its own rows of the ring.
        """
        staged = self.all_groups * slots * self.rows * self.chunk(self.parts[0]) * self.stored
        return min(self.most_stages, (SHARED_BYTES - BARRIER_BYTES - staged) // self.stage_bytes)

    def fits(self, slots: int) -> bool:
        """Return whether the sums fit the registers, and the ring the shared memory."""
        stages = self.stages(slots)
        # In the ring, each piece of the sums takes a group's rows of another stage.
        in_ring = self.chunks <= stages and self.block_k * self.element >= CHUNK_BYTES
        return self.holds_sums and len(self.parts) <= MOST_PARTS and stages >= FEWEST_STAGES and (slots > 0 or in_ring)

    @property
    def can_be_wide(self) -> bool:
        """True if products by PTX of all columns are another way to compute the tile, in steps of 128 bytes along K.

        If threads add the products, each group must have 64 rows, and no scales of blocks. If their columns are also a
        power of two, a step of 256 bytes along K may be multiplied in two halves.
        """
        if not self.promoted:
            return len(self.parts) > 1 and self.is_shallow
        return (
            (len(self.parts) > 1 if self.is_shallow else self.left_rows == 64 and len(self.parts) == 1)
            and self.rows == 64
            and self.scale_bytes == 0
        )

    @property
    def is_shallow(self) -> bool:
        """True if a step has no more than 128 bytes along K."""
        return self.block_k * self.element <= 128

    def compiled_in(self, slots: int) -> dict[str, int]:
        """Return what the kernel is compiled with."""
        return {
            "GROUPS": self.groups,
            "TURNS": self.turns,
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "BLOCK_K": self.block_k,
            "STAGES": self.stages(slots),
            "SLOTS": slots,
        }


def divides(rows: int, groups: int) -> bool:
    """Return whether groups can share a tile: each takes 64 rows, which one wgmma multiplies, or each of two 128."""
    return rows == 64 * groups or (rows, groups) == (256, 2)


def may_take_turns(rows: int, groups: int) -> bool:
    """Return whether two groups can take turns: one group for each tile, of 64 or 128 rows."""
    return groups == 1 and rows in (64, 128)


def walked_together(left: int, right: int, tile: Roles) -> int:
    """Return the number of rows of tiles that are walked column by column, so that neighbours share the larger factor.

    Args:
        left, right: rows of the factors.
    """
    rows, columns = cdiv(left, tile.left_rows), cdiv(right, tile.columns)
    return rows if rows <= MOST_WALKED else 1 if columns <= MOST_WALKED else MOST_WALKED


def waves(left: int, right: int, rows: int, columns: int, slices: int, sm_count: int) -> int:
    """Return the number of rounds in which multiprocessors compute all tiles, or slices of them."""
    return cdiv(cdiv(left, rows) * cdiv(right, columns) * slices, sm_count)


def is_narrowest(left: int, right: int, tile: Roles, slices: int, sm_count: int) -> bool:
    """Return whether no narrower tile, with at most as many products a step, takes as many waves.

    Such a tile computes and reads less in each wave.

    Args:
        left, right: rows of the factors.
    """
    rows, most = tile.left_rows, MOST_PARTS if tile.wide else _PRODUCTS[tile.columns]
    own = waves(left, right, rows, tile.columns, slices, sm_count)
    narrower = (width for width in WIDTHS if width < tile.columns and _PRODUCTS[width] <= most)
    return all(waves(left, right, rows, width, slices, sm_count) > own for width in narrower)
