"""The layers of the benchmark give torch's logits, without a card: launches are replaced by references."""

from __future__ import annotations

import pytest
import torch
from cpu_launches import launch_of, on_cpu
from decoders import MODELS, STEPS, Model, Sizes
from transformer import ByTuner, by_defaults, differences, host_rows, search

from tuner import Problem, catalog
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.shared.decoder_models import PUBLISHED

SMALL = Sizes(2, 64, 4, 2, 16, 96, 100, prompt=19, chunk=7, sequences=2, cached=40)


def test_a_small_model_by_our_ops_is_torchs() -> None:
    with on_cpu(), torch.no_grad():
        off = differences(Model(SMALL, "cpu", torch.float16), ByTuner())
    assert [*off] == [*STEPS]
    assert max(off.values()) < 0.02


def test_problems_of_calls_are_noted_while_defaults_run() -> None:
    asked: dict[str, Problem] = {}
    model = Model(SMALL, "cpu", torch.float16)
    with by_defaults(asked, launch_of, "cpu"), torch.no_grad():
        model.through_layers("chunk", ByTuner())
    assert [problem.op for problem in asked.values()] == [
        "rms_norm", "gemm", "attention", "gemm", "gemm", "silu_mul", "gemm",
    ]  # fmt: skip
    assert all("M=7 " in problem.text for problem in asked.values())


def test_all_problems_are_searched_in_one_go(sqlite_store: Store) -> None:
    softmax, transpose = catalog.load("softmax").signature, catalog.load("transpose").signature
    problems = [softmax.problem({"M": 8192}), transpose.problem({"M": 8192, "dtype": "fp32"})]
    search(problems, 1.0, sqlite_store)
    assert {stored.answer.problem for stored in sqlite_store.answers()} == {*problems}
    with pytest.raises(NothingFound, match=r"^softmax M=8193 .* has no answer: it was not searched"):
        search([*problems, softmax.problem({"M": 8193})], 1.0, sqlite_store)


def test_the_hosts_time_of_a_product_has_a_row_for_us_and_for_torch() -> None:
    with on_cpu():
        rows = host_rows("cpu", torch.float32, rounds=1)
    assert [row["by"] for row in rows] == ["tuner.ops.gemm", "torch.nn.functional.linear"]
    assert all(row["host_us"] > 0 for row in rows)


def test_published_sizes_are_of_models_that_no_problem_is_drawn_from() -> None:
    drawn = {(model.hidden, model.heads, model.key_heads, model.head_width, model.inner) for model in PUBLISHED}
    sizes = [(s.width, s.heads, s.shared_heads, s.head_size, s.hidden) for s in MODELS.values()]
    assert [size in drawn for size in sizes] == [True, False, False, False]
