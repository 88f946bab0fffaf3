"""The state of a card as NVML reports it, and cards that report only a part."""

# ruff: noqa: N802  the library's own names

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tuner.measure.card import NoMonitor, NvmlMonitor, open_monitor
from tuner.records import CardState


class NVMLError(Exception):
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801  the library's own name
    pass


class Nvml:
    """The used part of `pynvml`, with scripted answers."""

    NVMLError, NVMLError_NotFound = NVMLError, NVMLError_NotFound
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        self.processes: list[int] = []
        self.utilization: Sequence[tuple[int, int, float]] | None = []
        """Process, percent and time in s of each sample; None if the card does not report them."""
        self.reasons = 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, handle: Any, kind: int) -> int:
        return 54

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return 412_500

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.processes]

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
        if self.utilization is None:
            raise NVMLError
        if not self.utilization:
            raise NVMLError_NotFound
        return [
            SimpleNamespace(pid=pid, smUtil=percent, timeStamp=int(at * 1e6)) for pid, percent, at in self.utilization
        ]


def card(nvml: Nvml) -> NvmlMonitor:
    return NvmlMonitor(nvml, "handle", now=lambda: 1000.0, relatives=frozenset())


def test_a_quiet_card() -> None:
    assert card(Nvml()).state() == CardState(1980, 2619, 54, 412.5)


def test_throttle_reasons_are_named() -> None:
    nvml = Nvml()
    nvml.reasons = 0x04 | 0x20 | 0x40 | 0x01
    state = card(nvml).state()
    assert state.throttled == ("power_cap", "thermal")
    assert state.marks == ("throttled",)
    nvml.reasons = 0x04 | 0x01
    assert card(nvml).state().marks == ()


def test_the_process_that_tunes_and_its_ancestors_are_not_foreign() -> None:
    """A training process holds a context on the card; some cards list whoever has one as computing."""
    nvml = Nvml()
    nvml.processes, nvml.utilization = [os.getpid(), os.getppid(), 2**30], None
    assert NvmlMonitor(nvml, "handle").state().foreign == (2**30,)


def test_a_computing_process_of_others_is_foreign() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7, 8], [(7, 60, 999.5), (8, 1, 999.5)]
    state = card(nvml).state()
    assert state.foreign == (7,)
    assert state.marks == ("contended",)


def test_processes_that_appear_with_our_context_are_ours() -> None:
    nvml = Nvml()
    nvml.processes = [7]
    ours = card(nvml)
    nvml.processes = [7, 31337]
    ours.register_own_processes()
    nvml.utilization = [(31337, 99, 999.9)]
    assert ours.state().foreign == ()
    nvml.processes = [7, 31337, 9]
    nvml.utilization = [(31337, 99, 999.9), (7, 5, 999.9), (9, 50, 999.9)]
    assert ours.state().foreign == (7, 9)


def test_old_samples_and_ended_processes_do_not_count() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7], [(7, 60, 998.0), (8, 60, 999.9)]
    assert card(nvml).state().foreign == ()


def test_without_utilisation_each_process_from_before_counts() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7, 8], None
    ours = card(nvml)
    nvml.processes = [7, 31337, 31338]  # worker and spare
    ours.register_own_processes()
    assert ours.state().foreign == (7,)


def test_a_card_that_reports_nothing_has_an_empty_state() -> None:
    assert NvmlMonitor(SimpleNamespace(NVMLError=NVMLError, NVMLError_NotFound=NVMLError_NotFound), None).state() == (
        CardState()
    )


def test_without_a_driver_nothing_is_monitored() -> None:
    assert isinstance(open_monitor("0000:1b:00.0"), NoMonitor)
    assert open_monitor("0000:1b:00.0").state() is None
