"""Inductor's choices for matmuls under max-autotune, narrowed to those that were fastest before, on any machine.

    torch._inductor.config.inductor_choices_class = tuner.engines.inductor.StoreChoices

The first process times all choices as usual and stores the fastest: the best library kernel and a few templates, so
that fusion still has a template to choose. Later processes with the same key time only these. The choices are always
Inductor's own; the store only names those to keep.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.select_algorithm import ExternKernelChoice, add_feedback_saver

from tuner.client import default_client
from tuner.client.engine_files import SharedFiles
from tuner.client.settings import ClientSettings
from tuner.client.warn import WarnOnce
from tuner.engines.inductor_gemm import tuned_choices
from tuner.errors import TunerError
from tuner.measure import device as cards

_log = logging.getLogger("tuner")
_files = SharedFiles("inductor")
_warn = WarnOnce(ClientSettings().max_warnings)
_KEY = "tuner"
"""Name of the key among a choice's annotations."""


@dataclass(frozen=True)
class InductorSettings:
    """Limits of what is kept."""

    kept_templates: int = 3
    """Number of fastest template choices kept for a matmul, in addition to the fastest library kernel."""


class StoreChoices(LookupTableChoices):  # type: ignore[misc]  # torch is not followed where types are checked
    """Inductor's choices: those of the user's own lookup table, else the stored ones, else all."""

    _is_recording = False

    def __init__(self, settings: InductorSettings = InductorSettings()) -> None:
        super().__init__()
        self._settings = settings

    def uuid(self) -> str:
        """Return the text that identifies this class in Inductor's cache keys."""
        return "tuner-1"

    def _fallback(
        self,
        template_choices: Mapping[str, Iterable[Any]],
        kernel_inputs: Any,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Any]:
        """Return those of Inductor's choices that are stored, or all if none is stored or a stored one is missing."""
        choices: list[Any] = super()._fallback(template_choices, kernel_inputs, templates, op_name, kwarg_overrides)
        try:
            return self._narrowed(choices, kernel_inputs, op_name, kwarg_overrides or {})
        except Exception as error:  # noqa: BLE001  no error may stop a compilation
            why = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
            _warn(f"Inductor times all its choices for {op_name}: {why}")
            return choices

    def _narrowed(
        self, choices: list[Any], inputs: Any, op_name: str, overrides: Mapping[str, Mapping[str, Any]]
    ) -> list[Any]:
        device = inputs.device()
        if len(choices) < 2 or device.type != "cuda":
            return choices
        index = device.index or 0
        card = cards.describe(index).id
        choices = [*choices, *tuned_choices(default_client(), index, choices, inputs, op_name)]
        key = _key(card, op_name, self._generate_kernel_inputs_key(inputs), overrides)
        stored = _wanted(_files.get(key))
        kept = [choice for choice in choices if _text(choice) in stored]
        if kept and len(kept) == len(stored):
            _log.info("Inductor: %d of %d choices are timed for %s", len(kept), len(choices), op_name)
            return kept
        for choice in choices:
            choice.annotations[_KEY] = key
        self._record()
        return choices

    def _record(self) -> None:
        """Store the fastest choices of each later autotuning in this process."""
        if not StoreChoices._is_recording:
            StoreChoices._is_recording = True
            add_feedback_saver(lambda timings, *_: keep(timings, self._settings))


def keep(timings: Mapping[Any, float], settings: InductorSettings) -> None:
    """Store the fastest of the timed choices under their key. Choices without a key are left out. Never raises."""
    try:
        found: dict[str, list[tuple[float, Any]]] = {}
        for caller, milliseconds in timings.items():
            annotations = getattr(caller, "annotations", {})
            if _KEY in annotations and isfinite(milliseconds):
                found.setdefault(annotations[_KEY], []).append((milliseconds, annotations["ktc"]))
        for key, timed in found.items():
            ranked = [choice for _, choice in sorted(timed, key=lambda one: one[0])]
            libraries = [choice for choice in ranked if isinstance(choice.template, ExternKernelChoice)]
            others = [choice for choice in ranked if not isinstance(choice.template, ExternKernelChoice)]
            fastest = [*libraries[:1], *others[: settings.kept_templates]]
            _files.put(key, json.dumps([_text(choice) for choice in fastest]))
    except Exception as error:  # noqa: BLE001  no error may stop a compilation
        _warn(f"Inductor's fastest choices are not stored: {type(error).__name__}: {error}")


def _key(card: str, op: str, inputs: str, overrides: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the hash of all that the choices and their order depend on."""
    parts = [
        card,
        torch.__version__,
        cards.environment().triton,
        config.max_autotune_gemm_backends,
        config.max_autotune_gemm_search_space,
        op,
        inputs,
        sorted((name, sorted((key, str(value)) for key, value in given.items())) for name, given in overrides.items()),
    ]
    return sha256(json.dumps(parts).encode()).hexdigest()


def _text(choice: Any) -> str:
    """Return the text that identifies a choice: its template's name and parameters."""
    parameters = choice.params.to_serializeable_dict()
    return f"{choice.template.uid} {json.dumps(parameters, sort_keys=True, default=str)}"


def _wanted(content: str | None) -> set[str]:
    """Return the texts of the stored choices; nothing if they cannot be read."""
    try:
        return set(json.loads(content or "[]"))
    except (ValueError, TypeError):
        return set()
