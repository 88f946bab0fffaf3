"""Sessions, forms and actions: who may write through a page, and what a refused form says."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from html import unescape
from pathlib import Path
from time import time

import pytest
from helpers import H200
from served import TOKEN, answer, problem
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.testclient import TestClient

from tuner.api.app import create_app
from tuner.api.attempts import WriteToken
from tuner.api.pages.session import SETTINGS, NotAllowed, Sessions
from tuner.api.pages.site import Flash
from tuner.db.queue import JobFilter
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.db.store import Store

HERE = "http://testserver"
JOB = {"op": "gemm", "M": "64", "device": H200.id}


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    answer(sqlite_store, problem(M=64))
    return sqlite_store


@pytest.fixture
def client(store: Store) -> TestClient:
    return TestClient(create_app(store, token=TOKEN), headers={"origin": HERE}, follow_redirects=False)


def signed_in(client: TestClient, token: str = TOKEN, **about: str) -> TestClient:
    got = client.post("/pages/sign-in", data={"token": token}, headers=about)
    assert got.status_code == 303, got.text
    return client


def token_of(client: TestClient, action: str) -> str:
    """Return the token of the form of an action, as the pages of this session have it."""
    sessions, cookies = Sessions(WriteToken(TOKEN)), dict(client.cookies)
    (cookie,) = (value for name, value in cookies.items() if name.startswith("tuner-session-"))
    session = sessions._signer("session").loads(cookie)
    return sessions._sign("form", [session, action])


def act(client: TestClient, action: str, token: str | None = None, **values: object) -> str:
    """Send the form of an action, and return the outcome that the next page shows."""
    form = {name: str(value) for name, value in values.items()} | {":token": token or token_of(client, action)}
    got = client.post(f"/pages/actions/{action}", data=form | {":back": "pages/sign-in"})
    assert got.status_code == 303, message_of(got.text)
    assert got.headers["location"] == "../../pages/sign-in"
    shown = client.get("/pages/sign-in").text
    assert message_of(client.get("/pages/sign-in").text) == "You are signed in."  # the outcome is shown once
    return message_of(shown)


def message_of(page: str) -> str:
    found = re.search(r'class="message[^>]*>([^<]*)<', page)
    return unescape(found[1]) if found else ""


class TestSignIn:
    def test_the_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(self, client: TestClient) -> None:
        got = client.post("/pages/sign-in", data={"token": f" {TOKEN}\n", ":back": "pages/sign-in?back=x"})
        assert (got.status_code, got.headers["location"]) == (303, "../pages/sign-in?back=x")
        cookie = got.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert f"max-age={SETTINGS.session_s}" in cookie
        assert "secure" not in cookie
        assert TOKEN not in cookie
        assert "You are signed in" in client.get("/pages/sign-in").text
        assert "Sign out" in client.get("/").text

    def test_it_is_secure_if_the_request_was(self, store: Store) -> None:
        secure = "https://testserver"
        client = TestClient(create_app(store, token=TOKEN), base_url=secure, headers={"origin": secure})
        got = client.post("/pages/sign-in", data={"token": TOKEN}, follow_redirects=False)
        assert "; secure" in got.headers["set-cookie"].lower()
        behind = TestClient(create_app(store, token=TOKEN), headers={"origin": secure})  # a proxy that ends TLS
        got = behind.post("/pages/sign-in", data={"token": TOKEN}, follow_redirects=False)
        assert "; secure" in got.headers["set-cookie"].lower()

    def test_a_wrong_token_is_refused_on_the_form(self, client: TestClient) -> None:
        for wrong in ("", TOKEN[:-1], "\u00e9\ud83d", "<b>"):
            got = client.post("/pages/sign-in", data={"token": wrong.encode("utf-8", "surrogatepass")})
            assert got.status_code == 403
            assert message_of(got.text) == "that is not the token of this service"
            assert 'name="token"' in got.text
            assert "set-cookie" not in got.headers

    @pytest.mark.parametrize(
        "back",
        ["//evil.example", "https://evil.example/", "/\\evil", "pages/../jobs", "pages/x\r\nset-cookie: a=b", "x"],
    )
    def test_it_leads_to_no_other_place(self, client: TestClient, back: str) -> None:
        got = client.post("/pages/sign-in", data={"token": TOKEN, ":back": back})
        assert got.headers["location"] == "../"

    def test_signing_out_ends_it(self, client: TestClient) -> None:
        signed_in(client)
        assert client.post("/pages/sign-out", data={":token": "x"}).status_code == 403  # its form has a token, too
        (cookie,) = (value for name, value in client.cookies.items() if name.startswith("tuner-session-"))
        long_ago = Sessions(WriteToken(TOKEN), clock=lambda: time() - SETTINGS.form_s - 2)
        stale = long_ago._sign("form", [long_ago._signer("session").loads(cookie), "sign-out"])
        got = client.post("/pages/sign-out", data={":token": stale})  # from a page that has been open for long
        assert (got.status_code, got.headers["location"]) == (303, "../")
        assert "Sign out" not in client.get("/").text

    def test_pages_of_a_session_are_kept_by_no_browser(self, client: TestClient) -> None:
        assert client.get("/").headers["cache-control"] == "no-cache, private"
        assert signed_in(client).get("/").headers["cache-control"] == "no-store"

    def test_it_works_below_another_app(self, store: Store) -> None:
        outer = Starlette(routes=[Mount("/tuner", create_app(store, token=TOKEN))])
        client = TestClient(outer, headers={"origin": HERE}, follow_redirects=False)
        assert client.post("/tuner/pages/sign-in", data={"token": TOKEN}).status_code == 303
        assert client.post("/tuner/best-configs", json={"problems": [{"op": "gemm", "M": 64}]}).status_code == 200
        assert client.post("/tuner/jobs", json=JOB).status_code == 401

    def test_several_processes_agree_and_a_changed_token_ends_all(self, store: Store, client: TestClient) -> None:
        signed_in(client)
        for token, shown in ((TOKEN, "Sign out"), (f"{TOKEN}!", "Sign in")):
            other = TestClient(create_app(store, token=token), cookies=dict(client.cookies))
            assert shown in other.get("/").text

    def test_a_session_ends(self, client: TestClient) -> None:
        signed_in(client)
        cookies = dict(client.cookies)
        later = Sessions(WriteToken(TOKEN), clock=lambda: time() + SETTINGS.session_s + 2)
        request = client.build_request("GET", "/")
        cookie = "; ".join(f"{name}={value}" for name, value in cookies.items()).encode()
        scope = {"type": "http", "headers": [(b"cookie", cookie)], "path": request.url.path}
        assert Sessions(WriteToken(TOKEN)).visitor(Request(scope), "").may_write
        assert not later.visitor(Request(scope), "").may_write


class TestRefused:
    def test_without_a_token_of_its_own_the_service_takes_no_form(self, tmp_path: Path) -> None:
        client = TestClient(create_app(Store.open(tmp_path / "tuner.db")), headers={"origin": HERE})
        for path in ("sign-in", "sign-out", "actions/search", "actions/nothing"):
            got = client.post(f"/pages/{path}", data={"token": "None", **JOB})
            assert got.status_code == 403
            assert "without TUNER_TOKEN" in message_of(got.text)
        for page in ("/", "/pages/sign-in"):
            assert "<form" not in client.get(page).text

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://testserver:81"},
            {"origin": "http://testserver.evil.example"},
            {"origin": "http://["},
            {"origin": "testserver"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site", "origin": HERE},
            {"sec-fetch-site": "none"},
        ],
    )
    def test_a_form_of_another_site(self, store: Store, client: TestClient, headers: dict[str, str]) -> None:
        signed_in(client)
        form = {**JOB, ":token": token_of(client, "search")}
        del client.headers["origin"]
        for path, data in (("actions/search", form), ("sign-in", {"token": TOKEN})):
            got = client.post(f"/pages/{path}", data=data, headers=headers)
            assert got.status_code == 403
            assert "another site" in message_of(got.text)
        assert store.queue.jobs(10) == []
        assert client.post("/pages/actions/search", data=form, headers={"sec-fetch-site": "same-origin"}).is_redirect

    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            ("https://tuner.example", "tuner.example"),
            ("https://tuner.example", "tuner.example:443"),
            ("http://tuner.example", "Tuner.Example:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ],
    )
    def test_a_form_of_this_service_behind_a_proxy(self, client: TestClient, origin: str, host: str) -> None:
        signed_in(client, origin=origin, host=host)

    def test_a_form_without_a_session_of_another_or_for_another_action(self, store: Store, client: TestClient) -> None:
        assert client.post("/pages/actions/search", data=JOB).status_code == 403
        other = TestClient(create_app(store, token=TOKEN), headers={"origin": HERE}, follow_redirects=False)
        signed_in(client), signed_in(other)
        tokens = {
            "another's": token_of(other, "search"),
            "another action's": token_of(client, "pin"),
            "none": "",
            "x": "x.y.z",
        }
        for token in tokens.values():
            got = client.post("/pages/actions/search", data={**JOB, ":token": token})
            assert got.status_code == 403
            assert message_of(got.text).startswith("this form is not one of your session")
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert client.post("/pages/actions/search", data=JOB, headers=bearer).status_code == 403
        assert store.queue.jobs(10) == []

    def test_a_stale_form_is_offered_afresh(
        self, store: Store, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signed_in(client)
        (cookie,) = (value for name, value in client.cookies.items() if name.startswith("tuner-session-"))
        before = Sessions(WriteToken(TOKEN), clock=lambda: time() - SETTINGS.form_s - 2)
        session = before._signer("session").loads(cookie)
        stale = before._sign("form", [session, "search"])
        got = client.post("/pages/actions/search", data={**JOB, ":token": stale, ":back": "pages/sign-in"})
        assert got.status_code == 403
        assert message_of(got.text) == "this form has been open for too long; nothing was changed"
        assert store.queue.jobs(10) == []
        form = got.text[got.text.index("<main") :]
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
        assert fields == {**JOB, ":back": "pages/sign-in", ":token": fields[":token"]}
        assert client.post("/pages/actions/search", data=fields).status_code == 303
        assert len(store.queue.jobs(10)) == 1

    def test_what_is_no_form(self, client: TestClient) -> None:
        signed_in(client)
        got = client.post("/pages/actions/search", json=JOB)
        assert (got.status_code, "a form is sent as" in message_of(got.text)) == (422, True)
        twice = client.post(
            "/pages/sign-in", content="token=a&token=b", headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert twice.status_code == 422
        got = client.post("/pages/actions/nothing", data={":token": token_of(client, "nothing")})
        assert got.status_code == 404
        for path in ("/pages/else", "/pages/actions/", "/pages/actions/pin/1", "/jobs"):
            assert client.post(path, data={}).status_code == 401, path

    def test_a_long_outcome_fits_into_a_cookie(self, client: TestClient) -> None:
        response, scope = (
            Response(),
            {"type": "http", "headers": [], "path": "/", "scheme": "http", "server": ("x", 80)},
        )
        text = "".join(chr(0x4E00 + 7 * place) for place in range(2_000))
        Sessions(WriteToken(TOKEN)).show(Flash(text), Request(scope), response)
        assert len(response.headers["set-cookie"]) < 4096

    def test_a_form_that_is_too_long(self, client: TestClient) -> None:
        got = client.post("/pages/sign-in", data={"token": "%" * 50_000})
        assert (got.status_code, message_of(got.text)) == (413, "a body has at most 50,000 bytes")

    def test_an_outcome_of_somebody_else_is_not_shown(self, client: TestClient) -> None:
        signed_in(client)
        sessions = Sessions(WriteToken(TOKEN))
        forged = {
            "of no key": "WyJjYWxsIDA4MDAiLCAiYmFkIl0=",
            "nested": urlsafe_b64encode(b"[" * 3000).decode(),
            "another session's": sessions._sign("flash", ["another", "call 0800", "bad"]),
            "another purpose": sessions._sign("form", ["another", "call 0800", "bad"]),
        }
        for value in forged.values():
            for name in ("tuner-flash", sessions._flash_name):
                client.cookies.set(name, value)
            got = client.get("/pages/sign-in")
            assert (got.status_code, message_of(got.text)) == (200, "You are signed in.")

    def test_a_session_with_an_odd_token_is_none(self) -> None:
        with pytest.raises(NotAllowed, match="started without"):
            Sessions(WriteToken(None)).sign_in("", None, None)  # type: ignore[arg-type]


class TestActions:
    def test_a_search_is_a_job(self, store: Store, client: TestClient) -> None:
        signed_in(client)
        assert act(client, "search", **JOB, priority=-5).startswith("Job 1 to search gemm")
        assert "in the queue already" in act(client, "search", **JOB)
        (job,) = store.queue.jobs(10)
        assert (job.problem, job.device, job.priority) == (problem(M=64).text, H200.id, 0)
        for wrong in ({"op": "x"}, {"M": "0"}, {"priority": "1e3"}, {"device": "A B"}, {"triton": "3.6.0"}):
            form = {**JOB, **wrong, ":token": token_of(client, "search")}
            assert client.post("/pages/actions/search", data=form).status_code in (404, 422), wrong

    def test_a_failed_job_is_tried_again(self, store: Store, client: TestClient) -> None:
        signed_in(client)
        job, _ = store.queue.add(problem(M=1), H200.id, 7)
        refused = client.post("/pages/actions/retry", data={"job": job.id, ":token": token_of(client, "retry")})
        assert message_of(refused.text) == "a job that failed is tried again, and job 1 is pending"
        for _ in range(STORE_SETTINGS.job_tries):
            held = store.queue.claim("me", [JobFilter(H200.id, frozenset(["gemm"]))], 60)
            assert held is not None
            store.queue.failed(held, "no memory")
        assert act(client, "retry", job=job.id) == "Job 1 is tried again as job 2."
        assert act(client, "retry", job=job.id) == "Job 2 of the same problem is not done yet."
        again = store.queue.jobs(10)[0]
        assert (again.id, again.priority, again.tries, again.status) == (2, 7, 0, "pending")

    def test_an_answer_is_pinned_unpinned_and_rolled_back(self, store: Store, client: TestClient) -> None:
        signed_in(client)
        newer = answer(store, problem(M=64), triton="3.7.1")
        assert act(client, "pin", answer=newer, note="as in\nproduction").startswith(f"Answer {newer} is pinned")
        pin = store.pins.of_problem(problem(M=64), H200.id)
        assert pin is not None
        assert pin.note == "as in\nproduction"
        refused = client.post("/pages/actions/rollback", data={"to": 1, ":token": token_of(client, "rollback")})
        assert refused.status_code == 422
        assert "a pinned answer is not replaced" in message_of(refused.text)
        other = client.post("/pages/actions/unpin", data={"answer": 1, ":token": token_of(client, "unpin")})
        assert message_of(other.text) == "a pinned answer is unpinned, and answer 1 is not pinned"
        assert act(client, "unpin", answer=newer).startswith(f"Answer {newer} is not pinned any more")
        assert act(client, "rollback", to=1, serving=newer) == "Answer 3 serves the config of answer 1 again."
        assert client.get("/readyz").json()["snapshot"].endswith(":3")  # the service has read it already
