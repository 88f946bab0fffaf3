"""Routes that list what the store holds, a page at a time, and that add jobs. They read the database."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tuner.api import schemas
from tuner.api.lookups import Lookups
from tuner.api.query import parse_object, parse_problem, parse_signatures, parse_values
from tuner.api.reply import to_json
from tuner.db import schema
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.lookup.query import COMPARED
from tuner.records import StoredAnswer, StoredRun
from tuner.records.document import answer_document
from tuner.records.signatures import lacks_choices

T = TypeVar("T")

_LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class ListSettings:
    """Limits of the routes that read the database."""

    concurrent_reads: int = 4
    """Reads at the same time: fewer than the connection pool has, so that none waits for a connection."""
    default_page: int = 100
    """Items of a page."""
    largest_page: int = 1000
    """Items of a page, at most."""
    highest_priority: int = 1000
    """Largest absolute priority of a job."""


SETTINGS = ListSettings()


def _digits(value: object) -> object:
    """Return a value; raise if it is a text other than digits, since Python reads many more as a number."""
    if isinstance(value, str) and not re.fullmatch("[0-9]{1,10}", value):
        raise PydanticCustomError("digits", "Input should be a whole number, in the digits 0 to 9")
    return value


Whole = Annotated[int, BeforeValidator(_digits)]
"""A whole number of a query or a path."""


def _once(request: Request) -> None:
    """Raise UsageError if a parameter is given more than once, since only one of its values would be checked."""
    parse_values(request.scope["query_string"])


class _PageQuery(BaseModel):
    """The query of a page."""

    model_config = ConfigDict(extra="forbid")

    limit: Whole = Field(SETTINGS.default_page, ge=1, le=SETTINGS.largest_page)
    after: Whole = Field(0, ge=0, le=_LARGEST_ID, description="The `next` of the page before.")


class _NoQuery(BaseModel):
    """A query without parameters."""

    model_config = ConfigDict(extra="forbid")


_Page = Annotated[_PageQuery, Query()]
_Empty = Annotated[_NoQuery, Query()]
_REFUSED: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.ErrorDocument},
    503: {"model": schemas.ErrorDocument},
}


def lists(store: Store, lookups: Lookups) -> APIRouter:
    """Return the routes that read or write the database."""
    router = APIRouter(responses=_REFUSED, dependencies=[Depends(_once)])
    limiter = CapacityLimiter(SETTINGS.concurrent_reads)

    async def in_thread(action: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(action, *arguments, limiter=limiter)

    async def rows(table: type[schema.Base], page: _PageQuery, *, without: str = "") -> Response:
        found = await in_thread(store.rows, table, page.limit, page.after)
        return _page([{k: v for k, v in row.items() if k != without} for row in found], page)

    @router.get("/runs", summary="List searches", response_model=schemas.PageDocument[schemas.RunDocument])
    async def runs(page: _Page) -> Response:
        """Return searches, the newest first."""
        found = await in_thread(store.runs, page.limit, page.after or None)
        return _page([run.as_json() for run in found], page, "run")

    @router.get(
        "/runs/{id}",
        summary="Get one search in full",
        response_model=schemas.RunInFullDocument,
        responses={404: {"model": schemas.ErrorDocument}},
    )
    async def run(id: Annotated[Whole, Path(ge=1, le=_LARGEST_ID)], _: _Empty) -> Response:
        """Return one search with its settings, its end and its answers."""
        found = await in_thread(store.run, id)
        if found is None:
            raise UnknownName(f"there is no run {id}; /runs lists them")
        answers = await in_thread(store.answers_of, id)
        return _json({**_in_full(found), "answers": [_of_run(stored) for stored in answers]})

    @router.get(
        "/problems", summary="List searched problems", response_model=schemas.PageDocument[schemas.ProblemDocument]
    )
    async def problems(page: _Page) -> Response:
        """Return the problems that have runs."""
        return await rows(schema.ProblemRow, page)

    @router.get(
        "/kernels", summary="List searched kernels", response_model=schemas.PageDocument[schemas.KernelDocument]
    )
    async def kernels(page: _Page) -> Response:
        """Return the kernels that have runs: signatures and hashes, never code."""
        return await rows(schema.KernelRow, page)

    @router.get("/devices", summary="List devices", response_model=schemas.PageDocument[schemas.DeviceDocument])
    async def devices(page: _Page) -> Response:
        """Return the devices that have runs."""
        return await rows(schema.DeviceRow, page, without="fingerprint")

    @router.get(
        "/requests", summary="List missed queries", response_model=schemas.PageDocument[schemas.RequestDocument]
    )
    async def requests(page: _Page) -> Response:
        """Return the missed queries, most frequent first. Counts are a few seconds old."""
        return _page(await in_thread(store.requests, page.limit, page.after), page)

    @router.get("/jobs", summary="List jobs", response_model=schemas.PageDocument[schemas.JobDocument])
    async def jobs(page: _Page) -> Response:
        """Return the jobs and their states."""
        return await rows(schema.JobRow, page)

    @router.post(
        "/jobs",
        summary="Request a search",
        response_model=schemas.JobDocument,
        responses={
            201: {"model": schemas.JobDocument, "description": "The job is new."},
            401: {"model": schemas.ErrorDocument, "description": "The request has no token."},
            403: {
                "model": schemas.ErrorDocument,
                "description": "The token may not write, or the service has none.",
            },
            404: {"model": schemas.ErrorDocument, "description": "No op has this name."},
            413: {"model": schemas.ErrorDocument},
        },
        openapi_extra={
            "security": [{"token": []}],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": schemas.JobBody.model_json_schema()}},
            },
        },
    )
    async def add_job(request: Request, _: _Empty) -> Response:
        """Add a job to tune a problem, or return its unfinished job, whose priority may rise."""
        given, view = parse_object(await request.body()), lookups.view
        for name in (*COMPARED, "strict"):
            if name in given:
                raise UsageError(f"a job is a problem, a device and a priority, not {name!r}")
        priority, highest = given.pop("priority", 0), SETTINGS.highest_priority
        if type(priority) is not int or abs(priority) > highest:
            raise UsageError(
                f"priority is a whole number from -{SETTINGS.highest_priority} to {SETTINGS.highest_priority}"
            )
        device = given.pop("device", None)
        if device is None:
            device = view.lookup.resolve_device()
        elif not isinstance(device, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", device):
            raise UsageError("device is the id of a card, like nvidia-h200")  # a card without answers, too
        signature, problem = parse_problem(given, parse_signatures(given, view))
        if lacks_choices(signature):
            raise UsageError(
                f"{signature.op} has imported answers and no kernel here, so it cannot be tuned; /best-config has them"
            )
        job, new = await in_thread(store.queue.add, problem, device, priority)
        return _json(asdict(job), 201 if new else 200)

    return router


def _of_run(stored: StoredAnswer) -> dict[str, Any]:
    described = {"id": stored.id, "problem": stored.answer.problem.values}
    times = {"tuned_at": stored.created_at, "forgotten_at": stored.forgotten_at}
    return {**described, **answer_document(stored), **times}


def _in_full(run: StoredRun) -> dict[str, Any]:
    return {
        **run.as_json(),
        "settings": dict(run.settings),
        "seconds": dict(run.seconds),
        "tuned_with": run.provenance.as_json(),
    }


def _page(items: list[dict[str, Any]], page: _PageQuery, id: str = "id") -> Response:
    return _json({"items": items, "next": items[-1][id] if len(items) == page.limit else None})


def _json(document: Any, status: int = 200) -> Response:
    return Response(to_json(document), status, media_type="application/json")
