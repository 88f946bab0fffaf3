"""The OpenAPI page, with routes that FastAPI does not serve itself and parameters that follow from signatures."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from tuner.api import schemas
from tuner.api.examples import examples
from tuner.api.settings import SETTINGS
from tuner.kernels.parameters import LONGEST_OPEN
from tuner.kernels.spec import Attribute, Signature

_DESCRIPTION = f"""
The fastest known launch configuration of a Triton kernel, with its evidence.

Model code calls `GET /best-config` before it launches. This route and `/table` answer from memory, with an ETag.
Unknown parameters are refused, not ignored. An error is `{{"error": sentence}}`. Writing needs
`Authorization: Bearer TOKEN`. A body has at most {SETTINGS.max_body_bytes:,} bytes. Each response carries the
`X-Request-ID` of its request, or a new one.
"""
_Responses = dict[int | str, dict[str, Any]]
_REFUSED: _Responses = {
    404: {"model": schemas.ErrorDocument, "description": "No op or device has this name."},
    422: {"model": schemas.ErrorDocument, "description": "The query is not valid; the sentence names the field."},
    503: {"model": schemas.ErrorDocument, "description": "The store has not been read yet."},
}
_UNCHANGED: _Responses = {304: {"description": "The document is the one that the ETag names."}}


def _best_config() -> None:
    """Return the best known config of a problem: `/best-config?op=gemm&M=4096`.

    Dims, dtype and attributes describe the problem; those left out have the op's defaults. `triton`, `source`,
    `definition`, `driver`, `ptxas` and `policy` are compared if they are sent; with `strict=1` a difference is a miss.
    """


def _best_configs() -> None:
    """Return the best known configs of up to 1,000 problems, in their order, each refused one with its reason."""


def _table() -> None:
    """Return all answers of an op on a device: `/table?op=gemm&device=nvidia-h200`. `TUNER_SNAPSHOT` may name its file.

    With all dims but the first it is a map from the first dim's values to configs: `/table?op=gemm&N=4096&K=4096`.
    """


def described(routes: list[BaseRoute], version: str, signatures: Collection[Signature]) -> dict[str, Any]:
    """Return the page, with the parameters of these signatures."""
    either = schemas.MissDocument | schemas.ErrorDocument
    miss: _Responses = {404: {"model": either, "description": "No answer, or no such op or device."}}
    undeclared: list[BaseRoute] = [
        APIRoute(
            "/best-config",
            _best_config,
            response_model=schemas.BestConfigDocument,
            name="best_config",
            summary="Look up the config of a problem",
            responses=_REFUSED | miss | _UNCHANGED,
            openapi_extra={"parameters": [*_problem(signatures), *_query()]},
        ),
        APIRoute(
            "/best-configs",
            _best_configs,
            methods=["POST"],
            name="best_configs",
            summary="Look up the configs of many problems",
            response_model=schemas.ResultsDocument,
            responses={**{code: _REFUSED[code] for code in (422, 503)}, 413: {"model": schemas.ErrorDocument}},
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schemas.ProblemsBody.model_json_schema()}},
                }
            },
        ),
        APIRoute(
            "/table",
            _table,
            name="table",
            summary="Get all answers of an op on a device",
            response_model=schemas.TableDocument | schemas.LadderDocument,
            responses=_REFUSED | _UNCHANGED,
            openapi_extra={"parameters": [*_problem(signatures), _query()[0]]},
        ),
    ]
    served = [route for route in routes if not isinstance(route, Route) or isinstance(route, APIRoute)]
    page = get_openapi(
        title="triton-tuner", version=version, description=_DESCRIPTION.strip(), routes=[*undeclared, *served]
    )
    page["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for (path, method), reply in examples().items():
        content = page["paths"][path][method]["responses"]["200"]["content"]
        content["application/json"]["example"] = reply
    return page


def _parameter(name: str, schema: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description, **more}


def _problem(known: Collection[Signature]) -> list[dict[str, Any]]:
    """Return the parameters that describe a problem of any op."""
    whole = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    ops = {"type": "string", "enum": sorted({signature.op for signature in known})} if known else {"type": "string"}
    schemas: dict[str, list[dict[str, Any]]] = {}
    helps: dict[str, str] = {}
    for signature in known:
        for dim in signature.dims:
            schemas.setdefault(dim.name, []).append(whole)
            helps.setdefault(dim.name, f"{signature.op}: {dim.help}")
        for attribute in signature.attributes:
            schemas.setdefault(attribute.name, []).append(_attribute(attribute))
            helps.setdefault(attribute.name, f"{signature.op}: {attribute.help}")
    parameters = [_parameter("op", ops, "The kernel.", required=True)]
    for name, kinds in schemas.items():
        distinct = [kind for number, kind in enumerate(kinds) if kind not in kinds[:number]]
        more = {"example": 4096} if distinct == [whole] else {}
        parameters.append(
            _parameter(name, distinct[0] if len(distinct) == 1 else {"anyOf": distinct}, helps[name], **more)
        )
    dtypes = "Type of the inputs: bf16, fp16, fp32 ..., or torch's name; each op has a default."
    return [*parameters, _parameter("dtype", {"type": "string"}, dtypes, example="bf16")]


def _attribute(attribute: Attribute) -> dict[str, Any]:
    """Return the schema of an attribute's values."""
    if attribute.choices is None:
        return {"type": "string", "maxLength": LONGEST_OPEN}
    return {"type": "string", "enum": [str(choice) for choice in attribute.choices]}


def _query() -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [
        _parameter("device", text, "A device id; without it the server's own card, or the only one stored."),
        _parameter("triton", text, "Triton version of the client.", example="3.6.0"),
        _parameter("source", text, "Hash of the client's kernel code."),
        _parameter("definition", text, "Hash of the client's definition of the kernel: its inputs and reference."),
        _parameter("driver", text, "Driver version of the client."),
        _parameter("ptxas", text, "ptxas release of the client."),
        _parameter("policy", text, "Timing policy of the answers.", example="cold-events-1"),
        _parameter("strict", {"type": "string", "enum": ["0", "1"]}, "1: a stale answer is a miss; needs triton."),
    ]
