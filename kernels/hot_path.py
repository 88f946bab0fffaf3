"""The hot path of an op's call, generated as source code from its declaration.

Code without loops, dictionaries of names and calls of functions takes less than half the time: each costs 0.05 us or
more, and a launch about 10 us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.kernels.op_call import OpCall


def source(call: OpCall) -> str:
    """Return the source of `made(call, setting, forms)`, which returns the function that launches an op.

    That function takes the values of `OpCall.in_order`, and has a branch for each set of optional tensors. A branch
    makes a key of one of `forms`, each tensor's shape, strides, dtype, place, alignment to 16 bytes, and whether it is
    a negative or conjugate view, the attributes and scalars, and the setting of torch that the op depends on. If no
    launch is prepared for the key, or if a written tensor may overlap another, the call goes through `prepare`. Tensor
    subclasses go through torch, and so do all tensors in a mode that watches torch's ops.
    """
    names = [taken.name for taken in call.taken]
    values = [f"v{place}" for place in range(len(call.takes_attributes) + len(call.kernel.scalars))]
    every = ", ".join([f"t{place}" for place in range(len(names))] + values)
    optional = [place for place, taken in enumerate(call.taken) if taken.is_optional]
    numbers = iter(range(2 ** len(optional)))

    def branches(present: Sequence[int], undecided: Sequence[int]) -> list[str]:
        if not undecided:
            return _branch(call, present, f"forms[{next(numbers)}]", values, every)
        one, *rest = undecided
        without = [place for place in present if place != one]
        return [
            f"if t{one} is None:", *_indented(branches(without, rest)),
            "else:", *_indented(branches(present, rest)),
        ]  # fmt: skip

    body = ["if is_tracing():", f"    return through_torch(call, {every})", *branches(range(len(names)), optional)]
    lines = [f"def launch({every}):", *_indented(body), "return launch"]
    return "\n".join(["def made(call, setting, forms):", *_indented(lines)])


def _branch(call: OpCall, present: Sequence[int], form: str, values: Sequence[str], every: str) -> list[str]:
    """Return the lines of a call with these tensors."""
    place_of = {taken.name: place for place, taken in enumerate(call.taken) if place in present}
    recorded = " or ".join(f"t{place}.requires_grad" for place in present)
    plain = " and ".join(f"type(t{place}) in PLAIN" for place in present)
    on_host = [place for name, place in place_of.items() if name in call.on_host]
    described = [_described(call, place, place in on_host) for place in present]
    setting = ["setting(t0.dtype)"] if call.setting is not None else []
    attributes, scalars = values[: len(call.takes_attributes)], values[len(call.takes_attributes) :]
    key = [[form, *_same(call, place_of)], *described, [*attributes, *map(scalar, scalars), *setting]]
    near = [
        f"found[{2 * number + 1}] < p{place_of[name]} - p{place_of[other]} < found[{2 * number + 2}]"
        for number, (name, other) in enumerate(call.pairs(place_of))
    ]
    out = next(place for name, place in place_of.items() if name in call.written)
    return [
        "try:",
        f"    if ({recorded}) and is_recording():",
        "        refuse_gradient(True)",
        f"    if watchers() or not ({plain}):",
        f"        return through_torch(call, {every})",
        "    if forward_ad._current_level >= 0:",
        f"        refuse_tangents(call.op, call.named({every})[0])",
        *(f"    p{place} = t{place}.data_ptr()" for place in present),
        "    found = prepared.get(key := (",
        *(f"        {', '.join(parts)}," for parts in key if parts),
        "    ))",
        "except (*NOT_STRIDED, ValueError):",
        f"    explain(call, {every})",
        "    raise",
        f"if {' or '.join(['found is None', *near])}:",
        f"    found = prepare(call, key, {every})",
        f"found[0](({', '.join(f'p{place}' for place in present)},))",
        *(line for place in on_host for line in (f"if h{place} == -1:", f"    hold(t{place}, t{out}.device)")),
    ]


def _same(call: OpCall, place_of: Mapping[str, int]) -> list[str]:
    """Return comparisons of the addresses of inputs, and of tensors that may be the same memory.

    A launch may get one of two inputs as a view, and finds it by its address. A written tensor is not launched at the
    address of another unless it may be the same memory.
    """
    inputs = [name for name in place_of if name not in call.written]
    pairs = [(one, other) for place, one in enumerate(inputs) for other in inputs[:place]]
    pairs += [pair for pair in call.in_place if place_of.keys() >= {*pair}]
    return [f"p{place_of[one]} == p{place_of[other]}" for one, other in pairs]


def _described(call: OpCall, place: int, may_be_on_host: bool) -> list[str]:
    tensor, address = f"t{place}", f"p{place}"
    where = f"(h{place} := {on_host_or_device(tensor)})" if may_be_on_host else f"{tensor}.get_device()"
    complex_too = [f"{tensor}.is_conj()"] if call.takes_complex else []
    return [*layout(tensor, address, where), f"{tensor}.is_neg()", *complex_too]


def layout(tensor: str, address: str, where: str) -> list[str]:
    """Return the parts of a key that describe a tensor: shape, strides, dtype, place, and alignment to 16 bytes.

    Args:
        tensor, address: names of the tensor and of its address.
        where: expression of its place.
    """
    alignment = f"{address} & 15 if {address} else -1"  # -1: it has no memory
    return [f"{tensor}.shape", f"{tensor}.stride()", f"{tensor}.dtype", where, alignment]


def scalar(name: str) -> str:
    """Return the part of a key that describes a scalar: its value, or its text for 0.0 and -0.0, which are equal."""
    return f'{name} or f"{{{name}}}"'


def on_host_or_device(tensor: str) -> str:
    """Return the expression of a tensor's place: its device, -1 for pinned memory, -2 for other memory of the host.

    torch finds out whether a negative view is pinned by computing its elements, so it is not asked.
    """
    on_host = f"-2 if {tensor}.is_neg() else {tensor}.is_pinned() - 2"
    return f"d if (d := {tensor}.get_device()) >= 0 else {on_host}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def generated(call: OpCall, namespace: dict[str, Any]) -> Callable[..., None]:
    """Return the function of `source`, with the names of a module as its globals."""
    found: dict[str, Any] = {}
    exec(compile(source(call), f"<call of {call.op}>", "exec"), namespace, found)
    forms = tuple(object() for _ in range(2 ** sum(taken.is_optional for taken in call.taken)))
    launch: Callable[..., None] = found["made"](call, call.setting, forms)
    return launch
