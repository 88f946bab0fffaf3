"""Analysis of a launch on a card: the accesses of its programs, its occupancy, and how evenly it uses the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from statistics import mean

from tuner.kernels.spec import Limits
from tuner.profiling.accesses import Accesses, accesses
from tuner.profiling.compiled import CompiledLaunch
from tuner.profiling.evaluate import EVALUATE_SETTINGS, EvaluateSettings, Program
from tuner.profiling.ptx import parse
from tuner.report.occupancy import Occupancy, occupancy


@dataclass(frozen=True)
class AnalysisSettings:
    """Extent of the analysis of a launch."""

    sampled: int = 5
    """Number of programs that are evaluated, two or more, evenly over the grid. Source: 0.1 to 1 s of host time."""
    evaluate: EvaluateSettings = EVALUATE_SETTINGS


ANALYSIS_SETTINGS = AnalysisSettings()


@dataclass(frozen=True)
class LaunchFacts:
    """Facts of one launch that need no counters."""

    name: str
    grid: tuple[int, ...]
    warps: int
    registers: int | None
    spilled_bytes: int | None
    shared_bytes: int
    occupancy: Occupancy | None
    """None if the registers or the card's resources are unknown."""
    sm_count: int
    accesses: Accesses | None
    """Accesses of the first program; None if the code cannot be evaluated."""
    fetched_bytes: float = 0.0
    """Bytes that all programs load from L2 and device memory, those that several load too."""
    touched_bytes: float = 0.0
    """Bytes of the sectors that each program touches, summed over the programs."""
    evenness: float = 1.0
    """Loaded bytes of the programs in the mean, over the most of one; 1 if some begin when others end, as then the
    card evens them out, or if it is unknown."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """Counters that the launch should have, by their names, and `shared_cycles`; empty if they are unknown."""
    time_us: float | None = None
    """Time by Proton; None if it was not measured."""

    @property
    def programs(self) -> int:
        """Number of programs of the grid."""
        return prod(self.grid)

    @property
    def resident(self) -> int | None:
        """Programs that one SM holds at once, in a grid that has enough; None if it is unknown."""
        return None if self.occupancy is None else max(1, self.occupancy.blocks)

    @property
    def waves(self) -> float | None:
        """Programs over those that the card holds at once; None if that is unknown."""
        return None if self.resident is None else self.programs / (self.sm_count * self.resident)

    @property
    def busy_sms(self) -> int:
        """Number of SMs that have a program."""
        return min(self.programs, self.sm_count)

    @property
    def bytes_in_flight(self) -> float | None:
        """Bytes that the loads of one busy SM have in flight at once; None if they are unknown."""
        if self.accesses is None or self.resident is None:
            return None
        return min(self.resident, -(-self.programs // self.sm_count)) * float(self.accesses.bytes_in_flight)


def analyse(launch: CompiledLaunch, limits: Limits, settings: AnalysisSettings = ANALYSIS_SETTINGS) -> LaunchFacts:
    """Return the facts of a compiled launch on a card with these limits."""
    held = None
    if launch.registers is not None:
        held = occupancy(limits, launch.warps, launch.registers, launch.shared_bytes)
    facts = LaunchFacts(
        launch.name, launch.grid, launch.warps, launch.registers, launch.spilled_bytes, launch.shared_bytes, held,
        limits.sm_count, None,
    )  # fmt: skip
    code, programs = parse(launch.ptx), prod(launch.grid)
    if code is None or not programs:
        return facts
    found = [
        Program(code, launch.arguments, launch.grid, place, settings.evaluate, shared_bytes=launch.shared_bytes).run()
        for place in _sampled(launch.grid, settings.sampled)
    ]
    each = [accesses(evaluation) for evaluation in found]
    at_once = limits.sm_count * (held.blocks if held is not None else 1)
    return LaunchFacts(
        **{
            **vars(facts),
            "accesses": each[0],
            "fetched_bytes": mean(one.fetched_bytes for one in each) * programs,
            "touched_bytes": mean(one.touched_bytes for one in each) * programs,
            "expected": _expected(each, programs),
            "evenness": _evenness(each) if programs <= at_once else 1.0,
        }
    )


def _expected(each: Sequence[Accesses], programs: int) -> dict[str, float]:
    """Return the counters that a launch should have; with asynchronous copies, which are counted apart, only stores."""
    if not all(one.is_known for one in each):
        return {}
    sampled = each[1:] or each
    lines, scale = [access for one in sampled for access in one.lines], programs / len(sampled)
    copies = any(access.kind == "copy" for access in lines)
    found = {}
    for kind in ("store",) if copies else ("load", "store"):
        same = [access for access in lines if (access.space, access.kind) == ("global", kind)]
        found[f"{kind}_sectors"] = scale * sum(access.cost for access in same)
        found[f"{kind}_requests"] = scale * sum(access.requests for access in same)
    if not copies:
        shared = [access for access in lines if access.space == "shared"]
        found["shared_cycles"] = scale * sum(access.cost for access in shared)
        found["shared_conflicts"] = scale * sum(access.cost - access.fewest for access in shared)
    return found


def _evenness(each: Sequence[Accesses]) -> float:
    """Return the mean load over the largest. The first program stands for itself, the others for equal parts."""
    loads = [one.loaded_bytes for one in each]
    is_known = len(loads) > 1 and max(loads) > 0 and all(one.complete for one in each)
    return mean(loads[1:]) / max(loads) if is_known else 1.0


def _sampled(grid: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return indices of the first program, which has the most to do if any has more, and of the middles of equal parts.

    The first dim of the grid counts fastest.
    """
    programs = prod(grid)
    numbers = {0, *(programs * (2 * nth + 1) // (2 * (count - 1)) for nth in range(count - 1))}
    return [_place(number, grid) for number in sorted(numbers)]


def _place(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    place = []
    for size in grid:
        number, index = divmod(number, size)
        place.append(index)
    return tuple(place)
