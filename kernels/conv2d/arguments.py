"""Arguments that several variants of conv2d are launched with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.conv2d.layer import layer
from tuner.kernels.conv2d.reference import precision
from tuner.kernels.conv2d.space import tile_count
from tuner.kernels.spec import Problem


def sliced_count(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of programs: one for each slice of each tile."""
    return tile_count(problem, config) * int(config["SPLIT_K"])


def compiled_in(problem: Problem, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each variant is compiled with."""
    found = layer(problem)
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K", "num_warps", "num_stages")
    return {name: config[name] for name in names} | {
        "R": found.rows.window,
        "S": found.columns.window,
        "PADDING_H": found.rows.padding,
        "PADDING_W": found.columns.padding,
        "DILATION_H": found.rows.dilation,
        "DILATION_W": found.columns.dilation,
        "PRECISION": precision(problem),
        "ACTIVATION": problem["activation"],
    }
