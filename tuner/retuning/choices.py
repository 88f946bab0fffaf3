"""Choices that a kernel got since an answer was searched."""

from __future__ import annotations

from tuner.kernels.spec import Signature, Value


def added_choices(before: Signature | None, now: Signature) -> dict[str, tuple[Value, ...]]:
    """Return the choices of each knob that were added; those of a knob that is new are all but its default."""
    if before is None:
        return {}
    had = {knob.name: knob.choices for knob in before.knobs}
    found = {
        knob.name: tuple(choice for choice in knob.choices if choice not in had.get(knob.name, (knob.default,)))
        for knob in now.knobs
    }
    return {name: choices for name, choices in found.items() if choices}
