"""The outline of a recorded space: what a list says of it, read without parsing its results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tuner.kernels.spec import Problem, Signature
from tuner.recorded.space import MAX_BYTES, RESULTS, RecordedSpace
from tuner.records import Device, Policy, files

_CONFIG = b'{"configuration":'
_TIME_MS = re.compile(rb'\{"name":"time","value":([^,]+),"unit":"ms"\}')
"""Each result has the first, and each that ran has the second. Inside a JSON text the quotes would be escaped."""


@dataclass(frozen=True)
class Outline:
    """One recorded space without its measurements."""

    name: str
    problem: Problem
    device: Device
    triton: str
    policy: Policy
    recorded_at: str
    """UTC, ISO 8601."""
    configs: int
    """Number of configs that were measured."""
    best_us: float
    """Lowest latency of a single measurement; infinite if no config ran."""

    @staticmethod
    def of(space: RecordedSpace) -> Outline:
        """Return the outline of a space."""
        return Outline(
            space.name,
            space.problem,
            space.device,
            space.environment.triton,
            space.policy,
            space.recorded_at,
            len(space.measurements),
            min((measurement.latency_us for measurement in space.measurements), default=inf),
        )

    @staticmethod
    def read(data: bytes, name: str) -> Outline:
        """Return the outline of a file that `dumps` wrote, of a space of this name."""
        start, _, results = files.uncompress(data, MAX_BYTES).partition(RESULTS)
        head: Mapping[str, Any] = json.loads(start + b"}")["tuner"]
        return Outline(
            name,
            Signature.from_json(head["signature"]).problem(head["problem"]),
            Device.from_json(head["device"]),
            head["environment"]["triton"],
            Policy(**head["policy"]),
            head["recorded_at"],
            results.count(_CONFIG),
            1000 * min(map(float, _TIME_MS.findall(results)), default=inf),
        )
