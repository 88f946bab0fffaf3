"""Draws the README's picture: what a search prints, replayed from a recorded space.

python benchmarks/picture.py docs/search.svg
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tuner import recorded
from tuner.cli.text import print_found
from tuner.db.store import Store
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.several import tune_target
from tuner.tuning.target import recorded_target


def main(out: Path) -> None:
    """Search, print into a recording console, and write the SVG."""
    space = next(recorded.load(name) for name in recorded.names() if name.startswith("softmax-4096x65536-fp32"))
    entry = Entry("softmax", space.signature, space.problem)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "tuner.db")
        target = recorded_target(space, space.problem)
        tuned = tune_target(entry, target, Effort.named(), store, Events(), StopToken())
        store.close()
    assert tuned.found is not None
    console = Console(record=True, width=92, highlight=False, file=sys.stderr)
    console.print("[dim]$[/] tuner search softmax --M 4096 --N 65536")
    print_found(tuned.found, tuned.vendor, console)
    out.write_text(console.export_svg(title="tuner", unique_id="search"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
