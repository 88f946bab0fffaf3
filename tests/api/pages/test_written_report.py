"""The report: pages as files that link to each other alone, a bounded number of them, in a folder of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from helpers import A100, H200
from served import GEMM, answer, problem
from stored import HERE, SCALE, answered, change
from stored import answer as scale_answer

from tuner.api.pages.report import ReportSettings, report_site, write_report
from tuner.api.pages.served import today
from tuner.db.store import Store, database_at
from tuner.errors import StoreError, UnknownName, UsageError

SIGNATURES = {"gemm": GEMM.signature, "scale": SCALE}


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """Answers to six problems of gemm on one card, one of them on another card too, and to one of scale."""
    for size in (1, 2, 3, 4, 5, 6):
        answer(sqlite_store, problem(M=size, N=64, K=64))
    answer(sqlite_store, problem(M=1, N=64, K=64), device=A100)
    answered(sqlite_store)
    answered(sqlite_store, scale_answer(latency_us=9.0), HERE)
    return sqlite_store


def links_of(file: Path) -> list[str]:
    return [unescape(link) for link in re.findall(r'(?:href|src)="([^"]*)"', file.read_text())]


def headings(folder: Path) -> list[str]:
    """Return the headings of the pages of problems that serve, sorted."""
    pages = [file.read_text() for file in folder.glob("problem-*.html")]
    return sorted(
        re.sub("<[^>]*>", "", page[page.index("<h1>") + 4 : page.index("</h1>")])
        for page in pages
        if "earlier gen" not in page
    )


def test_all_links_lead_to_files_of_the_report(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written = write_report(report_site(store, SIGNATURES, None, None), folder)
    pages = list(folder.glob("*.html"))
    assert (written.pages, written.problems, written.left_out) == (len(pages), 8, 0)
    linked = {link.partition("#")[0] for page in pages for link in links_of(page)} - {""}
    assert {"index.html", "coverage.html", "runs.html", "assets/page.css"} <= linked
    for link in linked:
        assert re.fullmatch(r"(assets/)?(vendor/)?[\w.-]+", link), link
        assert (folder / link).is_file(), link
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert files - linked == {".triton-tuner-report"}  # and nothing that no page links to


def test_its_pages_have_no_forms_no_requests_and_a_policy(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_report(report_site(store, SIGNATURES, None, None), folder)
    for page in folder.glob("*.html"):
        text = page.read_text()
        assert "<form" not in text, page
        assert "hx-" not in re.sub(r"<meta[^>]*>", "", text), page
        assert '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;' in text.replace(
            "'", "&#39;"
        )
        assert "curl -s" not in text
        assert f"snapshot {store.snapshot}" in text
        assert " ago</time>" not in text


def test_problems_with_the_newest_answers_come_first(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    site = report_site(store, SIGNATURES, None, None)
    written = write_report(site, folder, ReportSettings(problems=3))
    assert (written.problems, written.left_out) == (3, 5)
    assert headings(folder) == ["gemm 1 x 64 x 64 bf16", "gemm 6 x 64 x 64 bf16", "scale 4096 x 4096 bf16"]
    assert "gemm 5 x 64 x 64" in (folder / "index.html").read_text()  # as a text, since it has no page


def test_earlier_generations_have_pages(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for latency_us in (8.0, 7.0, 6.0, 5.0):
        answered(store, scale_answer(latency_us=latency_us))
    write_report(report_site(store, SIGNATURES, "scale", None), folder, ReportSettings(generations=2))
    assert sum("an earlier generation" in page.read_text() for page in folder.glob("problem-*.html")) == 2


def test_it_may_be_of_one_op_or_card(store: Store, tmp_path: Path) -> None:
    write_report(report_site(store, SIGNATURES, "scale", None), tmp_path / "scale")
    assert headings(tmp_path / "scale") == ["scale 4096 x 4096 bf16"]
    write_report(report_site(store, SIGNATURES, None, A100.id), tmp_path / "a100")
    assert headings(tmp_path / "a100") == ["gemm 1 x 64 x 64 bf16"]
    with pytest.raises(UnknownName, match="no op is called 'conv'"):
        report_site(store, SIGNATURES, "conv", None)
    with pytest.raises(UnknownName, match="no device is called 'nvidia-l4'"):
        report_site(store, SIGNATURES, None, "nvidia-l4")


def test_what_it_is_not_about_is_not_missed(store: Store, tmp_path: Path) -> None:
    answered_here, missed_here = problem(M=1, N=64, K=64).text, SCALE.problem({"M": 65}).text
    store.count_requests({("gemm", answered_here, A100.id): 9, ("scale", missed_here, H200.id): 8})
    for op, device, has_miss in (("scale", None, True), (None, H200.id, True), ("gemm", None, False)):
        folder = tmp_path / f"{op}-{device}"
        write_report(report_site(store, SIGNATURES, op, device), folder)
        home = (folder / "index.html").read_text()
        misses = home[home.index("Misses that cost most") : home.index("Newest answers")]
        assert "gemm 1 x 64 x 64" not in misses
        assert ("scale 65 x 65" in misses) is has_miss


def test_an_answer_is_stale_as_it_is_in_the_service(store: Store, tmp_path: Path) -> None:
    answered(store, scale_answer(), replace(HERE, device=A100, source="edited0000000000"))
    for device in (None, H200.id):
        site = report_site(store, SIGNATURES, "scale", device)
        assert today(site).of("scale", H200.id).stale == 1


def test_a_report_replaces_a_report_and_nothing_else(store: Store, tmp_path: Path) -> None:
    site, folder = report_site(store, SIGNATURES, None, None), tmp_path / "out"
    write_report(site, folder)
    before = {file.name for file in folder.glob("*.html")}
    (folder / "notes.txt").write_text("mine")
    write_report(report_site(store, SIGNATURES, "scale", None), folder)
    after = {file.name for file in folder.glob("*.html")}
    assert "index.html" in after
    assert after < before
    assert (folder / "notes.txt").read_text() == "mine"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    write_report(site, foreign)  # an empty folder
    (foreign / ".triton-tuner-report").unlink()
    with pytest.raises(
        UsageError, match=r"a report is written into a new or empty folder, or .* not .*foreign; name another"
    ):
        write_report(site, foreign)
    with pytest.raises(UsageError, match="name another"):
        write_report(site, foreign / "index.html")


def test_a_store_that_cannot_be_read_meanwhile_ends_it(store: Store, tmp_path: Path) -> None:
    site = report_site(store, SIGNATURES, None, None)
    change(database_at(tmp_path / "tuner.db"), "ALTER TABLE retunes RENAME TO gone")
    with pytest.raises(StoreError):
        write_report(site, tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/out cannot be written: Not a directory; name a writable folder"):
        write_report(report_site(store, SIGNATURES, None, H200.id), tmp_path / "file" / "out")
