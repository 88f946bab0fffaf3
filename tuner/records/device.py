"""The key's parts that name a place and a method: device, environment, policy; and a card's measured limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.spec import Limits, Problem

_MEMORY_TOLERANCE = 0.02
"""Share by which the memory of one product may differ between drivers and ECC modes."""


@dataclass(frozen=True)
class Device:
    """A card or a slice of one. `id` is its name in keys and options; the other fields are its fingerprint."""

    name: str
    """Name by NVML: "NVIDIA H100 80GB HBM3". An imported answer may know no more; all numbers are 0 then."""
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes: int
    """Shared memory that one block can opt in to."""
    pci_id: str = ""
    """Vendor and device id, "10de:2330"."""
    mig: str = ""
    """MIG profile, "1g.10gb"; empty for a whole card."""

    @property
    def id(self) -> str:
        """Slug of the name and, for a slice, its profile: `nvidia-h100-80gb-hbm3`, `nvidia-h200-mig-1g.18gb`."""
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.name} {f'mig {self.mig}' if self.mig else ''}".lower()).strip("-")

    @staticmethod
    def called(name: str) -> Device:
        """Return a card of which only the name is known."""
        return Device(name, (0, 0), 0, 0, 0, 0)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Device:
        """Return the card whose `asdict` went through JSON."""
        return Device(**{**data, "capability": tuple(data["capability"])})

    @property
    def is_described(self) -> bool:
        """True if more than the name is known."""
        return self.sm_count > 0

    def is_same_card(self, other: Device) -> bool:
        """Return whether both are one product, perhaps by different names: drivers and hosts do not agree on them.

        Product (PCI id), slice and everything that a kernel can observe must be equal. Memory may differ by 2 %, since
        the driver reserves some. Without a PCI id the answer is False.
        """

        def identity(card: Device) -> tuple[object, ...]:
            return card.pci_id, card.mig, card.capability, card.sm_count, card.l2_bytes, card.shared_bytes

        difference = abs(self.memory_bytes - other.memory_bytes)
        same = identity(self) == identity(other) and difference <= _MEMORY_TOLERANCE * self.memory_bytes
        return bool(self.pci_id) and same

    @property
    def limits(self) -> Limits:
        """The card's limits that a kernel's rules may depend on."""
        return Limits(self.capability, self.sm_count, self.shared_bytes)


@dataclass(frozen=True)
class Environment:
    """Versions of the compiler, the framework and the driver. Empty: not known."""

    triton: str
    ptxas: str = ""
    torch: str = ""
    driver: str = ""


VERSION_NAMES = {"triton": "Triton", "ptxas": "ptxas", "torch": "PyTorch", "driver": "driver"}
"""Names of what an environment has the versions of, for people, by its field."""


@dataclass(frozen=True)
class Policy:
    """Method by which latencies are taken. Numbers of different policies are never compared.

    `cold`: none of a launch's operands is in L2 when it begins; `warm`: they are as the previous launch left them.
    `events`: device events around each launch, with work queued in front so that the host is not timed. `graph`: events
    around a graph of many launches, for kernels shorter than the events' own cost. The statistic is the median. A
    problem with operands on the host is timed by the host under each policy, from the call to the end of its work.
    """

    cache: str = "cold"
    timer: str = "events"
    version: int = 1
    """Version of the method."""

    @property
    def text(self) -> str:
        """The policy as part of a key: `cold-events-1`."""
        return f"{self.cache}-{self.timer}-{self.version}"


COLD = Policy()
POLICIES = {"cold": COLD, "warm": Policy("warm", "graph"), "graph": Policy("cold", "graph")}
"""Policies by the name of the option."""


def policy_name(text: str) -> str | None:
    """Return the name of the policy of a canonical text; None if this version has none such."""
    return next((name for name, policy in POLICIES.items() if policy.text == text), None)


@dataclass(frozen=True)
class RooflineLimits:
    """Measured best rates of a card, by the same clock that times kernels."""

    copy_gb_per_s: float
    """Bytes read and written by a device copy far larger than L2, in GB/s."""
    tflops: Mapping[str, float]
    """Rate of a large square matmul in TFLOP/s, by dtype or `tf32`."""
    launch_us: Mapping[str, float]
    """Latency of an empty kernel in us, by policy text."""

    def roofline_us(self, problem: Problem, flops: int, bytes: int) -> float:
        """Return the shortest time, in us, that `flops` operations and `bytes` moved can take on the card."""
        rate = self.tflops.get(self.arithmetic(problem))
        compute = 0.0 if rate is None else flops / rate / 1e6
        return max(compute, bytes / self.copy_gb_per_s / 1e3)

    @staticmethod
    def arithmetic(problem: Problem) -> str:
        """Return the key of `tflops` whose rate bounds the problem."""
        return "tf32" if problem.values.get("precision") == "tf32" else problem.dtype
