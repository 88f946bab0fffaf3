"""Results in the auto-tuning community's T4 schema, as Kernel Tuner has them: every config of one problem, timed.

The schema has no words for the kernel, the problem or the card, so the user says what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import Any

from tuner.errors import UsageError, reason
from tuner.exchange.claim import NOT_KNOWN, Claim, Given, TunedFile
from tuner.measure import foreign
from tuner.measure.recorded import T4_HEAD, t4_result
from tuner.records import Measurement

_POLICY = "t4"
_UNITS = ("milliseconds", "miliseconds", "ms")
"""As the schema, as some published files, and as measurements of it spell the one unit."""


def claim(file: TunedFile, given: Given) -> Claim | None:
    """The fastest config of such a file; None if it is none.

    Raises:
        UsageError: it is not in milliseconds, no config ran, or the user does not say what it is about.
    """
    results = file.document
    if not isinstance(results, dict) or not isinstance(results.get("results"), list):
        return None
    if "tuner" in results:
        raise UsageError("a recorded space is searched, not imported: tuner search OP --replay FILE")
    told = {name: value for name, value in given.problem.items() if value is not None}
    if given.op is None or given.device is None or len(told) < 2 or "dtype" not in told:
        raise UsageError("T4 does not say what was tuned, and where; give --op, --device, --problem M=SIZE,dtype=DTYPE")
    config, milliseconds = _fastest(results)
    sizes = {name: int(value) for name, value in told.items() if re.fullmatch("[0-9]{1,10}", value)}
    return Claim(
        file=file.name,
        op=given.op,
        dims=sizes,
        config=config,
        device=given.device,
        dtype=told["dtype"],
        attributes={name: value for name, value in told.items() if name != "dtype" and name not in sizes},
        triton=given.triton,
        policy=_POLICY,
        latency_us=1000 * milliseconds,
    )


def document(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """What was measured of one problem, as others read it."""
    results = [t4_result(measurement) for measurement in measurements]
    for result in results:
        result["measurements"] = [one for one in result["measurements"] if isfinite(one["value"])]
    return {**T4_HEAD, "results": results}


def _fastest(given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The config with the least median, and that, in milliseconds."""
    try:
        unit = given.get("metadata", {}).get("timeunit", _UNITS[0])
        if unit not in _UNITS:
            raise UsageError(f"{NOT_KNOWN}: its times are in {str(unit)[:40]!r}, not in {_UNITS[0]}")
        measurements = [foreign.of_t4(result) for result in given["results"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{NOT_KNOWN}: {reason(error)}") from error
    ran = [(one.latency_us, one.config) for one in measurements if 0 < one.latency_us < inf]  # the unit is the file's
    if not ran:
        raise UsageError("no config of it ran")
    milliseconds, config = min(ran, key=lambda one: one[0])
    return dict(config), milliseconds
