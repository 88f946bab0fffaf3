"""What triton.autotune keeps on disk, written the way Triton writes it."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
import triton
from others import put, questions, taken

from tuner import catalog
from tuner.exchange.claim import Given

GIVEN = Given(device="nvidia-h200", problem={"M": None, "N": None})
FAST = triton.Config({"BLOCK": 128, "EVICT": "evict_last"}, num_warps=8, num_stages=2)
SLOW = triton.Config({"BLOCK": 64, "EVICT": ""}, num_warps=4, num_stages=3, num_ctas=2, maxnreg=96)
FAILED = triton.Config({"BLOCK": 4096, "EVICT": ""})


def cached(key: list[Any], *timings: tuple[Any, Any]) -> dict[str, Any]:
    return {"key": key, "configs_timings": [(config.__dict__, timing) for config, timing in timings]}


def test_the_fastest_config_with_its_median(tmp_path: Path) -> None:
    key = [4096, 512, "torch.float16", "torch.float16"]
    timings = ((FAILED, [inf] * 3), (SLOW, [0.2, 0.19, 0.21]), (FAST, [0.125, 0.12, 0.13]))
    put(tmp_path, "abc/_Softmax_kernel.autotune.json", cached(key, *timings))
    (arrival,), reasons = taken(tmp_path, given=GIVEN)
    assert questions([arrival]) == ["softmax_kernel M=4096 N=512 dtype=fp16 on nvidia-h200"]
    assert dict(arrival.answer.config) == {"BLOCK": 128, "EVICT": "evict_last", "num_warps": 8, "num_stages": 2}
    assert (arrival.answer.latency_us, arrival.answer.interval_us) == (125.0, None)
    assert (arrival.provenance.policy, arrival.provenance.environment.triton) == ("triton-autotune", "")
    assert reasons == {}


def test_what_a_launch_takes_beyond_warps_and_stages_is_a_knob(tmp_path: Path) -> None:
    file = put(tmp_path, "k.autotune.json", cached([1, 2, "torch.bfloat16"], (SLOW, 0.5)))
    (arrival,), _ = taken(file, given=Given(op="mine", device="NVIDIA H200", triton="3.7.1"))
    assert questions([arrival]) == ["mine key0=1 key1=2 dtype=bf16 on nvidia-h200"]
    assert dict(arrival.answer.config) == {**SLOW.kwargs, "num_warps": 4, "num_stages": 3, "num_ctas": 2, "maxnreg": 96}
    assert arrival.provenance.environment.triton == "3.7.1"


def test_what_is_no_size_tells_problems_apart_too(tmp_path: Path) -> None:
    put(tmp_path, "a/k.autotune.json", cached([64, True, None, "torch.float16", "torch.float16"], (FAST, 0.1)))
    put(tmp_path, "b/k.autotune.json", cached([64, False, "gelu", "torch.float16", "torch.float32"], (SLOW, 0.1)))
    named = Given(device="h", problem={"M": None, "CAUSAL": None, "ACT": None})
    arrivals, reasons = taken(tmp_path, given=named)
    assert questions(arrivals) == [
        "k M=64 dtype=fp16 CAUSAL=True on h",
        "k M=64 dtype=fp16 ACT=gelu tensors=fp16-fp32 on h",
    ]
    assert reasons == {}


def test_a_kernel_of_ours_is_known_by_its_knobs(tmp_path: Path) -> None:
    softmax = catalog.load("softmax").signature
    config = {knob.name: knob.choices[0] for knob in softmax.knobs if not knob.name.startswith("num_")}
    mine = triton.Config(config, num_warps=4, num_stages=1)
    put(tmp_path, "a/s.autotune.json", cached([64, 128, "torch.float32"], (mine, 0.1)))
    put(tmp_path, "b/s.autotune.json", cached([64, 129, "torch.float32"], (FAST, 0.1)))
    given = Given(op="softmax", device="nvidia-h200", problem={"M": None, "N": None})
    (arrival,), reasons = taken(tmp_path, known=softmax, given=given)
    assert arrival.answer.problem == softmax.problem({"M": 64, "N": 128, "dtype": "fp32"})
    assert [reason.partition(" knobs")[0] for reason in reasons["s.autotune.json"]] == ["a softmax config has the"]


KEY = [1, 2, "torch.float16"]


HOOKED = triton.Config({}, ir_override="/tmp/evil.ttgir")
ONE_NAME = Given(device="h", problem={"M": None})


@pytest.mark.parametrize(
    ("document", "given", "reason"),
    [
        (cached(KEY, (FAST, 0.1)), Given(), "it does not say which card it was timed on; give --device ID"),
        (cached(KEY, (FAST, 0.1)), ONE_NAME, "its key has 2 values, and --problem names 1"),
        (cached([1, 2], (FAST, 0.1)), GIVEN, "its key names no dtype of a tensor"),
        (cached(KEY, (FAST, inf), (SLOW, [inf, inf])), GIVEN, "no config of it ran"),
        (cached(KEY, (FAST, "fast")), GIVEN, "schema not known: an entry of configs_timings has no timings"),
        ({"key": 1}, GIVEN, "schema not known: it has no key with configs_timings"),
        (cached(KEY, (HOOKED, 0.1)), GIVEN, "its fastest config is more than knobs: it overrides code or has a hook"),
    ],
)
def test_what_it_does_not_say_is_asked_for(tmp_path: Path, document: Any, given: Given, reason: str) -> None:
    file = put(tmp_path, "k.autotune.json", json.dumps(document))
    assert taken(file, given=given) == ([], {"k.autotune.json": [reason]})


def test_a_name_from_outside_is_no_path_and_no_module(tmp_path: Path) -> None:
    file = put(tmp_path, "evil.py.autotune.json", cached(KEY, (FAST, 0.1)))
    put(tmp_path, "evil.py", "raise SystemExit('ran')")
    reason = "'evil.py' names no op; an op is lower-case letters, digits and _; give --op"
    assert taken(file, given=GIVEN) == ([], {file.name: [reason]})
    for op in ("../../x", "/etc/passwd", "x" * 10_000, "a\x00b", "a\\b"):
        arrivals, reasons = taken(file, given=Given(op=op, device="h", problem={"M": None, "N": None}))
        assert arrivals == []
        assert "names no op" in reasons[file.name][0]
        assert len(reasons[file.name][0]) < 200
