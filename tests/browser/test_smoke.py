"""Each page that the navigation leads to opens, with the recorded store on a desktop and the hostile one on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.page import DESKTOP, PHONE, Page, Window
from browser.services import Factory, Service, Services
from browser.stores import hostile_store, recorded_store

LOOKS: dict[Factory, Window] = {recorded_store: DESKTOP, hostile_store: PHONE}


@pytest.fixture(params=LOOKS, ids=lambda factory: factory.__name__)
def factory(request: pytest.FixtureRequest) -> Factory:
    made: Factory = request.param
    return made


@pytest.fixture
def service(serve: Services, factory: Factory) -> Service:
    return serve(factory)


def test_each_page_opens_fits_the_window_and_is_accessible(
    page: Page, factory: Factory, axe: Callable[[Page], list[str]]
) -> None:
    page.window(LOOKS[factory]).open("/")
    paths = page.run("[...document.querySelectorAll('nav a')].map(a => a.pathname + a.search)")
    assert "/" in paths
    found = {}
    for path in paths:
        page.open(path)
        assert page.run("document.title").endswith("triton-tuner"), path
        wide = ["wider than the window"] * page.run("document.documentElement.scrollWidth > innerWidth")
        found[path] = [*wide, *(axe(page) if path != "/docs" else [])]  # Swagger's page is not ours
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
