"""Answers and signatures as plain JSON: nothing is lost on the way out, and nothing is believed on the way in.

What comes back may have been written by anybody. Every field is taken by name and type, numbers are finite and sizes
bounded, and a config has the knobs of its signature with values of their types. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import MAX_SIZE, Config, Knob, Signature, dtype_name
from tuner.records import (
    IMPORTED,
    Answer,
    Device,
    Environment,
    Evidence,
    Interval,
    Provenance,
    StoredAnswer,
    Tie,
    Transfer,
)

_KINDS = ("tuned", "default", "rollback", IMPORTED)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LONGEST, _MOST_ITEMS, _LARGEST = 10_000, 10_000, 1e300
"""Of a text, in characters; of a list; of a number."""


def answer_to_json(stored: StoredAnswer, device: int) -> dict[str, Any]:
    """An answer in full; `device` is the place of its card in the list that goes with it."""
    answer, provenance = stored.answer, stored.provenance
    return {
        "id": stored.id,
        "op": answer.problem.op,
        "problem": dict(answer.problem.values),
        "device": device,
        "config": dict(answer.config),
        "kind": answer.kind,
        "latency_us": answer.latency_us,
        "interval_us": answer.interval_us,
        "speedup": answer.speedup,
        "speedup_interval": answer.speedup_interval,
        "default_latency_us": answer.default_latency_us,
        "vendor_latency_us": answer.vendor_latency_us,
        "ties": [{**asdict(tie), "config": dict(tie.config)} for tie in answer.ties],
        "unresolved": answer.unresolved,
        "evidence": asdict(answer.evidence),
        "marks": answer.marks,
        "flops": answer.flops,
        "bytes": answer.bytes,
        "recorded": provenance.recorded,
        "tuned_with": provenance.as_json(),
        "tuned_at": stored.created_at,
        "run": stored.run_id,
        "trials": stored.trials,
        "settings": stored.settings,
    }


def answer_from_json(data: object, signatures: Mapping[str, Signature], devices: Sequence[Device]) -> StoredAnswer:
    """The answer that `answer_to_json` wrote.

    Raises:
        UsageError: a field is missing, has another type, or makes no sense to the signature of its op.
    """
    given = _Fields(data, "an answer")
    op, place = given.text("op"), given.whole("device")
    if op not in signatures:
        raise UsageError(f"an answer comes with the signature of its op, and there is none of {op[:80]!r}")
    if place >= len(devices):
        raise UsageError(f"an answer's device is one of the {len(devices)} in the list, not number {place}")
    signature, made = signatures[op], given.fields("tuned_with")
    return StoredAnswer(
        id=given.whole("id"),
        answer=_answer(given, signature),
        provenance=Provenance(
            device=devices[place],
            environment=Environment(**{name: made.text(name) for name in ("triton", "ptxas", "torch", "driver")}),
            source=made.text("source"),
            policy=made.text("policy"),
            recorded=given.optional("recorded", given.text),
            tuner=made.text("tuner"),
        ),
        created_at=given.text("tuned_at"),
        run_id=given.whole("run"),
        trials=given.whole("trials"),
        settings=given.mapping("settings"),
    )


def _answer(given: _Fields, signature: Signature) -> Answer:
    evidence, kind = given.fields("evidence"), given.text("kind")
    if kind not in _KINDS:
        raise UsageError(f"an answer is {', '.join(_KINDS)}, not {kind[:40]!r}")
    if kind != IMPORTED and given.data.get("latency_us") is None:
        raise UsageError(f"an answer that is {kind} was timed, and here latency_us is missing")
    return Answer(
        problem=signature.problem(given.mapping("problem")),
        kind=kind,
        config=(imported_config if kind == IMPORTED else checked_config)(signature, given.mapping("config")),
        latency_us=given.optional("latency_us", given.positive),
        interval_us=given.optional("interval_us", given.interval),
        speedup=given.optional("speedup", given.positive),
        speedup_interval=given.optional("speedup_interval", given.interval),
        default_latency_us=given.optional("default_latency_us", given.positive),
        vendor_latency_us=given.optional("vendor_latency_us", given.positive),
        ties=tuple(_tie(_Fields(tie, "a tie"), signature) for tie in given.items("ties")),
        unresolved=given.yes("unresolved"),
        evidence=Evidence(
            max_error=evidence.optional("max_error", evidence.number),
            tolerance=evidence.optional("tolerance", evidence.number),
            inputs=evidence.texts("inputs"),
            launches=evidence.whole("launches"),
        ),
        marks=given.texts("marks"),
        flops=given.whole("flops"),
        bytes=given.whole("bytes"),
    )


def _tie(given: _Fields, signature: Signature) -> Tie:
    config = checked_config(signature, given.mapping("config"))
    return Tie(config, given.number("slowdown"), given.interval("interval"))


def checked_config(signature: Signature, values: Mapping[str, Any]) -> Config:
    """The config that `values` describe, each of a type that its knob's choices have.

    A value that is no choice is kept, as `Signature.config` does; what it may be is for the kernel's `valid` to say.

    Raises:
        UsageError: a knob is unknown or missing, or its value has another type.
    """
    config = signature.config(values)
    for knob in signature.knobs:
        value, kinds = config[knob.name], {type(choice) for choice in knob.choices}
        if type(value) not in kinds or not is_value(value):
            raise UsageError(
                f"{signature.op}: {knob.name} is {' or '.join(sorted(kind.__name__ for kind in kinds))}, "
                f"not {str(value)[:40]!r}"
            )
    return config


def imported_config(signature: Signature, values: Mapping[str, Any]) -> Config:
    """The config that `values` describe, of an answer that no kernel's signature was asked about: as it stands.

    Raises:
        UsageError: a name is no knob's, or a value none.
    """
    for name, value in values.items():
        if not is_name(name) or not is_value(value):
            raise UsageError(f"{signature.op}: {name[:40]!r} is no knob with a number, yes or no, or a text")
    return knobs_of(signature, values).config(values)


def knobs_of(signature: Signature, values: Iterable[str]) -> Signature:
    """A signature drawn from a config of others: it has these knobs, and does not say what they may be set to."""
    return replace(signature, knobs=tuple(Knob(name, ()) for name in values))


def is_drawn(signature: Signature) -> bool:
    """Whether it was drawn from configs of others, so that nobody can search by it."""
    return not any(knob.choices for knob in signature.knobs)


def transfer_from_json(data: object) -> Transfer:
    """The transfer whose `as_json` this is.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(data, list) or len(data) != 5:
        raise UsageError("a transfer is a list of five numbers")
    *ids, distance, slowdown = data
    ratios = [distance] if slowdown is None else [distance, slowdown]
    counted = all(type(id) is int for id in ids)
    if not counted or not all(type(number) in (int, float) and 0 <= number <= _LARGEST for number in ratios):
        raise UsageError("a transfer is three ids, a distance, and a slowdown or null")
    if slowdown == 0:
        raise UsageError("a slowdown is more than 0")
    return Transfer.from_json(data)


def device_to_json(device: Device) -> dict[str, Any]:
    """What a card is, by field."""
    return asdict(device)


def device_from_json(data: object) -> Device:
    """The card that `device_to_json` wrote.

    Raises:
        UsageError: a field is missing or has another type.
    """
    given = _Fields(data, "a device")
    sizes = ("sm_count", "memory_bytes", "l2_bytes", "shared_bytes")
    major, minor = (_whole(part, "capability") for part in given.items("capability", exactly=2))
    return Device(
        name=given.text("name"),
        capability=(major, minor),
        **{name: given.whole(name) for name in sizes},
        pci_id=given.text("pci_id"),
        mig=given.text("mig"),
    )


def signature_from_json(data: object) -> Signature:
    """The signature that `Signature.as_json` wrote.

    Raises:
        UsageError: it is none: a name is no name, a choice no value, a default no choice.
    """
    given = _Fields(data, "a signature")
    for name in ("dims", "knobs", "attributes"):
        for item in given.items(name):
            _checked_item(_Fields(item, f"one of {name}"), name)
    for dtype in given.texts("dtypes"):
        dtype_name(dtype)
    given.text("op"), given.text("summary")
    signature = Signature.from_json(given.data)
    if not signature.dims or not signature.dtypes:
        raise UsageError(f"{signature.op}: a signature has a dim and a dtype at least")
    if not is_drawn(signature):
        for knob in signature.knobs:
            if not knob.choices:
                raise _no_choices(knob.name)
    known = list[object]()
    for dim in signature.dims:
        if isinstance(dim.default, str) and dim.default not in known:
            raise UsageError(f"{signature.op}: {dim.name} defaults to a dim before it, not to {dim.default[:40]!r}")
        known.append(dim.name)
    return signature


def _checked_item(item: _Fields, kind: str) -> None:
    """A dim, knob or attribute of a signature."""
    if not is_name(item.text("name")):
        raise UsageError(f"a name is letters, digits and _, not {item.text('name')[:40]!r}")
    item.text("help")
    default = item.data.get("default")
    if kind == "dims":
        if default is not None and not (isinstance(default, str) or _whole(default, "a dim's default") >= 1):
            raise UsageError("a dim's default is a size or another dim's name")
        return
    choices = item.items("choices")
    if not all(map(is_value, choices)) or (not choices and kind == "attributes"):
        raise _no_choices(item.text("name"))
    if kind == "attributes":
        item.texts("dtypes")
    if default not in choices and not (kind == "knobs" and default is None):
        raise UsageError(f"{item.text('name')}: the default is one of the choices")


def _no_choices(name: str) -> UsageError:
    return UsageError(f"{name}: choices are numbers, yes or no, or texts, and at least one")


def is_name(text: str) -> bool:
    """Whether it can name a dim, an attribute or a knob."""
    return _NAME.fullmatch(text) is not None


def is_value(value: object) -> bool:
    """Whether it passes through Triton unchanged."""
    if isinstance(value, str):
        return len(value) <= 200
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) <= MAX_SIZE)


def _whole(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise UsageError(f"{name} is a whole number, not {str(value)[:40]!r}")
    return value


class _Fields:
    """A JSON object whose fields are asked for with the type that each must have."""

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise UsageError(f"{what} is an object, not {type(data).__name__}")
        self.data: dict[str, Any] = data
        self._what = what

    def fields(self, name: str) -> _Fields:
        return _Fields(self._value(name), name)

    def mapping(self, name: str) -> dict[str, Any]:
        return self.fields(name).data

    def optional(self, name: str, taken: Any) -> Any:
        return None if self._value(name) is None else taken(name)

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise self._other(name, "a text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) and len(value) <= _LONGEST for value in values):
            raise self._other(name, "a list of texts")
        return tuple(values)

    def yes(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise self._other(name, "true or false")
        return value

    def whole(self, name: str) -> int:
        return _whole(self._value(name), name)

    def number(self, name: str) -> float:
        return self._number(name, self._value(name))

    def positive(self, name: str) -> float:
        value = self.number(name)
        if value <= 0:
            raise self._other(name, "a positive number")
        return value

    def interval(self, name: str) -> Interval:
        low, high = (self._number(name, value) for value in self.items(name, exactly=2))
        return low, high

    def items(self, name: str, exactly: int | None = None) -> list[Any]:
        value = self._value(name)
        if not isinstance(value, list) or len(value) > _MOST_ITEMS or exactly not in (None, len(value)):
            raise self._other(name, "a list" if exactly is None else f"a list of {exactly}")
        return value

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
            raise self._other(name, "a number")
        return value

    def _value(self, name: str) -> Any:
        if name not in self.data:
            raise UsageError(f"{self._what} has {name}, and here it is missing")
        return self.data[name]

    def _other(self, name: str, kind: str) -> UsageError:
        return UsageError(f"{self._what} has {kind} as {name}, not {str(self.data[name])[:40]!r}")
