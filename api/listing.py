"""Queries, threads and replies that all routes share which read the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Query, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tuner.api import schemas
from tuner.api.query import WHOLE, parse_values
from tuner.api.reply import to_json
from tuner.db.settings import LARGEST_ID

T = TypeVar("T")


@dataclass(frozen=True)
class ListSettings:
    """Limits of the routes that read the database."""

    concurrent_reads: int = 4
    """Reads at the same time: fewer than the connection pool has, so that none waits for a connection."""
    default_page: int = 100
    """Items of a page."""
    largest_page: int = 1000
    """Items of a page, at most."""
    default_retunes: int = 20
    """Retunes of a page. Each is read with its findings."""
    largest_retunes: int = 100
    """Retunes of a page, at most."""
    highest_priority: int = 1000
    """Largest absolute priority of a job."""


SETTINGS = ListSettings()


def _digits(value: object) -> object:
    """Return a value; raise if it is a text other than digits, since Python reads many more as a number."""
    if isinstance(value, str) and not WHOLE.fullmatch(value):
        raise PydanticCustomError("digits", "Input should be a whole number, in the digits 0 to 9")
    return value


Whole = Annotated[int, BeforeValidator(_digits)]
"""A whole number of a query or a path."""


def once(request: Request) -> None:
    """Raise UsageError if a parameter is given more than once, since only one of its values would be checked."""
    parse_values(request.scope["query_string"])


class PageQuery(BaseModel):
    """The query of a page."""

    model_config = ConfigDict(extra="forbid")

    limit: Whole = Field(SETTINGS.default_page, ge=1, le=SETTINGS.largest_page)
    after: Whole = Field(0, ge=0, le=LARGEST_ID, description="The `next` of the page before.")


class _NoQuery(BaseModel):
    """A query without parameters."""

    model_config = ConfigDict(extra="forbid")


Page = Annotated[PageQuery, Query()]
Empty = Annotated[_NoQuery, Query()]
REFUSED: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.ErrorDocument},
    503: {"model": schemas.ErrorDocument},
}
"""Replies of every such route to requests that are refused."""


class Threads:
    """Threads in which the database is read."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(SETTINGS.concurrent_reads)

    async def run(self, action: Callable[..., T], *arguments: Any) -> T:
        """Return the result of an action in a thread."""
        return await to_thread.run_sync(action, *arguments, limiter=self._limiter)


def page_reply(items: list[dict[str, Any]], page: PageQuery, id: str = "id") -> Response:
    """Return a page of a list, with the id from which the next one goes on."""
    return json_reply({"items": items, "next": items[-1][id] if len(items) == page.limit else None})


def json_reply(document: Any, status: int = 200) -> Response:
    """Return a document as JSON."""
    return Response(to_json(document), status, media_type="application/json")
