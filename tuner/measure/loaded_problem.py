"""A problem on the device: its kernel, operand tensors and clock, and the launches and timers of its configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Step
from tuner.kernels.vendors import VendorFunction
from tuner.measure import tensors
from tuner.measure.clock import Clock, Run, Timer, clock_of
from tuner.measure.messages import Task

Values = Mapping[str, torch.Tensor]
"""One set of operand tensors, by name."""


class LoadedProblem:
    """A task's problem, with one set of operand tensors.

    Args:
        device: torch's name of the device.
        clock: None is the clock of the task's policy.
    """

    def __init__(self, task: Task, device: str, clock: Clock | None) -> None:
        self.kernel: Kernel = catalog.resolve(task.kernel)
        self.problem, self._limits = task.problem, task.limits
        self.operands = self.kernel.operands(task.problem)
        self.device = device
        self._by_host = self.kernel.is_on_host(task.problem)
        self.clock = clock or clock_of(task.policy, device, by_host=self._by_host)
        self.tensors = tensors.allocate(self.operands, device)
        self.sets = [self.tensors]
        """Operand sets on which timed launches take place in turn."""

    def copy_sets(self) -> None:
        """Add the further operand sets that the clock asks for, with the same contents."""
        count = self.clock.operand_sets(sum(operand.bytes for operand in self.operands.values()))
        self.sets += [tensors.copy(self.operands, self.tensors) for _ in range(count - 1)]

    def draw(self, seed: int, kind: str = "normal") -> None:
        """Fill the inputs. Kernels declared for finite values get no special ones."""
        special = kind == "special" and not self.kernel.finite_only
        tensors.draw(self.operands, self.tensors, seed, special=special)

    def vendor_runs(self, vendor: VendorFunction) -> list[Run]:
        """Return a run of a vendor on each operand set."""
        return [partial(vendor, self.problem, values) for values in self.sets]

    def launches(self, config: Config, *sets: Values) -> list[tuple[Step, ...]]:
        """Return a config's launches for each operand set. All share one new workspace, so they run in order."""
        work = self.workspace(config)
        return [self.launch(config, values, work) for values in sets]

    def workspace(self, config: Config) -> Values:
        """Return a new workspace of a config."""
        return tensors.workspace(self.kernel.workspace(self.problem, config, self._limits), self.device)

    def launch(self, config: Config, values: Values, work: Values) -> tuple[Step, ...]:
        """Return a config's launches on one operand set with this workspace."""
        return self.kernel.launch(self.problem, config, {**values, **work})

    def timer(self, config: Config) -> Timer:
        """Return a timer of a config on all operand sets."""
        return self._timer([run_of(launches, repeated=self._by_host) for launches in self.launches(config, *self.sets)])

    def vendor_timer(self, vendor: VendorFunction) -> Timer:
        """Return a timer of a vendor on all operand sets."""
        return self._timer(self.vendor_runs(vendor))

    def _timer(self, runs: Sequence[Run]) -> Timer:
        restores = [tensors.restorer(self.operands, values) for values in self.sets]
        return self.clock.timer(runs, _all([restore for restore in restores if restore is not None]))


def run_of(launches: tuple[Step, ...], *, repeated: bool = False) -> Run:
    """Return one callable for a config's launches.

    Args:
        repeated: spend less host time in each run, as prepared launches do, for runs that are timed by the host.
    """
    steps: Sequence[Run] = [launch.repeated() for launch in launches] if repeated else launches
    return steps[0] if len(steps) == 1 else lambda: _in_order(steps)


def _in_order(steps: Sequence[Run]) -> None:
    for step in steps:
        step()


def _all(runs: Sequence[Run]) -> Run | None:
    """Return one callable for all runs, or None if there are none."""

    return (lambda: _in_order(runs)) if runs else None
