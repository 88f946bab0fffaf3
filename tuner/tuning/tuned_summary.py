"""Means over the outcomes of `tuner search`: the untuned default and the answer, beside the vendor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.kernels.spec import Dim
from tuner.report.text import times
from tuner.report.vendor import vendor_label
from tuner.tuning.spread import Spread, by_device, groups
from tuner.tuning.tuned import Tuned


def spreads(rows: Sequence[Tuned]) -> dict[str, Spread]:
    """Return the speed-ups by label: default and answer over the vendor, then the default over the answer.

    The default is timed with the answer and the vendor, so all three are of the same rounds.
    """
    vendor = times(vendor_label(row.vendor.name for row in rows if row.vendor is not None))
    found = {
        f"untuned {vendor}": Spread.of((_untuned(row), row.problem) for row in rows),
        f"tuned {vendor}": Spread.of((row.vendor.ratio, row.problem) for row in rows if row.vendor is not None),
        f"untuned {times('tuned')}": Spread.of(
            (1 / speedup, row.problem) for row in rows if (speedup := _over_default(row)) is not None
        ),
    }
    return {label: spread for label, spread in found.items() if spread is not None}


def document(rows: Sequence[Tuned], ranged: Mapping[str, Dim]) -> list[dict[str, Any]]:
    """Return the spreads on each card: of each op, of its ranges, and of all ops, each with its label.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
    """
    return [
        {"device": device, "group": group, "label": label, **spread.as_json()}
        for device, on_it in by_device(rows).items()
        for group, of_it in groups(on_it, ranged)
        for label, spread in spreads(of_it).items()
    ]


def _over_default(row: Tuned) -> float | None:
    return None if row.answer is None else row.answer.speedup


def _untuned(row: Tuned) -> float | None:
    speedup = _over_default(row)
    return None if row.vendor is None or speedup is None else row.vendor.ratio / speedup
