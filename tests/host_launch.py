"""`tuner.launch` on the CPU, for code of the docs: kernels run in Triton's interpreter, with the config of an H200."""

from __future__ import annotations

import tuner
from tuner.client import Client, default_client
from tuner.kernels.calling import Tensors
from tuner.kernels.spec import Kernel, Problem
from tuner.launching.launch import Launches, Ready


def ready(client: Client, kernel: Kernel, problem: Problem, tensors: Tensors) -> Ready:
    config = client.best_config(kernel, device="nvidia-h200", **problem.values).config
    assert config is not None

    def by_tensor(given: Tensors) -> None:
        for launch in kernel.launch(problem, config, given):
            launch()

    return Ready(None, by_tensor)


tuner.launch = Launches(default_client(), ready_of=ready, runs_on="cpu").launch
