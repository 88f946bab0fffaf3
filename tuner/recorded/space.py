"""A recorded space and its file format.

A file is gzipped JSON in the T4 results schema, times in milliseconds. What T4 has no field for stands under the key
`tuner`, before the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.errors import UsageError, reason
from tuner.exchange import t4
from tuner.kernels.spec import Config, Problem, Signature
from tuner.kernels.values import parsed
from tuner.records import CardState, Comparison, Device, Environment, Measurement, Policy, files, median
from tuner.records.strict import MALFORMED

FORMAT = 1
MAX_BYTES = 1 << 30
"""Limit on a file, compressed or not, in bytes."""
RESULTS = b',"results":'
"""Bytes that end the head of a file: inside a JSON text the quotes would be escaped."""
_COMPARISON = "duel"
"""Key of the interleaved comparison in format 1."""


@dataclass(frozen=True)
class RecordedSpace:
    """One recorded space."""

    signature: Signature
    problem: Problem
    device: Device
    environment: Environment
    source: str
    policy: Policy
    default: Config | None
    """The kernel's default on that card."""
    flops: int
    bytes: int
    recorded_at: str
    """UTC, ISO 8601."""
    measurements: tuple[Measurement, ...]
    """One for each feasible config."""
    comparison: Comparison
    """Rounds between the best configs, the default and the vendor's kernel."""

    @property
    def name(self) -> str:
        """`OP-DIMS-DTYPE[-ATTRS]-DEVICE`: `gemm-16x4096x4096-bf16-nvidia-h200`."""
        return f"{problem_stem(self.problem)}-{self.device.id}"

    @property
    def best(self) -> Config:
        """Config with the lowest median in the recorded comparison."""
        timed = self.comparison.timed
        compared = [m.config for m in self.measurements if m.config.text in timed]
        return min(compared, key=lambda config: median(self.comparison.of(config.text)))


def problem_stem(problem: Problem) -> str:
    """Return `OP-DIMS-DTYPE[-ATTRS]`, a problem in the name of a file.

    Attributes at their default are left out. A true one is written as its name, a false one with `no_` before it, a
    number as name and value (`padding_h1`), others as the value.
    """
    stated = [
        {"True": name, "False": f"no_{name}"}.get(value, f"{name}{value}" if value.isdecimal() else value)
        for name, value in [*parsed(problem.text).items()][len(problem.sizes) :]
    ]
    sizes = "x".join(map(str, problem.sizes))
    return "-".join([problem.op, sizes, *(re.sub(r"[^A-Za-z0-9._+-]", "_", text) for text in stated)])


def dumps(space: RecordedSpace) -> bytes:
    """Return the file of a space. The same space gives the same bytes."""
    document = {
        **t4.HEAD,
        "tuner": {
            "format": FORMAT,
            "name": space.name,
            "signature": space.signature.as_json(),
            "problem": space.problem.values,
            "device": asdict(space.device),
            "environment": asdict(space.environment),
            "source": space.source,
            "policy": asdict(space.policy),
            "default": None if space.default is None else dict(space.default),
            "flops": space.flops,
            "bytes": space.bytes,
            "recorded_at": space.recorded_at,
            _COMPARISON: asdict(space.comparison),
        },
        "results": [t4.to_result(measurement) for measurement in space.measurements],
    }
    return files.compress(json.dumps(document, separators=(",", ":")).encode())


def loads(data: bytes, name: str) -> RecordedSpace:
    """Return the space of a file's bytes; `name` is for messages.

    Raises:
        UsageError: The bytes are not a recorded space of this format.
    """
    try:
        return _space(json.loads(files.uncompress(data, MAX_BYTES)), name)
    except (files.TooLarge, files.Damaged) as error:
        raise UsageError(f"{name} is not a recorded search space: {error}") from error
    except MALFORMED as error:
        raise UsageError(f"{name} is not a recorded search space: {reason(error)}") from error


def _space(document: Mapping[str, Any], name: str) -> RecordedSpace:
    head = document["tuner"]
    if head["format"] != FORMAT:
        raise UsageError(f"{name} has format {head['format']}, and this version reads {FORMAT}; update the tuner")
    signature = Signature.from_json(head["signature"])
    return RecordedSpace(
        signature=signature,
        problem=signature.problem(head["problem"]),
        device=Device.from_json(head["device"]),
        environment=Environment(**head["environment"]),
        source=head["source"],
        policy=Policy(**head["policy"]),
        default=None if head["default"] is None else signature.config(head["default"]),
        flops=head["flops"],
        bytes=head["bytes"],
        recorded_at=head["recorded_at"],
        measurements=tuple(t4.read_own_result(signature, result) for result in document["results"]),
        comparison=_comparison(head[_COMPARISON]),
    )


def _comparison(data: Mapping[str, Any]) -> Comparison:
    return Comparison(
        tuple(data["contenders"]),
        tuple(map(tuple, data["rounds"])),
        tuple(CardState.from_json(state) for state in data.get("states", ())),
    )
