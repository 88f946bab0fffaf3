"""One launch of a config between the start and the stop of a profiler: `python -m tuner.profiling.once FILE`.

FILE holds a pickled `ProfileTask`. Nsight Compute runs this process, and measures what lies between the marks.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tuner.profiling.messages import ProfileTask


def main() -> None:
    """Compile and launch outside the marks, then launch inside them."""
    import torch

    from tuner.measure.allocator import provide_memory
    from tuner.measure.loaded_problem import LoadedProblem
    from tuner.measure.messages import Task

    task = pickle.loads(Path(sys.argv[1]).read_bytes())
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


if __name__ == "__main__":
    main()
