"""The vendors of a measurer, narrowed by what its worker processes find."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tuner.measure.messages import Task
from tuner.measure.worker_session import WorkerLost
from tuner.records import Comparison


@dataclass
class VendorsInUse:
    """The vendors that workers of one problem time, in the terms of `Task`."""

    names: tuple[str, ...] | None = None
    """None: the kernel's own alone."""
    each: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    """Vendors that are not timed, by name, each with the reason."""

    def of(self, task: Task) -> Task:
        """Return a task with these vendors."""
        return replace(task, vendors=self.names, each_vendor=self.each)

    def after(self, found: Comparison) -> Comparison:
        """Return rounds with all vendors that are left out. A worker that replaces this one times the same vendor."""
        self.left_out |= found.left_out
        if self.names is not None and not self.each:
            self.names = (found.vendor,) if found.vendor else ()
        return replace(found, left_out=dict(self.left_out))

    def leave_out(self, lost: WorkerLost) -> None:
        """Leave out the vendor that ended a worker, if one did that is not the kernel's own."""
        if name := lost.stage.vendor:
            self.left_out[name] = f"{lost.outcome}: {str(lost).splitlines()[-1]}"
            self.names = tuple(other for other in self.names or () if other != name)
