"""GPUs that tuner does not measure on: if a machine has one, messages on a missing GPU say so."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_KFD = Path("/dev/kfd")
"""Device of AMD's compute driver, which ROCm programs open."""


@dataclass(frozen=True)
class Machine:
    """Facts from which another vendor's GPU is known."""

    system: str
    """Name of the operating system, as `platform.system()` has it."""
    processor: str
    has_kfd: bool
    torch: str = ""
    """Version of the installed PyTorch; empty without one."""

    @staticmethod
    def here() -> Machine:
        """Return the facts of this machine."""
        try:
            torch = metadata.version("torch")
        except metadata.PackageNotFoundError:
            torch = ""
        return Machine(platform.system(), platform.machine(), _KFD.exists(), torch)

    @property
    def other_gpu(self) -> str:
        """Vendor of a GPU that tuner does not measure on, `AMD` or `Apple`; empty if none is known."""
        if self.has_kfd or "rocm" in self.torch:
            return "AMD"
        return "Apple" if (self.system, self.processor) == ("Darwin", "arm64") else ""


def gpu_here(machine: Machine | None = None) -> str:
    """Return `GPU here`, as part of a sentence on a missing one; it names the other vendor's GPU if there is one."""
    other = (machine or Machine.here()).other_gpu
    return f"NVIDIA GPU here (tuner does not measure on {other} GPUs)" if other else "GPU here"
