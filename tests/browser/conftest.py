"""Fixtures: a browser for the session, and a page of it for each test, which must neither log errors nor ask others.

pytest -m browser --shots DIR      # writes the screenshots of the tests that take some
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser.page import DESKTOP, PHONE, Page, Window, started
from browser.services import TOKEN, Service, Services
from browser.stores import recorded_store

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSERS = ("google-chrome", "chromium", "chromium-browser")
Shot = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    """One browser for all tests of a process."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        pytest.fail("these tests need a browser and its driver; apt-get install chromium chromium-driver")
    made = started(found, driver)
    yield made
    made.quit()


@pytest.fixture(scope="session")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("services"))
    yield services
    services.stop()


@pytest.fixture
def serve(_services: Services) -> Iterator[Services]:
    """Start services by `serve(factory, token=None, own=False)`; see `Services`."""
    yield _services
    _services.stop_own()


@pytest.fixture
def service(serve: Services) -> Service:
    """The service whose pages the test opens. A module may have another one: a fixture of this name."""
    return serve(recorded_store)


@pytest.fixture
def writable(serve: Services) -> Service:
    """A service of the test's own over the recorded store, to which the token `services.TOKEN` may write."""
    return serve(recorded_store, token=TOKEN, own=True)


@pytest.fixture
def page(browser: Chrome, service: Service) -> Iterator[Page]:
    """A new tab, of desktop size and light. At the end there is no error in its console, and no foreign request."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    made = Page(browser, service.url)
    made.command("Network.enable")
    made.command("Network.clearBrowserCookies")
    made.window(DESKTOP).colours("light")
    yield made
    made.collect()
    browser.close()
    browser.switch_to.window(first)
    assert made.messages == []
    assert made.foreign == []


@pytest.fixture
def axe() -> Callable[[Page], list[str]]:
    """Return what axe-core finds wrong with a page; `assert axe(page) == []`."""
    return Page.axe


@pytest.fixture
def shot(page: Page, request: pytest.FixtureRequest) -> Shot:
    """Write screenshots of the page as it is: `NAME-light`, `NAME-dark` and `NAME-phone`, if `--shots` names a folder.

    `shot(name, whole=True)` takes the whole page instead of the window.
    """
    folder, format = request.config.getoption("--shots"), request.config.getoption("--shots-format")

    def take(name: str, *, whole: bool = False) -> None:
        if folder is None:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        looks: dict[str, tuple[Window, str]] = {
            "light": (DESKTOP, "light"),
            "dark": (DESKTOP, "dark"),
            "phone": (PHONE, "light"),
        }
        options = {"format": format, **({} if format == "png" else {"quality": 60})}
        for look, (window, scheme) in looks.items():
            page.window(window).colours(scheme).settled()
            image = page.screenshot(whole=whole, **options)
            (Path(folder) / f"{name}-{look}.{format}").write_bytes(image)
        page.window(DESKTOP).colours("light").settled()

    return take
