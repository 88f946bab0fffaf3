"""`tuner` in the test's own process, for tests that look inside or send it a signal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from tuner.cli import cli


class Invoked:
    """Runner of commands in a folder of its own, with a database there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "tuner.db"

    @classmethod
    def alone(cls, folder: Path, patch: pytest.MonkeyPatch) -> Self:
        patch.chdir(folder)
        patch.setenv("TUNER_DB", str(folder / "tuner.db"))
        return cls(folder)

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, standalone_mode=False)

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = self(*arguments, "--json")
        assert done.return_value == code, (done.stderr, done.exception)
        document: dict[str, Any] = json.loads(done.stdout)
        return document
