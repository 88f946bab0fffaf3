"""Home, Coverage and Compare in a browser: what they show and how fast, also without scripts and with hostile names."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import pytest
from stored import HERE, SCALE, answer

from browser.conftest import Shot
from browser.page import DESKTOP, PHONE, Page
from browser.services import Services
from browser.stores import hostile_store, large_store
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store

PAGES = ("/", "/pages/coverage", "/pages/compare")
LARGEST = 150_000
"""Compressed bytes of a page with all files that it loads, at most."""
Axe = Callable[[Page], list[str]]


def empty_store(path: Path) -> None:
    Store.open(path).close()


def dense_store(path: Path) -> None:
    """Make a store with an answer for each of 100 x 50 sizes."""
    store, config = Store.open(path), answer().config
    problems = [SCALE.problem({"M": 64 + 8 * M, "N": 64 + 8 * N}) for M in range(100) for N in range(50)]
    given = [
        replace(answer(each), config=config, speedup=0.8 + place % 60 / 100) for place, each in enumerate(problems)
    ]
    at = "2026-11-01T00:00:00.000+00:00"
    store.import_answers([ImportedAnswer(SCALE, each, HERE, "dense", at) for each in given])
    store.close()


@pytest.mark.parametrize("path", PAGES)
def test_it_is_accessible_and_fits_each_window(page: Page, axe: Axe, shot: Shot, path: str) -> None:
    for window in (PHONE, DESKTOP):
        for scheme in ("light", "dark"):
            page.window(window).colours(scheme).open(path)
            assert axe(page) == []
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
    shot(path.rpartition("/")[2] or "home")


@pytest.mark.parametrize("path", PAGES)
def test_names_of_others_are_texts(page: Page, serve: Services, axe: Axe, path: str) -> None:
    page.url = serve(hostile_store).url
    page.window(PHONE).open(path)
    assert page.all("main img, main script, main b, main i") == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_an_empty_store_is_explained(page: Page, serve: Services, axe: Axe, path: str) -> None:
    page.url = serve(empty_store).url
    page.open(path)
    assert "stored yet" in page.text
    assert axe(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_20_000_answers_are_painted_at_once(page: Page, serve: Services, path: str) -> None:
    page.url = serve(large_store(20_000)).url
    page.open(path)
    found = min((page.timing(path) for _ in range(3)), key=lambda each: each.first_paint_ms)
    assert found.first_paint_ms < 300, found
    assert found.received_bytes < LARGEST, found


def test_the_overview_leads_to_what_it_names(page: Page) -> None:
    page.open("/")
    for text in ("Misses that hurt most", "4 waiting, 2 running, 1 failed", "1,234", "Retune", "Newest answers"):
        assert text in page.text, text
    assert "tuner search gemm --M 128 --N 4096 --K 4096 --dtype bf16" in page.text
    page.one("table.matrix tbody tr:first-child td:last-child a").click()
    page.until(lambda: "Coverage of gemm on nvidia-h200" in page.text)


def test_the_overview_keeps_up_with_the_store(page: Page, serve: Services) -> None:
    service = serve(empty_store, own=True)
    page.url = service.url
    with service.store() as store:
        store.queue.add(SCALE.problem({"M": 64}), "nvidia-h200")
    page.open("/")
    assert "1 waiting" in page.text
    with service.store() as store:
        store.queue.add(SCALE.problem({"M": 128}), "nvidia-h200")
    page.until(lambda: "2 waiting" in page.text)
    assert len(page.all("#now")) == 1


def test_a_cell_opens_its_problem_by_keyboard(page: Page) -> None:
    page.open("/pages/coverage?op=gemm&device=nvidia-h200")
    cells = page.all("svg.plot a.cell")
    assert len(cells) == 5
    page.run("document.querySelector('svg.plot a.cell').focus()")
    page.press("ENTER")
    page.until(lambda: "/pages/problem?op=gemm" in page.driver.current_url)


def test_forms_and_sorting_work_without_scripts(page: Page) -> None:
    def arrived(part: str) -> None:
        page.until(lambda: part in page.driver.current_url and page.all("footer"))

    page.scripts(False).open("/pages/coverage")
    page.one('select[name="device"] option[value="nvidia-h100-80gb-hbm3"]').click()
    page.one('select[name="op"] option[value="softmax"]').click()
    page.all("form button")[0].click()
    arrived("op=softmax&device=nvidia-h100-80gb-hbm3")
    assert "Coverage of softmax on nvidia-h100-80gb-hbm3" in page.one("h1").text
    page.open("/pages/coverage?op=gemm&device=nvidia-h200")
    page.one('select[name="colour"] option[value="age"]').click()
    page.one('input[name="find"]').send_keys("m=16")
    page.one("form button.primary").click()
    arrived("find=m%3D16")
    assert len(page.all("tbody tr")) == 1
    page.open("/pages/coverage?op=gemm&device=nvidia-h200")
    for order in ("sort=-latency", "sort=latency"):
        next(head for head in page.all("th a") if head.text.startswith("Latency")).click()
        arrived(order)
    assert page.one("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    shown = [row.text for row in page.all("tbody tr td:nth-child(3)") if "us" in row.text]
    assert shown == sorted(shown, key=lambda text: float(text.split()[0].replace(",", "")))
    page.scripts(True)


def test_5_000_cells_are_drawn_within_half_a_second(page: Page, serve: Services) -> None:
    page.url = serve(dense_store).url
    address = "/pages/coverage?op=scale&device=nvidia-h200&sizes=each"
    page.open(address)
    assert len(page.all("svg.plot a.cell")) == 5000
    found = min((page.timing(address) for _ in range(3)), key=lambda each: each.loaded_ms)
    assert found.loaded_ms < 500, found
    assert found.received_bytes < LARGEST, found


def test_two_cards_are_compared_and_downloaded(page: Page, shot: Shot, serve: Services) -> None:
    page.url = serve(large_store(20_000)).url
    page.open("/pages/compare?op=softmax")
    assert "Left: nvidia-h100-80gb-hbm3. Right: nvidia-h200." in page.text
    page.until(lambda: page.all("figure.plot-live canvas"))  # more than 500 points: fetched
    shot("compare-large")
    page.one('select[name="show"] option[value="same"]').click()
    page.one("form.filter button").click()
    page.until(lambda: "show=same" in page.driver.current_url and page.all("footer"))
    rows = page.all("tbody tr")
    assert len(rows) == 100
    address = page.one("a[download]").get_attribute("href")
    found = page.run(f"fetch({address!r}).then(r => Promise.all([r.headers.get('content-disposition'), r.text()]))")
    assert found[0] == 'attachment; filename="compare-softmax.csv"'
    table = list(csv.DictReader(StringIO(found[1], newline="")))
    assert len(table) == 2500
    assert {row["verdict"] for row in table} == {"same"}


def test_an_error_is_a_page(page: Page, axe: Axe) -> None:
    page.open(f"/pages/coverage?op={quote('<b>x</b>')}", status=404)
    assert "no op is called '<b>x</b>'" in page.text
    assert axe(page) == []
    page.open("/pages/compare?show=none", status=422)
    assert "show is one of both, moved, faster" in page.text
