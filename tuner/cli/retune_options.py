"""Values of the options of `tuner retune`."""

from __future__ import annotations

import re
from typing import Any

import click

from tuner.errors import UsageError

_MOST = 10.0
"""Largest share, exclusive: ten times."""


class Share(click.ParamType[float]):
    """A share, written as a percentage such as `2%` or as a number below 1 such as `0.02`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a number: 0.02 for `2%`.

        Raises:
            UsageError: the text is neither.
        """
        if isinstance(value, float):
            return value
        given = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]{1,6})?) ?(%?)", str(value).strip())
        share = float(given[1]) / (100 if given[2] else 1) if given else -1.0
        if given is None or not 0 <= share < (_MOST if given[2] else 1):
            option = "a share" if param is None else param.opts[0]
            raise UsageError(
                f"{option} takes a percentage such as 2%, or a fraction such as 0.02, not {str(value)[:40]!r}"
            )
        return share
