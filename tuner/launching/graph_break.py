"""`tuner.launch` inside `torch.compile`: torch breaks its graph around the launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def outside(launch: Callable[..., None], kernel: object, given: Mapping[str, Any]) -> None:
    """Launch outside of a graph that torch compiles."""
    launch(kernel, **given)


def can_break() -> bool:
    """Let torch break its graph at `outside`, and return True. torch calls this only while it compiles.

    By then torch has imported the compiler, which takes more than a second.
    """
    global outside
    if not hasattr(outside, "_torchdynamo_disable"):
        why = "tuner.launch runs outside of graphs; compile without fullgraph=True"
        outside = torch.compiler.disable(outside, reason=why)
    return True


can_break._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch calls it and does not trace it
