"""Answers, devices and transfers as JSON: written without loss, and read strictly, since the source is not trusted.

Fields follow from the dataclasses: one is written by its value and read by its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from tuner.errors import UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.records.answer import (
    BASES,
    IMPORTED,
    KINDS,
    REFERENCE,
    Answer,
    Evidence,
    Provenance,
    StoredAnswer,
    Tie,
    Transfer,
)
from tuner.records.device import Device, Environment
from tuner.records.measurement import Interval, Measurement, Outcome
from tuner.records.signatures import checked_config, imported_config, stored_problem
from tuner.records.strict import LARGEST, JsonObject, whole_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


@cache
def types_of(record: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields, by name."""
    return get_type_hints(record)


def plain(value: Any) -> Any:
    """Return a record, a config or a problem as JSON values, with lists for tuples."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Problem):
        return dict(value.values)
    if isinstance(value, Mapping):
        return dict(value)
    return {name: plain(getattr(value, name)) for name in _field_names(value.__class__)}


@cache
def _field_names(record: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields. Raises TypeError for another type, which has no JSON."""
    if not is_dataclass(record):
        raise TypeError(f"a record holds JSON values and records, not a {record.__name__}")
    return tuple(each.name for each in fields(record))


def answer_to_json(stored: StoredAnswer, device: int, signature: int | None = None) -> dict[str, Any]:
    """Return an answer in full.

    Args:
        device: Index of its device in the list that goes with it.
        signature: Index of the signature that reads it; None if that is the only one of its op.
    """
    return {
        "id": stored.id,
        "op": stored.answer.problem.op,
        **plain(stored.answer),
        "device": device,
        "recorded": stored.provenance.recorded,
        "tuned_with": stored.provenance.as_json(),
        "tuned_at": stored.created_at,
        "run": stored.run_id,
        "trials": stored.trials,
        "settings": stored.settings,
        **({} if signature is None else {"signature": signature}),
    }


def answer_from_json(
    data: object, signatures: Sequence[Signature | None], devices: Sequence[Device | None]
) -> StoredAnswer:
    """Return the answer that `answer_to_json` wrote. Fields that an older version did not write have their defaults.

    Args:
        signatures: The signatures that go with it; None for one that cannot be read. An answer that names none of them
            is read by the last one of its op that is not of a captured call.

    Raises:
        UsageError: A field is missing, has another type, or does not fit the signature of the op.
    """
    given = JsonObject(data, "an answer")
    op, device = given.text("op"), given.whole("device")
    signature = _signature(given, op, signatures)
    if device >= len(devices):
        raise UsageError(f"an answer's device is one of the {len(devices)} in the list, not number {device}")
    at = devices[device]
    if at is None:
        raise UsageError(f"an answer's device can be read, and number {device} of the list cannot")
    tuned_with = given.object("tuned_with")
    return StoredAnswer(
        id=given.whole("id"),
        answer=answer_of(given, signature),
        provenance=Provenance(
            device=at,
            environment=Environment(**{each.name: tuned_with.text(each.name) for each in fields(Environment)}),
            source=tuned_with.text("source"),
            policy=tuned_with.text("policy"),
            recorded=given.optional("recorded", given.text),
            tuner=tuned_with.text("tuner"),
            definition=tuned_with.text("definition") if "definition" in tuned_with.data else "",
        ),
        created_at=given.text("tuned_at"),
        run_id=given.whole("run"),
        trials=given.whole("trials"),
        settings=given.mapping("settings"),
        signature=signature,
    )


def _signature(given: JsonObject, op: str, signatures: Sequence[Signature | None]) -> Signature:
    """Return the signature that reads an answer."""
    named = signatures
    if "signature" in given.data:
        number = given.whole("signature")
        named = signatures[number : number + 1]
    readers = [signature for signature in named if signature is not None and signature.op == op]
    if not readers:
        raise UsageError(f"an answer comes with the signature of its op, and there is none of {op[:80]!r}")
    return next((signature for signature in reversed(readers) if not signature.captured), readers[-1])


def answer_of(given: JsonObject, signature: Signature) -> Answer:
    """Return the answer of its fields' plain values, which may come from anywhere.

    Raises:
        UsageError: A field is missing, has another type, or does not fit the signature.
    """
    kind = given.text("kind")
    if kind not in KINDS:
        raise UsageError(f"an answer is {', '.join(KINDS)}, not {kind[:40]!r}")
    if kind != IMPORTED and given.data.get("latency_us") is None:
        raise UsageError(f"an answer of kind {kind} has latency_us, and here it is missing")
    if given.data.get("basis", REFERENCE) not in BASES:
        raise UsageError(f"the basis of an answer is {' or '.join(BASES)}, not {str(given.data['basis'])[:40]!r}")
    config = imported_config if kind == IMPORTED else checked_config
    return _ANSWER.read(
        given,
        problem=stored_problem(signature, given.mapping("problem")),
        config=config(signature, given.mapping("config")),
        ties=tuple(_tie(tie, signature) for tie in given.items("ties")) if "ties" in given.data else (),
    )


def _tie(data: object, signature: Signature) -> Tie:
    given = JsonObject(data, "a tie")
    return _TIE.read(given, config=checked_config(signature, given.mapping("config")))


def measurement_of(given: JsonObject, signature: Signature) -> Measurement:
    """Return the measurement of its fields' plain values, which may come from anywhere.

    Raises:
        UsageError: A field is missing or has another type, the config is not one of the signature, or it ran without
            latencies that are finite and above 0.
    """
    found = _MEASUREMENT.read(given, config=signature.config(given.mapping("config")))
    if not found.ok and given.data.get("outcome") == Outcome.OK:
        raise UsageError(f"a measurement that is ok has samples that are finite and above 0; {found.error}")
    if found.ok and not found.samples:
        raise UsageError("a measurement that is ok has samples, and here are none")
    return found


def _outcome(given: JsonObject, name: str) -> Outcome:
    try:
        return Outcome(given.text(name))
    except ValueError:
        raise UsageError(f"an outcome is {', '.join(Outcome)}, not {given.data[name][:40]!r}") from None


Reader = Callable[[JsonObject, str], Any]
"""Reads the field of that name, or raises `UsageError`."""


class RecordReader(Generic[R]):
    """Reads a dataclass field by field. A field with a default may be missing.

    Args:
        record: The dataclass.
        readers: Readers by the type of a field, in place of the usual ones.
    """

    def __init__(self, record: type[R], readers: Mapping[Any, Reader] = {}) -> None:
        self._record, self._readers = record, readers

    def read(self, given: JsonObject, **known: Any) -> R:
        """Return the record of these fields and of those that the caller knows.

        Raises:
            UsageError: A field is missing or has another type.
        """
        data = given.data
        for name, reader, is_optional in self._fields:
            if name not in known and not (is_optional and name not in data):
                known[name] = reader(given, name)
        return self._record(**known)

    @cached_property
    def _fields(self) -> Sequence[tuple[str, Reader, bool]]:
        """Name, reader and whether it may be missing, of each field that the caller need not know."""
        types, readers = types_of(self._record), {**_READERS, **self._readers}
        known = [each for each in fields(self._record) if types[each.name] in readers]
        return [(each.name, readers[types[each.name]], _has_default(each)) for each in known]


def _has_default(each: Field[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


_READERS: Mapping[Any, Reader] = {
    str: JsonObject.text,
    str | None: lambda given, name: given.optional(name, given.text),
    bool: JsonObject.boolean,
    int: JsonObject.whole,
    int | None: lambda given, name: given.optional(name, given.whole),
    float: JsonObject.number,
    float | None: lambda given, name: given.optional(name, given.positive),
    Interval: JsonObject.interval,
    Interval | None: lambda given, name: given.optional(name, given.interval),
    tuple[str, ...]: JsonObject.texts,
    tuple[int, int]: lambda given, name: tuple(whole_number(each, name) for each in given.items(name, exactly=2)),
    Evidence: lambda given, name: _EVIDENCE.read(given.object(name)),
}
"""Readers by the type of a field."""
_ANSWER, _TIE, _DEVICE = RecordReader(Answer), RecordReader(Tie), RecordReader(Device)
_EVIDENCE: RecordReader[Evidence] = RecordReader(
    Evidence, {float | None: lambda given, name: given.optional(name, given.number)}
)
"""Its numbers may be 0."""
_MEASUREMENT = RecordReader(
    Measurement,
    {
        str: JsonObject.any_text,
        float | None: lambda given, name: given.optional(name, given.measured),
        Outcome: _outcome,
        tuple[float, ...]: lambda given, name: tuple(given.numbers(name)),
    },
)


def transfer_from_json(data: object) -> Transfer:
    """Return the transfer whose `as_json` this is.

    Raises:
        UsageError: It is none.
    """
    if not isinstance(data, list) or len(data) != 5:
        raise UsageError("a transfer is a list of five numbers")
    *ids, distance, slowdown = data
    ratios = [distance] if slowdown is None else [distance, slowdown]
    whole = all(type(id) is int for id in ids)
    if not whole or not all(type(number) in (int, float) and 0 <= number <= LARGEST for number in ratios):
        raise UsageError("a transfer is three ids, a distance, and a slowdown or null")
    if slowdown == 0:
        raise UsageError("a slowdown is more than 0")
    return Transfer.from_json(data)


def device_to_json(device: Device) -> dict[str, Any]:
    """Return the fields of a device."""
    return asdict(device)


def device_from_json(data: object) -> Device:
    """Return the device that `device_to_json` wrote.

    Raises:
        UsageError: A field is missing or has another type.
    """
    return _DEVICE.read(JsonObject(data, "a device"))
