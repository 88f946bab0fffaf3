"""A choice for Inductor's matmul template from a stored answer of `gemm`, which Inductor times beside its own.

The variant `tiles` of `gemm` is built as the template is: it loads tiles through pointers and has one program for each
tile. So its tuned tile sizes are worth timing there. The latency of the answer does not hold for the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.template_heuristics.params import DictKernelTemplateParams

from tuner.client import Client
from tuner.kernels.spec import dtype_name
from tuner.lookup.ranking import serving
from tuner.measure import device as cards
from tuner.records import StoredAnswer

_TEMPLATE = "triton::mm"
_KNOBS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
_DTYPES = ("bf16", "fp16")


def tuned_choices(client: Client, device: int, choices: Sequence[Any], inputs: Any, op: str) -> list[Any]:
    """Return the choice of the answer to exactly this matmul, or none.

    Args:
        device: index of the card.
        choices: Inductor's own `KernelTemplateChoice` values.
        inputs: Inductor's `MMKernelInputs`.

    Raises:
        TunerError: the answers cannot be read.
    """
    base = next((choice for choice in choices if choice.template.uid == _TEMPLATE), None)
    if base is None or op not in ("mm", "addmm"):
        return []
    sizes, (a, b) = inputs.mnk_symbolic(), inputs.mat1mat2()
    dtype = dtype_name(a.get_dtype())
    if (
        any(getattr(size, "free_symbols", ()) for size in sizes)
        or dtype not in _DTYPES
        or a.get_dtype() != b.get_dtype()
    ):
        return []
    dims = dict(zip("MNK", map(int, sizes), strict=True))
    layout = "".join("t" if _is_transposed(matrix) else "n" for matrix in (a, b))
    answers = [stored for stored in client.answers("gemm", device=device) if _is_of(stored, dims, dtype, layout)]
    return _made(base, choices, answers, dims["K"], cards.environment(device).triton)


def _is_transposed(matrix: Any) -> bool:
    row, column = matrix.get_stride()[-2:]
    return bool(row == 1 and column != 1)


def _is_of(stored: StoredAnswer, dims: dict[str, int], dtype: str, layout: str) -> bool:
    problem = stored.answer.problem
    return (
        dict(problem.dims) == dims
        and problem.dtype == dtype
        and dict(problem.attributes).get("layout") == layout
        and stored.provenance.recorded is None
    )


def _made(base: Any, choices: Iterable[Any], answers: Sequence[StoredAnswer], K: int, triton: str) -> list[Any]:
    if not answers:
        return []
    config = serving(answers, triton or None).answer.config
    if config.get("VARIANT") != "tiles" or config.get("SPLIT_K") != 1:
        return []
    own = base.params.to_kwargs()
    given = {name: config[name] for name in _KNOBS if name in own}
    parameters = {**own, **given, "EVEN_K": K % int(config["BLOCK_K"]) == 0}
    if any(choice.template is base.template and choice.params.to_kwargs() == parameters for choice in choices):
        return []
    return [
        KernelTemplateChoice(
            base.template, DictKernelTemplateParams(parameters), base.extra_kwargs, base.layout, base.inputs
        )
    ]
