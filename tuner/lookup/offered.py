"""Test that a kernel still has the config of an answer: choices may have been removed since it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.kernels.spec import Config, Kernel, Signature
from tuner.kernels.values import UNSET, Value
from tuner.records import IMPORTED, StoredAnswer


def not_offered(signature: Signature, stored: StoredAnswer) -> str:
    """Return the first value of an answer's config that is no choice of its knob, as a text; empty if there is none.

    An imported answer states values of its own. A knob that the config does not have takes its default, and is named if
    it has none.
    """
    if stored.answer.kind == IMPORTED:
        return ""
    config = stored.answer.config
    for knob in signature.knobs:
        if knob.choices and knob.name in config and config[knob.name] not in knob.choices:
            return f"config: the kernel has no {knob.name}={config[knob.name]} now"
        if knob.choices and knob.name not in config and knob.default is UNSET:
            return f"config: the kernel has {knob.name} now, and the config does not state it"
    if len(config) > len(signature.knobs) and (others := config.keys() - {knob.name for knob in signature.knobs}):
        return f"config: the kernel has no {min(others)} now"
    return ""


def not_offered_now(in_use: Mapping[tuple[str, str], Signature]) -> Callable[[StoredAnswer], str]:
    """Return the test of an answer by `not_offered` with the signature in use of its op and source hash, if known."""
    choices: dict[tuple[str, str], frozenset[tuple[str, Value]]] = {}

    def refused(stored: StoredAnswer) -> str:
        key = stored.answer.problem.op, stored.provenance.source
        signature = in_use.get(key)
        if signature is None:
            return ""
        if key not in choices:
            choices[key] = frozenset((knob.name, choice) for knob in signature.knobs for choice in knob.choices)
        config = stored.answer.config
        if len(config) == len(signature.knobs) and config.is_among(choices[key]):
            return ""  # a fifth of the time, and nearly always so
        return not_offered(signature, stored)

    return refused


def not_offered_by(kernel: Kernel, stored: StoredAnswer) -> str:
    """Return what a kernel lacks of an answer's config, as `not_offered` does, also a combination of choices."""
    missing = not_offered(kernel.signature, stored)
    if missing or stored.answer.kind == IMPORTED or any(_has(part, stored.answer.config) for part in kernel.parts):
        return missing
    return f"config: the kernel does not combine {stored.answer.config.text} now"


def _has(part: Mapping[str, tuple[object, ...]], config: Config) -> bool:
    return all(name not in config or config[name] in choices for name, choices in part.items())
