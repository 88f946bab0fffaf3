"""Retunes and findings as JSON: written without loss, and read strictly, as `codec` reads answers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from tuner.errors import UsageError
from tuner.kernels.spec import Config, Signature
from tuner.records.answer import Provenance
from tuner.records.codec import RecordReader, device_from_json, plain
from tuner.records.device import Environment
from tuner.records.measurement import CardState
from tuner.records.retune import Action, Cause, Contender, Finding, Reading, Retune
from tuner.records.signatures import is_name, is_value, stored_problem, without_choices
from tuner.records.strict import JsonObject, whole_number

E = TypeVar("E", bound=StrEnum)


def retune_as_json(retune: Retune) -> dict[str, Any]:
    """Return a retune with its findings, as documents have it."""
    return {
        "id": retune.id,
        "device": retune.device,
        "status": retune.status,
        "started_at": retune.started_at,
        "ended_at": retune.ended_at,
        "settings": dict(retune.settings),
        "environment": dict(retune.environment),
        "planned": list(retune.planned),
        "left": retune.left,
        "findings": [finding_to_json(finding) for finding in retune.findings],
    }


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding in full."""
    readings = {"then": finding.then, "now": finding.now}
    whole = {name: value for name, value in vars(finding).items() if name not in readings}
    written = {name: str(value) if isinstance(value, StrEnum) else plain(value) for name, value in whole.items()}
    return {"op": finding.problem.op, **written, **{name: _reading_to_json(each) for name, each in readings.items()}}


def finding_from_json(data: object, signature: Signature) -> Finding:
    """Return the finding that `finding_to_json` wrote.

    Args:
        signature: Describes the problem. The configs may have other knobs, since the kernel may have changed since.

    Raises:
        UsageError: A field is missing, has another type, or does not fit the signature.
    """
    given = JsonObject(data, "a finding")
    if (op := given.text("op")) != signature.op:
        raise UsageError(f"a finding is of the op of its answer, {signature.op}, not {op[:80]!r}")
    config = partial(_config, signature)
    return _FINDING.read(
        given,
        problem=stored_problem(signature, given.mapping("problem")),
        config=config(given.mapping("config")),
        then=given.optional("then", lambda name: _reading(given.object(name), signature)),
        now=given.optional("now", lambda name: _reading(given.object(name), signature)),
        new_config=given.optional("new_config", lambda name: config(given.mapping(name))),
    )


def _reading_to_json(reading: Reading | None) -> dict[str, Any] | None:
    if reading is None:
        return None
    provenance = reading.provenance
    measured = {name: plain(value) for name, value in vars(reading).items() if name not in ("contenders", "provenance")}
    return {
        **measured,
        "contenders": {role: plain(contender) for role, contender in reading.contenders.items()},
        "device": plain(provenance.device),
        "recorded": provenance.recorded,
        "measured_with": provenance.as_json(),
    }


def _reading(given: JsonObject, signature: Signature) -> Reading:
    contenders = given.object("contenders")
    return _READING.read(
        given,
        contenders={role: _contender(contenders.object(role), signature) for role in contenders.data},
        provenance=_provenance(given),
        state=given.optional("state", lambda name: _STATE.read(given.object(name))),
    )


def _contender(given: JsonObject, signature: Signature) -> Contender:
    config = given.optional("config", lambda name: _config(signature, given.mapping(name)))
    return _CONTENDER.read(given, config=config)


def _provenance(given: JsonObject) -> Provenance:
    measured_with = given.object("measured_with")
    versions = ("triton", "ptxas", "torch", "driver")
    return Provenance(
        device=device_from_json(given.mapping("device")),
        environment=Environment(**{name: measured_with.any_text(name) for name in versions}),
        recorded=given.optional("recorded", given.text),
        **{name: measured_with.any_text(name) for name in ("source", "definition", "policy", "tuner")},
    )


def _config(signature: Signature, values: Mapping[str, Any]) -> Config:
    """Return the config of these values, whose knobs need not be those of the signature."""
    for name, value in values.items():
        if not is_name(name) or not is_value(value):
            raise UsageError(f"{signature.op}: {name[:40]!r} is not a knob whose value is a number, a bool or a text")
    known = {knob.name for knob in signature.knobs}
    return (signature if values.keys() == known else without_choices(signature, values)).config(values)


def _one_of(kind: type[E], title: str, given: JsonObject, name: str) -> E:
    try:
        return kind(given.text(name))
    except ValueError:
        raise UsageError(f"{title} is {', '.join(kind)}, not {given.data[name][:40]!r}") from None


_FINDING = RecordReader(
    Finding,
    {
        str: JsonObject.any_text,
        Cause: partial(_one_of, Cause, "a cause"),
        Action: partial(_one_of, Action, "an action"),
    },
)
_READING, _CONTENDER = RecordReader(Reading), RecordReader(Contender)
_STATE = RecordReader(
    CardState,
    {
        float | None: lambda given, name: given.optional(name, given.measured),
        tuple[int, ...]: lambda given, name: tuple(whole_number(each, name) for each in given.items(name)),
    },
)
"""A card may draw 0 W by its own report."""
