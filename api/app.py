"""The application factory: `create_app(store)`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tuner.api.attempts import WriteToken
from tuner.api.describe import described
from tuner.api.guard import Guard
from tuner.api.listing import Threads
from tuner.api.lists import lists
from tuner.api.lookups import BestConfigRoute, Lookups, TableRoute, best_configs
from tuner.api.metrics import Metrics
from tuner.api.misses import Misses
from tuner.api.pages.routes import Pages, pages
from tuner.api.pages.session import Sessions
from tuner.api.pages.streams import when_stopped
from tuner.api.past import past
from tuner.api.reply import refusal
from tuner.api.schemas import ErrorDocument, HealthDocument, ReadyDocument
from tuner.api.settings import SETTINGS, ServiceSettings
from tuner.api.view import Watcher
from tuner.db.store import Store
from tuner.errors import StoreError, TunerError
from tuner.kernels.spec import Signature
from tuner.version import __version__

_log = logging.getLogger("tuner.api")


def create_app(
    store: Store,
    *,
    device: str | None = None,
    signatures: Mapping[str, Signature] | None = None,
    token: str | None = None,
    log: Callable[[str], object] | None = None,
    attempts: Path | None = None,
    settings: ServiceSettings = SETTINGS,
) -> FastAPI:
    """Return the app that serves a store.

    Args:
        store: read at an interval; counts of missed queries and jobs are written to it.
        device: id of the device of queries that name none.
        signatures: signatures of ops that need no search to be known; the store's are added.
        token: bearer token that a write needs; None refuses every write.
        log: called with a line of JSON for each request; None logs none.
        attempts: file in which worker processes count wrong tokens together; None: this process counts alone.
    """
    metrics = Metrics()
    watcher = Watcher(store, dict(signatures or {}), lambda error: metrics.store_errors.inc(), device)
    misses = Misses(store, metrics.unlisted.inc, settings.max_misses)
    lookups = Lookups(watcher, metrics, misses, settings)
    watcher.poll()
    threads = Threads()
    write_token = WriteToken(token, attempts, settings.attempts)
    shown = pages(store, lookups, threads, Sessions(write_token))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(_watch(watcher, misses, metrics, settings))
        with when_stopped(shown.live.close):
            yield
        shown.live.close()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        _flush(misses, metrics)

    # A redirect would name the host that the client sent; the pages are ours, since FastAPI's load scripts from a CDN.
    app = FastAPI(
        title="triton-tuner",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_error_handlers(app, metrics, shown)
    # To include the routers would make each of their routes twice.
    app.router.routes += [*lists(store, lookups, threads).routes, *past(store, lookups, threads).routes]
    _add_health(app, watcher, metrics, settings.max_age_s)

    async def many(request: Request) -> Response:
        return await best_configs(request, lookups)  # type: ignore[return-value]

    app.router.routes[:0] = [  # first, since they are matched in order
        Route("/best-config", BestConfigRoute(lookups), methods=["GET"]),
        Route("/best-configs", many, methods=["POST"]),
        Route("/table", TableRoute(lookups), methods=["GET"]),
        *shown.routes,
    ]
    _describe(app, watcher)
    paths = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(
        Guard, token=write_token, metrics=metrics, paths=paths, log=log, max_body_bytes=settings.max_body_bytes
    )
    return app


async def _watch(watcher: Watcher, misses: Misses, metrics: Metrics, settings: ServiceSettings) -> None:
    flushed = monotonic()
    while True:
        await asyncio.sleep(settings.poll_s)
        try:
            await to_thread.run_sync(watcher.poll)
            if monotonic() - flushed >= settings.flush_s:
                flushed = monotonic()
                await to_thread.run_sync(_flush, misses, metrics)
        except Exception:  # noqa: BLE001  a bug; /readyz reports the age of the view, and the log the traceback
            _log.exception("polling the store failed")


def _flush(misses: Misses, metrics: Metrics) -> None:
    try:
        misses.flush()
    except StoreError as error:
        metrics.store_errors.inc()
        _log.warning("the counts of missed queries are not written yet: %s", error)


def _add_error_handlers(app: FastAPI, metrics: Metrics, shown: Pages) -> None:
    @app.exception_handler(TunerError)
    async def refuse(request: Request, error: TunerError) -> Any:
        if isinstance(error, StoreError):
            metrics.store_errors.inc()
        return refusal(str(error), error.http_status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Any:
        first = error.errors()[0]
        return refusal(f"{str(first['loc'][-1])[:40]}: {first['msg']}", 422)

    @app.exception_handler(HTTPException)
    async def elsewhere(request: Request, error: HTTPException) -> Any:
        if error.status_code == 404 and _wants_page(request):
            return await shown.missing(request, 404, "there is no page at this address")
        here = "nothing is here; /docs lists what there is" if error.status_code == 404 else error.detail
        return refusal(here, error.status_code, error.headers)


def _wants_page(request: Request) -> bool:
    """Return whether a person asks: for HTML, or for an address below that of the pages."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return path.startswith("/pages/") or "text/html" in request.headers.get("accept", "")


def _describe(app: FastAPI, watcher: Watcher) -> None:
    """Build the OpenAPI document on the first request, and again when the known ops have changed."""
    page: dict[str, Any] = {}
    of: Mapping[str, Signature] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal page, of
        view = watcher.view
        if of is not view.signatures:
            of = view.signatures
            captured = [signature for several in view.patterns.values() for signature in several]
            page = described(app.routes, __version__, [*of.values(), *captured])
        return page

    app.openapi = openapi  # type: ignore[method-assign]


def _add_health(app: FastAPI, watcher: Watcher, metrics: Metrics, max_age_s: float) -> None:
    @app.get("/healthz", summary="Check that the process is up", response_model=HealthDocument)
    async def healthz() -> Any:
        """Report that the process is up, whatever the state of the store."""
        return {"status": "ok", "version": __version__}

    @app.get(
        "/readyz",
        summary="Check that answers are current",
        response_model=ReadyDocument,
        responses={503: {"model": ErrorDocument}},
    )
    async def readyz() -> Any:
        """Report whether lookups are answered from the current state of the store."""
        age_s = watcher.age_s
        if age_s is None or age_s > max_age_s:
            since = "ever" if age_s is None else f"for {age_s:.0f} s"
            raise StoreError(f"the store could not be read {since}; what was read before is served")
        view = watcher.view
        return {"status": "ready", "snapshot": view.snapshot, "answers": view.answers, "age_s": round(age_s, 3)}

    @app.get(
        "/metrics",
        summary="Get counts and latencies",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics_text() -> Response:
        """Return counts, latencies and the state of the view, for Prometheus."""
        metrics.watch(watcher)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")
