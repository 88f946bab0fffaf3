"""The state of a card through NVML: clocks, heat, power, what holds the clocks down, who else computes on it.

Processes are listed under the numbers of the host, which a container does not know. So ours are told from others' by
looking before our own CUDA context exists and after: what appeared is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Any, Protocol

from tuner.records import CardState

_REASONS = {  # nvmlClocksEventReasons, nvml.h
    0x04: "power_cap",
    0x08: "hardware",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power_brake",
}
_BUSY_PERCENT = 3
"""A process that keeps the multiprocessors busy for less of the time disturbs nobody."""
_RECENT_S = 1.0
"""How far back a process' use of the card counts: NVML samples it a few times a second."""


class CardMonitor(Protocol):
    """What can be asked of a card while it measures."""

    def claim(self) -> None:
        """Called once our own context exists: the processes that appeared since are ours."""

    def state(self) -> CardState | None:
        """How it is now; None where nobody can tell."""


class NoMonitor:
    """A card nobody can open_monitor at: NVML is not installed, or does not answer."""

    def claim(self) -> None:
        pass

    def state(self) -> None:
        return None


class NvmlMonitor:
    """A card seen by NVML.

    Args:
        nvml: the module `pynvml`.
        handle: the card's.
        now: seconds since 1970.
    """

    def __init__(self, nvml: Any, handle: Any, now: Callable[[], float] = time) -> None:
        self._nvml, self._handle, self._now = nvml, handle, now
        self._others = self._processes()
        self._own: set[int] = set()

    def claim(self) -> None:
        self._own = self._processes() - self._others

    def state(self) -> CardState:
        nvml, handle = self._nvml, self._handle
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return CardState(
            sm_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000,
            throttled=tuple(sorted({name for bit, name in _REASONS.items() if reasons & bit})),
            foreign=tuple(sorted(self._busy() - self._own)),
        )

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer; None where this card, driver or library has none."""
        with suppress(self._nvml.NVMLError, AttributeError):
            return question()
        return None

    def _processes(self) -> set[int]:
        running = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) or []
        return {process.pid for process in running}

    def _busy(self) -> set[int]:
        """Processes that computed a moment ago; where a card does not tell who did, all that were there before us."""
        since = int((self._now() - _RECENT_S) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since)
        except self._nvml.NVMLError_NotFound:  # nobody did
            return set()
        except (self._nvml.NVMLError, AttributeError):
            return self._processes() & self._others
        busy = {sample.pid for sample in samples if sample.smUtil >= _BUSY_PERCENT and sample.timeStamp > since}
        return busy & self._processes()  # those that ended are still among the samples for a while


def open_monitor(bus_id: str) -> CardMonitor:
    """The card at this bus address, 0000:1b:00.0; to be called before this process has a context on it."""
    try:
        import pynvml
    except ImportError:
        return NoMonitor()
    try:
        pynvml.nvmlInit()
        return NvmlMonitor(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()))
    except pynvml.NVMLError:
        return NoMonitor()
