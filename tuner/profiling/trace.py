"""Traces in the JSON format of Chrome's tracing, which Perfetto opens.

Source: "Trace Event Format", the complete events, whose phase is X and whose times are in us.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence


def has_kernels(text: str, names: Sequence[str]) -> bool:
    """Return whether a trace is such a document and has a complete event of one of these names."""
    try:
        events = json.loads(text)["traceEvents"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(events, list) and any(event.get("ph") == "X" and event.get("name") in names for event in events)


def of_spans(spans: Iterable[tuple[str, float, float]]) -> str:
    """Return the trace of device work from its names, starts and durations, in us."""
    events = [
        {"name": name, "cat": "kernel", "ph": "X", "ts": start, "dur": duration, "pid": "GPU", "tid": "stream"}
        for name, start, duration in spans
    ]
    return json.dumps({"displayTimeUnit": "us", "traceEvents": events})
