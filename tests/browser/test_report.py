"""The report in a browser: from files, with its style and scripts, and no request and no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser.page import Page
from browser.services import Service
from tuner import recorded
from tuner.api.pages.report import ReportSettings, report_site, write_report


@pytest.fixture
def report(service: Service, tmp_path: Path) -> Path:
    with service.store() as store:
        site = report_site(store, recorded.signatures(), None, None)
        write_report(site, tmp_path / "report", ReportSettings(problems=4))
    return tmp_path / "report"


def test_all_its_pages_open_from_files(page: Page, report: Path) -> None:
    page.hosts.add("")  # files have no host
    for file in sorted(report.glob("*.html")):
        page.driver.get(file.as_uri())
        assert page.run("document.querySelector('h1') !== null"), file
        assert page.run("getComputedStyle(document.body).margin") == "0px", file  # the style was loaded
        page.collect()
        assert page.messages == [], file


def test_a_person_finds_a_problem_and_copies_its_config(page: Page, report: Path) -> None:
    page.hosts.add("")
    page.driver.get((report / "index.html").as_uri())
    links = [
        each for each in page.all("main a") if str(each.get_attribute("href")).rpartition("/")[2].startswith("problem-")
    ]
    links[0].click()
    page.until(lambda: "Every config tried" in page.text)
    assert len(page.all(".copy-button")) >= 2
    assert page.all("form") == []
