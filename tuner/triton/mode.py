"""The mode of an autotuned function: what a call does if no config is stored for it."""

from __future__ import annotations

import os
from typing import Final, Literal

from tuner.client.warn import WarnOnce
from tuner.errors import UsageError
from tuner.kernels.dtypes import shown

Mode = Literal["serve", "capture", "tune", "off"]

SERVE: Final = "serve"
"""Launch the stored config, a neighbour's, or the first one after pruning."""
CAPTURE: Final = "capture"
"""Serve, and store the calls that have no config."""
TUNE: Final = "tune"
"""Search now, in a worker process."""
OFF: Final = "off"
"""Do as Triton does."""
VARIABLE = "TUNER_AUTOTUNE"
_SPELT: dict[str, Mode] = {
    "": SERVE, "serve": SERVE, "capture": CAPTURE, "tune": TUNE,
    "off": OFF, "0": OFF, "false": OFF, "no": OFF,
}  # fmt: skip
_BY_NAME: dict[str, Mode] = {"serve": SERVE, "capture": CAPTURE, "tune": TUNE, "off": OFF}


def checked(mode: str | None) -> Mode | None:
    """Return a mode given as an argument. Raises UsageError if there is none of that name."""
    if mode is None:
        return None
    known = _BY_NAME.get(mode)
    if known is None:
        raise UsageError(f"a mode is serve, capture, tune or off, not {shown(mode)}; leave it out for TUNER_AUTOTUNE")
    return known


def from_environment(warn: WarnOnce) -> Mode:
    """Return the mode that `TUNER_AUTOTUNE` names. An unknown value means serve, with a warning."""
    given = os.environ.get(VARIABLE)
    if not given:
        return SERVE
    mode = _SPELT.get(given.strip().lower())
    if mode is None:
        warn(f"{VARIABLE} is serve, capture, tune or off, not {given[:40]!r}; it is taken for serve")
        return SERVE
    return mode


def keeps_values(warn: WarnOnce) -> bool:
    """Return whether captured calls have the elements of integer tensors; `TUNER_CAPTURE_VALUES=0` keeps them out."""
    given = os.environ.get("TUNER_CAPTURE_VALUES", "")
    spelt = given.strip().lower()
    if spelt not in ("", "0", "1", "false", "true", "no", "yes", "off", "on"):
        warn(f"TUNER_CAPTURE_VALUES is 0 or 1, not {given[:40]!r}; it is taken for 0")
        return False
    return spelt not in ("0", "false", "no", "off")
