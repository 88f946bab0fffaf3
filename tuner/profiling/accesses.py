"""The memory accesses of a program, summed by source line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import ceil

from tuner.profiling.banks import cycles
from tuner.profiling.evaluate import Evaluation, Site
from tuner.profiling.registers import WARP
from tuner.profiling.sectors import footprint, passes, requests, sectors

L1_BYTES = 32 * 1024
"""Bytes of L1 that a program may count on, beside others on its SM."""
READS = ("load", "copy")
"""Kinds of accesses that read."""


@dataclass(frozen=True)
class Access:
    """The accesses of one source line to one kind of memory."""

    line: str
    """Place in the source, such as `tiles.py:35`; empty if unknown."""
    kind: str
    """`load`, `copy` (asynchronous, from global to shared memory), `store` or `atomic`."""
    space: str
    """`global` or `shared`."""
    width: float
    """Bytes of a lane, in the mean."""
    requests: float
    """Requests of warps in one program."""
    cost: float
    """Sectors of 32 bytes (global) or cycles (shared) of all requests."""
    fewest: float
    """The fewest that could move the same distinct bytes."""
    passes: float
    """Cycles of L1: a request to global memory takes one for each line of 128 bytes; of shared memory, `cost`."""
    unknown: float = 0
    """Requests whose addresses cannot be computed. They are in none of the other numbers."""

    @property
    def excess(self) -> float:
        """`cost` over `fewest`; 1 if nothing is known."""
        return self.cost / self.fewest if self.fewest else 1.0


@dataclass(frozen=True)
class Accesses:
    """The memory accesses of one program."""

    lines: tuple[Access, ...]
    loaded_bytes: float
    """Bytes that it loads from device memory, repeated ones too."""
    touched_bytes: float
    """Bytes of the distinct sectors that it touches in device memory."""
    fetched_bytes: float
    """Bytes that it loads from beyond L1: what it loads again comes from L1, if all of it has room there."""
    bytes_in_flight: int
    """Most bytes that its loads have in flight at once."""
    uses_tensor_cores: bool
    complete: bool
    """False if the program is longer than what was evaluated; sums are then of its first part."""
    unknown_branches: int = 0
    """Number of its branches that depend on data: a loop is counted once, of other branches both ways."""

    @property
    def is_known(self) -> bool:
        """True if all of the program was evaluated, and nothing depends on data."""
        return self.complete and not self.unknown_branches and not any(access.unknown for access in self.lines)

    def of(self, space: str) -> tuple[Access, ...]:
        """Return the accesses to `global` or `shared` memory."""
        return tuple(access for access in self.lines if access.space == space)

    def excess(self, space: str) -> float:
        """Return sectors or cycles over the fewest, of all accesses to a kind of memory."""
        fewest = sum(access.fewest for access in self.of(space))
        return sum(access.cost for access in self.of(space)) / fewest if fewest else 1.0


def accesses(evaluation: Evaluation) -> Accesses:
    """Return the accesses of an evaluated program."""
    by_line: dict[tuple[str, str, str], list[Site]] = defaultdict(list)
    for site in evaluation.sites:
        by_line[site.instruction.line, site.kind, site.space].append(site)
    in_memory = [site for site in evaluation.sites if site.space == "global"]
    scale = _scale(in_memory)
    loads = [site for site in in_memory if site.kind in READS]
    loaded = sum(site.lanes * site.width for site in loads) + evaluation.bulk_bytes
    distinct = footprint(loads)
    stored = footprint([site for site in in_memory if site.kind not in READS])
    is_kept = not any(site.unknown for site in loads) and scale == 1.0 and distinct <= L1_BYTES
    return Accesses(
        tuple(_summed(*key, sites) for key, sites in by_line.items()),
        loaded,
        (distinct + stored) * scale,
        min(distinct + evaluation.bulk_bytes, loaded) if is_kept else loaded,
        evaluation.bytes_in_flight,
        evaluation.uses_tensor_cores,
        evaluation.complete,
        evaluation.unknown_branches,
    )


def _scale(sites: list[Site]) -> float:
    """Return the number of executions over those whose addresses are kept."""
    kept = sum(len(site.addresses) for site in sites)
    return sum(site.executions - site.unknown for site in sites) / kept if kept else 1.0


def _summed(line: str, kind: str, space: str, sites: list[Site]) -> Access:
    count = cost = fewest = passed = unknown = 0.0
    for site in sites:
        rows = requests(site)
        warps = len(rows) / len(site.addresses) if site.addresses else ceil(site.lanes / site.executions / WARP)
        known = site.executions - site.unknown
        unknown += site.unknown * warps
        if not len(rows) or not site.width:
            continue
        scale = known / len(site.addresses)
        most, least = (sectors if space == "global" else cycles)(rows, site.width)
        count, cost, fewest = count + len(rows) * scale, cost + most * scale, fewest + least * scale
        passed += scale * (passes(rows, site.width) if space == "global" else most)
    lanes = sum(site.lanes for site in sites)
    width = sum(site.width * site.lanes for site in sites) / lanes if lanes else 0.0
    return Access(line, kind, space, width, count, cost, fewest, passed, unknown)
