"""The checks at the end of each test see what they are for."""

from __future__ import annotations

from collections.abc import Callable

from browser.page import PHONE, WIDE, Page

AWAY = "http://example.invalid/x.png"


def test_smoke_errors_and_requests_to_other_hosts_are_seen(page: Page) -> None:
    page.command("Page.setBypassCSP", {"enabled": True})
    page.open("/")
    page.run(f"new Promise(done => Object.assign(new Image(), {{onerror: done, src: '{AWAY}'}}))")
    page.run("setTimeout(() => { throw Error('thrown') }); new Promise(done => setTimeout(done, 100))")
    page.collect()
    assert page.foreign == [AWAY]
    assert any("ERR_NAME_NOT_RESOLVED" in message for message in page.messages), page.messages
    assert any("Error: thrown" in message for message in page.messages), page.messages
    page.messages.clear()
    page.requested.clear()


def test_what_the_csp_forbids_is_seen(page: Page) -> None:
    page.open("/")
    page.run("document.body.setAttribute('onclick', 'alert(1)'); document.body.click()")
    page.collect()
    assert any("Content Security Policy" in message for message in page.messages), page.messages
    page.messages.clear()


def test_windows_and_colours(page: Page) -> None:
    page.window(PHONE).colours("dark").open("/")
    assert page.run("[innerWidth, innerHeight]") == [PHONE.width, PHONE.height]
    assert page.run("matchMedia('(prefers-color-scheme: dark)').matches")
    page.window(WIDE).colours("light")
    assert page.run("innerWidth") == WIDE.width
    assert not page.run("matchMedia('(prefers-color-scheme: dark)').matches")


def test_an_image_without_a_text_is_a_violation(page: Page, axe: Callable[[Page], list[str]]) -> None:
    page.open("/")
    page.run("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\">')")
    assert [line.partition(":")[0] for line in axe(page)] == ["image-alt"]
