"""The hot path of an op's call, generated as source code for the names of its tensors.

Code without loops and function calls takes half the time: a call costs 0.1 us or more, and a launch about 10 us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def source(names: tuple[str, ...], arguments: tuple[str, ...], *, has_setting: bool) -> str:
    """Return the source of `hot(call, tensors, attributes, scalars)`, which finds the prepared launch and runs it.

    The key of a prepared launch has the function, all names, the attributes and scalars, and each tensor's shape,
    strides, dtype, place, alignment to 16 bytes, and whether it is a negative or conjugate view. Tensor subclasses go
    through torch, and so do all tensors in a mode that watches torch's ops. A call without a prepared launch goes
    through `prepare`.

    Args:
        names: names of the tensors, in their order.
        arguments: names of the attributes and of the scalars, in the order of their values.
        has_setting: the problem depends on a setting of torch.
    """
    tensors = [f"t{place}" for place in range(len(names))]
    recorded = " or ".join(f"{tensor}.requires_grad" for tensor in tensors)
    plain = " and ".join(f"type({tensor}) in PLAIN" for tensor in tensors)
    same = [f"{one}_at == {other}_at" for place, one in enumerate(tensors) for other in tensors[:place]]
    described = [part for tensor in tensors for part in (*layout(tensor, f"{tensor}_at"), *_views(tensor))]
    setting = ["call.setting(t0)"] if has_setting else []
    key = ["call.function", repr((*names, *arguments)), "gradient", "*attributes.values()", "*scalars.values()"]
    return "\n".join(
        [
            "def hot(call, tensors, attributes, scalars):",
            f"    {', '.join(tensors)}, = tensors.values()",
            "    try:",
            f"        gradient = ({recorded}) and is_recording()",
            f"        if watchers() or not ({plain}):",
            "            return through_torch(call, tensors, attributes, scalars, gradient)",
            "        if forward_ad._current_level >= 0:",
            "            refuse_tangents(call.op, tensors)",
            f"        at = {', '.join(f'{tensor}_at' for tensor in tensors)}, = "
            f"{', '.join(f'{tensor}.data_ptr()' for tensor in tensors)},",
            f"        found = prepared.get(key := ({', '.join([*key, *setting, *same, *described])}))",
            "    except NOT_STRIDED:",
            "        explain(call, tensors, attributes, scalars)",
            "        raise",
            "    if found is None or not apart(found[1], at):",
            "        found = prepare(call, key, tensors, gradient, attributes, scalars)",
            "    found[0](at)",
        ]
    )


def layout(tensor: str, address: str) -> list[str]:
    """Return the parts of a key that describe a tensor: shape, strides, dtype, place, and alignment to 16 bytes.

    Args:
        tensor, address: names of the tensor and of its address.
    """
    # The place on the host is -1 for pinned memory and -2 for other memory. torch finds out whether a negative view is
    # pinned by computing its elements, so it is not asked.
    on_host = f"-2 if {tensor}.is_neg() else {tensor}.is_pinned() - 2"
    place = f"d if (d := {tensor}.get_device()) >= 0 else {on_host}"
    alignment = f"{address} & 15 if {address} else -1"  # -1: it has no memory
    return [f"{tensor}.shape", f"{tensor}.stride()", f"{tensor}.dtype", place, alignment]


def _views(tensor: str) -> list[str]:
    """Return the parts of a key that say whether the memory of a tensor holds other numbers."""
    return [f"{tensor}.is_neg()", f"{tensor}.is_conj()"]


def generated(
    names: tuple[str, ...], arguments: tuple[str, ...], namespace: Mapping[str, Any], *, has_setting: bool
) -> Any:
    """Return the function of `source`, with the names of a module as its globals."""
    found = dict(namespace)
    exec(compile(source(names, arguments, has_setting=has_setting), f"<call of {', '.join(names)}>", "exec"), found)
    return found["hot"]
