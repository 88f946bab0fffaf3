"""Without `-m gpu`, Triton kernels run under its interpreter; that is decided when triton is imported."""

import os

import pytest

pytest_plugins = ("databases", "installed")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
