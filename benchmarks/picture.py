"""Draws the README's picture: what a search prints, replayed from a recorded space.

python benchmarks/picture.py docs/search.svg
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tuner.cli.effort import EFFORTS
from tuner.cli.text import print_found
from tuner.db.store import Store
from tuner.measure import recorded
from tuner.report.vendor import torch_beside
from tuner.search.sampler import DEFAULT
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import AUTO, recorded_target


def main(out: Path) -> None:
    """Searches, prints into a recording console, and writes the SVG."""
    space = next(recorded.load(name) for name in recorded.names() if name.startswith("softmax-4096x65536-fp32"))
    source = recorded_target(space, space.problem, AUTO)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "tuner.db")
        run_search(
            source,
            store,
            space.signature,
            space.problem,
            sampler=DEFAULT,
            seed=0,
            budget=EFFORTS["normal"],
            reuse=lambda measurement: False,
        )
        found = stored_answer(store, source, space.problem)
        torch = torch_beside(store, found.stored)
    console = Console(record=True, width=92, highlight=False, file=sys.stderr)
    console.print("[dim]$[/] tuner search softmax --M 4096 --N 65536")
    print_found(found, torch, console)
    out.write_text(console.export_svg(title="tuner", unique_id="search"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
