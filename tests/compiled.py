"""What launches of a kernel compile to for Hopper, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from forks import printed

COMPILE = """
    import json, sys
    from dataclasses import replace
    sys.path.insert(0, {tests!r})
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import set_target
    from tuner.measure.stand_ins import StandIn

    set_target(H200.limits)
    kernel = catalog.load({op!r})
    problem, config = kernel.signature.problem({problem!r}), kernel.signature.config({config!r})
    assert kernel.valid(problem, config, H200.limits), config
    operands = dict(kernel.tensors(problem, config, H200.limits))
    operands |= {{name: replace(operands[name], strides=each) for name, each in {strides!r}.items()}}
    tensors = kernel.scalars | {{name: StandIn(operand) for name, operand in operands.items()}}
    launches = kernel.launch(problem, config, tensors)
    compiled = [each.fn.warmup(*each.args, grid=each.grid, **each.kwargs) for each in launches]
    print(json.dumps([each.asm[{form!r}] for each in compiled]))
"""


def launches_compiled(
    op: str,
    problem: Mapping[str, object],
    config: Mapping[str, object],
    form: str = "ptx",
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> list[str]:
    """Compile the launches of a config in a fork of its own, since a process has one target.

    Args:
        form: "ptx", or "ttgir" for what Triton makes of it before.
        strides: those of tensors that are not dense, in elements.
    """
    given = {"op": op, "problem": problem, "config": dict(config), "form": form, "strides": strides or {}}
    found: list[str] = json.loads(printed(dedent(COMPILE).format(tests=str(Path(__file__).parent), **given)))
    return found
