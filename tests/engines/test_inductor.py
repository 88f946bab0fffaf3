"""Inductor's choices for a matmul, narrowed to the stored ones: Inductor's own heuristics, on a card by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import A100
from stored import COMPARISON, HERE
from torch._inductor import config, ir
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.mm import aten_mm, mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.select_algorithm import clear_feedback_savers, get_algorithm_selector_cache
from torch._inductor.virtualized import V

import tuner
from tuner.client.engine_files import SharedFiles
from tuner.db.store import Store
from tuner.engines import inductor
from tuner.engines.inductor import StoreChoices
from tuner.kernels.spec import Attribute, Dim, Knob, Signature
from tuner.records import Answer


@contextmanager
def compilation() -> Iterator[None]:
    with (
        config.patch(max_autotune=True, inductor_choices_class=StoreChoices),
        V.set_graph_handler(GraphLowering(torch.fx.symbolic_trace(lambda x: x))),
    ):
        yield


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clear_feedback_savers()
    monkeypatch.setattr(StoreChoices, "_is_recording", False)
    yield
    clear_feedback_savers()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, stored_here: Path) -> Iterator[None]:
    monkeypatch.setattr(inductor, "_files", SharedFiles("inductor"))
    with compilation():
        yield


def matmul(k: int = 512, device: str = "cuda", overrides: Mapping[str, Any] = MappingProxyType({})) -> list[Any]:
    """Return Inductor's choices for a matmul of 256 x K and K x 1024."""

    def tensor(name: str, *size: int) -> Any:
        layout = ir.FixedLayout(
            torch.device(device, 0), torch.bfloat16, size, ir.FlexibleLayout.contiguous_strides(size)
        )
        return ir.InputBuffer(name=name, layout=layout)

    inputs = MMKernelInputs([tensor("a", 256, k), tensor("b", k, 1024)])
    choices, templates = StoreChoices(), [aten_mm, mm_template]
    generators = {each.uid: choices.get_ktc(inputs, each, "mm", overrides.get(each.uid)) for each in templates}
    found: list[Any] = choices._finalize_template_configs(generators, inputs, templates, "mm", overrides)
    return found


def timed(choices: list[Any], milliseconds: dict[int, float]) -> None:
    """Tell Inductor's listeners what its choices took; 9 ms for those that are not named."""
    timings = {
        SimpleNamespaceWithHash(annotations=choice.annotations): milliseconds.get(number, 9.0)
        for number, choice in enumerate(choices)
    }
    timings[SimpleNamespaceWithHash()] = 0.5  # a choice of another backend
    for listener in get_algorithm_selector_cache().feedback_saver_fns:
        listener(timings, "mm", [], list(timings), None, {})


class SimpleNamespaceWithHash(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def texts(choices: list[Any]) -> list[str]:
    return [inductor._text(choice) for choice in choices]


def test_the_fastest_choices_are_those_that_later_processes_time(process: None) -> None:
    every = matmul()
    assert len(every) > 10
    timed(every, {0: 3.0, 5: 1.0, 7: 2.0, 9: 4.0, 11: 5.0, 4: inf})
    kept = matmul()
    assert texts(kept) == [texts(every)[number] for number in (0, 5, 7, 9)]
    assert kept[0].template is aten_mm
    assert len(matmul(k=256)) > 10  # another problem


@pytest.mark.parametrize("change", ["card", "space", "overrides"])
def test_another_key_has_all_choices(process: None, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    timed(matmul(), {0: 1.0})
    assert len(matmul()) == 4
    if change == "card":
        monkeypatch.setattr("tuner.measure.device.describe", lambda index: A100)
    overrides = {mm_template.uid: {"USE_FAST_ACCUM": True}} if change == "overrides" else {}
    backends = "ATEN,TRITON" if change == "space" else config.max_autotune_gemm_backends
    with config.patch(max_autotune_gemm_backends=backends):
        assert len(matmul(overrides=overrides)) > 10


def test_a_stored_choice_that_inductor_has_no_more_leaves_all(process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(matmul(), {0: 1.0})
    monkeypatch.setattr(inductor, "_wanted", lambda content: {"aten::mm {}", "triton::gone {}"})
    assert len(matmul()) > 10


def test_other_devices_are_left_alone(process: None, stored_here: Path) -> None:
    timed(matmul(device="cpu"), {0: 1.0})
    assert not stored_here.exists()
    assert get_algorithm_selector_cache().feedback_saver_fns == []


def test_trouble_costs_one_line_and_inductor_times_all(
    process: None, stored_here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored_here.write_text("no database")
    with caplog.at_level(logging.WARNING, "tuner"):
        timed(matmul(), {0: 1.0})
        assert len(matmul()) > 10
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("Inductor times all its choices for mm: the database ")
    monkeypatch.setattr("tuner.measure.device.describe", lambda index: 1 // 0)
    assert len(matmul()) > 10


def test_a_users_own_table_comes_first(process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(matmul(), {0: 1.0})
    monkeypatch.setattr(StoreChoices, "_get_device_key", staticmethod(lambda device: "card"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    key = "((torch.bfloat16, [256, 512], [512, 1]), (torch.bfloat16, [512, 1024], [1024, 1]))+mm"
    with config.patch({"lookup_table.table": {key: [{"template_id": "aten::mm"}]}}):
        assert texts(matmul()) == ["aten::mm {}"]


GEMM = {"VARIANT": "tiles", "BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 4, "SPLIT_K": 1, "STORES": 1}
GEMM |= {"num_warps": 8, "num_stages": 3}


def tuned(db: Path, config: dict[str, Any], **problem: Any) -> None:
    """Store an answer of gemm, of 256 x 512 x 1024 if no other size is given."""
    signature = Signature(
        "gemm",
        tuple(map(Dim, "MNK")),
        ("bf16", "fp16"),
        tuple(Knob(name, (value,)) for name, value in config.items()),
        (Attribute("layout", ("nn", "nt"), "nn"),),
    )
    about = signature.problem({"M": 256, "N": 1024, "K": 512, **problem})
    found = Answer(about, "tuned", signature.config(config), 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, None)
    store = Store.open(db)
    store.add_answer(store.start_run(signature, about, HERE, {}), found, HERE, "trials", {}, COMPARISON)
    store.close()


def test_a_tuned_gemm_of_the_same_size_is_one_more_choice(process: None, stored_here: Path) -> None:
    own = texts(matmul())
    tuned(stored_here, GEMM)
    tuner.refresh()
    every = matmul()
    assert texts(every)[:-1] == own
    parameters = every[-1].params.to_kwargs()
    wanted = {name: GEMM[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")}
    assert parameters == every[1].params.to_kwargs() | wanted | {"EVEN_K": True}
    assert every[-1].template is mm_template
    timed(every, {0: 3.0, len(every) - 1: 1.0, 5: 2.0})
    assert texts(every)[-1] in texts(matmul())
    assert len(matmul(k=256)) == len(own)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"VARIANT": "persistent"}, {}), ({"SPLIT_K": 2}, {}), ({}, {"dtype": "fp16"}), ({}, {"layout": "nt"})],
)
def test_an_answer_that_says_nothing_of_the_template_adds_none(
    process: None, stored_here: Path, changes: dict[str, Any], problem: dict[str, Any]
) -> None:
    own = texts(matmul())
    tuned(stored_here, GEMM | changes, **problem)
    tuner.refresh()
    assert texts(matmul()) == own


def test_steps_that_do_not_divide_k_are_masked(process: None, stored_here: Path) -> None:
    tuned(stored_here, GEMM, K=520)
    assert matmul(k=520)[-1].params.to_kwargs()["EVEN_K"] is False


def test_inductor_makes_it_from_its_config(process: None) -> None:
    assert config.inductor_choices_class().uuid() == "tuner-1"
