"""Whole numbers of options and arguments."""

from __future__ import annotations

import re
from typing import Any

import click


class Whole(click.IntRange):
    """A whole number in the digits 0 to 9. Python reads more as one: `1_000`, `+5`, digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if isinstance(value, str) and not re.fullmatch("-?[0-9]+", value):
            self.fail(f"a whole number is written in the digits 0 to 9, not {value[:40]!r}", param, ctx)
        return super().convert(value, param, ctx)
