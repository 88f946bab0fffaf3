"""Stored configs under torch.compile(fullgraph=True): what dynamo hands to its backend, without a card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from autotuned import CONFIGS, Card, masked_, scale_
from triton.runtime.jit import JITFunction

from tuner.triton import install, uninstall
from tuner.triton.choice import Stated
from tuner.triton.served import served_of

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}
WIDENED = {"BLOCK": 512, "num_warps": 16, "num_stages": 3}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)  # which dynamo asks of the machine
    yield Card(tmp_path / "tuner.db", monkeypatch)
    torch._dynamo.reset()
    uninstall()


def launched(tuner: Any, **more: Any) -> tuple[Callable[[int], torch.Tensor], list[Any]]:
    """Return a compiled function that launches `tuner`, and the blocks and warps of the configs that were traced."""
    traced: list[Any] = []

    def backend(graph: torch.fx.GraphModule, example: Any) -> Any:
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        for node in graph.graph.nodes:
            if "kernel_idx" in node.kwargs:
                kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
                traced.append([(each.kwargs["BLOCK"], each.num_warps) for each in kernel.configs])
        return lambda *args: (torch.empty(3),)

    def model(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = x.shape[0]
        tuner[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, **more)
        return out

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    return lambda n: compiled(torch.randn(n)), traced


def test_a_stored_config_is_the_only_one(card: Card) -> None:
    tuner = card.tuner(JITFunction(scale_))
    for n, config in ((1000, STORED), (2000, WIDENED)):
        card.keep(tuner, torch.empty(n), torch.empty(n), n, config=config)
    call, traced = launched(tuner)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for n in (1000, 2000, 3000, 1000):
            call(n)
    listed = [(64, 2), (128, 4), (256, 8)]
    assert traced == [[(128, 4)], [(512, 16)], listed]


def test_a_problem_without_an_optional_tensor_is_another(card: Card) -> None:
    tuner = card.tuner(JITFunction(scale_))
    card.keep(tuner, torch.empty(1000), torch.empty(1000), 1000, factor=None, config=STORED)
    for factor, expected in ((None, [(128, 4)]), (2.0, [(64, 2), (128, 4), (256, 8)])):
        call, traced = launched(tuner, factor=factor)
        call(1000)
        assert traced == [expected]
        torch._dynamo.reset()


def test_a_symbolic_size_leaves_the_configs_to_inductor(card: Card) -> None:
    tuner = card.tuner(JITFunction(scale_))
    card.keep(tuner, torch.empty(1000), torch.empty(1000), 1000, config=STORED)
    call, traced = launched(tuner)
    for n in (1000, 2000, 3000):  # the second size makes it symbolic
        call(n)
    assert traced == [[(128, 4)], [(64, 2), (128, 4), (256, 8)]]


def test_pruning_of_the_caller_is_kept(card: Card) -> None:
    prune = {
        "early_config_prune": lambda configs, named, **kwargs: configs[1:],
        "perf_model": lambda **values: values["BLOCK"],
        "top_k": 0.5,
    }
    tuner = card.tuner(JITFunction(scale_), prune_configs_by=prune)
    card.keep(tuner, torch.empty(1000), torch.empty(1000), 1000, config=STORED)
    call, traced = launched(tuner)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        call(1000)
        call(2000)
    assert traced == [[(128, 4)], [(128, 4)]]
    card.keep(tuner, torch.empty(3000), torch.empty(3000), 3000, config={**STORED, "BLOCK": 256, "num_warps": 8})
    card.client.refresh()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        call(3000)
    assert traced[2:] == [[(256, 8)]]


def test_heuristics_see_the_stored_config_and_a_widened_one_is_left_out(card: Card) -> None:
    even = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    tuner = card.tuner(even(JITFunction(masked_)))
    for n, config in ((1024, STORED), (2048, WIDENED)):
        card.keep(tuner, torch.empty(n), torch.empty(n), n, config=config)
    call, traced = launched(tuner)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        call(1024)
        call(2048)
    assert traced == [[(128, 4)], [(64, 2), (128, 4), (256, 8)]]


def test_a_custom_op_is_traced_with_the_stored_config(card: Card) -> None:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.library import wrap_triton

    tuner = card.tuner(JITFunction(scale_))
    card.keep(tuner, torch.empty(1000), torch.empty(1000), 1000, config=WIDENED)

    def op(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = x.shape[0]
        with torch._library.triton.set_wrap_triton_enabled(True):
            wrap_triton(tuner)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out

    for n, expected in ((1000, [(512, 16)]), (2000, [(64, 2), (128, 4), (256, 8)])):
        graph = make_fx(op, tracing_mode="fake")(torch.randn(n)).graph
        (kernel,) = [
            kernel_side_table.get_kernel(x.kwargs["kernel_idx"]) for x in graph.nodes if "kernel_idx" in x.kwargs
        ]
        assert [(each.kwargs["BLOCK"], each.num_warps) for each in kernel.configs] == expected


def test_install_reaches_functions_under_tritons_decorator_and_mode_off_none(card: Card) -> None:
    tuner = triton.autotune(CONFIGS, ["n"])(JITFunction(scale_))
    off = triton.autotune(CONFIGS, ["n"])(JITFunction(scale_))
    card.patch.setattr("autotuned.scale", tuner)
    served_of(tuner, context=card.context)
    served_of(off, Stated(mode="off"), context=card.context)
    install()
    card.keep(tuner, torch.empty(1000), torch.empty(1000), 1000, config=STORED)
    for each, expected in ((tuner, [(128, 4)]), (off, [(64, 2), (128, 4), (256, 8)])):
        call, traced = launched(each)
        call(1000)
        assert traced == [expected]
