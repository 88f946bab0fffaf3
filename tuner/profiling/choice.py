"""The config that is profiled: a given one, the stored answer, or the default."""

from __future__ import annotations

import json

from tuner.errors import UsageError
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Config, Kernel, Limits, Problem, Value
from tuner.kernels.values import Unset, parsed, spells
from tuner.records.signatures import checked_config
from tuner.search.refusals import refusal


def choose_config(
    kernel: Kernel, problem: Problem, limits: Limits, stored: Config | None, given: str | None
) -> tuple[Config, str]:
    """Return the config to profile, and its source: `given`, `answer` or `default`.

    Args:
        stored: the answer's config, if there is one. Knobs that the kernel has since got take their default.
        given: canonical text or JSON. If all knobs that it leaves out have defaults of their own, as in a canonical
            text, these are taken; else those of the answer, or of the kernel's default config.

    Raises:
        UsageError: the text names an unknown knob or choice, or the config is not feasible; or no text is given, and
            the answer's config has the knobs of another kernel.
    """
    answer = None if stored is None else _with_current_knobs(kernel, stored, required=given is None)
    usual = answer or kernel.default_config(problem, limits)
    if given is None:
        return usual, "default" if answer is None else "answer"
    config = kernel.signature.config(_values(kernel, usual, _read(given)))
    if not kernel.valid(problem, config, limits):
        why = refusal(kernel, problem, config, limits)
        raise UsageError(f"the config is not feasible for {problem.text}: {config.text} is {why}; change a knob")
    return config, "given"


def _with_current_knobs(kernel: Kernel, stored: Config, *, required: bool) -> Config | None:
    """Return an answer's config with the kernel's knobs. None if it has others, and is not required."""
    try:
        return checked_config(kernel.signature, stored)
    except UsageError as error:
        if not required:
            return None
        raise UsageError(
            f"the stored config has the knobs of another kernel: {error}; give one with --config"
        ) from None


def _read(given: str) -> dict[str, object]:
    """Return the knobs that a text states."""
    if given.lstrip().startswith("{"):
        try:
            return dict(json.loads(given))
        except ValueError as error:
            raise UsageError(f"a config is JSON or NAME=VALUE pairs, not {given[:80]!r}; {error}") from None
    stated: dict[str, object] = dict(parsed(given))
    if not stated or (len(stated) != len(given.split()) and '"' not in given):
        raise UsageError(f"a config is JSON or NAME=VALUE pairs, not {given[:80]!r}; write 'BLOCK_M=64 num_warps=4'")
    return stated


def _values(kernel: Kernel, usual: Config, stated: dict[str, object]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    knobs = {knob.name: knob for knob in kernel.signature.knobs}
    if unknown := [name for name in stated if name not in knobs]:
        raise UsageError(f"a {kernel.op} config has the knobs {', '.join(knobs)}, not {shown(unknown[0])}")
    missing = [knob for name, knob in knobs.items() if name not in stated]
    is_whole = not any(isinstance(knob.default, Unset) for knob in missing)
    for name, knob in knobs.items():
        if name not in stated:
            values[name] = knob.default if is_whole and not isinstance(knob.default, Unset) else usual[name]
            continue
        fitting = [choice for choice in knob.choices if spells(stated[name], choice)]
        if not fitting:
            choices = ", ".join(map(str, knob.choices))
            raise UsageError(f"{name} is one of {choices}, not {shown(stated[name])}; choose one")
        values[name] = fitting[0]
    return values
