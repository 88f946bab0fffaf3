"""The vendors of a kernel by name: its own, the same under `torch.compile`, and those of installed libraries."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from types import CodeType
from typing import TYPE_CHECKING, Any

from tuner.errors import KernelFault
from tuner.kernels.dtypes import shown
from tuner.kernels.fields import check_function
from tuner.kernels.parts import plain

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


def library_versions(kernel: Kernel, names: Iterable[str]) -> dict[str, str]:
    """Return the installed modules that each vendor's function imports, with versions; no item for one without any."""
    found: dict[str, str] = {}
    for name in names:
        function = kernel.vendors.get(name)
        code = None if function is None else getattr(plain(function), "__code__", None)
        modules = sorted({module.partition(".")[0] for module in _imports(code)})
        if texts := [_with_version(module) for module in modules if _is_installed(module)]:
            found[name] = ", ".join(texts)
    return found


def _imports(code: CodeType | None) -> Iterator[str]:
    """Yield the modules that a function imports, and the functions inside of it."""
    if code is not None:
        yield from (each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME")
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from _imports(inner)


def _is_installed(module: str) -> bool:
    with suppress(ValueError):  # one in memory may have no spec
        return find_spec(module) is not None
    return True


def _with_version(module: str) -> str:
    """Return a module and the versions of the distributions that have it."""
    return " ".join([module, *(version(name) for name in sorted({*_distributions().get(module, ())}))])


_distributions = cache(packages_distributions)  # takes 0.3 s
