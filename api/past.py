"""Routes of the history of an answer and of the retunes. They read the database."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from tuner.api import past_schemas, schemas
from tuner.api.listing import (
    REFUSED,
    SETTINGS,
    Empty,
    PageQuery,
    Threads,
    Whole,
    json_reply,
    once,
    page_reply,
)
from tuner.api.lookups import Lookups
from tuner.api.query import parse_device, parse_problem, parse_signatures, parse_values
from tuner.db.settings import LARGEST_ID
from tuner.db.store import Store
from tuner.errors import NothingFound, UnknownName, UsageError
from tuner.lookup import query as lookup_query
from tuner.records.retune import Retune
from tuner.records.retune_codec import retune_as_json
from tuner.report.history import history_of
from tuner.report.retune.summary import summarise

_TEXT = {"type": "string"}
_HISTORY_OF = [
    {"name": "op", "in": "query", "required": True, "schema": _TEXT, "description": "The kernel."},
    {
        "name": "device",
        "in": "query",
        "required": False,
        "schema": _TEXT,
        "description": "A device id; without it the server's own card, or the only one stored.",
    },
]


class RetunesQuery(PageQuery):
    """The query of a page of retunes."""

    limit: Whole = Field(SETTINGS.default_retunes, ge=1, le=SETTINGS.largest_retunes)


def past(store: Store, lookups: Lookups, threads: Threads) -> APIRouter:
    """Return the routes."""
    router = APIRouter(responses=REFUSED, dependencies=[Depends(once)])

    @router.get(
        "/history",
        summary="List all generations of an answer",
        response_model=past_schemas.HistoryDocument,
        responses={404: {"model": schemas.ErrorDocument}},
        openapi_extra={"parameters": _HISTORY_OF},
    )
    async def history(request: Request) -> Response:
        """Return all answers that were stored for a problem on a device, oldest first: `/history?op=gemm&M=4096`.

        Dims, dtype and attributes describe the problem, as in `/best-config`.
        """
        given, view = parse_values(request.scope["query_string"]), lookups.view
        for name in (*lookup_query.COMPARED, "strict"):
            if name in given:
                raise UsageError(f"a history is of a problem and a device, whatever the {name}; leave it out")
        _, problem = parse_problem(given, parse_signatures(given, view))
        device = view.lookup.resolve_device(parse_device(given))
        found = await threads.run(history_of, store, problem, device)
        if not found.generations:
            raise NothingFound(f"no answer was ever stored for {problem.text} on {device}")
        serves = view.lookup.find_on(device, lookup_query.Query(problem), neighbours=False).stored
        return json_reply(found.as_json(None if serves is None else serves.id, view.snapshot))

    @router.get("/retunes", summary="List retunes", response_model=schemas.PageDocument[past_schemas.RetuneDocument])
    async def retunes(page: Annotated[RetunesQuery, Query()]) -> Response:
        """Return the retunes, the newest first."""
        found = await threads.run(store.retunes.newest, page.limit, None, page.after or None)
        return page_reply([_summary(retune) for retune in found], page)

    @router.get(
        "/retunes/{id}",
        summary="Get one retune in full",
        response_model=past_schemas.RetuneInFullDocument,
        responses={404: {"model": schemas.ErrorDocument}},
    )
    async def retune(id: Annotated[Whole, Path(ge=1, le=LARGEST_ID)], _: Empty) -> Response:
        """Return one retune with its settings, its plan and its findings."""
        found = await threads.run(store.retunes.get, id)
        if found is None:
            raise UnknownName(f"there is no retune {id}; /retunes lists them")
        return json_reply({**_summary(found), **retune_as_json(found)})

    return router


def _summary(retune: Retune) -> dict[str, Any]:
    about = ("id", "device", "status", "started_at", "ended_at")
    return {**{name: getattr(retune, name) for name in about}, "summary": summarise(retune).as_json()}
