"""A file with faults is read, or refused in one line: no exception of ours, and no hang."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mutations import mutated
from others import table_config
from stored import FULL, measured

from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.exchange import measurements, t4
from tuner.exchange.imported import ImportOptions
from tuner.exchange.importing import import_files
from tuner.exchange.kernel_tuner import to_cache
from tuner.lookup.table import Table
from tuner.search.replay import ReplaySpace, replay

SEED, FILES = 19, 60
"""The number of files of each format; 2,000 of each took 4 minutes and found nothing more on 2026-11-29."""
CONFIG = {"kwargs": {"BLOCK": 128}, "num_warps": 4, "num_stages": 2, "num_ctas": 1, "ir_override": None}
FORMATS: dict[str, tuple[str, Any]] = {
    "vllm": (
        "E=8,N=2,device_name=NVIDIA_H200.json",
        {"triton_version": "3.6.0", "1": table_config(), "64": table_config(32, waves_per_eu=0)},
    ),
    "moe_sum_reduce": (
        "moe_sum_reduce_NVIDIA-H200_t8_h4096_bfloat16.json",
        {"8-4096-bfloat16": {"16": {"BLOCK_M": 1, "NUM_STAGE": 1, "num_warps": 4, "evict_policy": "evict_last"}}},
    ),
    "triton.autotune": (
        "softmax_kernel.autotune.json",
        {"key": [64, 128, "torch.float16"], "configs_timings": [[CONFIG, [0.1, 0.1, 0.1]], [CONFIG, 0.2]]},
    ),
    "kernel-tuner": (
        "cache.json",
        json.loads(to_cache([measured(), measured(9.0, 64)], "add", (64, 128), "NVIDIA H200")),
    ),
    "t4": ("results.json", t4.to_document([measured(), measured(9.0, 64), FULL])),
}


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_with_faults_ends_in_answers_or_in_reasons(tmp_path: Path, migrated: Path, format: str) -> None:
    name, document = FORMATS[format]
    random, outcomes, stored = Random(f"{SEED} {format}"), Counter[str](), 0
    problem = {"M": None, "N": None} if format == "triton.autotune" else {"M": "64", "N": "64", "dtype": "fp16"}
    options = ImportOptions("scale" if format == "t4" else None, "nvidia-h200", problem=problem)
    with closing(Store.open(shutil.copy(migrated, tmp_path / "tuner.db"))) as store:
        for number in range(FILES):
            file = tmp_path / str(number) / name
            file.parent.mkdir()
            file.write_bytes(mutated(document, random))
            report = import_files([file], store, options, store.signatures().get, lambda id: None)
            assert report.read or report.not_understood
            lines = [*report.reasons(), *report.summary()]
            assert all("\n" not in line and len(line) < 700 for line in lines)
            json.dumps(report.as_json())
            outcomes["refused" if report.is_empty else "stored"] += 1
            stored += report.stored
        Table("nvidia-h200", answers := store.answers())
        assert len(answers) == stored  # each can be read again
    assert min(outcomes.values()) > FILES / 20, outcomes
    assert len(outcomes) == 2


@pytest.mark.parametrize("format", ["kernel-tuner", "t4"])
def test_measurements_with_faults_are_replayed_or_refused(tmp_path: Path, format: str) -> None:
    name, document = FORMATS[format]
    random, file = Random(f"{SEED} replay {format}"), tmp_path / name
    refusals = list[str]()
    for _ in range(FILES):
        file.write_bytes(mutated(document, random))
        try:
            read = measurements.load(file)
        except UsageError as error:
            refusals.append(str(error))
        else:
            replay(ReplaySpace(name, read), "random", seeds=1, trials=5, batch=2)
    assert all(refusal.startswith(name) and len(refusal) < 300 and "\n" not in refusal for refusal in refusals)
    assert FILES / 20 < len(refusals) < FILES * 19 / 20
