"""Good and bad configs on a real card: times agree, and the profile names what limits each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import toy
from invoked import Invoked

pytestmark = pytest.mark.gpu
TILES = "VARIANT=tiles STORES=1 BLOCK_M=128 BLOCK_N=128 BLOCK_K=64 GROUP_M=8 num_stages=3 num_warps=8"
SHORT = "SHARED=False ROWS=1 num_stages=1"


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("op", "values", "config", "expected"),
    [
        ("transpose", "M=8192", "", {"memory"}),
        ("transpose", "M=8192", "PAD=0 VEC=1", {"bank conflicts"}),
        (toy("row_wise"), "M=8192", "", {"uncoalesced"}),
        ("softmax", "M=8192 N=8192 dtype=bf16", "", {"memory"}),
        ("softmax", "M=132 N=262144 dtype=bf16", f"{SHORT} BLOCK_N=1024 num_warps=1", {"latency"}),
        ("softmax", "M=16 N=262144 dtype=bf16", f"{SHORT} BLOCK_N=8192 num_warps=16", {"waves"}),
        ("softmax", "M=8 N=128 dtype=bf16", "", {"launch"}),
        ("gemm", "M=8192 dtype=bf16", "", {"compute"}),
        ("gemm", "M=896 N=2432 K=4096 dtype=bf16", TILES, {"waves"}),
        ("gemm", "M=4096 dtype=bf16", f"{TILES} BLOCK_M=32 BLOCK_N=32 num_warps=2", {"rereads"}),
    ],
)
def test_the_bottleneck_is_named(tuner: Invoked, op: str, values: str, config: str, expected: set[str]) -> None:
    options = [word for pair in values.split() for word in (f"--{pair.split('=')[0]}", pair.split("=")[1])]
    given = {pair.split("=")[0]: pair.split("=")[1] for pair in config.split()}  # the last of a name counts
    document = tuner.json("profile", op, *options, *(["--config", json.dumps(given)] if given else []))
    found: dict[str, Any] = document["bottleneck"]
    shown = (document["latency_us"], document["proton_us"], document["missing"], found["text"])
    assert found["name"] in expected, shown
    if document["proton_us"] is not None and document["latency_us"] > 20:
        assert sum(document["proton_us"].values()) == pytest.approx(document["latency_us"], rel=0.15)


def test_a_trace_opens_in_perfetto(tuner: Invoked) -> None:
    done = tuner("profile", "transpose", "--M", "4096", "--trace", "trace.json")
    assert done.exception is None, done.exception
    events = json.loads((tuner.folder / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("ph") == "X" and "transpose" in event["name"]]
    assert len(kernels) >= 10
    assert all(event["dur"] > 0 for event in kernels)


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("transpose", "--M 8192"),
        ("transpose", '--M 8192 --config {"PAD":0,"VEC":1}'),
        (toy("row_wise"), "--M 8192"),
        ("softmax", "--M 8192 --N 8192 --dtype bf16"),
        ("rms_norm", "--M 4096 --N 4096"),
    ],
)
def test_counters_and_stalls_are_of_the_configs_kernels_and_agree_with_the_analysis(
    tuner: Invoked, op: str, values: str
) -> None:
    document = tuner.json("profile", op, *values.split())
    if document["counters"] is None or document["stalls"] is None:
        pytest.skip("; ".join(document["missing"]))
    names = [launch["kernel"] for launch in document["launches"]]
    assert [each["kernel"] for each in document["counters"]] == names
    assert [each["differing"] for each in document["counters"]] == [[]] * len(names), document["counters"]
    assert not any("FillFunctor" in place for place in document["stalls"]["lines"])


def test_a_copy_by_the_host_is_named(tuner: Invoked) -> None:
    document = tuner.json("profile", "copy_column", "--M", "4096", "--memory", "pageable")
    assert document["bottleneck"]["name"] in ("host", "launch")
    assert "calls on the host, such as copies by the driver, are not analysed: 1" in document["missing"]
