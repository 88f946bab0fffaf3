"""The pages for people: `/` and `/docs` load nothing from elsewhere, and say of each request what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tuner.api.app import create_app
from tuner.db.store import Store

TYPES = {"css": "text/css", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
VERBS = {"Look", "Get", "List", "Request", "Check"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = Store.open(tmp_path_factory.mktemp("empty") / "tuner.db")
    yield TestClient(create_app(store))
    store.close()


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, about) for path, all in document["paths"].items() for method, about in all.items()]


class Page(HTMLParser):
    """Assets and links of a page, and its own scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.inline: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        address = given.get("src") or given.get("href")
        if address is not None:
            (self.links if tag == "a" else self.loaded).append(address)
        self._in = tag

    def handle_data(self, data: str) -> None:
        if self._in in ("script", "style") and data.strip():
            self.inline.append(data)


class TestPages:
    @pytest.mark.parametrize("path", ["/", "/docs"])
    def test_they_load_only_files_of_this_service(self, client: TestClient, path: str) -> None:
        got = client.get(path)
        assert got.status_code == 200
        assert got.headers["content-type"] == "text/html; charset=utf-8"
        page = Page(got.text)
        assert page.loaded
        assert page.inline == []
        for address in page.loaded:
            assert urlsplit(address)[:2] == ("", ""), address
            asset = client.get(urljoin(path, address))
            assert asset.status_code == 200, address
            assert asset.headers["x-content-type-options"] == "nosniff"
            kind = TYPES[urlsplit(address).path.rpartition(".")[2]]
            assert asset.headers["content-type"].partition(";")[0] == kind

    @pytest.mark.parametrize("path", ["/", "/docs"])
    def test_their_policy_allows_nothing_from_elsewhere(self, client: TestClient, path: str) -> None:
        policy = client.get(path).headers["content-security-policy"]
        rules = {name: sources for name, *sources in (rule.split() for rule in policy.split(";"))}
        assert rules.pop("default-src") == ["'none'"]
        assert rules["script-src"] == rules["connect-src"] == ["'self'"]
        assert {source for sources in rules.values() for source in sources} == {"'none'", "'self'", "data:"}

    def test_no_style_and_no_script_of_ours_names_another_host(self, client: TestClient) -> None:
        for path in ("docs/swagger-ui.css", "assets/docs.js", "assets/page.css"):
            text = client.get(f"/{path}").text
            assert not re.search(r"url\((?!['\"]?data:)|@import", text), path
        assert "validatorUrl: null" in client.get("/assets/docs.js").text  # else it sends the page's address elsewhere

    def test_what_is_no_asset_is_not_found(self, client: TestClient) -> None:
        for name in ("redoc.standalone.js", "index.html", "../app.py", "%2e%2e%2fapp.py", "x", "vendor/README.md"):
            assert client.get(f"/docs/{name}").status_code == 404, name
            assert client.get(f"/assets/{name}").status_code == 404, name
        assert client.get("/redoc").status_code == 404

    @pytest.mark.parametrize("path", ["/below/", "/below/pages/coverage", "/below/docs"])
    def test_they_may_stand_below_another_app(self, client: TestClient, path: str) -> None:
        outer = TestClient(Starlette(routes=[Mount("/below", client.app)]))
        got = outer.get(path)
        assert got.status_code == 200
        for address in Page(got.text).loaded:
            assert outer.get(urljoin(path, address)).status_code == 200, address

    def test_an_asset_is_kept_until_it_changes(self, client: TestClient) -> None:
        (address,) = (each for each in Page(client.get("/").text).loaded if "page.css" in each)
        assert client.get(urljoin("/", address)).headers["cache-control"] == "max-age=31536000, immutable"
        other = client.get("/assets/page.css", params={"": "0123456789ab"})
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")

    @pytest.mark.parametrize("path", ["/", "/assets/page.css", "/docs/swagger-ui.css"])
    def test_they_are_compressed_for_clients_that_take_it(self, client: TestClient, path: str) -> None:
        for accepted, encoding in (("br, gzip", "gzip"), ("gzip;q=0.5", "gzip"), ("gzip;q=0, br", None), ("", None)):
            got = client.get(path, headers={"accept-encoding": accepted})
            assert got.headers.get("content-encoding") == encoding, accepted
            assert len(got.content) > 1000

    def test_links_lead_somewhere(self, client: TestClient) -> None:
        links = Page(client.get("/").text).links
        assert "./docs" in links
        for link in links:
            assert client.get(urljoin("/", link)).status_code == 200, link

    def test_an_unknown_query_is_an_error_on_a_page(self, client: TestClient) -> None:
        got = client.get("/", params={"<b>": "1"})
        assert got.status_code == 422
        assert "this page takes no query, not &#39;&lt;b&gt;&#39;" in got.text

    @pytest.mark.parametrize(
        ("path", "accept", "is_page"),
        [
            ("/pages/nope", "text/html,*/*;q=0.8", True),
            ("/pages/nope/deep", "*/*", True),
            ("/nope", "text/html", True),
            ("/nope", "application/json", False),
            ("/nope", "*/*", False),
        ],
    )
    @pytest.mark.parametrize("root", ["", "/below"])
    def test_an_address_without_a_page_is_one_in_a_browser(
        self, client: TestClient, path: str, accept: str, is_page: bool, root: str
    ) -> None:
        asked = TestClient(Starlette(routes=[Mount(root, client.app)]))
        got = asked.get(f"{root}{path}", headers={"accept": accept})
        assert got.status_code == 404
        if not is_page:
            assert got.json() == {"error": "nothing is here; /docs lists what there is"}
            return
        assert "there is no page at this address" in got.text
        page = Page(got.text)
        for address in (*page.loaded, *(link for link in page.links if link != "#main")):
            assert asked.get(urljoin(f"{root}{path}", address)).status_code == 200, address


class TestDescriptions:
    def test_titles_are_verbs(self, document: dict[str, Any]) -> None:
        for path, method, about in operations(document):
            assert about["summary"].split()[0] in VERBS, (path, method)
            assert about["description"]

    def test_every_json_reply_has_an_example_that_its_schema_accepts(self, document: dict[str, Any]) -> None:
        for path, method, about in operations(document):
            for media, content in about["responses"]["200"].get("content", {}).items():
                if media != "application/json":
                    continue
                schema = {**content["schema"], "components": document["components"]}
                jsonschema_rs.validate(schema, content["example"])
                assert content["example"] not in ({}, []), (path, method)

    def test_each_list_shows_an_item(self, document: dict[str, Any]) -> None:
        examples = [about["responses"]["200"]["content"] for _, _, about in operations(document)]
        pages = [page["application/json"]["example"] for page in examples if "application/json" in page]
        assert all(page["items"] for page in pages if "items" in page)


class TestAddresses:
    @pytest.mark.parametrize("path", ["/runs/", "/docs/", "/best-config/", "/jobs/"])
    def test_no_redirect_follows_the_host_of_the_client(self, client: TestClient, path: str) -> None:
        got = client.get(path, headers={"host": "evil.example"}, follow_redirects=False)
        assert got.status_code == 404
        assert "location" not in got.headers
        assert "evil" not in got.text

    @pytest.mark.parametrize(
        "query", ["limit=1&limit=5000", "limit=5000&limit=1", "limit=1&limit=1", "after=0&limit=2&after=99999999999"]
    )
    def test_a_parameter_is_given_once(self, client: TestClient, query: str) -> None:
        for name in ("runs", "problems", "kernels", "devices", "requests", "jobs"):
            got = client.get(f"/{name}?{query}")
            assert (got.status_code, got.json().keys()) == (422, {"error"}), name
            assert "is given more than once" in got.json()["error"]

    def test_a_name_of_a_body_is_given_once(self, client: TestClient) -> None:
        for body in ('{"problems": [{}], "problems": [{}]}', '{"problems": [{"op": "gemm", "M": 1, "M": 2}]}'):
            got = client.post("/best-configs", content=body)
            assert got.status_code == 422
            assert "is given more than once" in got.json()["error"]

    @pytest.mark.parametrize(
        "number", ["\uff15", "\u0665", "1_0", "+5", "%205", "5%20", "1e1", "0x5", "5.0", "", "9" * 5000, "\u00b2"]
    )
    def test_a_number_is_written_in_digits(self, client: TestClient, number: str) -> None:
        for path in (f"/runs?limit={number}", f"/jobs?after={number}", f"/runs/{number or 'x'}"):
            got = client.get(path)
            assert got.status_code == 422, path
            assert "digits 0 to 9" in got.json()["error"], got.text

    @pytest.mark.parametrize("number", ["\uff16\uff14", "\u0666\u0664", "6_4", "+64", " 64", "64 ", "6.4e1", "64.0"])
    def test_a_size_is_written_in_digits(self, client: TestClient, tmp_path: Path, number: str) -> None:
        from tuner import recorded

        store = Store.open(tmp_path / "tuner.db")
        asked = TestClient(create_app(store, signatures=recorded.signatures()))
        got = asked.get("/best-config", params={"op": "gemm", "M": number})
        assert got.status_code == 422
        assert "M is a whole number from 1" in got.json()["error"]
        (result,) = asked.post("/best-configs", json={"problems": [{"op": "gemm", "M": number}]}).json()["results"]
        assert "M is a whole number from 1" in result["error"]
        store.close()
