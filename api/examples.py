"""The examples of replies on the OpenAPI page, made by the code that makes the replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.db.queue import Job
from tuner.kernels.spec import Attribute, Dim, Knob, Signature
from tuner.lookup import bundle
from tuner.lookup.table import LookupResult
from tuner.records import Answer, Device, Environment, Evidence, Provenance, StoredAnswer, StoredRun
from tuner.records.document import answer_document
from tuner.records.retune import Action, Cause, Contender, Finding, Reading, Retune
from tuner.records.retune_codec import retune_as_json
from tuner.report.history import Generation, History
from tuner.report.retune.summary import summarise
from tuner.version import __version__

_CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
_SIGNATURE = Signature(
    op="gemm",
    summary="",
    dims=(Dim("M"), Dim("N"), Dim("K")),
    dtypes=("bf16",),
    knobs=tuple(Knob(name, ()) for name in _CONFIG),
    attributes=(Attribute("layout", ("nn",), "nn"),),
)


_PROBLEM = _SIGNATURE.problem({"M": 4096, "N": 4096, "K": 4096})
_ANSWER = Answer(
    problem=_PROBLEM,
    kind="tuned",
    config=_SIGNATURE.config(_CONFIG),
    latency_us=185.2,
    interval_us=(184.9, 186.2),
    speedup=1.058,
    speedup_interval=(1.055, 1.06),
    default_latency_us=196.1,
    vendor_latency_us=174.5,
    evidence=Evidence(0.0029, 0.0156, ("normal", "normal", "special"), 54),
    flops=2 * 4096**3,
    bytes=3 * 2 * 4096**2,
)
_PROVENANCE = Provenance(
    device=Device.called("NVIDIA H200"),
    environment=Environment("3.6.0", "12.8", "2.11.0", "580.159.04"),
    source="84575b0fb4f2ff6a",
    policy="cold-events-1",
    tuner=__version__,
)
_DEVICE, _AT, _END = _PROVENANCE.device.id, "2026-11-27T22:58:12.000+00:00", "2026-11-27T23:00:00.000+00:00"
_TIMES = {"tuned_at": _END, "forgotten_at": None}
_SETTINGS = {"sampler": "gp", "seed": 0, "trials": 200, "known": 0}
_STORED = StoredAnswer(1, _ANSWER, _PROVENANCE, _END, 1, 64, _SETTINGS)
_SNAPSHOT = "94f9af6d-62ee-4270-b435-4432600de399:1"


_READING = Reading(
    185.2,
    (184.9, 186.2),
    {"vendor": Contender(174.5, 0.942, (0.94, 0.944))},
    _PROVENANCE,
    40,
    _END,
)
_FINDING = Finding(
    _PROBLEM, 1, _ANSWER.config, Cause.UNCHANGED, Action.KEPT, "1.001 x then", _READING, _READING, seconds=0.6
)
_RETUNE = Retune(1, _DEVICE, {"all": True}, (1,), _PROVENANCE.as_json(), "done", _AT, _END, (_FINDING,))


def example() -> dict[str, Any]:
    """Return the document of an exact answer."""
    return LookupResult(_PROBLEM, _DEVICE, "exact", _STORED).as_json(_SNAPSHOT)


def examples() -> Mapping[tuple[str, str], Any]:
    """Return the reply to a request that succeeds, by path and method."""
    other = _SIGNATURE.problem({"M": 16, "N": 4096, "K": 4096})
    miss = LookupResult(other, _DEVICE, "none", nearest=(_PROBLEM.text,)).as_json(_SNAPSHOT)
    table = bundle.packed(_SNAPSHOT, [_SIGNATURE], [_STORED], op=_SIGNATURE.op, device=_DEVICE)
    run = _run()
    request = {"id": 1, "op": other.op, "problem": other.text, "device": _DEVICE, "count": 12}
    return {
        ("/best-config", "get"): example(),
        ("/best-configs", "post"): {
            "snapshot": _SNAPSHOT,
            "results": [example(), miss, {"error": "no op is called 'conv'; known are gemm"}],
        },
        ("/table", "get"): json.loads(table),
        ("/runs", "get"): _page(run.as_json()),
        ("/runs/{id}", "get"): {
            **run.as_json(),
            "settings": dict(run.settings),
            "seconds": dict(run.seconds),
            "tuned_with": run.provenance.as_json(),
            "answers": [{"id": 1, "problem": dict(_PROBLEM.values), **answer_document(_STORED), **_TIMES}],
        },
        ("/problems", "get"): _page(
            {"id": 1, "op": _PROBLEM.op, "text": _PROBLEM.text, "parameters": dict(_PROBLEM.values)}
        ),
        ("/kernels", "get"): _page(
            {
                "id": 1,
                "op": _SIGNATURE.op,
                "source": _PROVENANCE.source,
                "digest": "0f343b0931126a20",
                "signature": _SIGNATURE.as_json(),
                "created_at": _AT,
            }
        ),
        ("/devices", "get"): _page(
            {"id": 1, "slug": _DEVICE, "facts": asdict(_PROVENANCE.device), "roofline_limits": None}
        ),
        ("/requests", "get"): _page({**request, "first_at": _AT, "last_at": _END}),
        ("/jobs", "get"): _page(_job(other.text)),
        ("/jobs", "post"): _job(other.text),
        ("/history", "get"): History(_PROBLEM, _DEVICE, [Generation(_STORED)]).as_json(1, _SNAPSHOT),
        ("/retunes", "get"): _page(_retune_summary()),
        ("/retunes/{id}", "get"): {**_retune_summary(), **retune_as_json(_RETUNE)},
        ("/healthz", "get"): {"status": "ok", "version": __version__},
        ("/readyz", "get"): {"status": "ready", "snapshot": _SNAPSHOT, "answers": 1, "age_s": 0.412},
    }


def _retune_summary() -> dict[str, Any]:
    about = ("id", "device", "status", "started_at", "ended_at")
    return {**{name: getattr(_RETUNE, name) for name in about}, "summary": summarise(_RETUNE).as_json()}


def _page(item: dict[str, Any]) -> dict[str, Any]:
    return {"items": [item], "next": None}


def _run() -> StoredRun:
    seconds = {"compile": 31.4, "measure": 70.2}
    return StoredRun(
        1, _SIGNATURE, _PROBLEM, _PROVENANCE, _SETTINGS, "done", "converged", seconds, _AT, _END, 64, 185.2
    )


def _job(problem: str) -> dict[str, Any]:
    job = Job(1, _SIGNATURE.op, problem, _DEVICE, 0, "pending", 0, None, None, None, None, _AT, None)
    return asdict(job)
