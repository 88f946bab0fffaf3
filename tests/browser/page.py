"""A page in Chromium, through the DevTools protocol: its window, its messages, its requests and its timing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:  # Selenium is installed for these tests alone, and pytest imports this to deselect them
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--lang=en",
)


@dataclass(frozen=True)
class Window:
    """Size of the window, in CSS pixels."""

    width: int
    height: int
    is_phone: bool = False


DESKTOP, WIDE, PHONE = Window(1440, 900), Window(2560, 1300), Window(390, 844, is_phone=True)


def started(browser: str, driver: str) -> Chrome:
    """Return a browser that logs its messages and requests."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = Chrome(options=options, service=Service(driver))
    made.set_script_timeout(60)
    return made


@dataclass(frozen=True)
class Timing:
    """The browser's own times of a page since it was asked for, in ms, and the bytes that it received."""

    first_paint_ms: float
    """First paint of any content (PerformancePaintTiming)."""
    response_ms: float
    """End of the document's response."""
    loaded_ms: float
    """End of the load event."""
    received_bytes: int
    """Compressed bytes of the document and of all files that it loaded; none from the cache."""


@dataclass
class Page:
    """A tab that is opened anew for each test."""

    driver: Chrome
    url: str
    """URL of the service, without a path."""
    hosts: set[str] = field(default_factory=set)
    """Hosts and ports of the services that were opened."""
    expected: set[int] = field(default_factory=set)
    """HTTP statuses of errors that the test asks for. The browser logs each of them as an error."""
    requested: list[str] = field(default_factory=list)
    """URLs of all requests so far, but `data:` and `blob:`."""
    messages: list[str] = field(default_factory=list)
    """Warnings and errors of the console so far."""
    _statuses: dict[str, int] = field(default_factory=dict)
    _received: int = 0

    def at(self, url: str) -> Page:
        """Open paths of another service from now on."""
        self.url = url
        return self

    def open(self, path: str, *, status: int = 200) -> Page:
        """Open a path of the service, and check its HTTP status."""
        if status != 200:
            self.expected.add(status)
        self.hosts.add(urlsplit(self.url).netloc)
        address = f"{self.url}{path}"
        self.driver.get(address)
        self.collect()
        got = self._statuses.get(self.driver.current_url.partition("#")[0])
        assert got == status, f"{address}: status {got}, not {status}"
        return self

    def window(self, window: Window) -> Page:
        metrics = {"width": window.width, "height": window.height, "mobile": window.is_phone}
        self.command("Emulation.setDeviceMetricsOverride", {**metrics, "deviceScaleFactor": 1})
        self.command("Emulation.setTouchEmulationEnabled", {"enabled": window.is_phone})
        return self

    def colours(self, scheme: str) -> Page:
        """Prefer `light` or `dark` colours."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.command("Emulation.setEmulatedMedia", media)
        return self

    def scripts(self, run: bool) -> Page:
        """Run the scripts of the pages that are opened from now on, or none."""
        self.command("Emulation.setScriptExecutionDisabled", {"value": not run})
        return self

    def command(self, name: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a DevTools command."""
        found: dict[str, Any] = self.driver.execute_cdp_cmd(name, dict(parameters or {}))
        return found

    def run(self, code: str) -> Any:
        """Return the value of an expression, awaited; the page's CSP does not apply."""
        given = {"expression": code, "awaitPromise": True, "returnByValue": True}
        done = self.command("Runtime.evaluate", given)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    @property
    def text(self) -> str:
        """The text that is shown."""
        return str(self.run("document.body.innerText"))

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> WebElement:
        """Return the only element of a selector."""
        found = self.all(selector)
        assert len(found) == 1, f"{len(found)} elements are {selector}"
        return found[0]

    def press(self, *keys: str) -> Page:
        """Press keys on whatever has the focus: texts, and names such as `TAB`, `ENTER`, `ARROW_DOWN`."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, key, key) for key in keys)).perform()
        return self

    def until(self, holds: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait until something holds. Fail with the text of the page if it does not in time."""
        end = monotonic() + seconds
        while not holds():
            assert monotonic() < end, f"it does not hold after {seconds:g} s: {self.text[:2000]}"
            sleep(0.05)

    def settled(self) -> Page:
        """Wait until fonts are loaded and two frames are drawn, as before a screenshot."""
        self.run(
            "document.fonts.ready.then(() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))))"
        )
        return self

    def screenshot(self, *, whole: bool = False, **format: Any) -> bytes:
        """Return an image of the window, or of the whole page."""
        taken = self.command("Page.captureScreenshot", {"captureBeyondViewport": whole, **format, **self._clip(whole)})
        return base64.b64decode(taken["data"])

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def timing(self, path: str) -> Timing:
        """Open a path without the browser's cache, and return the browser's times of it."""
        before = self._received
        self.command("Network.setCacheDisabled", {"cacheDisabled": True})
        self.open(path)
        self.command("Network.setCacheDisabled", {"cacheDisabled": False})
        self.settled()
        self.collect()
        paint = self.run("performance.getEntriesByName('first-contentful-paint').map(p => p.startTime)")
        assert paint, "nothing was painted"
        loaded = self.run("(n => [n.responseEnd, n.loadEventEnd])(performance.getEntriesByType('navigation')[0])")
        response, load = loaded
        return Timing(paint[0], response, load, self._received - before)

    def axe(self) -> list[str]:
        """Return what axe-core finds wrong with the page, a line for each rule."""
        if not self.run("typeof axe != 'undefined'"):
            self.run(f"{AXE.read_text()}; true")
        found = self.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        return [
            f"{one['id']}: {one['help']}: {'; '.join(str(node['target'][0]) for node in one['nodes'][:5])}"
            for one in found
        ]

    @property
    def foreign(self) -> list[str]:
        """Requests to other hosts than the one of the service."""
        return [url for url in self.requested if urlsplit(url).netloc not in self.hosts]

    def collect(self) -> None:
        """Read what the browser has logged since the last time."""
        for entry in self._logged("performance"):
            event = json.loads(entry["message"])["message"]
            self._note(event["method"], event["params"])
        for entry in self._logged("browser"):
            known = any(f"status of {status}" in entry["message"] for status in self.expected)
            if entry["level"] in ("SEVERE", "WARNING") and not known:
                self.messages.append(f"{entry['level']}: {entry['message']}")

    def _logged(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return found

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if urlsplit(url).scheme not in ("data", "blob", "about"):
                self.requested.append(url)
        elif method == "Network.responseReceived":
            self._statuses[params["response"]["url"]] = params["response"]["status"]
        elif method == "Network.loadingFinished":
            self._received += int(params["encodedDataLength"])
