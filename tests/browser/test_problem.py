"""The page of a problem in a browser: plots, copying, a pasted key, generations, and the buttons that write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

import tuner
from browser.conftest import Shot
from browser.page import DESKTOP, PHONE, Page, Window
from browser.services import TOKEN, Service, Services
from browser.stores import hostile_store
from tuner import recorded
from tuner.db.store import Store

SOFTMAX = "/pages/problem?op=softmax&M=8192&N=8192&dtype=fp32&device=nvidia-h200"
GEMM = "/pages/problem?op=gemm&M=4096&N=4096&K=4096&dtype=bf16&device=nvidia-h200"
MISSED = "/pages/problem?op=gemm&M=128&N=4096&K=4096&dtype=bf16&device=nvidia-h200"
LARGEST = 150_000
"""Compressed bytes of a page with all files that it loads, at most."""


def many_store(path: Path) -> None:
    """Make a store with one search of more configs than the server draws."""
    store = Store.open(path)
    space = recorded.load("gemm-4096x4096x4096-bf16-nvidia-h200")
    tuner.tune(
        "gemm", space.problem, replay=space.name, store=store, sampler="random", trials=520, on_event=tuner.Events()
    )
    store.close()


def test_an_answer_is_shown_with_its_evidence(page: Page, axe: Callable[[Page], list[str]], shot: Shot) -> None:
    for window in (PHONE, DESKTOP):
        page.window(window).open(SOFTMAX)
        assert axe(page) == []
        assert page.run("document.documentElement.scrollWidth") <= window.width
    for heading in ("Answer", "Use it", "Comparison", "Every config tried", "Evidence", "Key", "History"):
        assert f"\n{heading}\n" in page.text, heading
    assert len(page.all("svg.plot")) >= 4
    assert page.timing(SOFTMAX).received_bytes < LARGEST
    shot("problem")
    page.colours("dark")
    assert axe(page) == []


def test_captions_are_whole_on_a_phone_and_the_plot_of_a_run_in_its_column(page: Page) -> None:
    page.window(Window(360, 800, is_phone=True)).open(GEMM)
    captions = page.run("[...document.querySelectorAll('.caption')].map(one => one.getBoundingClientRect().right)")
    assert len(captions) == 2
    assert max(captions) <= 360
    for width in (1000, 1280, 1600):
        page.window(Window(width, 900)).open("/pages/run?id=1")
        plot = "document.querySelector('#live-plot .plot-scroll')"
        assert page.run(f"{plot}.scrollWidth <= {plot}.clientWidth"), width


def test_a_problem_without_an_answer_says_what_is_known(
    page: Page, axe: Callable[[Page], list[str]], shot: Shot
) -> None:
    page.open(MISSED)
    assert "tuner search gemm --M 128 --N 4096 --K 4096 --dtype bf16" in page.text
    assert "1,234" in page.text
    assert axe(page) == []
    shot("problem-missing")
    page.all("main li a")[0].click()
    page.until(lambda: "Every config tried" in page.text)


def test_a_text_is_copied_by_its_button(page: Page, service: Service) -> None:
    page.command("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    page.open(SOFTMAX)
    page.all(".copy-button")[0].click()
    page.until(lambda: page.all(".copy-button")[0].text == "Copied")
    copied = page.run("navigator.clipboard.readText()")
    asked = "/best-config?op=softmax&M=8192&N=8192&dtype=fp32&device=nvidia-h200"
    assert copied == f"curl -s '{service.url}{asked}'"  # the address of this service, not the usual one


def test_without_scripts_all_of_it_is_there(page: Page) -> None:
    page.scripts(False).open(GEMM)
    assert page.all(".copy-button") == []
    assert len(page.all("svg.plot")) >= 4
    page.scripts(True)


def test_a_pasted_key_is_compared(page: Page, axe: Callable[[Page], list[str]]) -> None:
    page.open(SOFTMAX)
    page.one("textarea[name=key]").send_keys('{"triton": "3.6.0", "policy": "cold-events-1",\n"M": 8192}')
    page.one("form[action='#mine'] button").click()
    page.until(lambda: "A query with this key gets" in page.text)
    assert "stale" in page.text[page.text.index("Key") :]
    assert axe(page) == []


def test_generations_lead_to_each_other(page: Page) -> None:
    page.open(SOFTMAX)
    links = page.all(".table[aria-label='Generations of the answer'] tbody td:first-child a")
    assert len(links) == 3
    links[-1].click()
    page.until(lambda: "an earlier generation" in page.text)
    page.one(".message a").click()
    page.until(lambda: "an earlier generation" not in page.text)


@pytest.fixture
def signed_in(page: Page, writable: Service) -> Page:
    page.at(writable.url).open("/pages/sign-in")
    page.one("main input[name=token]").send_keys(TOKEN)
    page.one("main form button").click()
    page.until(lambda: "Sign out" in page.text)
    return page


def test_a_person_who_may_write_rolls_back(signed_in: Page, writable: Service) -> None:
    signed_in.open(SOFTMAX)
    buttons = [each for each in signed_in.all("button") if each.text == "Roll back to this"]
    assert len(buttons) == 2
    buttons[-1].click()
    signed_in.until(lambda: len(signed_in.all(".table[aria-label='Generations of the answer'] tbody tr")) == 4)
    assert "rollback" in signed_in.text
    with writable.store() as store:
        assert store.answers()[-1].answer.kind == "rollback"


class TestManyConfigs:
    @pytest.fixture
    def service(self, serve: Services) -> Service:
        return serve(many_store)

    def test_a_script_draws_all_of_them(self, page: Page, axe: Callable[[Page], list[str]]) -> None:
        timing = page.timing(GEMM)
        page.until(lambda: page.all(".plot-live canvas"))
        assert any("/pages/problem.json?" in url for url in page.requested)
        assert timing.received_bytes < LARGEST
        assert len(page.all(".plot-parallel path")) < 400
        assert axe(page) == []


class TestHostileNames:
    @pytest.fixture
    def service(self, serve: Services) -> Service:
        return serve(hostile_store)

    def test_they_are_texts(self, page: Page, service: Service, axe: Callable[[Page], list[str]]) -> None:
        with service.store() as store:
            answers = store.answers()
        for stored in answers:
            problem, device = stored.answer.problem, stored.provenance.device.id
            query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in problem.stated.items())
            page.window(PHONE).open(f"/pages/problem?op={problem.op}&{query}&device={quote(device, safe='')}")
            assert page.all("main img, main script, main b, main i") == []
            assert page.run("document.documentElement.scrollWidth") <= PHONE.width, problem.op
            assert axe(page) == []
