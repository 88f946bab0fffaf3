"""Settings of the whole run.

Without `-m gpu`, Triton kernels run under its interpreter, which is decided when triton is imported, and torch and
numpy compute with one thread: each core has a test process of its own, and threads of several processes on the same
cores wait for each other. Tests that show a terminal show one that can move its cursor, whatever the tests are started
from.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ("databases", "forks", "installed", "stand_in_engines")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["TERM"] = "xterm"
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture
def nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no source but an empty database path, with a fresh default client."""
    from fresh_client import forget

    for name in ("TUNER_SNAPSHOT", "TUNER_URL", "TUNER_DISABLE", "TUNER_REFRESH_S"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "none.db"))
    forget()
    yield
    forget()
