"""From the configs of files and bundles to imported answers, each value checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from tuner.db.import_rules import ImportedAnswer
from tuner.errors import UsageError
from tuner.exchange.imported import LIMITS, ImportedConfig, ImportLimits, Skipped
from tuner.exchange.knob_rules import knobs_fault, whole
from tuner.kernels.spec import Attribute, Dim, Knob, Signature, Value
from tuner.lookup.bundle import Bundle
from tuner.records import IMPORTED, Answer, Device, Environment, Provenance
from tuner.records.signatures import is_name, lacks_choices, without_choices

_ATTRIBUTE = r"[A-Za-z0-9_.,+-]{1,60}"
_SUMMARY = "configs imported from files of other tools; no kernel of this op is here"
_DTYPES = ("bf16", "fp16", "fp32")
"""Preferred default dtypes of an op that has no kernel, the most preferred first."""


def to_answers(
    configs: Iterable[ImportedConfig],
    known_signature: Callable[[str], Signature | None],
    known_device: Callable[[str], Device | None],
    limits: ImportLimits = LIMITS,
) -> tuple[list[ImportedAnswer], list[Skipped]]:
    """Return the answers of imported configs, and the configs that are skipped.

    A config of an op with a kernel must fit the kernel's signature. For another op a signature is drawn from the
    configs; its knobs have no choices, so no search can use it. The first of several configs with one key counts.

    Args:
        known_signature: Returns the signature of an op, of its kernel or of an earlier import, or None.
        known_device: Returns the full description of the card with an id, or None.
        limits: Bounds on a config.
    """
    skipped = list[Skipped]()
    by_op: dict[str, list[ImportedConfig]] = {}
    for stated in configs:
        config = replace(stated, config={name: whole(value) for name, value in stated.config.items()})
        if fault := _fault(config, limits):
            skipped.append(Skipped(config.file, fault, config.at))
        else:
            by_op.setdefault(config.op, []).append(config)
    answers = dict[tuple[str, ...], ImportedAnswer]()
    known_device = cache(known_device)
    for op, several in by_op.items():
        known = known_signature(op)
        faults = [knobs_fault(known, config.config, limits) for config in several]
        skipped += [Skipped(one.file, fault, one.at) for one, fault in zip(several, faults, strict=True) if fault]
        sound = [config for config, fault in zip(several, faults, strict=True) if not fault]
        signatures = _signatures(op, sound, known) if sound else {}
        for config in sound:
            try:
                answer = _answer(config, signatures[frozenset(config.config)], known_device)
            except UsageError as error:
                skipped.append(Skipped(config.file, str(error), config.at))
                continue
            first = answers.setdefault(_key(answer), answer)
            if first is not answer:
                skipped.append(replace(_duplicate(first, answer), at=config.at))
    return list(answers.values()), skipped


def answers_of_bundle(bundle: Bundle, file: str) -> tuple[list[ImportedAnswer], list[Skipped]]:
    """Return the answers of a bundle with their keys and evidence, and the skipped ones.

    An answer that was imported keeps its origin. It is skipped if no kernel could be launched with its config.
    """
    signatures = dict[tuple[str, frozenset[str]], Signature]()
    answers, skipped = list[ImportedAnswer](), list[Skipped]()
    for stored in bundle.answers:
        answer = stored.answer
        signature = stored.signature or bundle.signatures[answer.problem.op]
        if answer.kind == IMPORTED:
            if fault := knobs_fault(None, answer.config):
                skipped.append(Skipped(file, fault, f"answer {stored.id}"))
                continue
            key = (signature.op, frozenset(answer.config))
            signature = signatures.setdefault(key, without_choices(signature, answer.config))
        origin = stored.imported_from or f"bundle {bundle.sha256[:12]} of store {bundle.snapshot}"
        answers.append(ImportedAnswer(signature, answer, stored.provenance, origin, stored.created_at))
    return answers, skipped


def _fault(config: ImportedConfig, limits: ImportLimits) -> str:
    """Return the fault of a config that is wrong for any op, or an empty text."""
    if not re.fullmatch("[a-z][a-z0-9_]{0,63}", config.op):
        return f"an op is lower-case letters, digits and _, not {config.op[:40]!r}; give --op NAME"
    if not config.dims:
        return "a problem has at least one size, and this one has none; give --problem NAME=SIZE,..."
    for name in (*config.dims, *config.attributes, *config.config):
        if not is_name(str(name)):
            return f"a name is letters, digits and _, not {str(name)[:40]!r}"
    for name, value in config.attributes.items():
        if not isinstance(value, bool) and not re.fullmatch(_ATTRIBUTE, str(value)):
            return f"{name} is 1 to 60 letters, digits or _.,+-, not {str(value)[:60]!r}"
    named = config.device.isprintable() and Device.called(config.device).id
    if not named or len(config.device) > limits.max_device_name:
        return f"a device name has 1 to {limits.max_device_name} printable characters, not {config.device[:40]!r}"
    if not re.fullmatch(r"[\w.+-]{0,40}", config.triton):
        return f"a Triton version is up to 40 letters, digits or _.+-, not {config.triton[:40]!r}"
    if not 1 <= len(config.config) <= limits.max_knobs:
        return f"a config has 1 to {limits.max_knobs} knobs, not {len(config.config)}"
    return ""


def _signatures(op: str, configs: Sequence[ImportedConfig], known: Signature | None) -> dict[frozenset[str], Signature]:
    """Return the signature for each set of knob names."""
    by_knobs = {frozenset(config.config): config.config for config in configs}
    if known is not None and not lacks_choices(known):
        return dict.fromkeys(by_knobs, known)
    base = known or Signature(
        op, tuple(map(Dim, configs[0].dims)), (), tuple(Knob(name, ()) for name in configs[0].config)
    )
    new = {config.dtype for config in configs} - set(base.dtypes)
    dtypes = (*base.dtypes, *sorted(new, key=lambda dtype: (dtype not in _DTYPES, dtype != "bf16", dtype)))
    attributes = _attributes(configs, base.attributes)
    drawn = Signature(op, base.dims, dtypes, base.knobs, attributes, _SUMMARY)
    return {names: without_choices(drawn, config) for names, config in by_knobs.items()}


def _attributes(configs: Sequence[ImportedConfig], known: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Return the known attributes with the choices of these configs; the default of a new one is `none` or False.

    Open attributes stay open.
    """
    opened = [attribute for attribute in known if attribute.choices is None]
    choices: dict[str, dict[Value, None]] = {
        attribute.name: dict.fromkeys(attribute.choices) for attribute in known if attribute.choices is not None
    }
    for config in configs:
        for name, value in config.attributes.items():
            default = False if isinstance(value, bool) else "none"
            if name not in [attribute.name for attribute in opened]:
                choices.setdefault(name, {default: None})[value] = None
    return (*opened, *(Attribute(name, tuple(values), next(iter(values))) for name, values in choices.items()))


def _answer(
    config: ImportedConfig, signature: Signature, known_device: Callable[[str], Device | None]
) -> ImportedAnswer:
    """Return the answer of a config.

    Raises:
        UsageError: The problem or the config does not fit the signature.
    """
    named = Device.called(config.device)
    answer = Answer(
        problem=signature.problem({**config.dims, "dtype": config.dtype, **config.attributes}),
        kind=IMPORTED,
        config=signature.config(config.config),
        latency_us=config.latency_us,
    )
    provenance = Provenance(known_device(named.id) or named, Environment(config.triton), "", config.policy)
    return ImportedAnswer(signature, answer, provenance, config.file)


def _key(imported: ImportedAnswer) -> tuple[str, ...]:
    """Return the fields in which two imported configs of one key agree."""
    provenance = imported.provenance
    return (
        imported.answer.problem.text,
        provenance.device.id,
        provenance.environment.triton,
        provenance.policy,
    )


def _duplicate(first: ImportedAnswer, imported: ImportedAnswer) -> Skipped:
    same = first.answer.config == imported.answer.config
    return Skipped(imported.origin, f"{first.origin} has {'the same config' if same else 'another config'} for it")
