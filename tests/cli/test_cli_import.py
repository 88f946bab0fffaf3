"""`tuner import` and `tuner export --format`: from files of other tools to answers, and back."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from others import put, table_config
from served import TOKEN, serving
from stored import FULL, HERE, PROBLEM, SCALE, answer, answered, config, measured, started

from tuner.api.app import create_app
from tuner.cli.export import command as export_command
from tuner.cli.import_ import command as import_command
from tuner.client.client import best_config, refresh
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store
from tuner.errors import UsageError

MOE = "E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json"
BLOCK = "E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
REASON = "BLOCK is a power of two from 1 to 1,048,576, not [1]"


@pytest.fixture
def other(tmp_path: Path, migrated: Path) -> Path:
    """Another database."""
    return Path(shutil.copy(migrated, tmp_path / "other.db"))


@pytest.fixture
def run(path: Path, migrated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs one of the two commands and returns its exit code and output."""
    monkeypatch.setenv("TUNER_DB", str(shutil.copy(migrated, path)))

    def ran(command: Any, *arguments: str | Path) -> tuple[int, str]:
        code = command.main([str(argument) for argument in arguments], standalone_mode=False)
        return code, capsys.readouterr().out

    return ran


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A folder with files of vLLM and SGLang."""
    folder = tmp_path / "configs"
    put(folder, MOE, {"1": table_config(), "64": table_config(32)})
    put(folder, f"triton_3_5_1/{BLOCK}", {"64": table_config(64, SPLIT_K=1), "128": {"BLOCK": [1]}})
    put(folder, "README.json", {})
    return folder


def test_an_import_ends_with_counts(run: Any, configs: Path) -> None:
    code, printed = run(import_command, configs)
    assert code == 0
    assert printed.splitlines() == [
        f"  {BLOCK}: {REASON} (M=128)",
        "  README.json: unknown format",
        "3 files, 1 of them not understood: 4 read, 3 stored, 1 skipped",
    ]
    code, printed = run(import_command, configs, "--json")
    assert code == 0  # all of it is stored already
    assert json.loads(printed) == {
        "files": 3,
        "read": 4,
        "stored": 0,
        "replaced": 0,
        "skipped": 4,
        "reasons": [
            {"file": BLOCK, "reason": REASON, "count": 1, "at": ["M=128"]},
            {"file": MOE, "reason": "already stored", "count": 2, "at": []},
            {"file": BLOCK, "reason": "already stored", "count": 1, "at": []},
        ],
        "not_understood": [{"file": "README.json", "reason": "unknown format"}],
    }
    code, printed = run(import_command, configs / "README.json")
    assert (code, printed.splitlines()[-1]) == (1, "1 file, 1 of them not understood: 0 read, 0 stored, 0 skipped")
    with pytest.raises(UsageError, match="there is no file or folder /nowhere"):
        run(import_command, "/nowhere")


def test_a_folder_of_vllms_answers_over_http_and_in_process(run: Any, configs: Path, path: Path) -> None:
    run(import_command, configs)
    store = Store.open(path)
    with serving(create_app(store, signatures={}, token=TOKEN)) as client:
        query: dict[str, Any] = {"op": "fused_moe", "E": 8, "N": 7168, "M": 64, "device": "nvidia-h100-80gb-hbm3"}
        found = client.get("/best-config", params=query).json()
        assert (found["config"], found["match"], found["kind"]) == (table_config(32), "stale", "imported")
        assert (found["latency_us"], found["imported"]) == (None, MOE)
        assert found["stale"] == [f"imported: taken from {MOE}, not measured here"]
        quantised = query | {"quant": "fp8_w8a8", "block_shape": "128x128", "device": "nvidia-h200"}
        assert client.get("/best-config", params=quantised).json()["tuned_with"]["triton"] == "3.5.1"
        assert client.get("/best-config", params=quantised | {"quant": "fp4"}).status_code == 422
        table = client.get("/table", params={name: query[name] for name in ("op", "E", "N", "device")}).json()
        assert table["configs"] == {"1": table_config(), "64": table_config(32)}
        missed = client.get("/best-config", params=query | {"M": 65}).json()
        assert missed["nearest"][0].startswith("fused_moe M=64 ")
        job = client.post("/jobs", json=query, headers={"authorization": f"Bearer {TOKEN}"})
        skipped = "fused_moe has imported answers and no kernel here, so it cannot be tuned; /best-config has them"
        assert (job.status_code, job.json()["error"]) == (422, skipped)
        page = client.get("/openapi.json").json()["paths"]["/best-config"]["get"]
        assert {"E", "quant", "block_shape"} <= {parameter["name"] for parameter in page["parameters"]}
    store.close()
    refresh()
    best = best_config("fused_moe", device="nvidia-h100-80gb-hbm3", M=64, E=8, N=7168)
    assert (dict(best.config or {}), best.match) == (table_config(32), "stale")
    assert best.answer is not None
    assert best.answer.latency_us is None
    refresh()


def test_from_vllm_to_sglang_and_by_bundle_to_another_store(run: Any, configs: Path, path: Path, other: Path) -> None:
    tmp_path = path.parent
    run(import_command, configs)
    code, printed = run(export_command, tmp_path / "out", "--format", "sglang", "--json")
    exported = json.loads(printed)
    assert (code, exported["files"]) == (0, [f"triton_3_5_1/{BLOCK}"])
    assert [one["reason"] for one in exported["left_out"]] == [
        "SGLang keeps tables by Triton version, and the version of this answer is unknown"
    ] * 2
    assert json.loads((tmp_path / "out" / exported["files"][0]).read_text()) == {"64": table_config(64, SPLIT_K=1)}
    assert run(export_command, tmp_path / "out", "--format", "sglang")[0] == 1  # left as it is
    run(export_command, tmp_path / "all.json.gz")
    assert run(import_command, tmp_path / "all.json.gz", "--db", other)[1] == "1 file: 3 read, 3 stored, 0 skipped\n"
    with closing(Store.open(other)) as again, closing(Store.open(path)) as first:
        came = [(stored.answer, stored.imported_from, stored.created_at) for stored in again.answers()]
        assert came == [(stored.answer, stored.imported_from, stored.created_at) for stored in first.answers()]


def test_a_table_without_launch_options_comes_back_as_it_was(run: Any, path: Path, other: Path) -> None:
    folder, name = path.parent / "amd", "E=8,N=2,device_name=AMD_Instinct_MI300X.json"
    tile = {name: value for name, value in table_config().items() if not name.startswith("num_")}
    table = {"1": tile, "2": {**tile, "num_warps": 8}, "4": table_config()}
    put(folder, name, table)
    assert run(import_command, folder) == (0, "1 file: 3 read, 3 stored, 0 skipped\n")
    for format in ("vllm", "bundle"):
        run(export_command, path.parent / format, "--format", format)
    assert (path.parent / "vllm" / name).read_text() == f"{json.dumps(table, indent=4)}\n"
    assert run(import_command, path.parent / "bundle", "--db", other) == (0, "1 file: 3 read, 3 stored, 0 skipped\n")
    with closing(Store.open(other)) as store:
        assert [dict(stored.answer.config) for stored in store.answers()] == list(table.values())
        with serving(create_app(store, signatures={})) as client:
            query: dict[str, Any] = {"op": "fused_moe", "E": 8, "N": 2, "device": "amd-instinct-mi300x"}
            found = [client.get("/best-config", params=query | {"M": m}).json() for m in (1, 2, 4)]
    assert [one["config"] for one in found] == list(table.values())
    origin = f"imported: taken from {name}, not measured here"
    assert [one["stale"] for one in found] == [
        [f"{origin}; Triton's default holds for num_warps and num_stages"],
        [f"{origin}; Triton's default holds for num_stages"],
        [origin],
    ]
    refresh()
    best = best_config("fused_moe", device="amd-instinct-mi300x", M=1, E=8, N=2)
    assert dict(best.config or {}) == tile
    refresh()


def test_a_bundle_is_imported_with_all_evidence(run: Any, path: Path, other: Path) -> None:
    store = Store.open(path)
    answered(store)
    bundle = path.with_name("answers.json")
    run(export_command, bundle)
    assert run(import_command, bundle, "--db", other) == (0, "1 file: 1 read, 1 stored, 0 skipped\n")
    there = Store.open(other)
    (own,), (taken,) = store.answers(), there.answers()
    assert (taken.answer, taken.provenance, taken.created_at) == (own.answer, own.provenance, own.created_at)
    assert taken.imported_from is not None
    assert taken.imported_from.endswith(f" of store {store.snapshot}")
    answered(there, answer(latency_us=5.0))
    answered(store, answer(latency_us=4.0))
    bundle.unlink()
    run(export_command, bundle)
    reason = "an answer measured here is stored; --replace imports this one in its place"
    code, printed = run(import_command, bundle, "--db", other)
    assert (code, printed.splitlines()[0]) == (1, f"  answers.json: {reason}")
    assert "1 stored in place of an answer measured here" in run(import_command, bundle, "--db", other, "--replace")[1]
    bundle.write_bytes(bundle.read_bytes().replace(b'"latency_us":4.0', b'"latency_us":3.0'))
    code, printed = run(import_command, bundle, "--db", other)
    assert (code, "was altered" in printed) == (1, True)
    store.close()
    there.close()


def test_a_bundle_of_an_earlier_version_is_held_to_the_same_rules(run: Any, path: Path, other: Path) -> None:
    odd = SCALE.config({**config(), "num_warps": 3})
    with closing(Store.open(path)) as store:
        store.import_answers(
            [
                ImportedAnswer(SCALE, replace(answer(), kind="imported", config=one, problem=problem), HERE, "old.json")
                for one, problem in ((config(), PROBLEM), (odd, SCALE.problem({"M": 7})))
            ]
        )
    run(export_command, path.parent / "all.json")
    assert run(import_command, path.parent / "all.json", "--db", other) == (
        0,
        "  all.json: num_warps is a power of two from 1 to 32, not 3 (answer 2)\n1 file: 2 read, 1 stored, 1 skipped\n",
    )


def test_exported_t4_has_each_measurement_of_a_search(run: Any, path: Path, tmp_path: Path) -> None:
    store = Store.open(path)
    answered(store)
    for measurement in (FULL, measured(12.0, 64)):
        store.add_trial(1, measurement)
    started(store, SCALE.problem({"M": 7}))
    code, printed = run(export_command, tmp_path / "t4", "--format", "t4")
    assert (code, printed.splitlines()[-1].strip()) == (0, "scale-4096x4096-bf16-nvidia-h200.json")
    document = json.loads((tmp_path / "t4" / "scale-4096x4096-bf16-nvidia-h200.json").read_text())
    assert [result["configuration"]["BLOCK"] for result in document["results"]] == [128, 64]
    options = ["--op", "mine", "--device", "nvidia-h200", "--problem", "M=4096,N=4096,dtype=bf16"]
    assert run(import_command, tmp_path / "t4", *options)[1] == "1 file: 1 read, 1 stored, 0 skipped\n"
    assert run(export_command, tmp_path / "more", "--format", "t4", "--op", "mine")[0] == 1  # its trials are elsewhere
    store.close()


def test_a_problem_option_is_names_and_values(run: Any, tmp_path: Path) -> None:
    import click

    for text in ("M=", "M==1", "M,M", "", "../x=1", "M=\uff14\uff10"):
        with pytest.raises(click.BadParameter, match="a problem is M=4096,dtype=bf16, or names alone such as M,N"):
            run(import_command, tmp_path, "--problem", text)
