"""Plots of many points and large heat maps in a browser, under the content security policy of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from browser.page import DESKTOP, PHONE, Page
from tuner.api.pages.plots import (
    Covered,
    Heading,
    State,
    around_one,
    grid,
    heat_map,
    landscape,
    landscape_points,
    live_plot,
    parallel_coordinates,
    shares,
    slices,
)
from tuner.api.pages.replies import html
from tuner.recorded import shipped

SPACE = "gemm-64x4096x4096-bf16-nvidia-h200"
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Plots</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="/assets/mark.svg">
<link rel="stylesheet" href="/assets/page.css"><link rel="stylesheet" href="/assets/plots.css">
<link rel="stylesheet" href="/assets/vendor/uplot.min.css">
<script src="/assets/vendor/uplot.min.js" defer></script><script src="/assets/plots.js" defer></script>
</head><body><main><h1>Plots</h1>"""
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def documents() -> dict[str, tuple[str, bytes]]:
    """Return type and content of each path."""
    space = shipped.load(SPACE)
    found = landscape(space.measurements, {space.best.text: ["answer"]})
    fallback = parallel_coordinates(Heading("lines", "Configs", "A line for each."), found)
    live = live_plot(Heading("live", "All configs", "A point for each."), "/points", fallback, "500 of all configs.")
    problems = [
        Covered(x, y, 0.7 + (x * y % 13) / 20, list(State)[x * y % 4], f"gemm {x} x {y}", f"/problem?M={x}&N={y}")
        for x in range(1, 73)
        for y in range(1, 71)
    ]
    heat = heat_map(
        Heading("heat", "Speed-up", "Each problem."), grid("M", "N", problems, 100), around_one("speed-up", [0.7, 1.3])
    )
    small = heat_map(Heading("small", "Share", "Two."), grid("M", "N", problems[:2]), shares("share"))
    knobs = slices(Heading("knobs", "Knobs", "A plot for each."), found)
    pages = {"/live": f"{HEAD}{live}{knobs}</main>", "/heat": f"{HEAD}{heat}{small}</main>", "/problem": HEAD}
    return {path: ("text/html", text.encode()) for path, text in pages.items()} | {
        "/points": ("application/json", landscape_points(found))
    }


@pytest.fixture(scope="module")
def service() -> Iterator[SimpleNamespace]:
    served = documents()
    assets = files("tuner.api.pages") / "assets"
    policy = html(Request({"type": "http", "headers": []}), "").headers["content-security-policy"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            kind, content = served.get(path) or (
                TYPES[path.rpartition(".")[2]],
                assets.joinpath(path.removeprefix("/assets/")).read_bytes(),
            )
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-security-policy", policy)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def said(page: Page) -> str:
    return page.one(".plot-said").text


def test_points_are_drawn_stepped_through_and_zoomed_into(page: Page, axe: Callable[[Page], list[str]]) -> None:
    page.open("/live").until(lambda: page.all(".plot-chart canvas"))
    assert axe(page) == []

    page.one(".plot-chart").send_keys("")
    page.press("ARROW_RIGHT")
    first = said(page)
    page.press("ARROW_RIGHT", "ARROW_RIGHT")

    assert first.startswith("19 us   BLOCK_M=")
    assert said(page) not in ("", first)
    before = page.screenshot()
    page.press("+").settled()
    assert page.screenshot() != before
    page.press("ESCAPE").settled()
    page.one(".plot-bar select").send_keys("num_warps")
    page.until(lambda: page.run("document.querySelector('.plot-bar select').selectedIndex > 0"))
    page.colours("dark").settled()
    assert axe(page) == []


def test_dragging_zooms_and_a_double_click_shows_all(page: Page) -> None:
    from selenium.webdriver import ActionChains

    page.open("/live").until(lambda: page.all(".plot-chart canvas"))
    over = page.one(".plot-chart .u-over")
    drawn = "document.querySelector('.plot-chart canvas').toDataURL()"
    ActionChains(page.driver).move_to_element_with_offset(over, 0, 150).perform()
    page.settled()
    whole = page.run(drawn)

    drag = ActionChains(page.driver).move_to_element_with_offset(over, -400, 0).click_and_hold()
    drag.pause(0.05).move_by_offset(200, 90).pause(0.05).move_by_offset(100, 40).pause(0.05).release().perform()
    page.settled()
    assert page.run(drawn) != whole

    ActionChains(page.driver).double_click(over).perform()
    page.settled()
    assert page.run(drawn) == whole


def test_without_scripts_there_is_a_plot_with_its_caption(page: Page) -> None:
    page.scripts(run=False).open("/live")

    assert "500 of all configs." in page.text
    assert len(page.all(".plot-parallel .lines path")) == 500
    page.scripts(run=True)


def test_plots_fit_a_phone(page: Page, axe: Callable[[Page], list[str]]) -> None:
    for path in ("/live", "/heat"):
        page.window(PHONE).open(path).settled()
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []


def test_five_thousand_cells_are_one_stop_and_painted_at_once(page: Page, axe: Callable[[Page], list[str]]) -> None:
    timing = page.window(DESKTOP).timing("/heat")

    assert timing.first_paint_ms < 500
    assert len(page.all(".plot-heat a[tabindex='0']")) == 2  # one for each map
    page.run("document.querySelector('.plot-heat a[tabindex=\"0\"]').focus()")
    page.press("ARROW_RIGHT", "ARROW_UP", "ARROW_UP")
    assert page.run("document.activeElement.getAttribute('href')") == "/problem?M=2&N=3"
    assert axe(page) == []
    page.press("ENTER").until(lambda: "/problem" in page.driver.current_url)
