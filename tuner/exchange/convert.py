"""From what files of others say to answers of this store: checked like anybody's words, and marked as imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from tuner.db.intake import Arrival
from tuner.errors import UsageError
from tuner.exchange.claim import Claim, Refused
from tuner.kernels.spec import Attribute, Dim, Knob, Signature, Value
from tuner.lookup.bundle import Bundle
from tuner.records import IMPORTED, Answer, Device, Environment, Provenance
from tuner.records.codec import is_drawn, is_name, is_value, knobs_of

_WORD = r"[A-Za-z0-9_.,+-]{1,60}"
_LAUNCH = {"num_warps": (1, 64), "num_stages": (0, 64)}
"""What every Triton config says, from the least to the most that makes sense."""
_MOST_KNOBS, _LONGEST = 32, 100
_SUMMARY = "as files of others have it; there is no kernel to it here"
_DTYPES = ("bf16", "fp16", "fp32")
"""Which is the default of an op where several are claimed, the first that is."""


def adopt(
    claims: Iterable[Claim], known: Callable[[str], Signature | None], described: Callable[[str], Device | None]
) -> tuple[list[Arrival], list[Refused]]:
    """The answers that claims come to, and what is wrong with the others.

    An op whose kernel is known is asked by that kernel's signature, and its config must have that kernel's knobs. For
    others a signature is drawn from the claims; it has no choices, so nobody can search by it. Of two claims about the
    same the first counts.

    Args:
        known: the signature of an op: of a kernel, or as it was drawn from claims before.
        described: the card of an id, where more is known of it than a name.
    """
    refused = list[Refused]()
    by_op: dict[str, list[Claim]] = {}
    for claim in claims:
        if fault := _fault(claim):
            refused.append(Refused(claim.file, fault))
        else:
            by_op.setdefault(claim.op, []).append(claim)
    arrivals = dict[tuple[str, ...], Arrival]()
    described = cache(described)
    for op, several in by_op.items():
        signatures = _signatures(op, several, known(op))
        for claim in several:
            try:
                arrival = _arrival(claim, signatures[frozenset(claim.config)], described)
            except UsageError as error:
                refused.append(Refused(claim.file, str(error)))
                continue
            first = arrivals.setdefault(_question(arrival), arrival)
            if first is not arrival:
                refused.append(_said_before(first, arrival))
    return list(arrivals.values()), refused


def unpacked(bundle: Bundle) -> list[Arrival]:
    """The answers of a bundle, as they were where it was made: of the same key they are exact here too.

    What had been imported there goes on saying from where.
    """
    signatures = dict[tuple[str, frozenset[str]], Signature]()
    arrivals = []
    for stored in bundle.answers:
        answer = stored.answer
        signature = bundle.signatures[answer.problem.op]
        if answer.kind == IMPORTED:
            key = (signature.op, frozenset(answer.config))
            signature = signatures.setdefault(key, knobs_of(signature, answer.config))
        origin = stored.taken_from or f"bundle {bundle.sha256[:12]} of store {bundle.snapshot}"
        arrivals.append(Arrival(signature, answer, stored.provenance, origin, stored.created_at))
    return arrivals


def _fault(claim: Claim) -> str:
    """What is wrong with a claim as such; empty where nothing is."""
    config = claim.config
    named = [*claim.dims, *claim.attributes, *config]
    if not all(is_name(str(name)) for name in named) or len(config) > _MOST_KNOBS:
        return "a name in it is none, or there are too many"
    if not re.fullmatch("[a-z][a-z0-9_]{0,63}", claim.op):
        return f"{claim.op[:40]!r} names no op; an op is lower-case letters, digits and _; give --op"
    if not all(isinstance(word, bool) or re.fullmatch(_WORD, str(word)) for word in claim.attributes.values()):
        return "a word of its problem has characters that no answer can be asked by"
    for name, value in config.items():
        if not is_value(value):
            return f"{name} is no number, yes or no, or short text"
    for name, (least, most) in _LAUNCH.items():
        if type(config.get(name)) is not int or not least <= config[name] <= most:
            return f"no Triton config: its {name} is no number from {least} to {most}"
    if len(claim.device) > _LONGEST or not Device.called(claim.device).id:
        return "it names no device"
    if not re.fullmatch(r"[\w.+-]{0,40}", claim.triton):
        return "its Triton version is none"
    return ""


def _signatures(op: str, claims: Sequence[Claim], known: Signature | None) -> dict[frozenset[str], Signature]:
    """By the names of a config's knobs, what describes such claims."""
    configs = {frozenset(claim.config): claim.config for claim in claims}
    if known is not None and not is_drawn(known):
        return dict.fromkeys(configs, known)
    was = known or Signature(
        op, tuple(map(Dim, claims[0].dims)), (), tuple(Knob(name, ()) for name in claims[0].config)
    )
    found = {claim.dtype for claim in claims} - set(was.dtypes)
    dtypes = (*was.dtypes, *sorted(found, key=lambda dtype: (dtype not in _DTYPES, dtype != "bf16", dtype)))
    attributes = _attributes(claims, was.attributes)
    drawn = Signature(op, was.dims, dtypes, was.knobs, attributes, _SUMMARY)
    return {names: knobs_of(drawn, config) for names, config in configs.items()}


def _attributes(claims: Sequence[Claim], was: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """All that were ever claimed; what a claim leaves out is `none`, or no."""
    choices: dict[str, dict[Value, None]] = {attribute.name: dict.fromkeys(attribute.choices) for attribute in was}
    for claim in claims:
        for name, value in claim.attributes.items():
            default = False if isinstance(value, bool) else "none"
            choices.setdefault(name, {default: None})[value] = None
    return tuple(Attribute(name, tuple(values), next(iter(values))) for name, values in choices.items())


def _arrival(claim: Claim, signature: Signature, described: Callable[[str], Device | None]) -> Arrival:
    named = Device.called(claim.device)
    answer = Answer(
        problem=signature.problem({**claim.dims, "dtype": claim.dtype, **claim.attributes}),
        kind=IMPORTED,
        config=signature.config(claim.config),
        latency_us=claim.latency_us,
        interval_us=None,
        speedup=None,
        speedup_interval=None,
        default_latency_us=None,
        vendor_latency_us=None,
    )
    provenance = Provenance(described(named.id) or named, Environment(claim.triton), "", claim.policy)
    return Arrival(signature, answer, provenance, claim.file)


def _question(arrival: Arrival) -> tuple[str, ...]:
    """What an arrival answers, and for whom."""
    its = arrival.provenance
    return arrival.answer.problem.text, its.device.id, its.environment.triton, its.policy


def _said_before(first: Arrival, arrival: Arrival) -> Refused:
    same = first.answer.config == arrival.answer.config
    return Refused(arrival.origin, f"{first.origin} says {'the same' if same else 'otherwise'}")
