"""A call of an autotuned function, its config, and the keywords of its decorator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Config

from tuner.captured.call import CapturedCall
from tuner.triton.mode import Mode

FINAL = ("exact", "stale", "disabled", "given", "tuned")
"""Matches of configs that no search would replace."""


@dataclass
class Choice:
    """The config of one key on one card."""

    config: Config
    first: Config
    """The first config after pruning, which is launched if `config` is refused."""
    match: str = "none"
    """Match of the answer; `given` if the caller put it into `cache`, `tuned` if it was tuned in this process."""
    call: CapturedCall | None = None
    """The call that it was looked up for; None if it cannot be described."""
    refusal: str = ""
    """Reason why the call cannot be described."""
    tried: set[str] = field(default_factory=set)
    """Modes in which the call was captured or tuned, or refused."""
    is_final: bool = True
    """False if the answers could not be read during the capture of a CUDA graph, so that the next call asks again."""
    has_run: bool = False
    """True if the config was launched once."""


@dataclass(frozen=True)
class Given:
    """A call, with the card and the key that its config is kept under."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]
    """Positional arguments by name."""
    card: int
    """Index of the GPU."""
    key: tuple[Any, ...]
    """Key of the autotuner's `cache`."""


@dataclass(frozen=True)
class Stated:
    """Keywords of `autotune` beside Triton's."""

    mode: Mode | None = None
    """None uses `TUNER_AUTOTUNE`."""
    op: str | None = None
    """None makes it of the names of module and function."""
    widen: bool = False
    """Search the neighbours of the configs too. Then mode `tune` also tunes a function with only one config."""
    values: bool | None = None
    """Capture the elements of small integer tensors; None uses `TUNER_CAPTURE_VALUES`."""


PLAIN = Stated()
"""Keywords of a decorator without any."""
