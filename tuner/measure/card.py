"""Monitoring of a card through NVML: clocks, temperature, power, throttling, and processes that compute on it.

NVML lists processes by their ids on the host, which a container does not know. A process is ours if it appears between
the construction of the monitor, before this process has a CUDA context, and `register_own_processes`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, Protocol

from tuner.records import CardState

_THROTTLE_REASONS = {  # nvmlClocksEventReasons, nvml.h
    0x04: "power_cap",
    0x08: "hardware",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power_brake",
}


@dataclass(frozen=True)
class CardMonitorSettings:
    """Limits from which a foreign process counts as computing."""

    busy_percent: int = 3
    """Utilisation of the multiprocessors, in percent. Source: chosen; less use does not disturb timings."""
    recent_s: float = 1.0
    """Age of the oldest utilisation sample considered, in s. Source: NVML samples several times a second."""


CARD_MONITOR_SETTINGS = CardMonitorSettings()


class CardMonitor(Protocol):
    """State of a card while it measures."""

    def register_own_processes(self) -> None:
        """Register the processes that appeared since construction as ours. Called once our CUDA context exists."""

    def state(self) -> CardState | None:
        """Return the present state, or None if the card cannot be monitored."""


class NoMonitor:
    """The monitor used if NVML is not installed or does not answer."""

    def register_own_processes(self) -> None:
        pass

    def state(self) -> None:
        return None


class NvmlMonitor:
    """Monitor of a card through NVML.

    Args:
        nvml: the module `pynvml`.
        handle: NVML's handle of the card.
        now: clock, in seconds since 1970.
        relatives: this process and its ancestors, which are idle meanwhile: a training process that tunes holds a
            context on the card.
    """

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        now: Callable[[], float] = time,
        settings: CardMonitorSettings = CARD_MONITOR_SETTINGS,
        relatives: frozenset[int] | None = None,
    ) -> None:
        self._nvml, self._handle, self._now, self._settings = nvml, handle, now, settings
        self._relatives = own_relatives() if relatives is None else relatives
        self._foreign_at_start = self._processes()
        self._own: set[int] = set()

    def register_own_processes(self) -> None:
        self._own = self._processes() - self._foreign_at_start

    def state(self) -> CardState:
        nvml, handle = self._nvml, self._handle
        reasons = self._query(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        power = self._query(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return CardState(
            sm_mhz=self._query(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=self._query(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=self._query(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000,
            throttled=tuple(sorted({name for bit, name in _THROTTLE_REASONS.items() if reasons & bit})),
            foreign=tuple(sorted(self._busy() - self._own - self._relatives)),
        )

    def _query(self, query: Callable[[], Any]) -> Any:
        """Return the result of a query, or None if card, driver or library does not support it."""
        with suppress(self._nvml.NVMLError, AttributeError):
            return query()
        return None

    def _processes(self) -> set[int]:
        running = self._query(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) or []
        return {process.pid for process in running}

    def _busy(self) -> set[int]:
        """Return the ids of processes that computed recently.

        If the card does not report utilisation by process, each process that was there at the start counts.
        """
        since = int((self._now() - self._settings.recent_s) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since)
        except self._nvml.NVMLError_NotFound:  # no process computed
            return set()
        except (self._nvml.NVMLError, AttributeError):
            return self._processes() & self._foreign_at_start
        least = self._settings.busy_percent
        busy = {sample.pid for sample in samples if sample.smUtil >= least and sample.timeStamp > since}
        return busy & self._processes()  # samples of ended processes stay listed for a while


def own_relatives() -> frozenset[int]:
    """Return the ids of this process and its ancestors."""
    found = [os.getpid()]
    with suppress(OSError, ValueError, IndexError):  # no /proc, or an ancestor has ended
        while found[-1] > 0:
            found.append(int(Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    return frozenset(found)


def open_monitor(bus_id: str) -> CardMonitor:
    """Return the monitor of the card at a bus address such as 0000:1b:00.0.

    Called before this process has a CUDA context on the card.
    """
    try:
        import pynvml
    except ImportError:
        return NoMonitor()
    try:
        pynvml.nvmlInit()
        return NvmlMonitor(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()))
    except pynvml.NVMLError:
        return NoMonitor()
