"""The vendors that take part in a task's comparisons: compiled, checked, and the fastest chosen, before the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.kernels.parts import exception_text
from tuner.kernels.vendors import VendorFunction
from tuner.measure.correctness import CorrectnessCheck, WrongResult
from tuner.measure.loaded_problem import LoadedProblem
from tuner.measure.messages import VENDOR_STAGE, Stage, Task
from tuner.measure.vendors import BACKEND, vendor_function
from tuner.records import NOT_INSTALLED, NOT_TAKEN, VENDOR, median, vendor_contender
from tuner.records.measurement import are_latencies


@dataclass(frozen=True)
class VendorSettings:
    """The short timing of vendors, and their compiler."""

    samples: int = 10
    """Number of samples by which the fastest is chosen. Source: chosen; vendors differ by more than samples do."""
    backend: str = BACKEND
    """Backend of `torch.compile`."""


VENDOR_SETTINGS = VendorSettings()


@dataclass(frozen=True)
class Vendor:
    """A vendor that takes part in comparisons."""

    name: str
    run: VendorFunction
    is_own: bool
    """True if it is the kernel's own, whose errors are those of the kernel; others are left out."""

    @property
    def told(self) -> str:
        """Its name in a report of progress."""
        return "" if self.is_own else self.name


class TimedVendors:
    """The vendors of a task that run here with right results.

    One that raises or is wrong is left out with its reason. The kernel's own was checked when the task was loaded.

    Args:
        enter: reports a stage.
        context_works: whether the device still works after an error.
    """

    def __init__(
        self,
        task: Task,
        loaded: LoadedProblem,
        correctness: CorrectnessCheck,
        enter: Callable[[Stage], object],
        context_works: Callable[[], bool],
        settings: VendorSettings = VENDOR_SETTINGS,
    ) -> None:
        own = () if loaded.kernel.vendor is None else (loaded.kernel.vendor_name,)
        self._names = own if task.vendors is None else task.vendors
        self._own, self._each = own, task.each_vendor
        self._loaded, self._correctness, self._settings = loaded, correctness, settings
        self._enter, self._context_works = enter, context_works
        self._contenders: dict[str, Vendor] | None = None
        self.left_out: dict[str, str] = {}
        """Reasons by name."""

    @property
    def name(self) -> str:
        """Name of the vendor that is timed as `VENDOR`; empty without one."""
        chosen = (self._contenders or {}).get(VENDOR)
        return "" if chosen is None else chosen.name

    def contenders(self) -> Mapping[str, Vendor]:
        """Return the vendors by their names among the contenders. The first call compiles and checks them."""
        if self._contenders is None:
            ready = [vendor for name in self._names if (vendor := self._ready(name)) is not None]
            if self._each:
                self._contenders = {vendor_contender(vendor.name): vendor for vendor in ready}
            else:
                fastest = self._fastest(ready)
                self._contenders = {} if fastest is None else {VENDOR: fastest}
        return self._contenders

    def leave_out(self, contender: str, error: Exception) -> None:
        """Take a vendor out of this and later comparisons.

        Raises:
            Exception: the error, if the device does not work any more; the process ends with it.
        """
        assert self._contenders is not None
        vendor = self._contenders.pop(contender)
        self._explain(vendor.name, error)

    def _ready(self, name: str) -> Vendor | None:
        """Return a vendor that runs with right results, or None."""
        if name in self._own:
            return Vendor(name, vendor_function(self._loaded.kernel, name, self._loaded.problem), is_own=True)
        loaded = self._loaded
        try:
            self._enter(Stage(VENDOR_STAGE, vendor=name))
            vendor = Vendor(
                name, vendor_function(loaded.kernel, name, loaded.problem, self._settings.backend), is_own=False
            )
            self._correctness.check_vendor(vendor.run)
            for run in loaded.vendor_runs(vendor.run):  # before a graph captures them, since the first may compile
                run()
            loaded.clock.wait()
        except Exception as error:  # noqa: BLE001  it is others' code, which may fail in any way
            self._explain(name, error)
            return None
        return vendor

    def _fastest(self, ready: list[Vendor]) -> Vendor | None:
        """Return the vendor with the lowest median of a few samples; None if there is none."""
        if len(ready) < 2:
            return ready[0] if ready else None
        latencies = dict[str, float]()
        for vendor in ready:
            try:
                self._enter(Stage(VENDOR_STAGE, vendor=vendor.told))
                samples = self._loaded.vendor_timer(vendor.run)(self._settings.samples)
            except Exception as error:
                if vendor.is_own:
                    raise
                self._explain(vendor.name, error)
                continue
            if samples and are_latencies(samples):
                latencies[vendor.name] = median(samples)
        timed = [vendor for vendor in ready if vendor.name in latencies]
        return min(timed, key=lambda vendor: latencies[vendor.name], default=None)

    def _explain(self, name: str, error: Exception) -> None:
        if not self._context_works():
            raise error
        self.left_out[name] = _reason(error)


def _reason(error: Exception) -> str:
    """Return the reason on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return f"{NOT_INSTALLED}: {text}"
    if isinstance(error, NotImplementedError):
        return f"{NOT_TAKEN}: {text}" if text else NOT_TAKEN
    return text if text and isinstance(error, WrongResult) else exception_text(error)
