"""Settings of the whole run.

Without `-m gpu`, Triton kernels run under its interpreter, which is decided when triton is imported, and torch and
numpy compute with one thread: each core has a test process of its own, and threads of several processes on the same
cores wait for each other. Tests that show a terminal show one that can move its cursor, whatever the tests are started
from. The default database lies in a folder of the run, never in that of the user.

Bytecode is kept, whatever the environment asks: hundreds of tests start a Python of their own, which would compile our
modules again.
"""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ("databases", "forks", "installed", "stand_in_engines")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shots", metavar="DIR", help="folder for the screenshots of tests/browser; else none are written"
    )
    parser.addoption("--shots-format", choices=["png", "jpeg", "webp"], default="png", help="[default: png]")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["TERM"] = "xterm"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    home = tempfile.TemporaryDirectory(prefix="tuner-tests-")
    config.add_cleanup(home.cleanup)
    os.environ["XDG_DATA_HOME"] = home.name
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Collect no garbage while tests are collected: objects that stay are made by the million."""
    if isinstance(collector, pytest.Session):
        gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, but look no more at what the collection of tests has made."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _language_as_it_was() -> None:
    """Undo what Triton's interpreter changes in `triton.language`, after each launch.

    It leaves what calls of device functions change, and tests that compile may follow in this process, or in its forks.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None or hasattr(interpreter.GridExecutor, "launch"):
        return
    tl, launch = interpreter.tl, interpreter.GridExecutor.__call__
    owners = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)
    before = [(owner, dict(vars(owner))) for owner in owners]

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return launch(self, *args, **kwargs)
        finally:
            for owner, values in before:
                for name in [name for name, value in vars(owner).items() if values.get(name) is not value]:
                    if name in values:
                        setattr(owner, name, values[name])
                    elif isinstance(owner, type):  # a module may have been given a module of its own
                        delattr(owner, name)

    interpreter.GridExecutor.launch = launch
    interpreter.GridExecutor.__call__ = launched


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
