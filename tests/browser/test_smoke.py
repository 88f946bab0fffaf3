"""The pages open in a browser at all: with the recorded and with the hostile store, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.page import DESKTOP, PHONE, Page
from browser.services import Factory, Service, Services
from browser.stores import hostile_store, recorded_store


@pytest.fixture(params=[recorded_store, hostile_store])
def service(serve: Services, request: pytest.FixtureRequest) -> Service:
    factory: Factory = request.param
    return serve(factory)


def test_the_home_page_opens(page: Page, axe: Callable[[Page], list[str]]) -> None:
    for window in (PHONE, DESKTOP):
        page.window(window).open("/")
        assert page.run("document.title").endswith("triton-tuner")
        assert axe(page) == []
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
