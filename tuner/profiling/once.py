"""One launch of a config between the start and the stop of a profiler: `python -m tuner.profiling.once FILE PARENT`.

FILE will hold a pickled `ProfileTask`, and PARENT is the process that writes it. Nsight Compute runs this process, and
measures what lies between the marks. It imports what it needs while others use the card, and launches once FILE exists.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep

from tuner.profiling.messages import ProfileTask

_POLL_S = 0.05
"""Polling interval of the file, in seconds."""
_WATCH_S = 0.5
"""Polling interval of the process that started Nsight Compute, in seconds."""


def main() -> None:
    """Compile and launch outside the marks, then launch inside them."""
    file, parent = Path(sys.argv[1]), int(sys.argv[2])
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    import torch

    from tuner.measure.allocator import provide_memory
    from tuner.measure.loaded_problem import LoadedProblem
    from tuner.measure.messages import Task

    while not file.exists():
        sleep(_POLL_S)
    task = pickle.loads(file.read_bytes())
    assert isinstance(task, ProfileTask)
    provide_memory()
    loaded = LoadedProblem(Task(task.kernel, task.problem, task.limits, task.policy), "cuda:0", None)
    loaded.draw(0)
    (steps,) = loaded.launches(task.config, loaded.tensors)
    for is_measured in (False, True):
        if is_measured:
            torch.cuda.cudart().cudaProfilerStart()
        for step in steps:
            step()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _end_with(process: int) -> None:
    """End this process once another has ended, which is not its parent: Nsight Compute is."""
    while _runs(process):
        sleep(_WATCH_S)
    os._exit(1)


def _runs(process: int) -> bool:
    """Return whether a process exists."""
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


if __name__ == "__main__":
    main()
