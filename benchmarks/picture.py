"""Draw the README's picture: the output of a search that replays a recorded space.

python benchmarks/picture.py docs/search.svg
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tuner.cli.grid import Output
from tuner.cli.text import print_found
from tuner.tuning import Events, tune

OP, DIMS = "softmax", {"M": 4096, "N": 65536}


def main(out: Path) -> None:
    """Search, print into a recording console, and write the SVG."""
    with tempfile.TemporaryDirectory() as folder:
        (tuned,) = tune(OP, [DIMS], replay="auto", store=Path(folder) / "tuner.db", on_event=Events())
    assert tuned.found is not None, tuned.error
    console = Output(record=True, width=92, file=sys.stderr)
    console.print(f"[dim]$[/] tuner search {OP} " + " ".join(f"--{name} {size}" for name, size in DIMS.items()))
    print_found(tuned.found, tuned.vendor, console)
    out.write_text(console.export_svg(title="tuner", unique_id="search"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
