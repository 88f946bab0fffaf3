"""Options that state the problems of a command other than by their values."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.op_commands import OptionOf
from tuner.cli.whole import Whole
from tuner.suites import projections

_FILE = click.Path(path_type=Path, dir_okay=False)
PROBLEMS: list[click.Parameter] = [
    click.Option(
        ["--shapes"],
        type=_FILE,
        metavar="FILE",
        help="Problems of a CSV file with a column for each of M, N ..., or of a JSON list of objects with such keys.",
    ),
    OptionOf(
        ["--model"],
        ops=projections.OPS,
        type=_FILE,
        metavar="config.json",
        help=f"With OP {' or '.join(projections.OPS)}: the layers of a model, from its Hugging Face config, for --M "
        f"tokens; without --M, for {', '.join(map(str, projections.SETTINGS.tokens))}.",
    ),
    OptionOf(
        ["--tp"],
        ops=projections.OPS,
        type=Whole(1),
        metavar="CARDS",
        help="Number of cards that --model is split over.",
    ),
]
"""Options that state the problems other than by their values."""
