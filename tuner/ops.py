"""Tuned kernels that model code calls as it calls torch: each op with a `call.py` is a function here, under its name.

A call describes its tensors (shapes, strides, dtypes, device, alignment) and launches what is prepared for such
tensors: the tuned config if there is one, else the kernel's default. It never tunes and never waits for another
process. The first call on tensors of a kind compiles, as any Triton kernel does, unless `tuner.precompile` did.

Results are written to `out`, which may not share memory with an input unless the op works in place. There is no
backward pass: a call that autograd would record is refused. Everything runs on the current stream: in captured graphs,
from several threads, and inside `torch.compile`.

Type checkers read `ops.pyi`, which lists the functions of our own ops.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tuner import catalog
from tuner.client import default_client
from tuner.launching import calls

calls.install()
_FURTHER: set[str] = set()
"""Further functions of our ops by name."""
for _op in catalog.shipped():
    if _module := catalog.call_module(_op):
        _call = calls.call_of(_module)
        globals()[_op] = _call.function
        globals().update({_each.__name__: _each for _each in _call.further})
        _FURTHER.update(_each.__name__ for _each in _call.further)


if catalog.names() != catalog.shipped():  # a module's attributes are read faster if it has no __getattr__

    def __getattr__(name: str) -> Callable[..., Tensor]:
        """Return the function of an op that an installed package offers."""
        module = catalog.call_module(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        function = globals()[name] = calls.call_of(module).function
        return function


def __dir__() -> list[str]:
    return sorted({*catalog.names(), *_FURTHER, "refresh"})


def refresh() -> None:
    """Use answers that were stored since this process read them; `tuner.refresh` does the same.

    New configs are compiled first, while other threads launch the old ones. Captured graphs keep their configs.

    Raises:
        as `precompile`; then the prepared launches stay in use.
    """
    default_client().refresh()
