"""The questions that are answered from memory: one problem, many problems, a whole table."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tuner.api.metrics import Metrics
from tuner.api.misses import Misses
from tuner.api.question import asked, device_of, signature_of, values_of
from tuner.api.reply import Reply, has_already, to_json
from tuner.api.view import View, Watcher
from tuner.errors import StoreError, TunerError, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup import bundle
from tuner.lookup.table import LookupResult, Query, Table

_NO_CACHE = {"cache-control": "no-cache"}
"""May be kept, and is asked about again each time: its ETag tells whether it still holds."""
_MOST_REPLIES, _LONGEST_QUERY = 100_000, 500
"""So many replies of a view are kept, about 2 kB each, to queries of so many bytes at most."""
_MOST_PROBLEMS, _AT_ONCE = 1000, 20
"""In one body; and how many of them are answered before others get their turn."""


@dataclass(frozen=True)
class Answering:
    """What answering takes, beside the question."""

    watcher: Watcher
    metrics: Metrics
    misses: Misses
    own: str | None
    """Device of questions that name none."""

    @property
    def view(self) -> View:
        """The newest view.

        Raises:
            StoreError: there is none yet.
        """
        if self.watcher.age_s is None:
            raise StoreError("the store has not been read yet; /readyz tells when it has")
        return self.watcher.view

    def find(self, given: Mapping[str, object], view: View) -> LookupResult:
        """What serves a question."""
        question, device = asked(given, self.own, view)
        found = view.table(question.problem.op, device).find(question)
        called = given.get("device", self.own)
        return replace(found, alias=str(called)) if called not in (None, device) else found

    def count(self, found: LookupResult) -> None:
        """Keeps count of a question that was answered."""
        self.metrics.lookup(found.problem.op, found.match)
        if found.stored is None or found.neighbour is not None:  # either is better tuned
            self.misses.add((found.problem.op, found.problem.text, found.device))


class _Known(Reply):
    """The reply to a question, which is counted each time it is given."""

    __slots__ = ("_answering", "_found")

    def __init__(self, found: LookupResult, view: View, answering: Answering) -> None:
        document = found.as_json("")
        del document["snapshot"]
        told = to_json(document)
        body = b'%b,"snapshot":"%b"}' % (told[:-1], view.snapshot.encode())
        etag = f'W/"{sha256(told).hexdigest()[:32]}"'  # weak: the snapshot moves on, the answer stays
        hit = found.stored is not None
        super().__init__(body, 200 if hit else 404, _NO_CACHE, etag=etag if hit else None)
        self._found, self._answering = replace(found, differences=(), nearest=()), answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._answering.count(self._found)
        await super().__call__(scope, receive, send)


class BestConfigRoute:
    """`GET /best-config`. An ASGI app: nothing stands between the query and the bytes that answer it."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view, query = self._answering.view, scope["query_string"]
        reply = view.replies.get(query)
        if reply is None:
            reply = _Known(self._answering.find(values_of(query), view), view, self._answering)
            if len(query) <= _LONGEST_QUERY:
                if len(view.replies) >= _MOST_REPLIES:
                    view.replies.clear()
                view.replies[query] = reply
        await reply(scope, receive, send)


async def best_configs(request: Request, answering: Answering) -> Reply:
    """Many questions in one body, each answered or refused for itself."""
    problems = _problems(await request.body())
    view, results = answering.view, list[dict[str, Any]]()
    for number, given in enumerate(problems):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            if not isinstance(given, dict):
                raise UsageError(f"a problem is an object with op and its dims, not {type(given).__name__}")
            found = answering.find(given, view)
        except TunerError as error:
            results.append({"error": str(error)})
        else:
            answering.count(found)
            results.append(found.as_json(view.snapshot))
    return Reply(to_json({"snapshot": view.snapshot, "results": results}), headers=_NO_CACHE)


def _problems(body: bytes) -> list[object]:
    given = json_object(body, ("problems",)).get("problems")
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST_PROBLEMS:
        raise UsageError(f"problems is a list of 1 to {_MOST_PROBLEMS} objects")
    return given


def json_object(body: bytes, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The JSON object that a body holds.

    Raises:
        UsageError: it holds none, or one with other names than these.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is one JSON object, and cannot be read as one: {str(error)[:100]}") from error
    if not isinstance(given, dict):
        raise UsageError(f"the body is one JSON object, not {type(given).__name__}")
    for name in given:
        if names is not None and name not in names:
            raise UsageError(f"the body has {', '.join(names)}, not {name[:40]!r}")
    return given


class TableRoute:
    """`GET /table`: all answers of an op on a device, or one ladder of them."""

    def __init__(self, answering: Answering) -> None:
        self._answering, self._one = answering, CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view, given = self._answering.view, values_of(scope["query_string"])
        signature = signature_of(given, view)
        device = device_of({"device": given.pop("device", None)}, self._answering.own, view)
        rungs = {name: value for name, value in given.items() if name != "op"}
        accepted = dict(scope["headers"]).get(b"accept-encoding", b"")
        zipped = any(_takes_gzip(coding) for coding in accepted.split(b","))
        etag = f'"{view.snapshot}:{view.tip.kernel}:{view.tip.transfer}{"-gzip" if zipped else ""}"'
        ladder = _rest_of(signature, rungs) if rungs else None

        def made() -> bytes:
            if ladder is not None:
                return gzip.compress(to_json(_ladder(view, signature, ladder, device)), 5, mtime=0)
            key = (signature.op, device)
            if key not in view.packed:
                view.packed[key] = gzip.compress(_whole(view, signature, device), 5, mtime=0)
            return view.packed[key]

        headers = {**_NO_CACHE, "vary": "Accept-Encoding"} | ({"content-encoding": "gzip"} if zipped else {})
        if has_already(scope, etag):
            await Reply(b"", headers=headers, etag=etag)(scope, receive, send)
            return
        packed = await to_thread.run_sync(made, limiter=self._one)
        body = packed if zipped else await to_thread.run_sync(gzip.decompress, packed)
        await Reply(body, headers=headers, etag=etag)(scope, receive, send)


def _takes_gzip(coding: bytes) -> bool:
    name, _, quality = coding.replace(b" ", b"").partition(b";")
    return name == b"gzip" and quality not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")


def _whole(view: View, signature: Signature, device: str) -> bytes:
    table = view.table(signature.op, device)
    return bundle.packed(view.snapshot, [signature], table, table.transfers, op=signature.op, device=device)


def _rest_of(signature: Signature, given: Mapping[str, str]) -> Problem:
    """A problem of the ladder, which is all of it but its first dim."""
    first, *others = (dim.name for dim in signature.dims)
    missing = [name for name in others if name not in given]
    if first in given or missing:
        raise UsageError(
            f"a ladder of {signature.op} goes over {first}: give {', '.join(others) or 'dtype'}, and leave {first} out"
        )
    return signature.problem({**given, first: 1})


def _ladder(view: View, signature: Signature, rest: Problem, device: str) -> dict[str, Any]:
    first = signature.dims[0].name
    table: Table = view.table(signature.op, device)
    rungs = {
        stored.answer.problem.sizes[0]: stored.answer.problem
        for stored in table
        if stored.answer.problem.dims[1:] == rest.dims[1:]
        and stored.answer.problem.dtype == rest.dtype
        and stored.answer.problem.attributes == rest.attributes
    }
    served = {size: table.find(Query(problem)).stored for size, problem in sorted(rungs.items())}
    return {
        "op": signature.op,
        "device": device,
        "snapshot": view.snapshot,
        "over": first,
        "problem": {name: value for name, value in rest.values.items() if name != first},
        "configs": {str(size): dict(stored.answer.config) for size, stored in served.items() if stored is not None},
    }
