"""Feasible configs of copy_column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2

ALONE: Mapping[str, Value] = {"BLOCK": 128, "WIDE": 0, "num_warps": 4}
"""Knobs of the ways without a kernel, which have no meaning there."""
MOST_PITCH = 2**31 - 1
"""Largest distance of two rows in bytes that the driver copies."""
MOST_ELEMENTS = 16
"""Largest number of elements of a thread: more occupy registers and are no faster."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool | str:
    """Return whether a config is feasible."""
    M, N = problem.sizes
    memory = problem["memory"]
    if config["WAY"] != "kernel":
        if any(config[name] != value for name, value in ALONE.items()):
            return "knobs of a kernel have one value each if there is none"
        if config["WAY"] == "packed":
            return memory != "device" or "the host packs what is in its own memory"
        return N * itemsize(problem.dtype) <= MOST_PITCH or "the driver copies rows up to 2 GiB apart"
    threads = config["num_warps"] * limits.warp_size
    if memory == "pageable":
        return "a kernel reads memory that is mapped on the card, and ordinary memory of the host is not"
    return (
        # A block larger than the column moves no more elements, and each thread has an element.
        config["BLOCK"] <= max(128, next_power_of_2(M))
        and threads <= config["BLOCK"] <= MOST_ELEMENTS * threads
        # With one element a thread both orders are the same.
        and (config["BLOCK"] > threads or not config["WIDE"])
    )
