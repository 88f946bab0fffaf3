"""Measured search spaces of other tools, read for a replay: Kernel Tuner's caches and T4 files."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import UsageError, reason
from tuner.exchange import json_text, kernel_tuner, t4
from tuner.records import Measurement, files
from tuner.records.strict import MALFORMED

MAX_BYTES = 1 << 30
"""Limit on a file, compressed or not, in bytes."""


def load(path: Path, max_bytes: int = MAX_BYTES) -> tuple[Measurement, ...]:
    """Return the measurement of every config of a file, in the file's unit and order.

    Raises:
        UsageError: The file cannot be read, has neither format, was not tuned for time, its configs have
            different knobs, or none of them ran.
    """
    try:
        document = json_text.parsed(files.read(path, max_bytes))
        if not isinstance(document, dict):
            raise ValueError(f"it is a {type(document).__name__}, not an object")
        read = kernel_tuner.read_cache if kernel_tuner.is_cache(document) else t4.read_results
        measurements = read(document)
    except (files.TooLarge, files.Damaged) as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from error
    except UsageError as error:
        raise UsageError(f"{path.name}: {error}") from error
    except (OSError, *MALFORMED) as error:
        raise UsageError(f"{path.name} is neither a Kernel Tuner cache nor a T4 file: {reason(error)}") from error
    if len({frozenset(measurement.config) for measurement in measurements}) > 1:
        raise UsageError(
            f"{path.name} has configs with different knobs; a search space has a value of each knob for all"
        )
    if not any(measurement.ok for measurement in measurements):
        raise UsageError(f"{path.name} has no config that ran, so it has no best config to search for")
    return measurements
