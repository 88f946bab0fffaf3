"""The state of a card as NVML tells it, and what it will not tell."""

# ruff: noqa: N802  the library's own names

from __future__ import annotations

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
    """The part of `pynvml` that is asked, with answers by script."""

    NVMLError, NVMLError_NotFound = NVMLError, NVMLError_NotFound
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        self.processes: list[int] = []
        self.utilization: Sequence[tuple[int, int, float]] | None = []
        """Process, percent, seconds; None: this card does not tell."""
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
    return NvmlMonitor(nvml, "handle", now=lambda: 1000.0)


def test_a_quiet_card() -> None:
    assert card(Nvml()).state() == CardState(1980, 2619, 54, 412.5)


def test_what_holds_the_clocks_down_is_named() -> None:
    nvml = Nvml()
    nvml.reasons = 0x04 | 0x20 | 0x40 | 0x01
    state = card(nvml).state()
    assert state.throttled == ("power_cap", "thermal")
    assert state.marks == ("throttled",)
    nvml.reasons = 0x04 | 0x01
    assert card(nvml).state().marks == ()


def test_a_process_that_computes_beside_us_is_foreign() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7, 8], [(7, 60, 999.5), (8, 1, 999.5)]
    state = card(nvml).state()
    assert state.foreign == (7,)
    assert state.marks == ("contended",)


def test_what_appears_with_our_context_is_ours_whatever_its_number() -> None:
    nvml = Nvml()
    nvml.processes = [7]
    ours = card(nvml)
    nvml.processes = [7, 31337]
    ours.claim()
    nvml.utilization = [(31337, 99, 999.9)]
    assert ours.state().foreign == ()
    nvml.processes = [7, 31337, 9]
    nvml.utilization = [(31337, 99, 999.9), (7, 5, 999.9), (9, 50, 999.9)]
    assert ours.state().foreign == (7, 9)


def test_what_computed_a_while_ago_or_is_gone_disturbs_nobody() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7], [(7, 60, 998.0), (8, 60, 999.9)]
    assert card(nvml).state().foreign == ()


def test_a_card_that_does_not_say_who_computes_is_taken_at_its_list() -> None:
    nvml = Nvml()
    nvml.processes, nvml.utilization = [7, 8], None
    ours = card(nvml)
    nvml.processes = [7, 31337, 31338]  # ours, and our spare
    ours.claim()
    assert ours.state().foreign == (7,)


def test_a_card_that_tells_nothing_has_an_empty_state() -> None:
    assert NvmlMonitor(SimpleNamespace(NVMLError=NVMLError, NVMLError_NotFound=NVMLError_NotFound), None).state() == (
        CardState()
    )


def test_without_a_driver_nothing_is_seen() -> None:
    assert isinstance(open_monitor("0000:1b:00.0"), NoMonitor)
    assert open_monitor("0000:1b:00.0").state() is None
