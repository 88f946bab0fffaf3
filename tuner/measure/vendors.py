"""Functions that run a kernel's vendors by name, and their results in the operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tuner.errors import KernelFault
from tuner.kernels.parts import plain
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.kernels.vendors import COMPILED, VendorFunction

BACKEND = "inductor"
"""Backend of `torch.compile` that users get."""


def vendor_function(kernel: Kernel, name: str, problem: Problem, backend: str = BACKEND) -> VendorFunction:
    """Return the function of a vendor.

    Args:
        name: one of `vendor_names(kernel)`.
        problem: the only one that the function is called with. `torch.compile` compiles anew for it.
    """
    if name == COMPILED:
        return _compiled(kernel, problem, backend)
    if name in kernel.vendors:
        library, scalars = kernel.vendors[name], dict(kernel.scalars)
        return (lambda problem, tensors: library(problem, {**scalars, **tensors})) if scalars else library
    assert kernel.vendor is not None
    return kernel.vendor


def _compiled(kernel: Kernel, problem: Problem, backend: str) -> VendorFunction:
    """Return the kernel's own vendor under `torch.compile`, with the sizes as constants.

    What was compiled for earlier problems is dropped, else one of them would reach torch's limit of recompiles. The
    compiler starts no further processes: they would outlive a worker that is killed, and compete with other compilers.
    """
    import torch._inductor.config as inductor

    torch.compiler.reset()
    inductor.compile_threads = 1
    assert kernel.vendor is not None
    vendor, scalars = plain(kernel.vendor), dict(kernel.scalars)

    def of_tensors(tensors: Mapping[str, Any]) -> object:
        return vendor(problem, tensors)

    compiled = torch.compile(of_tensors, dynamic=False, backend=backend)
    return lambda _, tensors: compiled({**scalars, **tensors})


def run_vendor(
    vendor: VendorFunction, problem: Problem, operands: Mapping[str, Operand], values: Mapping[str, torch.Tensor]
) -> None:
    """Run a vendor, and copy what it returns by name into the operands.

    Raises:
        KernelFault: it returns a tensor for an operand that is not written, or one of another shape.
    """
    returned = vendor(problem, values)
    if not isinstance(returned, Mapping):
        return
    place = getattr(vendor, "place", "")
    written = [name for name, operand in operands.items() if operand.role != "in"]
    for name, tensor in returned.items():
        if name not in written or not isinstance(tensor, torch.Tensor):
            known = ", ".join(written)
            raise KernelFault(f"vendor returns tensors by the names of written operands ({known}), not {name!r}", place)
        if tensor.shape != values[name].shape:
            shapes = f"shape {tuple(values[name].shape)}, not {tuple(tensor.shape)}"
            raise KernelFault(f"vendor returns {name} in {shapes}; correct it", place)
        values[name].copy_(tensor)
