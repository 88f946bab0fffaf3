"""The signature and the problem of a captured call, by which its stored answer is found.

As in Triton's autotuner, a problem is the arguments in the key and the dtypes of the tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain

from tuner.captured.call import Argument, CapturedCall, DescriptorArgument, TensorArgument
from tuner.captured.widened import choices
from tuner.kernels.dtypes import ALL_DTYPES
from tuner.kernels.fields import RESERVED
from tuner.kernels.spec import MAX_SIZE, Attribute, Dim, Knob, Problem, Signature, Value

_LONGEST_OP = 64
_DIGEST = 6
"""Number of hex digits of the hash that keeps shortened names distinct."""
_ABSENT = "None"
"""Dtype of an argument that is None, in a problem."""
NO_DIM = Dim("size", 1, "1: no argument in the key is a size")
"""Dim of a kernel without a size in its key."""


def op_name(module: str, name: str) -> str:
    """Return the op of a function: module and name in lower case, up to 64 characters. Longer ones end in a hash."""
    text = f"{module}.{name}"
    op = re.sub(r"_+", "_", re.sub(r"[^a-z0-9]", "_", text.lower())).strip("_")
    op = re.sub(r"^[0-9_]+", "", op) or "kernel"
    if len(op) <= _LONGEST_OP:
        return op
    digest = sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{op[-(_LONGEST_OP - _DIGEST - 1) :].lstrip('_0123456789')}_{digest}"


def parameter_names(key: Mapping[str, Value], tensors: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the dim or attribute of each argument in the key, and the attribute of the dtype of each other tensor.

    Names have no leading underscores. A name that is reserved or taken gets underscores at its end.
    """
    taken = {*RESERVED} if any(map(is_size, key.values())) else {*RESERVED, NO_DIM.name}

    def free(argument: str, end: str = "") -> str:
        name = (argument.lstrip("_") or "argument") + end
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    keyed = {name: free(name) for name in key}
    return keyed, {name: free(name, "_dtype") for name in sorted(tensors) if name not in key}


def is_size(value: Value) -> bool:
    """Return whether a value in the key is a dim: a whole number from 1 to the largest size."""
    return type(value) is int and 1 <= value <= MAX_SIZE


def signature_of(
    op: str, key: Mapping[str, Value], tensors: Mapping[str, str], configs: Iterable[Mapping[str, Value]]
) -> Signature:
    """Return the signature of calls with such a key. Its default dtype is that of this call.

    Args:
        tensors: what `dtypes_of` returns.
        configs: the function's configs, pruned or not.
    """
    keyed, typed = parameter_names(key, tensors)
    dims = tuple(Dim(keyed[name]) for name, value in key.items() if is_size(value))
    others = [keyed[name] for name, value in key.items() if not is_size(value)]
    dtypes = [typed[name] for name in tensors if name in typed]
    given = list(configs)
    values = {name: {config[name] for config in given if name in config} for name in dict.fromkeys(chain(*given))}
    return Signature(
        op=op,
        dims=dims or (NO_DIM,),
        dtypes=tuple(dict.fromkeys((*_main_dtype(tensors), *ALL_DTYPES))),
        knobs=tuple(Knob(name, choices(name, chosen)) for name, chosen in values.items()),
        attributes=tuple(Attribute(name, None, "") for name in (*others, *dtypes)),
        captured=True,
    )


def problem_values(key: Mapping[str, Value], dtypes: Mapping[str, str]) -> dict[str, object]:
    """Return the values that `Signature.problem` takes.

    `dtype` is the most frequent dtype of the tensors; of equally frequent ones, the first.

    Args:
        dtypes: what `dtypes_of` returns.
    """
    keyed, typed = parameter_names(key, dtypes)
    sizes: dict[str, object] = {keyed[name]: value if is_size(value) else str(value) for name, value in key.items()}
    if not dtypes:
        return sizes
    (dtype,) = _main_dtype(dtypes)
    differing = {typed[name]: other for name, other in dtypes.items() if other != dtype and name in typed}
    return {**sizes, "dtype": dtype, **differing}


def _main_dtype(dtypes: Mapping[str, str]) -> list[str]:
    """Return the most frequent dtype of tensors, alone in a list; an empty list without a tensor."""
    return [dtype for dtype, _ in Counter(each for each in dtypes.values() if each != _ABSENT).most_common(1)]


def dtypes_of(arguments: Mapping[str, Argument]) -> dict[str, str]:
    """Return the dtype of each tensor argument, in their order, then `None` for each argument that is None.

    So a call without a bias is another problem than one with a bias, whatever its dtype.
    """
    found, absent = dict[str, str](), dict[str, str]()
    for name, argument in arguments.items():
        if isinstance(argument, TensorArgument):
            found[name] = argument.dtype
        elif isinstance(argument, DescriptorArgument):
            found[name] = argument.base.dtype
        elif argument is None:
            absent[name] = _ABSENT
    return {**found, **absent} if found else {}


def signature_of_call(call: CapturedCall) -> Signature:
    """Return the signature of a captured call."""
    return signature_of(call.op, call.key, dtypes_of(call.arguments), call.configs)


def problem_of_call(call: CapturedCall) -> Problem:
    """Return the problem of a captured call.

    Raises:
        UsageError: A value in its key is no text of up to 200 printable characters.
    """
    return signature_of_call(call).problem(problem_values(call.key, dtypes_of(call.arguments)))
