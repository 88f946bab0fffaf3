"""The client on a card: invalid configs, graph capture, and refreshing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from time import monotonic, sleep

import bad_servers
import pytest
import torch
from fresh_client import forget
from helpers import until
from stored_on_card import keep

from tuner import best_config, catalog, ops
from tuner.client import client
from tuner.db.store import Store
from tuner.kernels.spec import Value
from tuner.launching.calls import PREPARED
from tuner.lookup import bundle
from tuner.measure import device

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TUNER_SNAPSHOT", "TUNER_URL", "TUNER_DISABLE", "TUNER_REFRESH_S"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    yield
    forget()


def table(folder: Path, op: str, sizes: dict[str, object], **knobs: Value) -> bytes:
    """Return a document with one answer of this card."""
    keep(folder / "theirs.db", op, sizes, **knobs)
    store = Store.open(folder / "theirs.db")
    document = bundle.packed(store.snapshot, [catalog.load(op).signature], store.answers())
    store.close()
    return document


def test_what_this_card_cannot_launch_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its knobs are known and its types are right; the rules of the kernel say what it would do."""
    kernel, sizes = catalog.load("transpose"), {"M": 256}
    (tmp_path / "answers.json").write_bytes(table(tmp_path, "transpose", dict(sizes), VEC=4, PAD=1))
    monkeypatch.setenv("TUNER_SNAPSHOT", str(tmp_path / "answers.json"))
    for _ in range(3):
        best = best_config("transpose", **sizes)
    assert best.match == "none"
    assert best.config == kernel.default_config(kernel.signature.problem(sizes), device.describe(0).limits)
    (message,) = caplog.messages
    assert "the default is used, since the stored config" in message
    assert "is not valid on this card: refused by valid (" in message
    assert "pad % aligned == 0 is false (1 == 0)" in message


def test_while_a_graph_is_captured_no_service_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table(tmp_path, "softmax", {"M": 64, "N": 64}, num_warps=2)
    catalog.load("softmax")
    x = torch.ones(64, device="cuda")

    def slow(connection: socket) -> None:
        sleep(1)
        bad_servers.answering(data)(connection)

    with bad_servers.server(slow) as url:
        monkeypatch.setenv("TUNER_URL", url)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            began = monotonic()
            given = [best_config("softmax", M=64, N=64) for _ in range(20)]
            took = monotonic() - began
            x.mul_(2)
        assert {best.match for best in given} == {"none"}
        assert took < 0.5
        until(lambda: best_config("softmax", M=64, N=64).match == "exact", seconds=5)
    graph.replay()
    assert x.tolist() == [2.0] * 64


FOLLOWING = """
import json, time
import torch, triton
from tuner import best_config, ops
x = torch.randn(64, 1000, device="cuda")
first = ops.softmax(x)
compiled = []
triton.knobs.compilation.listener = lambda **facts: compiled.append(facts["cache_hit"])
print("ready", flush=True)
warps, end = best_config("softmax", M=64, N=1000).config["num_warps"], time.monotonic() + 60
while warps == best_config("softmax", M=64, N=1000).config["num_warps"] and time.monotonic() < end:
    ops.softmax(x)
    time.sleep(0.01)
right = torch.allclose(ops.softmax(x), x.softmax(1))
print(json.dumps([best_config("softmax", M=64, N=1000).config["num_warps"], right, compiled]))
"""


def test_a_refreshed_config_is_launched_only_once_it_is_compiled(tmp_path: Path) -> None:
    keep(tmp_path / "tuner.db", "softmax", {"M": 64, "N": 1000}, num_warps=1)
    environment = os.environ | {"TUNER_REFRESH_S": "0.5", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    following = [sys.executable, "-P", "-c", FOLLOWING]
    with subprocess.Popen(following, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        keep(tmp_path / "tuner.db", "softmax", {"M": 64, "N": 1000}, num_warps=2)
        warps, right, cache_hits = json.loads(process.stdout.read())
    assert (warps, right) == (2, True)
    assert cache_hits == [True]  # a pool of processes compiled it; this one only read what that left


def test_a_graph_that_is_captured_after_a_refresh_has_what_is_on_the_card(tmp_path: Path) -> None:
    x = torch.randn(64, 1000, device="cuda")
    PREPARED.prepared.clear()
    keep(tmp_path / "tuner.db", "softmax", {"M": 64, "N": 1000}, num_warps=1)
    ops.softmax(x)
    (before,) = PREPARED.prepared.values()
    keep(tmp_path / "tuner.db", "softmax", {"M": 64, "N": 1000}, num_warps=2)
    client.refresh(in_background=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.softmax(x)
    assert not PREPARED.prepared
    assert [*PREPARED.replaced.values()] == [before]
    x.normal_()
    graph.replay()
    assert torch.allclose(result, x.softmax(1))
    ops.softmax(x)
    (after,) = PREPARED.prepared.values()
    assert after is not before
