"""What the store holds, a page at a time, and what it is asked to have tuned. These read the database."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tuner.api import schemas
from tuner.api.lookups import Lookups
from tuner.api.query import parse_object, parse_problem, parse_signature
from tuner.api.reply import to_json
from tuner.db import schema
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.lookup.query import COMPARED
from tuner.records import StoredRun
from tuner.records.document import answer_document
from tuner.records.signatures import lacks_choices

T = TypeVar("T")

_LARGEST_ID = 2**31 - 1
_AT_ONCE = 4
"""Reads of the database at the same time: fewer than its pool has connections, so none waits for one."""
_URGENT = 1000


class _Part(BaseModel):
    """Which part of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(100, ge=1, le=1000)
    after: int = Field(0, ge=0, le=_LARGEST_ID, description="The `next` of the part before.")


class _Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


_Asked = Annotated[_Part, Query()]
_REFUSED: dict[int | str, dict[str, Any]] = {422: {"model": schemas.Refusal}, 503: {"model": schemas.Refusal}}


def lists(store: Store, lookups: Lookups) -> APIRouter:
    """The routes that read or write the database."""
    router = APIRouter(responses=_REFUSED)
    limiter = CapacityLimiter(_AT_ONCE)

    async def done(action: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(action, *arguments, limiter=limiter)

    async def rows(table: type[schema.Base], part: _Part, *, without: str = "") -> Response:
        found = await done(store.rows, table, part.limit, part.after)
        return _page([{k: v for k, v in row.items() if k != without} for row in found], part)

    @router.get("/runs", response_model=schemas.Page[schemas.RunDocument])
    async def runs(part: _Asked) -> Response:
        """Searches, the newest first."""
        found = await done(store.runs, part.limit, part.after or None)
        return _page([run.as_json() for run in found], part, "run")

    @router.get("/runs/{id}", response_model=schemas.RunInFull, responses={404: {"model": schemas.Refusal}})
    async def run(id: Annotated[int, Path(ge=1, le=_LARGEST_ID)], _: Annotated[_Nothing, Query()]) -> Response:
        """One search: what it was asked for, how it ended, what it answered."""
        found = await done(store.run, id)
        if found is None:
            raise UnknownName(f"there is no run {id}; /runs lists them")
        answers = await done(store.answers_of, id)
        told = [
            {
                "id": answer.id,
                "problem": answer.answer.problem.values,
                **answer_document(answer),
                "tuned_at": answer.created_at,
            }
            for answer in answers
        ]
        return _json({**_in_full(found), "answers": told})

    @router.get("/problems", response_model=schemas.Page[schemas.StoredProblem])
    async def problems(part: _Asked) -> Response:
        """Problems that were ever searched."""
        return await rows(schema.ProblemRow, part)

    @router.get("/kernels", response_model=schemas.Page[schemas.StoredKernel])
    async def kernels(part: _Asked) -> Response:
        """Kernels that were ever searched: signatures and hashes, never code."""
        return await rows(schema.KernelRow, part)

    @router.get("/devices", response_model=schemas.Page[schemas.StoredDevice])
    async def devices(part: _Asked) -> Response:
        """Cards that were ever searched on."""
        return await rows(schema.DeviceRow, part, without="fingerprint")

    @router.get("/requests", response_model=schemas.Page[schemas.StoredRequest])
    async def requests(part: _Asked) -> Response:
        """What was asked and missed, the most frequent first. Counts are a few seconds old."""
        return _page(await done(store.requests, part.limit, part.after), part)

    @router.get("/jobs", response_model=schemas.Page[schemas.JobDocument])
    async def jobs(part: _Asked) -> Response:
        """Problems that somebody asked to have tuned, and what became of them."""
        return await rows(schema.JobRow, part)

    @router.post(
        "/jobs",
        response_model=schemas.JobDocument,
        responses={
            201: {"model": schemas.JobDocument, "description": "It is new."},
            401: {"model": schemas.Refusal, "description": "There is no token."},
            403: {"model": schemas.Refusal, "description": "The token may not write, or nobody may."},
            404: {"model": schemas.Refusal, "description": "No op is called so."},
            413: {"model": schemas.Refusal},
        },
        openapi_extra={
            "security": [{"token": []}],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": schemas.AskedJob.model_json_schema()}},
            },
        },
    )
    async def ask(request: Request, _: Annotated[_Nothing, Query()]) -> Response:
        """Asks for a problem to be tuned. One that is not finished is the same job, which may become more urgent."""
        given, view = parse_object(await request.body()), lookups.view
        for name in (*COMPARED, "strict"):
            if name in given:
                raise UsageError(f"a job is a problem, a device and a priority, not {name!r}")
        priority = given.pop("priority", 0)
        if type(priority) is not int or abs(priority) > _URGENT:
            raise UsageError(f"priority is a whole number from -{_URGENT} to {_URGENT}")
        device = given.pop("device", None)
        if device is None:
            device = view.lookup.resolve_device()
        elif not isinstance(device, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", device):
            raise UsageError("device is the id of a card, like nvidia-h200")  # it may be one that nobody searched on
        signature = parse_signature(given, view)
        if lacks_choices(signature):
            raise UsageError(
                f"{signature.op} came with answers of others and has no kernel here; /best-config has them"
            )
        problem = parse_problem(given, signature)
        job, new = await done(store.queue.ask_for, problem, device, priority)
        return _json(asdict(job), 201 if new else 200)

    return router


def _in_full(run: StoredRun) -> dict[str, Any]:
    return {
        **run.as_json(),
        "settings": dict(run.settings),
        "seconds": dict(run.seconds),
        "tuned_with": run.provenance.as_json(),
    }


def _page(items: list[dict[str, Any]], part: _Part, id: str = "id") -> Response:
    return _json({"items": items, "next": items[-1][id] if len(items) == part.limit else None})


def _json(document: Any, status: int = 200) -> Response:
    return Response(to_json(document), status, media_type="application/json")
