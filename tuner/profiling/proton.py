"""Runs under Proton, Triton's own profiler, through CUPTI."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuner.profiling.messages import Failed, Stalls, Times

_SUFFIX = {"tree": "hatchet", "trace": "chrome_trace"}
"""Suffix of the file that Proton writes, by its mode of data."""
_SAMPLES = "num_samples"


def profiled(run: Callable[[], object], data: str, mode: str | None = None) -> str | Failed:
    """Return the document that Proton writes about a run, or `Failed` with the reason.

    Args:
        run: launches the work and waits for its end.
        data: `tree` or `trace`.
        mode: `pcsampling`, or None for times.
    """
    import triton.profiler as proton

    with TemporaryDirectory() as folder:
        try:
            session = proton.start(str(Path(folder) / "proton"), data=data, backend="cupti", mode=mode)
            if session is None:
                return Failed("Proton is disabled in this environment (TRITON_PROTON_DISABLE)")
            try:
                run()
            finally:
                proton.finalize(session)
            return (Path(folder) / f"proton.{_SUFFIX[data]}").read_text()
        except (RuntimeError, ValueError, OSError) as error:
            return Failed(f"Proton could not run: {(str(error).splitlines() or [type(error).__name__])[0][:200]}")


def times(document: str, names: Sequence[str]) -> Times | Failed:
    """Return the mean time of the named kernels from a tree that Proton wrote."""
    total: dict[str, float] = defaultdict(float)
    count: dict[str, float] = defaultdict(float)
    for name, metrics in _nodes(json.loads(document), names):
        if name in names and "time (ns)" in metrics:
            total[name] += metrics["time (ns)"]
            count[name] += metrics.get("count", 1)
    if not total:
        return Failed(f"Proton recorded no launch of {', '.join(names)[:200]}")
    return Times({name: total[name] / count[name] / 1e3 for name in total})


def stalls(document: str, names: Sequence[str]) -> Stalls | Failed:
    """Return the shares of stall reasons and places of the kernels of these names from a tree of sampled counters."""
    reasons: dict[str, float] = defaultdict(float)
    lines: dict[str, float] = defaultdict(float)
    for name, metrics in _nodes(json.loads(document), names):
        taken = metrics.get(_SAMPLES, 0)
        lines[name] += taken
        for metric, value in metrics.items():
            if metric.startswith("stalled_") or metric == "selected":
                reasons[metric.removeprefix("stalled_")] += value
    if not sum(reasons.values()):
        return Failed("Proton sampled no program counters; the driver may not permit it to this user")
    return Stalls(_shares(reasons), _shares(lines))


def _shares(counted: Mapping[str, float]) -> dict[str, float]:
    """Return shares of the sum, the largest first, without zeros."""
    total = sum(counted.values()) or 1.0
    return {name: n / total for name, n in sorted(counted.items(), key=lambda each: -each[1]) if n > 0}


def _nodes(tree: Any, names: Sequence[str], *, inside: bool = False) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield name and metrics of each node of a tree that is a kernel of these names or below one, parents first."""
    if isinstance(tree, list):
        for child in tree:
            yield from _nodes(child, names, inside=inside)
    elif isinstance(tree, dict) and "frame" in tree:
        name = str(tree["frame"].get("name", ""))
        inside = inside or name in names
        if inside:
            metrics = tree.get("metrics", {})
            yield name, {metric: value for metric, value in metrics.items() if isinstance(value, int | float)}
        yield from _nodes(tree.get("children", []), names, inside=inside)
