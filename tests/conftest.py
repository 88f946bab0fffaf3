"""Settings of the whole run.

Without `-m gpu`, Triton kernels run under its interpreter, which is decided when triton is imported. Tests that show a
terminal show one that can move its cursor, whatever the tests are started from.
"""

import os

import pytest

pytest_plugins = ("databases", "installed")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["TERM"] = "xterm"
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
