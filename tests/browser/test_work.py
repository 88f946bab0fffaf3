"""Pages about work, in a browser: runs that are followed live, the fleet, the nights, and the actions that write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.conftest import Shot
from browser.page import DESKTOP, PHONE, Page
from browser.services import TOKEN, Service, Services
from browser.slow import slow_search
from browser.stores import hostile_store, recorded_store

Axe = Callable[[Page], list[str]]
PAGES = {
    "runs": "/pages/runs",
    "run": "/pages/run?id=1",
    "run-failed": "/pages/run?id=18",
    "fleet": "/pages/fleet",
    "job-failed": "/pages/job?id=3",
    "nights": "/pages/nights",
    "night": "/pages/night?id=3",
}


def text_of(page: Page, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r})?.innerText ?? ''"))


def measured(page: Page) -> int:
    """Return the number of configs that the page of a run says are measured."""
    number = text_of(page, "#live-figures .figure dd").split()[0]
    return int(number.replace(",", ""))


def sign_in(page: Page) -> None:
    page.open("/pages/sign-in")
    page.one("main input[name=token]").send_keys(TOKEN)
    page.one("main button").click()
    page.until(lambda: "Sign out" in page.text)


def press(page: Page, selector: str) -> None:
    """Press the first button of a selector, and wait for the page that it leads to."""
    page.run("document.body.dataset.before = 'yes'")
    page.all(selector)[0].click()
    page.until(lambda: page.run("document.readyState == 'complete' && !document.body.dataset.before"))


class TestPages:
    @pytest.mark.parametrize("name", PAGES)
    def test_it_can_be_read(self, page: Page, name: str, axe: Axe, shot: Shot) -> None:
        for window in (PHONE, DESKTOP):
            page.window(window).open(PAGES[name])
            assert axe(page) == []
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
        shot(name)

    def test_without_scripts_it_shows_its_state_and_a_way_to_reload(self, page: Page) -> None:
        page.scripts(False).open("/pages/run?id=18")
        assert "60 of 400" in page.text.replace("\n", " ")
        assert "Not live" in page.text
        assert (page.one(".live a").get_attribute("href") or "").endswith("/pages/run?id=18")
        page.scripts(True)


class TestHostile:
    @pytest.fixture
    def service(self, serve: Services) -> Service:
        return serve(hostile_store)

    @pytest.mark.parametrize("path", ["runs", "fleet", "nights", *(f"run?id={id}" for id in range(1, 9))])
    def test_texts_of_others_are_text(self, page: Page, path: str, axe: Axe) -> None:
        page.window(PHONE).open(f"/pages/{path}")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert page.all("main img, main script, main b[title], main i") == []
        assert axe(page) == []

    @pytest.mark.parametrize("number", range(1, 6))
    def test_jobs_and_nights_too(self, page: Page, number: int) -> None:
        for path in (f"job?id={number}", f"night?id={number}"):
            page.window(PHONE).open(f"/pages/{path}")
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), path
            assert page.all("main img, main script, main i") == []


class TestLive:
    @pytest.fixture
    def service(self, serve: Services) -> Service:
        return serve(recorded_store, own=True)

    def test_a_search_is_followed_over_a_reload_and_a_restart(self, page: Page, service: Service, shot: Shot) -> None:
        with service.store() as store, slow_search(store, 400, 0.1) as hurry:
            page.until(lambda: any(run.status == "running" and run.id > 18 for run in store.runs(3)))
            run = store.runs(1)[0].id
            page.open(f"/pages/run?id={run}")
            page.until(lambda: text_of(page, "#live") == "Live")
            first = measured(page)
            page.until(lambda: measured(page) > first + 5)
            page.until(lambda: "compiling" in text_of(page, "#live-state"))
            assert "On the card: BLOCK_" in text_of(page, "#live-state")
            page.run("document.querySelector('#improvements').open = true")
            before = measured(page)
            page.until(lambda: measured(page) > before)
            assert page.run("document.querySelector('#improvements').open")  # a fold stays as the reader left it
            shot("run-live")
            page.open(f"/pages/run?id={run}")
            assert measured(page) >= before
            page.until(lambda: text_of(page, "#live") == "Live")

            service.stop()
            page.until(lambda: "Connection lost" in text_of(page, "#live"))
            service.start()
            page.until(lambda: text_of(page, "#live") == "Live", 30)
            before = measured(page)
            page.until(lambda: measured(page) > before)
            page.collect()
            page.messages.clear()  # the browser logs each try to connect that fails

            hurry.set()
            page.until(lambda: "It stored no answer. The answer is pinned" in page.text, 60)  # the page reloads itself
            assert page.all("[data-stream]") == []
            page.open("/pages/runs")
            page.until(lambda: text_of(page, f"#run-{run}").split("\n")[0].startswith(str(run)))

    def test_a_killed_search_shows_no_sign_of_life(self, page: Page, service: Service) -> None:
        with service.store() as store:
            run = next(run for run in store.runs(5) if run.status == "running")
            with store._write() as connection:
                connection.exec_driver_sql("UPDATE runs SET started_at = '2026-01-01T00:00:00.000+00:00'")
                connection.exec_driver_sql("UPDATE trials SET ended_at = '2026-01-01T00:00:01.000+00:00'")
        page.open(f"/pages/run?id={run.id}")
        assert "no sign of life" in text_of(page, "#live-state")


class TestActions:
    @pytest.fixture
    def service(self, writable: Service) -> Service:
        return writable

    def test_a_person_signs_in_writes_and_signs_out(self, page: Page, service: Service, axe: Axe, shot: Shot) -> None:
        page.open("/pages/fleet")
        assert page.all("main button") == []
        page.expected.add(403)
        page.open("/pages/sign-in")
        page.one("main input[name=token]").send_keys("wrong")
        page.one("main button").click()
        page.until(lambda: "that is not the token" in page.text)
        shot("sign-in")
        assert axe(page) == []
        sign_in(page)

        page.open("/pages/fleet")
        page.until(lambda: text_of(page, "#live") == "Live")
        press(page, "#live-failed button")
        assert "Job 3 is tried again as job 9." in page.text
        assert page.driver.current_url.endswith("/pages/fleet")
        assert axe(page) == []

        with service.store() as store:
            problem = next(each.answer.problem for each in store.answers() if each.answer.problem.op == "softmax")
        query = "&".join(f"{name}={value}" for name, value in problem.stated.items())
        address = f"/pages/problem?op={problem.op}&{query}&device=nvidia-h200"
        page.open(address)
        press(page, "form[action$='actions/search'] button")
        assert "Job 10 to search softmax" in page.text
        press(page, "form[action$='actions/pin'] button")
        assert "is pinned" in page.text
        press(page, "form[action$='actions/unpin'] button")
        assert "is not pinned any more" in page.text

        press(page, ".account button")
        assert "Sign in" in page.text
        assert page.all("main button[title]") == []

    def test_an_earlier_answer_serves_again(self, page: Page, service: Service) -> None:
        with service.store() as store:
            stored = [each for each in store.answers() if each.answer.problem.text.startswith("softmax")]
            problem = stored[-1].answer.problem
            first = store.history(problem, "nvidia-h200")[0]
            query = "&".join(f"{name}={value}" for name, value in problem.stated.items())
        sign_in(page)
        page.open(f"/pages/problem?op=softmax&{query}&device=nvidia-h200&answer={first.id}")
        press(page, f"form[action$='actions/rollback']:has(input[name=to][value='{first.id}']) button")
        assert f"serves the config of answer {first.id} again" in page.text

    def test_a_session_ends_with_the_token(self, page: Page, service: Service) -> None:
        sign_in(page)
        service.stop()
        service.token = "another-token-of-the-service"
        service.start()
        page.open("/pages/fleet")
        assert "Sign in" in page.text
        assert page.all("#live-failed button") == []
