"""The application, made by a function that takes the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

import tuner
from tuner.api.describe import described
from tuner.api.guard import Guard
from tuner.api.lists import lists
from tuner.api.lookups import Answering, BestConfigRoute, TableRoute, best_configs
from tuner.api.metrics import Metrics
from tuner.api.misses import Misses
from tuner.api.reply import refusal
from tuner.api.schemas import Health, ReadyDocument, Refusal
from tuner.api.view import Watcher
from tuner.db.store import Store
from tuner.errors import StoreError, TunerError
from tuner.kernels.spec import Signature

_log = logging.getLogger("tuner.api")

POLL_S = 0.5
"""How often every worker asks the store for news; what is new is served within 2 s."""
FLUSH_S = 5.0
"""How often misses are written down."""
OLD_S = 5.0
"""A view that was not seen to be the newest for so long is not ready."""


def create_app(
    store: Store,
    *,
    device: str | None = None,
    signatures: Mapping[str, Signature] | None = None,
    token: str | None = None,
    log: Callable[[str], object] | None = None,
    flush_s: float = FLUSH_S,
) -> FastAPI:
    """The service over `store`.

    Args:
        store: is read all the time; what was missed and what is asked to be tuned is written to it.
        device: id of the card that questions without a device are about: the server's own.
        signatures: ops that are known without having been searched; the store's are added.
        token: what writers must send; without one nobody writes.
        log: takes a line of JSON for every request; None: none are written.
        flush_s: how often misses are written down.
    """
    metrics = Metrics()
    watcher = Watcher(store, dict(signatures or {}), lambda error: metrics.store_errors.inc())
    misses = Misses(store, metrics.unlisted.inc)
    answering = Answering(watcher, metrics, misses, device)
    watcher.poll()

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(_watch(watcher, misses, metrics, flush_s))
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        _flush(misses, metrics)

    app = FastAPI(title="triton-tuner", version=tuner.__version__, lifespan=living)
    _refuse_in_sentences(app, metrics)
    listed = lists(store, answering)
    app.include_router(listed)
    _add_health(app, watcher, metrics)

    async def many(request: Request) -> Response:
        return await best_configs(request, answering)  # type: ignore[return-value]

    app.router.routes[:0] = [  # the ones that must be fast are matched first
        Route("/best-config", BestConfigRoute(answering), methods=["GET"]),
        Route("/best-configs", many, methods=["POST"]),
        Route("/table", TableRoute(answering), methods=["GET"]),
    ]
    _describe(app, watcher)
    paths = frozenset(str(getattr(route, "path", "")) for route in (*app.routes, *listed.routes))
    app.add_middleware(Guard, token=token, metrics=metrics, paths=paths, log=log)
    return app


async def _watch(watcher: Watcher, misses: Misses, metrics: Metrics, flush_s: float) -> None:
    flushed = monotonic()
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await to_thread.run_sync(watcher.poll)
            if monotonic() - flushed >= flush_s:
                flushed = monotonic()
                await to_thread.run_sync(_flush, misses, metrics)
        except Exception:  # noqa: BLE001  a fault of ours: /readyz tells that the view grows old, and the log why
            _log.exception("the store could not be followed")


def _flush(misses: Misses, metrics: Metrics) -> None:
    try:
        misses.flush()
    except StoreError as error:
        metrics.store_errors.inc()
        _log.warning("what was missed is not written down yet: %s", error)


def _refuse_in_sentences(app: FastAPI, metrics: Metrics) -> None:
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
        here = "nothing is here; /docs lists what there is" if error.status_code == 404 else error.detail
        return refusal(here, error.status_code, error.headers)


def _describe(app: FastAPI, watcher: Watcher) -> None:
    """The OpenAPI page is made when it is first asked for, and again once other ops are known."""
    page: dict[str, Any] = {}
    of: Mapping[str, Signature] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal page, of
        known = watcher.view.signatures
        if of is not known:
            page, of = described(app.routes, tuner.__version__, known), known
        return page

    app.openapi = openapi  # type: ignore[method-assign]


def _add_health(app: FastAPI, watcher: Watcher, metrics: Metrics) -> None:
    @app.get("/healthz", response_model=Health)
    async def healthz() -> Any:
        """Whether the process is up. It says nothing about the store."""
        return {"status": "ok", "version": tuner.__version__}

    @app.get("/readyz", response_model=ReadyDocument, responses={503: {"model": Refusal}})
    async def readyz() -> Any:
        """Whether questions are answered from what the store holds now."""
        age_s = watcher.age_s
        if age_s is None or age_s > OLD_S:
            since = "ever" if age_s is None else f"for {age_s:.0f} s"
            raise StoreError(f"the store could not be read {since}; what was read before is served")
        view = watcher.view
        return {"status": "ready", "snapshot": view.snapshot, "answers": view.answers, "age_s": round(age_s, 3)}

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics_text() -> Response:
        """Counts, latencies and how far the view has come, for Prometheus."""
        metrics.watch(watcher)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")
