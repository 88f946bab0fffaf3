"""The cache of triton.autotune, written the way Triton writes it."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
import triton
from others import imported, keys, put

from tuner import catalog
from tuner.exchange.imported import ImportOptions

OPTIONS = ImportOptions(device="nvidia-h200", problem={"M": None, "N": None})
FAST = triton.Config({"BLOCK": 128, "EVICT": "evict_last"}, num_warps=8, num_stages=2)
SLOW = triton.Config({"BLOCK": 64, "EVICT": ""}, num_warps=4, num_stages=3, num_ctas=2, maxnreg=96)
FAILED = triton.Config({"BLOCK": 4096, "EVICT": ""})


def cached(key: list[Any], *timings: tuple[Any, Any]) -> dict[str, Any]:
    return {"key": key, "configs_timings": [(config.__dict__, timing) for config, timing in timings]}


def test_the_fastest_config_is_imported_with_its_median(tmp_path: Path) -> None:
    key = [4096, 512, "torch.float16", "torch.float16"]
    timings = ((FAILED, [inf] * 3), (SLOW, [0.2, 0.19, 0.21]), (FAST, [0.125, 0.12, 0.13]))
    put(tmp_path, "abc/_Softmax_kernel.autotune.json", cached(key, *timings))
    (one,), reasons = imported(tmp_path, options=OPTIONS)
    assert keys([one]) == ["softmax_kernel M=4096 N=512 dtype=fp16 on nvidia-h200"]
    assert dict(one.answer.config) == {"BLOCK": 128, "EVICT": "evict_last", "num_warps": 8, "num_stages": 2}
    assert (one.answer.latency_us, one.answer.interval_us) == (125.0, None)
    assert (one.provenance.policy, one.provenance.environment.triton) == ("triton-autotune", "")
    assert reasons == {}


def test_launch_options_beyond_warps_and_stages_are_knobs(tmp_path: Path) -> None:
    file = put(tmp_path, "k.autotune.json", cached([1, 2, "torch.bfloat16"], (SLOW, 0.5)))
    (one,), _ = imported(file, options=ImportOptions(op="mine", device="NVIDIA H200", triton="3.7.1"))
    assert keys([one]) == ["mine key0=1 key1=2 dtype=bf16 on nvidia-h200"]
    assert dict(one.answer.config) == {**SLOW.kwargs, "num_warps": 4, "num_stages": 3, "num_ctas": 2, "maxnreg": 96}
    assert one.provenance.environment.triton == "3.7.1"


def test_launch_options_that_are_left_to_triton_stay_out(tmp_path: Path) -> None:
    config = triton.Config({"BLOCK": 64}, num_warps=4, num_stages=0).__dict__ | {"num_warps": None}
    put(tmp_path, "k.autotune.json", {"key": [1, 2, "torch.bfloat16"], "configs_timings": [[config, 0.5]]})
    (one,), _ = imported(tmp_path, options=OPTIONS)
    assert dict(one.answer.config) == {"BLOCK": 64, "num_stages": 0}


def test_key_values_that_are_not_sizes_are_attributes(tmp_path: Path) -> None:
    put(tmp_path, "a/k.autotune.json", cached([64, True, None, "torch.float16", "torch.float16"], (FAST, 0.1)))
    put(tmp_path, "b/k.autotune.json", cached([64, False, "gelu", "torch.float16", "torch.float32"], (SLOW, 0.1)))
    named = ImportOptions(device="h", problem={"M": None, "CAUSAL": None, "ACT": None})
    answers, reasons = imported(tmp_path, options=named)
    assert keys(answers) == [
        "k M=64 dtype=fp16 CAUSAL=True on h",
        "k M=64 dtype=fp16 ACT=gelu tensors=fp16-fp32 on h",
    ]
    assert reasons == {}


def test_a_config_of_an_op_with_a_kernel_must_have_its_knobs(tmp_path: Path) -> None:
    softmax = catalog.load("softmax").signature
    config = {knob.name: knob.choices[0] for knob in softmax.knobs if not knob.name.startswith("num_")}
    mine = triton.Config(config, num_warps=4, num_stages=1)
    put(tmp_path, "a/s.autotune.json", cached([64, 128, "torch.float32"], (mine, 0.1)))
    put(tmp_path, "b/s.autotune.json", cached([64, 129, "torch.float32"], (FAST, 0.1)))
    options = ImportOptions(op="softmax", device="nvidia-h200", problem={"M": None, "N": None})
    (one,), reasons = imported(tmp_path, known=softmax, options=options)
    assert one.answer.problem == softmax.problem({"M": 64, "N": 128, "dtype": "fp32"})
    assert [reason.partition(" knobs")[0] for reason in reasons["b/s.autotune.json"]] == ["a softmax config has the"]


KEY = [1, 2, "torch.float16"]
ODD = triton.Config({"BLOCK": 64}, num_warps=3)


HOOKED = triton.Config({}, ir_override="/tmp/evil.ttgir")
HOOK = "a config is imported if it is knobs only, and the fastest one has an ir_override or a hook"
ONE_NAME = ImportOptions(device="h", problem={"M": None})


@pytest.mark.parametrize(
    ("document", "options", "reason"),
    [
        (
            cached(KEY, (FAST, 0.1)),
            ImportOptions(),
            "a cache of triton.autotune does not state its card; give --device ID",
        ),
        (cached(KEY, (FAST, 0.1)), ONE_NAME, "its key has 2 values, and --problem names 1; name each value"),
        (
            cached([1, 2], (FAST, 0.1)),
            OPTIONS,
            "unknown format: a key of triton.autotune ends with the dtypes of its tensors",
        ),
        (cached(KEY, (FAST, inf), (SLOW, [inf, inf])), OPTIONS, "no config of it ran"),
        (cached(KEY, (FAST, 0.0), (SLOW, [-1.0, 1.0]), (FAILED, True)), OPTIONS, "no config of it ran"),
        (cached(KEY, (ODD, 0.1)), OPTIONS, "num_warps is a power of two from 1 to 32, not 3"),
        (cached(KEY, (FAST, 10**400), (SLOW, [10**400, 1])), OPTIONS, "no config of it ran"),
        (
            cached(KEY, (FAST, "fast")),
            OPTIONS,
            "unknown format: an entry of configs_timings is a config with its timings",
        ),
        ({"key": 1}, OPTIONS, "unknown format: a cache of triton.autotune has the lists key and configs_timings"),
        (cached(KEY, (HOOKED, 0.1)), OPTIONS, HOOK),
    ],
)
def test_a_file_that_lacks_something_is_skipped_with_the_reason(
    tmp_path: Path, document: Any, options: ImportOptions, reason: str
) -> None:
    file = put(tmp_path, "k.autotune.json", json.dumps(document))
    assert imported(file, options=options) == ([], {"k.autotune.json": [reason]})


def test_an_op_from_a_file_name_is_never_a_path_or_a_module(tmp_path: Path) -> None:
    file = put(tmp_path, "evil.py.autotune.json", cached(KEY, (FAST, 0.1)))
    put(tmp_path, "evil.py", "raise SystemExit('ran')")
    reason = "an op is lower-case letters, digits and _, not 'evil.py'; give --op NAME"
    assert imported(file, options=OPTIONS) == ([], {file.name: [reason]})
    for op in ("../../x", "/etc/passwd", "x" * 10_000, "a\x00b", "a\\b"):
        answers, reasons = imported(file, options=ImportOptions(op=op, device="h", problem={"M": None, "N": None}))
        assert answers == []
        assert reasons[file.name][0].startswith("an op is lower-case letters, digits and _, not ")
        assert len(reasons[file.name][0]) < 200
