"""Runs: searches, as the store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.spec import Problem, Signature
from tuner.records.answer import Provenance


@dataclass(frozen=True)
class EarlierSearch:
    """Facts of a search that a later search of the same problem uses."""

    settings: Mapping[str, Any]
    tried: frozenset[str]
    """Texts of the configs that it measured itself."""

    @property
    def is_joint(self) -> bool:
        """True if it searched one config for several problems."""
        return self.settings.get("joint") is not None

    @property
    def is_finished(self) -> bool:
        """True if it knew each config of its space in the end."""
        space, known = self.settings.get("space"), self.settings.get("known", 0)
        return isinstance(space, int) and isinstance(known, int) and len(self.tried) + known >= space


@dataclass(frozen=True)
class StoredRun:
    """One search in a store, whether it gave an answer or not."""

    id: int
    signature: Signature
    problem: Problem
    provenance: Provenance
    settings: Mapping[str, Any]
    """Settings that it was started with."""
    status: str
    """`running` (or killed), `done`, `failed` or `interrupted`."""
    stopped: str | None
    """Reason for its end: `trials`, `budget`, `converged`, `exhausted`, `interrupted` or `error`; `contended` or
    `pinned` if the stored answer was kept; `imported` or `rollback` if nothing was measured; None while it runs."""
    seconds: Mapping[str, float]
    """Wall time by stage; empty while it runs."""
    started_at: str
    """UTC, ISO 8601, as `ended_at`."""
    ended_at: str | None
    trials: int = 0
    """Number of configs that it measured itself, without those taken over from earlier runs."""
    answer_us: float | None = None
    """Latency of its answer; None if there is none, or one that was never timed."""

    def as_json(self) -> dict[str, Any]:
        """Return the run without its measurements, as `tuner show --json` and the service give it."""
        return {
            "run": self.id,
            "op": self.problem.op,
            "problem": self.problem.values,
            "device": self.provenance.device.id,
            "recorded": self.provenance.recorded,
            "status": self.status,
            "stopped": self.stopped,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "measured": self.trials,
            "taken_over": self.settings.get("known", 0),
            "answer_us": None if self.answer_us is None else round(self.answer_us, 4),
        }
