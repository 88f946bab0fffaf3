"""Counters of the card beside those that the analysis of the compiled code expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.profiling.analysis import LaunchFacts
from tuner.profiling.ncu import Counters


@dataclass(frozen=True)
class AgreementSettings:
    """Largest difference that counts as agreement."""

    tolerance: float = 0.25
    """Share of the larger number, or of all cycles of shared memory for bank conflicts. Source: an H200 differs by 0
    for sectors, and by up to 0.12 for conflicts, over three transposes, a row-wise one and a softmax."""


AGREEMENT_SETTINGS = AgreementSettings()
COMPARED: Mapping[str, str] = {
    "load_sectors": "sectors of global loads",
    "store_sectors": "sectors of global stores",
    "shared_conflicts": "cycles of bank conflicts",
}
"""Counters that the analysis expects, each with the noun of its number."""


@dataclass(frozen=True)
class Comparison:
    """Counters of a launch, and what the analysis expects of them."""

    counters: Counters
    launch: LaunchFacts | None
    """None for a kernel that the config does not launch itself, such as one of its pre_hook."""
    differing: tuple[str, ...]
    """Counters that differ by more than the tolerance, by our names."""


def compared(
    counters: Sequence[Counters], launches: Sequence[LaunchFacts], settings: AgreementSettings = AGREEMENT_SETTINGS
) -> Iterator[Comparison]:
    """Yield the counters of each kernel with its launch: of several launches of one kernel, in their order."""
    left = [*launches]
    for each in counters:
        launch = next((launch for launch in left if launch.name == each.kernel), None)
        if launch is not None:
            left.remove(launch)
        expected = {} if launch is None else launch.expected
        differing = tuple(name for name in COMPARED if _differs(name, each.values, expected, settings.tolerance))
        yield Comparison(each, launch, differing)


def _differs(name: str, values: Mapping[str, float], expected: Mapping[str, float], tolerance: float) -> bool:
    if name not in values or name not in expected:
        return False
    whole = expected.get("shared_cycles", 0.0) if name == "shared_conflicts" else 0.0
    return abs(values[name] - expected[name]) > tolerance * max(values[name], expected[name], whole)
