"""The OpenAPI page: routes that FastAPI does not serve itself, and parameters that come from the signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from tuner.api import schemas
from tuner.api.settings import SETTINGS
from tuner.kernels.spec import Signature

_WORDS = f"""
Which launch configuration of a Triton kernel is the fastest, with the evidence.

`GET /best-config` is what model code asks before it launches; it and `/table` answer from memory, and tell by an ETag
whether an answer still holds. Names that are not listed are refused, not ignored. An error is `{{"error": sentence}}`.
Writing needs `Authorization: Bearer TOKEN`. A body has at most {SETTINGS.max_body_bytes:,} bytes. Every
answer carries the `X-Request-ID` that it came with, or a new one.
"""
_REFUSED: dict[int | str, dict[str, Any]] = {
    404: {"model": schemas.Refusal, "description": "No op or device is called so."},
    422: {"model": schemas.Refusal, "description": "The question cannot be understood; the sentence names the field."},
    503: {"model": schemas.Refusal, "description": "The store has not been read yet."},
}
_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "What the asker has still holds."}}


def _best_config() -> None:
    """The best known config of a problem: `/best-config?op=gemm&M=4096`.

    Dims, dtype and attributes describe the problem; what is left out takes the op's default. `triton`, `source`,
    `driver`, `ptxas` and `policy` are compared where they are sent; with `strict=1` a difference is a miss.
    """


def _best_configs() -> None:
    """The best known configs of up to 1,000 problems, in their order. One that is refused says so in its place."""


def _table() -> None:
    """All answers of an op on a device: `/table?op=gemm&device=nvidia-h200`. Saved, it is what `TUNER_SNAPSHOT` names.

    With all dims but the first it is a ladder, the first dim's values to configs: `/table?op=gemm&N=4096&K=4096`.
    """


def described(routes: list[BaseRoute], version: str, signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """The whole page, for the ops that are known now."""
    miss: dict[int | str, dict[str, Any]] = {
        404: {"model": schemas.Miss | schemas.Refusal, "description": "No answer, or no such op or device."}
    }
    by_hand: list[BaseRoute] = [
        APIRoute(
            "/best-config",
            _best_config,
            response_model=schemas.BestConfig,
            name="best_config",
            responses=_REFUSED | miss | _UNCHANGED,
            openapi_extra={"parameters": [*_problem(signatures), *_question()]},
        ),
        APIRoute(
            "/best-configs",
            _best_configs,
            methods=["POST"],
            name="best_configs",
            response_model=schemas.Results,
            responses={**{code: _REFUSED[code] for code in (422, 503)}, 413: {"model": schemas.Refusal}},
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schemas.Problems.model_json_schema()}},
                }
            },
        ),
        APIRoute(
            "/table",
            _table,
            name="table",
            response_model=schemas.WholeTable | schemas.Ladder,
            responses=_REFUSED | _UNCHANGED,
            openapi_extra={"parameters": [*_problem(signatures), _question()[0]]},
        ),
    ]
    served = [route for route in routes if not isinstance(route, Route) or isinstance(route, APIRoute)]
    page = get_openapi(title="triton-tuner", version=version, description=_WORDS.strip(), routes=[*by_hand, *served])
    page["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return page


def _parameter(name: str, schema: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description, **more}


def _problem(known: Mapping[str, Signature]) -> list[dict[str, Any]]:
    """Those of every known op."""
    whole = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    ops = {"type": "string", "enum": sorted(known)} if known else {"type": "string"}
    found = {"op": _parameter("op", ops, "The kernel.", required=True)}
    for signature in known.values():
        for dim in signature.dims:
            found.setdefault(dim.name, _parameter(dim.name, whole, f"{signature.op}: {dim.help}", example=4096))
        for attribute in signature.attributes:
            choices = {"type": "string", "enum": [str(choice) for choice in attribute.choices]}
            help = f"{signature.op}: {attribute.help}"
            found.setdefault(attribute.name, _parameter(attribute.name, choices, help))
    words = "Of the inputs: bf16, fp16, fp32 ..., or torch's name; each op has a default."
    return [*found.values(), _parameter("dtype", {"type": "string"}, words, example="bf16")]


def _question() -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [
        _parameter("device", text, "A device id; without it the server's own card, or the only one stored."),
        _parameter("triton", text, "Triton version of the asker.", example="3.6.0"),
        _parameter("source", text, "Hash of the asker's kernel code."),
        _parameter("driver", text, "Driver version of the asker."),
        _parameter("ptxas", text, "ptxas release of the asker."),
        _parameter("policy", text, "Timing policy that answers must have.", example="cold-events-1"),
        _parameter("strict", {"type": "string", "enum": ["0", "1"]}, "1: a stale answer is a miss; needs triton."),
    ]
