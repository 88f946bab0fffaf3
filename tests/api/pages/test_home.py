"""The home page: what is exact, stale and missed, and how a store without answers is begun."""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from weakref import ref

import pytest
from helpers import A100, H200
from page_site import content, html, site_of
from retuned import stored_retune
from stored import HERE, PROBLEM, SCALE, answer, answered, measured, started

from tuner.api.pages.home import jobs_text, matrix, newest_answers, retune_text, running
from tuner.api.pages.missed import missed, ranked
from tuner.api.pages.served import today
from tuner.api.pages.site import Kept, Visitor
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Problem
from tuner.records import Environment

NEWER = replace(HERE, environment=Environment("3.7.1", "12.9", "2.11.0", "590.1"))
ON_A100 = replace(HERE, device=A100)


def problem(M: int) -> Problem:
    return SCALE.problem({"M": M, "N": 4096})


def ask(store: Store, count: int, M: int, device: str = H200.id) -> None:
    store.count_requests({("scale", problem(M).text, device): count})


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestServed:
    def test_an_answer_is_stale_once_its_card_has_newer_software(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        answered(store, answer(problem(64)), ON_A100)
        found = today(site_of(store))
        assert (found.problems, found.exact) == (2, 2)
        answered(store, answer(problem(128)), NEWER)
        found = today(site_of(store))
        assert found.devices() == [A100.id, H200.id]
        assert [found.of("scale", each).exact for each in found.devices()] == [1, 1]
        assert found.of("scale", H200.id).stale == 1
        assert found.of("other", H200.id).answers == ()

    def test_a_kernel_edited_on_one_card_makes_the_answers_of_others_stale(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        answered(store, answer(problem(64)), replace(ON_A100, source="edited"))
        found = today(site_of(store))
        assert [found.of("scale", each).exact for each in (A100.id, H200.id)] == [1, 0]

    def test_tables_that_did_not_change_are_not_read_again(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        answered(store, answer(problem(64)), ON_A100)
        kept = Kept()
        site = site_of(store, kept)
        before = today(site)
        assert today(site) is before
        tables = dict(site.view.tables)
        answered(store, answer(problem(128)), ON_A100)
        newer = site_of(store, kept)
        key = ("scale", H200.id)
        object.__setattr__(newer.view, "tables", {**newer.view.tables, key: tables[key]})  # as a watcher keeps it
        after = today(newer)
        assert after.served[key] is before.served[key]
        assert len(after.of("scale", A100.id).answers) == 2


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_newest_answers_are_those_that_serve(store: Store) -> None:
    for M in (64, 128, 64, 128, 64):
        answered(store, answer(problem(M)))
    answered(store, answer(problem(128)), replace(HERE, recorded="a-space"))  # a measured one goes before it
    site = site_of(store)
    assert [stored.id for stored in newest_answers(site)] == [5, 4]
    assert [stored.id for stored in newest_answers(site, most=1)] == [5]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestMissed:
    def test_they_are_ordered_by_count_times_expected_gain(self, store: Store) -> None:
        answered(store, replace(answer(problem(64)), speedup=1.02))
        answered(store, replace(answer(problem(64)), speedup=2.0), ON_A100)
        ask(store, 100, 65)
        ask(store, 10, 65, A100.id)
        site = site_of(store)
        found = ranked(site, missed(site, store.requests(9)))
        assert [each.missed.device for each in found] == [A100.id, H200.id]
        assert [each.gain for each in found] == [pytest.approx(0.5), pytest.approx(1 - 1 / 1.02)]
        assert found[0].missed.command == "tuner search scale --M 65 --N 4096 --dtype bf16"
        assert not found[0].missed.has_neighbour

    def test_what_was_answered_since_is_no_miss(self, store: Store) -> None:
        ask(store, 100, 64)
        ask(store, 10, 128)
        kept = Kept()
        site = site_of(store, kept)
        assert [each.count for each in missed(site, store.requests(9))] == [100, 10]
        answered(store, answer(problem(64)))
        site = site_of(store, kept)
        assert [each.count for each in missed(site, store.requests(9))] == [10]

    def test_they_keep_no_state_of_the_past(self, store: Store) -> None:
        ask(store, 100, 64)
        kept = Kept()
        site = site_of(store, kept)
        missed(site, store.requests(9))
        past = ref(site.view)
        del site
        gc.collect()
        assert past() is None

    def test_what_cannot_be_read_is_left_out(self, store: Store) -> None:
        texts = ("scale M=0", "scale M=x N=1 dtype=bf16", "<b>", "scale M=1 N=1 dtype=int4")
        store.count_requests({("scale", text, H200.id): 1 for text in texts} | {("unknown", "unknown M=1", "x"): 5})
        site = site_of(store)
        assert missed(site, store.requests(9)) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestHome:
    def test_an_empty_store_shows_how_to_begin(self, store: Store) -> None:
        shown = html(site_of(store), "")
        assert "Nothing is stored yet" in shown
        assert "tuner search gemm --M 4096" in shown
        assert "tuner best gemm --M 4096" in shown

    def test_it_takes_no_query(self, store: Store) -> None:
        with pytest.raises(UsageError, match="this page takes no query"):
            content(site_of(store), "", op="gemm")

    def test_it_shows_all_that_the_store_has(self, store: Store) -> None:
        number = stored_retune(store)
        answered(store, answer(problem(64)), ON_A100)
        ask(store, 1234, 65)
        store.queue.add(PROBLEM, H200.id)
        store.add_trial(started(store, problem(256)), measured())
        shown = html(site_of(store), "")
        for text in ("1,234", "tuner search scale --M 65", f"Retune {number}", "2 slower or broken", "1 waiting"):
            assert text in shown, text
        assert "pages/coverage?op=scale&amp;device=nvidia-h200" in shown
        assert "scale 256 x 256 bf16" not in shown  # N is 4096
        assert "scale 256 x 4096 bf16" in shown

    def test_who_may_write_can_request_a_search_of_a_miss(self, store: Store) -> None:
        ask(store, 1234, 65)
        site = site_of(store)
        assert "<form" not in html(site, "")
        shown = html(site, "", Visitor(lambda action: "token", True))
        assert '<input type="hidden" name="M" value="65">' in shown
        assert '<input type="hidden" name="op" value="scale">' in shown
        assert '<input type="hidden" name="device" value="nvidia-h200">' in shown

    def test_the_matrix_has_the_ops_with_the_most_answers_first(self, store: Store) -> None:
        answered(store)
        answered(store, answer(problem(64)), ON_A100)
        found = today(site_of(store))
        whole = matrix(found)
        assert whole.devices == [A100.id, H200.id]
        assert [(op, [len(each.answers) for each in served]) for op, served in whole.rows] == [("scale", [1, 1])]
        assert matrix(found, 0).left_out == 1

    def test_a_search_that_is_silent_comes_last(self, store: Store) -> None:
        old, new = started(store), started(store, problem(64))
        runs = store.overview.unfinished_runs(9)
        now = datetime.now(UTC)
        silent = [replace(each, run=replace(each.run, started_at="2026-01-01T00:00:00.000+00:00")) for each in runs[:1]]
        found = running([*silent, *runs[1:]], now)
        assert [(each.about.run.id, each.is_silent) for each in found] == [(old, False), (new, True)]
        assert all(each.is_silent for each in running(runs, now + timedelta(hours=1)))

    def test_results_are_one_line(self, store: Store) -> None:
        assert jobs_text({"done": 7}) == ""
        assert jobs_text({"failed": 1, "pending": 2000, "running": 3}) == "2,000 waiting, 3 running, 1 failed"
        stored_retune(store)
        (outline,) = store.overview.retunes(1)
        assert retune_text(outline) == "5 of 9 answers measured again, 2 slower or broken, 1 replaced"
        fine = replace(outline, causes={}, planned=1)
        assert retune_text(fine) == "0 of 1 answer measured again, none slower or broken, 1 replaced"
