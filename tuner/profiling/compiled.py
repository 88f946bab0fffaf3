"""A compiled launch as plain data, from the process that compiled it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuner.errors import MeasureError
from tuner.kernels.launch import Launch
from tuner.profiling.arguments import parameter_values
from tuner.profiling.ptx import parse


@dataclass(frozen=True)
class CompiledLaunch:
    """The code of one launch, and what it is launched with."""

    name: str
    ptx: str
    arguments: Mapping[str, int | None]
    """Value of each parameter of the code; None if it is unknown."""
    grid: tuple[int, ...]
    warps: int
    """Warps of a program."""
    shared_bytes: int
    registers: int | None
    """Registers of a thread; None if they are unknown."""
    spilled_bytes: int | None
    """Bytes of a thread that did not fit its registers; None if they are unknown."""


def compiled_launch(launch: Launch, compiled: Any, *, loaded: bool) -> CompiledLaunch:
    """Return a launch with its code, as Triton compiled it.

    Args:
        loaded: whether the code was loaded to a card, which then knows its registers; else a tool of CUDA reads them.

    Raises:
        MeasureError: it was compiled for a card without PTX.
    """
    ptx = getattr(compiled, "asm", {}).get("ptx")
    if ptx is None:
        raise MeasureError("a profile reads PTX, which Triton compiles for NVIDIA cards, and this kernel has none")
    code = parse(ptx)
    registers, spilled = (compiled.n_regs, 4 * compiled.n_spills) if loaded else _resources(compiled.asm["cubin"])
    return CompiledLaunch(
        compiled.metadata.name,
        ptx,
        {} if code is None else parameter_values(launch, compiled.src.signature, code.parameters, code.descriptors),
        launch.grid,
        compiled.metadata.num_warps if code is None else max(1, code.threads // 32),
        compiled.metadata.shared,
        registers,
        spilled,
    )


def _resources(cubin: bytes) -> tuple[int | None, int | None]:
    """Return registers and stack bytes of a thread by `cuobjdump`, which Triton has; None if it is not there."""
    import triton

    try:
        tool = triton.knobs.nvidia.cuobjdump.path
        with TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            shown = subprocess.run([tool, "-res-usage", str(file)], capture_output=True, text=True, timeout=60).stdout
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None, None
    found = re.search(r"REG:(\d+) STACK:(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else (None, None)
