"""The vendors of a kernel by name: its own, the same under `torch.compile`, and those of installed libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tuner.errors import KernelFault
from tuner.kernels.dtypes import shown
from tuner.kernels.fields import check_function

if TYPE_CHECKING:
    from tuner.kernels.problem import Problem
    from tuner.kernels.spec import Kernel

VendorFunction = Callable[["Problem", Mapping[str, Any]], object]
"""A vendor's implementation: it writes to the operands, or returns its results by their names."""
COMPILED = "torch.compile"
"""Name of the kernel's own vendor under `torch.compile`."""
ALL, LIBRARIES, EAGER = "all", "libraries", "eager"
"""Groups of vendors: all; all without `torch.compile`; the kernel's own alone."""
_NAME = re.compile(r"[\w][\w .+-]{0,23}", re.ASCII)


def check_vendors(op: str, own: object, others: object) -> None:
    """Raise KernelFault unless a kernel's vendors have names of their own, and the further ones are functions.

    Args:
        own: `vendor_name` of the kernel.
        others: `vendors` of the kernel.
    """
    _check_name(op, "vendor_name", own)
    if not isinstance(others, Mapping):
        raise KernelFault(f"{op}: vendors is a dict, not {shown(others)}; write {{'liger': function}}")
    for name, function in others.items():
        _check_name(op, "a name in vendors", name)
        if name == own:
            raise KernelFault(f"{op}: a name in vendors is another than vendor_name, not {shown(name)}; rename one")
        check_function(op, f"vendors[{name!r}]", function)


def _check_name(op: str, field: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise KernelFault(f"{op}: {field} is up to 24 letters, digits, spaces and . + -, not {shown(name)}; shorten it")
    if name in (ALL, LIBRARIES, EAGER, COMPILED):
        raise KernelFault(f"{op}: {field} is a name of its own, and --vendors takes {name!r} for others; rename it")


def vendor_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of a kernel's vendors: its own first, then `torch.compile`, then those of libraries."""
    own = () if kernel.vendor is None else (kernel.vendor_name, COMPILED)
    return (*own, *kernel.vendors)


def chosen_vendors(kernel: Kernel, asked: str) -> tuple[str, ...]:
    """Return the names of those vendors of a kernel that are asked for; a name that it does not have is left out.

    Args:
        asked: groups and names, separated by commas.
    """
    names = vendor_names(kernel)
    groups = {
        ALL: names,
        LIBRARIES: tuple(name for name in names if name != COMPILED),
        EAGER: () if kernel.vendor is None else (kernel.vendor_name,),
    }
    wanted = {name for word in _words(asked) for name in groups.get(word, (word,))}
    return tuple(name for name in names if name in wanted)


def asked_names(asked: str) -> tuple[str, ...]:
    """Return the names in a choice of vendors, without the groups."""
    return tuple(word for word in _words(asked) if word not in (ALL, LIBRARIES, EAGER))


def _words(asked: str) -> list[str]:
    return [word.strip() for word in asked.split(",")]
