"""Configs of near problems, for model code whose problem is not tuned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import H200
from stored import HERE, answer

from tuner import Best, best_config, catalog
from tuner.client import client
from tuner.db.store import Store
from tuner.kernels.spec import Signature, Value
from tuner.measure import device
from tuner.records import Comparison

GEMM = catalog.load("gemm")
SIZES = (64, 128, 256, 300, 512, 1024, 2048)
PERSISTENT: dict[str, Value] = {
    "VARIANT": "persistent", "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 1, "num_warps": 4,
    "num_stages": 5,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a database that does not exist yet."""
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    client.refresh()
    yield tmp_path / "tuner.db"
    client.refresh()


def tuned(path: Path, signature: Signature) -> None:
    """Store an answer for each size, and the transfer losses of its config on all others."""
    with closing(Store.open(path)) as store:
        for M in SIZES:
            problem = signature.problem({"M": M, "N": 4096, "K": 4096})
            given = replace(answer(problem), config=signature.config(PERSISTENT))
            run = store.start_run(signature, problem, HERE, {"known": 0})
            store.add_answer(run, given, HERE, "trials", {}, Comparison((given.config.text,), ((10.0,),)))
        for run in range(1, len(SIZES) + 1):
            store.add_transfers(run, [(other, 1.0, 1.01) for other in range(1, len(SIZES) + 1)])


def test_the_nearest_ones_config_is_given_where_it_is_valid(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tuned(path, GEMM.signature)
    best = best_config("gemm", device=H200.id, M=700, N=4096, K=4096)
    assert best.match == "neighbour"
    assert best.neighbour is not None
    assert (best.neighbour.problem["M"], best.neighbour.transfers) == (512, 3)
    assert best.answer is not None
    assert best.answer.problem == best.neighbour.problem
    assert best.config == best.answer.config
    best_config("gemm", device=H200.id, M="700", N=4096, K=4096)
    (line,) = caplog.messages
    assert line.startswith("gemm M=700 N=4096 K=4096 dtype=bf16: the config is that of gemm M=512 N=4096 K=4096 ")
    assert line.endswith("tuner search gemm --M 700 --N 4096 --K 4096 --dtype bf16")
    # Rows of 4,095 numbers do not begin where the copy engine of a persistent kernel can read them.
    assert best_config("gemm", device=H200.id, M=700, N=4095, K=4096).match == "none"


def test_one_that_cannot_be_checked_is_not_given(path: Path) -> None:
    tuned(path, replace(GEMM.signature, op="without_code"))
    assert best_config("without_code", device=H200.id, M=512, N=4096, K=4096).match == "exact"
    assert best_config("without_code", device=H200.id, M=700, N=4096, K=4096) == Best(None, "none")


def test_on_a_card_that_has_another_name_here_the_answers_are_found(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = replace(H200, name="H200 SXM5 141GB")
    monkeypatch.setattr(device, "count", lambda: 1)
    monkeypatch.setattr(device, "describe", lambda index: renamed)
    tuned(path, GEMM.signature)
    assert best_config("gemm", M=512, N=4096, K=4096).match == "stale"  # it was tuned with other versions
    product = replace(H200, name="H200 PCIe", pci_id="10de:2330")  # another one, however alike
    monkeypatch.setattr(device, "describe", lambda index: product)
    client.refresh()
    assert best_config("gemm", M=1024, N=4096, K=4096).match == "none"
