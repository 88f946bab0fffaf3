"""Forms that change the store: signing in and out, and the actions, by the functions that commands and the API use."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tuner.api.attempts import TooManyAttempts
from tuner.api.guard import BodyTooLarge
from tuner.api.jobs import wanted_job
from tuner.api.listing import Threads
from tuner.api.lookups import Lookups
from tuner.api.pages.links import Links
from tuner.api.pages.session import BACK, FORM_TOKEN, NotAllowed, Sessions, StaleForm, check_origin
from tuner.api.pages.site import Content, Flash, Query, Site, Visitor
from tuner.api.query import parse_values
from tuner.db.store import Store
from tuner.errors import TunerError, UnknownName, UsageError
from tuner.report.text import problem_text

Show = Callable[[Request, Content, Visitor], Response]
"""Returns the reply that shows a content to a person."""
Form = Mapping[str, str]
_LOCAL = re.compile(r"(docs|pages/[a-z-]{1,40})?(\?[!-~]{0,4000})?")
"""Addresses below the service's root to which a person may be sent back."""
_FORM_TYPE = "application/x-www-form-urlencoded"
_LONGEST_FORM = 50_000
"""Largest form, in bytes. It is parsed before its sender is checked, and other requests wait meanwhile."""


@dataclass(frozen=True)
class Action:
    """A form that changes the store."""

    label: str
    """Text of its button."""
    run: Callable[[Store, Lookups, Query], str] = field(repr=False)
    """Change the store by the values of the form, and return the outcome in a sentence.

    Raises TunerError if the store is not changed.
    """


def forms(store: Store, lookups: Lookups, threads: Threads, sessions: Sessions, show: Show) -> list[BaseRoute]:
    """Return the routes that take forms."""

    async def act(name: str, form: Form, request: Request) -> Response:
        sessions.check(name, form, request)
        if name not in ACTIONS:
            raise UnknownName(f"no action is called {name[:40]!r}; there are {', '.join(ACTIONS)}")
        values = Query({field: value for field, value in form.items() if not field.startswith(":")})
        outcome = await threads.run(ACTIONS[name].run, store, lookups, values)
        await threads.run(lookups.watcher.poll)  # so that the next page shows the change
        response = _redirect("../../", form)
        sessions.show(Flash(outcome), request, response)
        return response

    async def sign_in(name: str, form: Form, request: Request) -> Response:
        response = _redirect("../", form)
        sessions.sign_in(form.get("token", ""), request, response)
        return response

    async def sign_out(name: str, form: Form, request: Request) -> Response:
        with suppress(StaleForm):  # a session can be ended from a page that has been open for long
            sessions.check(name, form, request)
        response = _redirect("../", form)
        sessions.sign_out(response)
        return response

    def route(path: str, take: Callable[[str, Form, Request], Awaitable[Response]]) -> Route:
        async def taken(request: Request) -> Response:
            name, form = request.path_params.get("name", path.rpartition("/")[2]), dict[str, str]()
            try:
                check_origin(request)
                form |= await _form(request)
                return await take(name, form, request)
            except TunerError as error:
                content = _refused(name, form, error, sessions.is_open)
                shown = show(request, content, sessions.visitor(request, _back(form)))
                shown.headers.update(error.retry_after if isinstance(error, TooManyAttempts) else {})
                return shown

        return Route(path, taken, methods=["POST"])

    return [route("/pages/sign-in", sign_in), route("/pages/sign-out", sign_out), route("/pages/actions/{name}", act)]


def read_sign_in(site: Site, query: Query, links: Links) -> Content:
    """Return the content of the page to sign in; `back` is the page to return to."""
    return _sign_in_page({BACK: query.only("back").text("back") or ""})


async def _form(request: Request) -> Form:
    """Return the values of the form that a request sends.

    Raises:
        UsageError: it sends none, a name is given more than once, or it is too long.
    """
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != _FORM_TYPE:
        raise UsageError(f"a form is sent as {_FORM_TYPE}, not as {sent[:80]!r}")
    body = await request.body()
    if len(body) > _LONGEST_FORM:
        raise BodyTooLarge(_LONGEST_FORM)
    return parse_values(body)


def _back(form: Form) -> str:
    """Return the address of the page that a form was sent from, below the service's root; the home page if unknown."""
    given = form.get(BACK, "")
    return given if _LOCAL.fullmatch(given) else ""


def _redirect(root: str, form: Form) -> Response:
    """Return the reply that leads back to the page of a form.

    Args:
        root: the service's root, relative to the form's address.
    """
    return RedirectResponse(root + _back(form), 303, {"cache-control": "no-store"})


def _sign_in_page(form: Form, message: str = "", status: int = 200) -> Content:
    return Content("sign-in.html", "Sign in", {"back": _back(form), "message": message}, status)


def _refused(name: str, form: Form, error: TunerError, is_open: bool) -> Content:
    """Return the page that says why a form was not taken."""
    if name == "sign-in" and is_open and isinstance(error, NotAllowed | TooManyAttempts):
        return _sign_in_page(form, str(error), error.http_status)
    values = {"message": str(error), "back": _back(form)}
    if isinstance(error, StaleForm) and name in ACTIONS:
        fields = {field: value for field, value in form.items() if field not in (BACK, FORM_TOKEN)}
        fresh = {"action": name, "label": ACTIONS[name].label, "fields": fields}
        return Content("stale.html", "The form is too old", values | fresh, error.http_status)
    return Content("refused.html", "Nothing was changed", values, error.http_status)


def _search(store: Store, lookups: Lookups, values: Query) -> str:
    """Add a job, by the fields of `POST /jobs`."""
    given: dict[str, object] = {name: value for name, value in values.given.items() if value}
    if "priority" in given:
        given["priority"] = _priority(str(given["priority"]))
    wanted = wanted_job(given, lookups.view)
    job, new = store.queue.add(wanted.problem, wanted.device, wanted.priority)
    about = f"to search {problem_text(wanted.problem)} on {wanted.device}"
    return f"Job {job.id} {about} is in the queue." if new else f"Job {job.id} {about} was in the queue already."


def _priority(given: str) -> int:
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise UsageError(f"priority is a whole number, in the digits 0 to 9, not {given[:40]!r}")
    return int(given)


def _retry(store: Store, lookups: Lookups, values: Query) -> str:
    """Add a failed job once more."""
    failed = values.only("job").needed_whole("job")
    job, new = store.queue.retry(failed)
    return (
        f"Job {failed} is tried again as job {job.id}." if new else f"Job {job.id} of the same problem is not done yet."
    )


def _pin(store: Store, lookups: Lookups, values: Query) -> str:
    """Pin an answer."""
    values = values.only("answer", "note")
    pin = store.pins.add(values.needed_whole("answer"), (values.text("note") or "")[:_LONGEST_NOTE])
    return f"Answer {pin.answer_id} is pinned: no search, retune or import replaces it until it is unpinned."


_LONGEST_NOTE = 500
"""Characters of the note of a pin."""


def _unpin(store: Store, lookups: Lookups, values: Query) -> str:
    """Unpin an answer."""
    id = values.only("answer").needed_whole("answer")
    stored = store.answer(id)
    if stored is None:
        raise UnknownName(f"there is no answer {id}")
    problem, device = stored.answer.problem, stored.provenance.device.id
    pin = store.pins.of_problem(problem, device)
    if pin is None or pin.answer_id != id or not store.pins.remove(problem, device):
        raise UsageError(f"a pinned answer is unpinned, and answer {id} is not pinned")
    return f"Answer {id} is not pinned any more; searches and retunes may replace it."


def _roll_back(store: Store, lookups: Lookups, values: Query) -> str:
    """Serve an earlier answer again."""
    values = values.only("to", "serving")
    to, serving = values.needed_whole("to"), values.whole("serving") or None
    id = store.roll_back(to, serving)
    return f"Answer {id} serves the config of answer {to} again."


ACTIONS: Mapping[str, Action] = {
    "search": Action("Search", _search),
    "retry": Action("Try again", _retry),
    "pin": Action("Pin", _pin),
    "unpin": Action("Unpin", _unpin),
    "rollback": Action("Roll back", _roll_back),
}
"""The actions, by the last part of their address."""
