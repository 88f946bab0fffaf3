"""Measured search spaces of other tools, read for a replay: Kernel Tuner's caches and T4 files."""

from __future__ import annotations

import json
from pathlib import Path

from tuner.errors import UsageError, reason
from tuner.exchange import kernel_tuner, t4
from tuner.records import Measurement, files
from tuner.records.strict import MALFORMED

MAX_BYTES = 1 << 30
"""Limit on a file, compressed or not, in bytes."""


def load(path: Path, max_bytes: int = MAX_BYTES) -> tuple[Measurement, ...]:
    """Return the measurement of every config of a file, in the file's unit and order.

    Raises:
        UsageError: The file cannot be read, has neither format, or no config of it ran.
    """
    try:
        document = json.loads(kernel_tuner.completed(files.read(path, max_bytes).decode()))
        read = kernel_tuner.read_cache if kernel_tuner.is_cache(document) else t4.read_results
        measurements = read(document)
    except (files.TooLarge, files.Damaged) as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from error
    except (OSError, *MALFORMED) as error:
        raise UsageError(f"{path.name} is neither a Kernel Tuner cache nor a T4 file: {reason(error)}") from error
    if not any(measurement.ok for measurement in measurements):
        raise UsageError(f"{path.name} has no config that ran, so it has no best config to search for")
    return measurements
