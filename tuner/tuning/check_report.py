"""The outcome of a kernel's check: its steps, up to the first error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

StepOutcome = Literal["ok", "warned", "failed", "skipped"]


@dataclass(frozen=True)
class Step:
    """One thing that was checked."""

    name: Literal["load", "space", "default", "compile", "knob", "interpret"]
    subject: str
    outcome: StepOutcome
    text: str = ""
    """The error, with file and line if they are known; or a remark."""


@dataclass(frozen=True)
class KernelReport:
    """Outcome of a check, up to the first error."""

    reference: str
    device: str
    steps: tuple[Step, ...]

    @property
    def error(self) -> Step | None:
        """The first failed step; None if the kernel passes."""
        return next((step for step in self.steps if step.outcome == "failed"), None)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `tuner check --json`."""
        rows = [
            {"step": step.name, "subject": step.subject, "outcome": step.outcome, "text": step.text}
            for step in self.steps
        ]
        return {"kernel": self.reference, "device": self.device, "ok": self.error is None, "steps": rows}
