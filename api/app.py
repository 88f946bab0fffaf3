"""The application, made by a function that takes the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import tuner
from tuner.api.schemas import BestConfig, Health, Miss, Refusal
from tuner.db.store import Store
from tuner.errors import TunerError, UnknownName, UsageError
from tuner.kernels.spec import Signature
from tuner.lookup import Asked, Table, device_asked

_QUESTION = ("op", "device", "triton", "source", "driver", "ptxas", "policy", "strict")
"""Parameters that are not the problem's own."""


def create_app(
    store: Store, *, device: str | None = None, signatures: Mapping[str, Signature] | None = None
) -> FastAPI:
    """The service over `store`.

    Args:
        store: is read, never written.
        device: id of the card that questions without a device are about: the server's own.
        signatures: ops that are known without having been searched; the store's are added.
    """
    app = FastAPI(title="triton-tuner", version=tuner.__version__, description=tuner.__doc__ or "")
    known = dict(signatures or {}) | store.signatures()

    @app.exception_handler(TunerError)
    def refuse(request: Request, error: TunerError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.http_status)

    @app.get("/healthz", responses={503: {"model": Refusal}})
    def healthz() -> Health:
        """Whether the service can read its store."""
        return Health(status="ok", version=tuner.__version__, snapshot=store.snapshot)

    @app.get(
        "/best-config",
        response_model=BestConfig,
        responses={404: {"model": Miss}, 422: {"model": Refusal}, 503: {"model": Refusal}},
        openapi_extra={"parameters": _parameters(known)},
    )
    def best_config(request: Request) -> JSONResponse:
        """The best known config of a problem: `/best-config?op=gemm&M=4096`.

        Dims, dtype and attributes describe the problem; what is left out takes the op's default. `triton`, `source`,
        `driver`, `ptxas` and `policy` are compared where they are sent; with `strict=1` a difference is a miss.
        """
        given = _once(request.query_params.multi_items())
        if "op" not in given:
            raise UsageError(f"op is missing; it is one of {', '.join(sorted(known)) or 'none yet'}")
        signature = _signature(store, known, given["op"])
        asked, about = _asked(signature, given, device, store)
        found = Table(about, store.answers(op=signature.op, device=about)).find(asked)
        return JSONResponse(found.as_json(store.snapshot), 200 if found.stored is not None else 404)

    return app


def _once(items: list[tuple[str, str]]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in items:
        if name in given:
            raise UsageError(f"{name[:40]} is given more than once")
        given[name] = value
    return given


def _signature(store: Store, known: dict[str, Signature], op: str) -> Signature:
    if op not in known:
        known.update(store.signatures())  # it may have been searched since
    if op not in known:
        raise UnknownName(f"no op is called {op[:80]!r}; known are {', '.join(sorted(known)) or 'none yet'}")
    return known[op]


def _asked(signature: Signature, given: Mapping[str, str], own: str | None, store: Store) -> tuple[Asked, str]:
    problem = signature.problem({name: value for name, value in given.items() if name not in _QUESTION})
    strict = given.get("strict", "0")
    if strict not in ("0", "1"):
        raise UsageError(f"strict is 0 or 1, not {strict[:40]!r}")
    if strict == "1" and "triton" not in given:
        raise UsageError("strict=1 compares versions, so it needs triton")
    compared = {name: given[name] for name in ("triton", "source", "driver", "ptxas", "policy") if name in given}
    return Asked(problem, strict=strict == "1", **compared), device_asked(given.get("device"), own, store.devices())


def _parameters(known: Mapping[str, Signature]) -> list[dict[str, Any]]:
    """The query parameters in OpenAPI's words: those of every known op, and those of the question."""

    def parameter(name: str, schema: dict[str, Any], description: str, required: bool = False) -> dict[str, Any]:
        return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}

    whole = {"type": "integer", "minimum": 1}
    found = {"op": parameter("op", {"type": "string", "enum": sorted(known)}, "The kernel.", required=True)}
    for signature in known.values():
        for dim in signature.dims:
            found.setdefault(dim.name, parameter(dim.name, whole, f"{signature.op}: {dim.help}"))
        for attribute in signature.attributes:
            choices = {"type": "string", "enum": [str(choice) for choice in attribute.choices]}
            found.setdefault(attribute.name, parameter(attribute.name, choices, f"{signature.op}: {attribute.help}"))
    text = {"type": "string"}
    return [
        *found.values(),
        parameter("dtype", text, "Of the inputs: bf16, fp16, fp32 ..., or torch's name; each op has a default."),
        parameter("device", text, "A device id; without it the server's own card, or the only one stored."),
        parameter("triton", text, "Triton version of the asker."),
        parameter("source", text, "Hash of the asker's kernel code."),
        parameter("driver", text, "Driver version of the asker."),
        parameter("ptxas", text, "ptxas release of the asker."),
        parameter("policy", text, "Timing policy that answers must have."),
        parameter("strict", {"type": "string", "enum": ["0", "1"]}, "1: a stale answer is a miss; needs triton."),
    ]
