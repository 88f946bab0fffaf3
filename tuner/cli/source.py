"""Where a search's measurements come from: a GPU here, or a recorded space that stands in for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tuner
from tuner import catalog, device
from tuner.cli.show import say
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config, Problem
from tuner.lookup import Asked
from tuner.measure import recorded
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.lock import Lock, lock_path
from tuner.measure.measurer import Measurer
from tuner.records import Policy, Provenance
from tuner.space import feasible


@dataclass(frozen=True)
class Source:
    """All that a search needs to know of what it searches on."""

    space: Sequence[Config]
    default: Config | None
    provenance: Provenance
    flops: int
    bytes: int
    measurer: Callable[[], Measurer]
    """Starts measuring; called when there is something to measure."""

    def asks(self, problem: Problem) -> Asked:
        """The question to which an earlier answer from this source is exact, but for being recorded."""
        provenance = self.provenance
        return Asked.here(problem, provenance.environment, provenance.source, provenance.policy)


def choose(reference: str, problem: Problem, gpu: str, replay: str | None) -> Source:
    """The recorded space called `replay`; else the GPU; else a recorded space of the problem, and says so.

    Raises:
        NoDevice: no GPU and no recorded space of the problem; the message lists what can be replayed.
    """
    if replay is not None:
        return replayed(recorded.load(replay), problem)
    index = device.choose(gpu)
    if index is not None:
        return on_gpu(reference, problem, index)
    spaces = recorded.of_problem(problem)
    if not spaces:
        raise NoDevice(
            f"there is no GPU here and no recorded space of {problem.text}; "
            f"what can be replayed: {', '.join(recorded.names()) or 'nothing'}"
        )
    say(f"No GPU here: replaying {spaces[0].name}, recorded on {spaces[0].device.name}.")
    return replayed(spaces[0], problem)


def replayed(space: recorded.Space, problem: Problem) -> Source:
    """A recorded space as a source."""
    if space.problem != problem:
        raise UsageError(f"{space.name} records {space.problem.text}, not {problem.text}")
    return Source(
        space=[measurement.config for measurement in space.measurements],
        default=space.default,
        provenance=Provenance(
            space.device, space.environment, space.source, space.policy.text, space.name, tuner.__version__
        ),
        flops=space.flops,
        bytes=space.bytes,
        measurer=lambda: recorded.RecordedMeasurer(space),
    )


def on_gpu(reference: str, problem: Problem, index: int, *, stop_beaten: bool = True) -> Source:
    """A GPU of this machine as a source."""
    kernel = catalog.resolve(reference)
    card = device.describe(index)
    space = list(feasible(kernel, problem, card.limits))
    if not space:
        raise NothingFound(f"no config of {problem.op} is valid for {problem.text} on {card.name}")
    default = kernel.default_config(problem, card.limits)
    if default not in set(space):
        say(f"The kernel's default is not valid for {problem.text} on {card.name}, and is left out.")

    def measurer() -> Measurer:
        lock = Lock(lock_path(device.bus_id(index)), on_wait=say)
        return GpuMeasurer(reference, problem, card.limits, gpu=index, stop_beaten=stop_beaten, lock=lock)

    return Source(
        space=space,
        default=default if default in set(space) else None,
        provenance=Provenance(card, device.environment(index), kernel.source, Policy().text, None, tuner.__version__),
        flops=kernel.flops(problem),
        bytes=kernel.bytes(problem),
        measurer=measurer,
    )
