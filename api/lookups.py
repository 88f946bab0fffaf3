"""The lookups that are answered from memory: one problem, many problems, a whole table."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tuner.api.metrics import Metrics
from tuner.api.misses import Misses
from tuner.api.query import parse_device, parse_object, parse_query, parse_signatures, parse_values
from tuner.api.reply import Reply, has_already, takes_gzip, to_json
from tuner.api.settings import SETTINGS, ServiceSettings
from tuner.api.view import View, Watcher
from tuner.errors import StoreError, TunerError, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup import bundle
from tuner.lookup.patterns import described
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult
from tuner.records import files

_NO_CACHE = {"cache-control": "no-cache"}
"""Header of replies that may be cached but are revalidated by their ETag on each request."""
_GZIP_LEVEL = 5
"""Level of gzip of a table in a reply."""


@dataclass(frozen=True)
class Lookups:
    """Lookups of one app, with its counts."""

    watcher: Watcher
    metrics: Metrics
    misses: Misses
    settings: ServiceSettings = SETTINGS

    @property
    def view(self) -> View:
        """The newest view.

        Raises:
            StoreError: the store was never read.
        """
        if self.watcher.age_s is None:
            raise StoreError("the store has not been read yet; /readyz is 200 once it has")
        return self.watcher.view

    def find(self, given: Mapping[str, object], view: View) -> LookupResult:
        """Return the result for a request's names and values."""
        query, signature = parse_query(given, view)
        found = view.lookup.find(query, parse_device(given))
        return replace(found, captured=True) if signature.captured else found

    def count(self, found: LookupResult) -> None:
        """Count a result, and as missed if tuning the problem would improve it."""
        self.metrics.lookup(found.problem.op, found.match)
        if found.stored is None or found.neighbour is not None:
            self.misses.add((found.problem.op, found.problem.text, found.device))


class _KeptReply(Reply):
    """The reply to one query, which counts each time it is sent."""

    __slots__ = ("_found", "_lookups")

    def __init__(self, found: LookupResult, view: View, lookups: Lookups) -> None:
        document = found.as_json("")
        del document["snapshot"]
        content = to_json(document)
        body = b'%b,"snapshot":"%b"}' % (content[:-1], view.snapshot.encode())
        etag = f'W/"{sha256(content).hexdigest()[:32]}"'  # weak: the snapshot moves on, the answer stays
        hit = found.stored is not None
        super().__init__(body, 200 if hit else 404, _NO_CACHE, etag=etag if hit else None)
        self._found, self._lookups = replace(found, differences=(), nearest=()), lookups

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._lookups.count(self._found)
        await super().__call__(scope, receive, send)


class BestConfigRoute:
    """`GET /best-config`, as an ASGI app without a framework between the query and its reply."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups, self._settings = lookups, lookups.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view, query = self._lookups.view, scope["query_string"]
        reply = view.replies.get(query)
        if reply is None:
            reply = _KeptReply(self._lookups.find(parse_values(query), view), view, self._lookups)
            if len(query) <= self._settings.max_kept_query_bytes:
                if len(view.replies) >= self._settings.max_replies:
                    view.replies.clear()
                view.replies[query] = reply
        await reply(scope, receive, send)


async def best_configs(request: Request, lookups: Lookups) -> Reply:
    """Reply to many queries in one body, each with a result or with an error of its own."""
    problems = _problems(await request.body(), lookups.settings.max_problems)
    view, results = lookups.view, list[dict[str, Any]]()
    for number, given in enumerate(problems):
        if number % lookups.settings.problems_per_turn == 0:
            await asyncio.sleep(0)
        try:
            if not isinstance(given, dict):
                raise UsageError(f"a problem is an object with op and its dims, not {type(given).__name__}")
            found = lookups.find(given, view)
        except TunerError as error:
            results.append({"error": str(error)})
        else:
            lookups.count(found)
            results.append(found.as_json(view.snapshot))
    return Reply(to_json({"snapshot": view.snapshot, "results": results}), headers=_NO_CACHE)


def _problems(body: bytes, limit: int) -> list[object]:
    given = parse_object(body, ("problems",)).get("problems")
    if not isinstance(given, list) or not 1 <= len(given) <= limit:
        raise UsageError(f"problems is a list of 1 to {limit} objects")
    return given


class TableRoute:
    """`GET /table`: all answers of an op on a device, or the configs of one problem by its first dim."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups, self._limiter = lookups, CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view, given = self._lookups.view, parse_values(scope["query_string"])
        signatures = parse_signatures(given, view)
        device = view.lookup.resolve_device(given.pop("device", None))
        others = {name: value for name, value in given.items() if name != "op"}
        zipped = takes_gzip(scope)
        etag = f'"{view.snapshot}:{view.tip.kernel}:{view.tip.transfer}{"-gzip" if zipped else ""}"'
        signature, rest = described(signatures, others, _rest_of) if others else (signatures[0], None)

        def pack() -> bytes:
            if rest is not None:
                return files.compress(to_json(_ladder(view, signature, rest, device)), _GZIP_LEVEL)
            key = (signature.op, device)
            if key not in view.packed:
                view.packed[key] = files.compress(_whole(view, signature, device), _GZIP_LEVEL)
            return view.packed[key]

        headers = {**_NO_CACHE, "vary": "Accept-Encoding"} | ({"content-encoding": "gzip"} if zipped else {})
        if has_already(scope, etag):
            await Reply(b"", headers=headers, etag=etag)(scope, receive, send)
            return
        packed = await to_thread.run_sync(pack, limiter=self._limiter)
        body = packed if zipped else await to_thread.run_sync(gzip.decompress, packed)
        await Reply(body, headers=headers, etag=etag)(scope, receive, send)


def _whole(view: View, signature: Signature, device: str) -> bytes:
    table = view.lookup.table(signature.op, device)
    return bundle.packed(view.snapshot, [signature], table, table.transfers, op=signature.op, device=device)


def _rest_of(signature: Signature, given: Mapping[str, str]) -> Problem:
    """Return a problem that stands for all values of the first dim.

    Raises:
        UsageError: the first dim is given, or another one is missing.
    """
    first, *others = (dim.name for dim in signature.dims)
    missing = [name for name in others if name not in given]
    if first in given or missing:
        raise UsageError(f"a table of {signature.op} by {first} needs {', '.join(others) or 'dtype'} and no {first}")
    return signature.problem({**given, first: 1})


def _ladder(view: View, signature: Signature, rest: Problem, device: str) -> dict[str, Any]:
    """Return the configs of the problems that differ from `rest` in the first dim only, by its value."""
    first, table = signature.dims[0].name, view.lookup.table(signature.op, device)
    rungs = {
        stored.answer.problem.sizes[0]: stored.answer.problem
        for stored in table
        if stored.answer.problem.dims[1:] == rest.dims[1:]
        and stored.answer.problem.dtype == rest.dtype
        and stored.answer.problem.attributes == rest.attributes
    }
    served = {
        size: view.lookup.find_on(device, Query(problem), neighbours=False).stored
        for size, problem in sorted(rungs.items())
    }
    return {
        "op": signature.op,
        "device": device,
        "snapshot": view.snapshot,
        "over": first,
        "problem": {name: value for name, value in rest.values.items() if name != first},
        "configs": {str(size): dict(stored.answer.config) for size, stored in served.items() if stored is not None},
    }
