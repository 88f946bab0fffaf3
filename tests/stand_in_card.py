"""A card that is not there: Triton compiles for it and launches on it, and what its launcher in C is given is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel

from tuner.launching.arguments import TRITON

STREAM = 7


class StandInCard:
    """A driver of Triton for a card with compute capability 9.0. It is its own `utils`."""

    launcher_cls = CudaLauncher

    def __init__(self) -> None:
        self.utils = self
        self.device = 0
        self.launches: list[tuple[Any, ...]] = []
        """Grid, function and arguments of each launch. Addresses are numbers or tensors, as the launcher was given."""
        self.loaded = 0
        """Number of kernels that were loaded onto it."""

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, device: int) -> int:
        return STREAM + device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232_448}

    def build_signature_metadata(self, types: Iterable[str]) -> tuple[str, ...]:
        return tuple(types)

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        self.loaded += 1
        return object(), 1000 + self.loaded, 32, 0, 1024

    def fill_tma_descriptor(self, *args: Any) -> str:
        return "encoded"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("fill_tma_descriptor"):  # whose names and arguments differ between releases
            return self.fill_tma_descriptor
        raise AttributeError(name)

    def unload_module(self, module: object) -> None:
        pass

    def launch(self, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
        assert stream == STREAM + self.device
        enter, leave = rest[4:6]
        for hook in (enter, leave):
            if getattr(hook, "calls", hook):
                hook(rest[3])
        self.launches.append(((x, y, z), function, rest[-1]))

    def launch_one_by_one(self, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
        cooperative, pdl, scratch, profile_scratch, packed, *hooks = rest[:8]
        self.launch(x, y, z, stream, function, cooperative, pdl, packed, *hooks, scratch, profile_scratch, rest[8:])


@contextmanager
def stand_in_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInCard]:
    """Let Triton launch on a card that is not there, with its cache in a folder."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    for name in ("PyKernelArg", "ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):  # which a real driver loads
        monkeypatch.setattr(driver, name, SimpleNamespace, raising=False)
    card = StandInCard()
    if TRITON == (3, 6):  # which compiles a launcher for each signature
        monkeypatch.setattr(driver, "make_launcher", lambda *args: "")
        monkeypatch.setattr(driver, "library_dirs", list)
        launcher = SimpleNamespace(launch=card.launch_one_by_one)
        monkeypatch.setattr(driver, "compile_module_from_src", lambda **options: launcher)
    monkeypatch.setattr(triton.runtime.driver, "_active", card)
    yield card
    if hasattr(CompiledKernel, "__del__"):  # from 3.8 on, kernels unload themselves from the card that is active then
        gc.collect()


def addresses(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with the address of each tensor in its place."""
    return tuple(each.data_ptr() if hasattr(each, "data_ptr") else each for each in arguments)
