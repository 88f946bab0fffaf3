"""Source of the hot path of `tuner.launch`, for one kernel and the names that it is launched with."""

from __future__ import annotations

from collections.abc import Collection

from tuner.kernels.hot_path import layout, on_host_or_device, scalar


def source(tensors: tuple[str, ...], others: tuple[str, ...], written: Collection[str]) -> str:
    """Return the source of `key_of(given)` and of `call(given)`; `given` has tensors and attributes by name.

    `call` passes these calls to `otherwise`: those that are not kept, those with other names or types, those that
    autograd would record, and those with a written tensor that may overlap another.

    Args:
        tensors: names of the tensors, in the order of their addresses.
        others: names of dims, dtype and attributes.
        written: the tensors that the kernel writes.
    """
    places = range(len(tensors))
    unpacked = [f"a{place} = given[{name!r}]" for place, name in enumerate((*tensors, *others))]
    addresses = [f"p{place} = a{place}.data_ptr()" for place in places]
    parts = [part for place in places for part in layout(f"a{place}", f"p{place}", on_host_or_device(f"a{place}"))]
    for place in range(len(tensors), len(tensors) + len(others)):
        parts += [f"type(a{place})", scalar(f"a{place}")]
    key = f"({', '.join(parts)},)"
    recorded = " or ".join(f"a{place}.requires_grad" for place in places)
    negative = " or ".join(f"a{place}.is_neg()" for place in places)
    tests = [f"(type(a{place}) is Tensor or type(a{place}) is Parameter)" for place in places]
    tests += [
        f"not (({recorded}) and is_recording())",
        "forward_ad._current_level < 0",
        f"not ({negative})",
    ]
    near = [
        f"-e{out} < p{out} - p{place} < e{place}"
        for out, name in enumerate(tensors)
        if name in written
        for place in places
        if place != out and not (tensors[place] in written and place < out)
    ]
    by_name = ", ".join(f"{name!r}: a{place}" for place, name in enumerate(tensors))
    lines = [
        "def key_of(given):",
        *(f"    {line}" for line in (*unpacked, *addresses, f"return {key}")),
        "",
        "def call(given):",
        f"    if len(given) == {len(tensors) + len(others)}:",
        "        found = None",
        "        try:",
        *(f"            {line}" for line in unpacked),
        f"            if {' and '.join(tests)}:",
        *(f"                {line}" for line in addresses),
        f"                found = kept.get({key})",
        "        except MISFITS:",
        "            pass",
        "        if found is not None:",
        f"            by_address, by_tensor, {', '.join(f'e{place}' for place in places)}, = found",
        f"            if not ({' or '.join(near) or 'False'}):",
        "                if by_address is None:",
        f"                    by_tensor({{{by_name}}})",
        "                else:",
        f"                    by_address(({', '.join(f'p{place}' for place in places)},))",
        "                return",
        "    otherwise(given)",
    ]
    return "\n".join(lines) + "\n"
