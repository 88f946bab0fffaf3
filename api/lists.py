"""Routes that list what the store holds, a page at a time, and that add jobs. They read the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from tuner.api import schemas
from tuner.api.jobs import wanted_job
from tuner.api.listing import (
    REFUSED,
    Empty,
    Page,
    PageQuery,
    Threads,
    Whole,
    json_reply,
    once,
    page_reply,
)
from tuner.api.lookups import Lookups
from tuner.api.query import parse_object
from tuner.db import schema
from tuner.db.settings import LARGEST_ID
from tuner.db.store import Store
from tuner.errors import UnknownName
from tuner.records import StoredAnswer, StoredRun
from tuner.records.document import answer_document


def lists(store: Store, lookups: Lookups, threads: Threads) -> APIRouter:
    """Return the routes that read or write the database."""
    router = APIRouter(responses=REFUSED, dependencies=[Depends(once)])
    in_thread = threads.run

    async def rows(table: type[schema.Base], page: PageQuery, *, without: str = "") -> Response:
        found = await in_thread(store.rows, table, page.limit, page.after)
        return page_reply([{k: v for k, v in row.items() if k != without} for row in found], page)

    @router.get("/runs", summary="List searches", response_model=schemas.PageDocument[schemas.RunDocument])
    async def runs(page: Page) -> Response:
        """Return searches, the newest first."""
        found = await in_thread(store.runs, page.limit, page.after or None)
        return page_reply([run.as_json() for run in found], page, "run")

    @router.get(
        "/runs/{id}",
        summary="Get one search in full",
        response_model=schemas.RunInFullDocument,
        responses={404: {"model": schemas.ErrorDocument}},
    )
    async def run(id: Annotated[Whole, Path(ge=1, le=LARGEST_ID)], _: Empty) -> Response:
        """Return one search with its settings, its end and its answers."""
        found = await in_thread(store.run, id)
        if found is None:
            raise UnknownName(f"there is no run {id}; /runs lists them")
        answers = await in_thread(store.answers_of, id)
        return json_reply({**_in_full(found), "answers": [_of_run(stored) for stored in answers]})

    @router.get(
        "/problems", summary="List searched problems", response_model=schemas.PageDocument[schemas.ProblemDocument]
    )
    async def problems(page: Page) -> Response:
        """Return the problems that have runs."""
        return await rows(schema.ProblemRow, page)

    @router.get(
        "/kernels", summary="List searched kernels", response_model=schemas.PageDocument[schemas.KernelDocument]
    )
    async def kernels(page: Page) -> Response:
        """Return the kernels that have runs: signatures and hashes, never code."""
        return await rows(schema.KernelRow, page)

    @router.get("/devices", summary="List devices", response_model=schemas.PageDocument[schemas.DeviceDocument])
    async def devices(page: Page) -> Response:
        """Return the devices that have runs."""
        return await rows(schema.DeviceRow, page, without="fingerprint")

    @router.get(
        "/requests", summary="List missed queries", response_model=schemas.PageDocument[schemas.RequestDocument]
    )
    async def requests(page: Page) -> Response:
        """Return the missed queries, most frequent first. Counts are a few seconds old."""
        return page_reply(await in_thread(store.requests, page.limit, page.after), page)

    @router.get("/jobs", summary="List jobs", response_model=schemas.PageDocument[schemas.JobDocument])
    async def jobs(page: Page) -> Response:
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
            429: {
                "model": schemas.ErrorDocument,
                "description": "This address sent too many wrong tokens. `Retry-After` says for how many seconds.",
            },
        },
        openapi_extra={
            "security": [{"token": []}],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": schemas.JobBody.model_json_schema()}},
            },
        },
    )
    async def add_job(request: Request, _: Empty) -> Response:
        """Add a job to tune a problem, or return its unfinished job, whose priority may rise."""
        wanted = wanted_job(parse_object(await request.body()), lookups.view)
        job, new = await in_thread(store.queue.add, wanted.problem, wanted.device, wanted.priority)
        return json_reply(asdict(job), 201 if new else 200)

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
