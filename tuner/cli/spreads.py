"""The table of means: geometric mean, 10th percentile and least of the speed-ups of several problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.box import SIMPLE
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.kernels.spec import Dim
from tuner.tuning.spread import BARS, RowT, Spread, by_device, groups


def print_spreads(
    rows: Sequence[RowT],
    ranged: Mapping[str, Dim],
    spreads: Callable[[Sequence[RowT]], Iterable[tuple[str, Spread]]],
    console: Output,
) -> None:
    """Print the means of each card and op, of the op's ranges, and of all ops of the card; nothing without spreads.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
        spreads: returns the spreads of some rows, each with its label.
    """
    table, devices = Table(box=SIMPLE, pad_edge=False), by_device(rows)
    apart = len(devices) > 1
    for name in ("speed-ups", *["device"] * apart, ""):
        table.add_column(name)
    for name in ("problems", "geometric mean", "10th percentile", "least", *(f"below {bar:g}" for bar in BARS)):
        table.add_column(name, justify="right", no_wrap=True)
    for device, on_it in devices.items():
        for group, of_it in groups(on_it, ranged):
            for nth, (name, spread) in enumerate(spreads(of_it)):
                head = (group, *[device] * apart) if nth == 0 else ("",) * (1 + apart)
                counts = [str(count) for count in spread.below.values()]
                speeds = (coloured(speed) for speed in (spread.mean, spread.tenth, spread.least))
                table.add_row(*head, name, str(spread.problems), *speeds, *counts)
    if table.row_count:
        print_table(table, console, spare=("below 0.95", "below 1", "problems"))


def coloured(speedup: float | None) -> str:
    """Return a speed-up as text, green from the first bar on and red below the last; empty if it is unknown."""
    if speedup is None:
        return ""
    colour = "green" if speedup >= BARS[0] else "yellow" if speedup >= BARS[1] else "red"
    return f"[{colour}]{speedup:.3f}[/]"
