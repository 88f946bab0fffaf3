"""The page to look up a problem in a browser: with the keyboard, without scripts, and with an error."""

from __future__ import annotations

from collections.abc import Callable

from browser.conftest import Shot
from browser.page import DESKTOP, PHONE, Page


def test_a_problem_is_looked_up_with_the_keyboard(page: Page, axe: Callable[[Page], list[str]], shot: Shot) -> None:
    page.open("/pages/lookup")
    assert axe(page) == []
    page.run("document.querySelector('select[name=op]').focus()")
    page.press("gemm", "TAB", "ENTER")
    page.until(lambda: page.all("input[name=M]"))
    page.run("document.querySelector('input[name=M]').focus()")
    page.press("4096")
    page.run("document.querySelector('select[name=device]').focus()")
    page.press("nvidia-h200", "ENTER")  # a list of choices sends the form by a button alone
    page.run("document.querySelector('form.lookup button.primary').focus()")
    page.press("ENTER")
    page.until(lambda: "Reply" in page.text)
    assert '"match": "stale"' in page.text
    for window in (PHONE, DESKTOP):
        page.window(window)
        assert axe(page) == []
        assert page.run("document.documentElement.scrollWidth") <= window.width
    shot("lookup")
    page.one("#result a").click()
    page.until(lambda: "Every config tried" in page.text)


def test_it_works_without_scripts(page: Page) -> None:
    page.scripts(False).open("/pages/lookup?op=softmax&M=8192&N=8192&dtype=fp32&device=nvidia-h200")
    assert '"match": "exact"' in page.one("pre[aria-label=Reply]").text
    page.scripts(True)


def test_an_error_stands_by_the_form(page: Page, axe: Callable[[Page], list[str]]) -> None:
    page.open("/pages/lookup?op=gemm&M=0x12&device=nvidia-h200", status=422)
    assert "gemm: M is a whole number from 1 to 2147483647, not '0x12'" in page.text
    assert page.one("input[name=M]").get_attribute("value") == "0x12"
    assert axe(page) == []
