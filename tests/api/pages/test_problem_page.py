"""The page of a problem: the answer with its evidence, an earlier generation, and a problem without an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import permutations, product
from typing import Any

import drawn
import pytest
from databases import sqlite_store
from helpers import H200
from served import GEMM, TOKEN, answer, problem
from starlette.testclient import TestClient
from stored import HERE, PROBLEM, SCALE, SECONDS, answered, config, started
from stored import answer as scale_answer

import tuner
from tuner import recorded
from tuner.api.app import create_app
from tuner.api.pages.answer_facts import states
from tuner.api.pages.copies import triton_config
from tuner.api.pages.evidence import Evidence, evidence_of
from tuner.api.pages.evidence_plots import plots_of
from tuner.api.pages.plots import Knob, Landscape, Tried
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store
from tuner.kernels import spec
from tuner.kernels.spec import Attribute, Dim, Signature
from tuner.lookup.neighbours import distance
from tuner.records import IMPORTED, Answer, Comparison, Measurement, Outcome, RooflineLimits, StoredAnswer

SPACE = "softmax-8192x8192-fp32-nvidia-h200"
SOFTMAX = {"op": "softmax", "M": "8192", "N": "8192", "dtype": "fp32", "device": "nvidia-h200"}
SCALED = {"op": "scale", "M": "4096", "device": "nvidia-h200"}
NEWER = replace(HERE, environment=replace(HERE.environment, triton="3.7.1"))


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with one search of a recorded space."""
    store = Store.open(tmp_path_factory.mktemp("replayed") / "tuner.db")
    space = recorded.load(SPACE)
    options: dict[str, Any] = {"store": store, "sampler": "random", "trials": 60, "on_event": tuner.Events()}
    tuner.tune("softmax", space.problem, replay=SPACE, **options)
    yield TestClient(create_app(store))
    store.close()


store = sqlite_store


def text_of(client: TestClient, **query: str) -> str:
    """Return the text of the page, without tags."""
    got = client.get("/pages/problem", params=query)
    assert got.status_code == 200, got.text[-2000:]
    main = got.text[got.text.index("<main") : got.text.index("</main>")]
    assert not re.search(r"\son\w+=|style=|<script", main)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main)))


class TestAnAnswer:
    def test_it_has_the_evidence_of_its_search(self, replayed: TestClient) -> None:
        page = text_of(replayed, **SOFTMAX)
        for part in (
            "softmax 8192 x 8192 fp32", "NVIDIA H200", "replayed", "Speed-up over torch", "Configs tried", "of 402",
            "Latency by choice of each knob", "Importance of knobs", "Tolerance", "cold-events-1", "Run 1",
        ):  # fmt: skip
            assert part in page, part
        assert "rounds, in each of which every contender was timed once" in page
        assert "The roofline limits of this card are not measured" in page

    def test_it_has_texts_to_copy(self, replayed: TestClient) -> None:
        page = text_of(replayed, **SOFTMAX)
        ask = "/best-config?op=softmax&M=8192&N=8192&dtype=fp32&device=nvidia-h200"
        assert f"curl -s 'http://127.0.0.1:8000{ask}'" in page
        assert replayed.get(ask).status_code == 200
        code = 'best = tuner.best_config("softmax", M=8192, N=8192, dtype="fp32", device="nvidia-h200")'
        assert code in page
        assert "tuner.ops.softmax(...)" in page
        assert 'triton.Config({"BLOCK_N": 8192' in page
        assert f"a table cannot mark an answer as replayed, and this one is from {SPACE}" in page

    def test_its_configs_are_fetched_by_the_script(self, replayed: TestClient) -> None:
        got = replayed.get("/pages/problem.json", params=SOFTMAX)
        assert got.headers["content-type"] == "application/json"
        assert [knob[0] for knob in got.json()["knobs"]] == ["BLOCK_N", "ROWS", "num_warps", "num_stages"]
        missing = replayed.get("/pages/problem.json", params={**SOFTMAX, "M": "1"})
        assert (missing.status_code, "no answer is stored" in missing.json()["error"]) == (404, True)

    def test_a_pasted_key_is_compared(self, replayed: TestClient) -> None:
        page = text_of(replayed, **SOFTMAX, key="triton=3.9.9 policy=cold-events-1")
        assert "A query with this key gets answer 1, stale: triton: tuned with 3.6.0, the query has 3.9.9" in page
        assert "no field of a key was found" in text_of(replayed, **SOFTMAX, key="hello")

    def test_an_imported_answer_has_no_comparison(self, store: Store) -> None:
        imported = Answer(PROBLEM, IMPORTED, scale_answer().config)
        store.import_answers([ImportedAnswer(SCALE, imported, HERE, "configs.json")])
        page = text_of(TestClient(create_app(store)), **SCALED)
        assert "It was imported." in page
        assert "Paste the JSON of tuner why scale --M 4096 --N 4096 --dtype bf16 --json or of" in page
        assert "The answer was imported from configs.json , and nothing was compared here" in page
        assert "never timed" in page


class TestGenerations:
    @pytest.fixture
    def client(self, store: Store) -> TestClient:
        answered(store)
        answered(store, scale_answer(latency_us=9.0), NEWER)
        return TestClient(create_app(store, token=TOKEN))

    def test_each_has_a_page(self, client: TestClient) -> None:
        page = text_of(client, **SCALED)
        assert "triton 3.7.1, before 3.6.0" in page
        assert "9.00 us" in page
        earlier = text_of(client, **SCALED, answer="1")
        assert "This is answer 1, an earlier generation. Answer 2 serves ." in earlier
        assert "does not serve" in earlier
        newest = "Stale for a program with the newest kernel and software that this store has seen"
        assert f"{newest}: triton: tuned with 3.6.0, the query has 3.7.1 ." in earlier
        assert newest not in page

    def test_one_for_newer_software_than_the_newest_is_named(self, store: Store, client: TestClient) -> None:
        assert "A query that names no versions" not in text_of(client, **SCALED)
        answered(store, scale_answer(latency_us=8.0))  # by a machine with the older Triton
        page = text_of(TestClient(create_app(store)), **SCALED)
        assert "A query that names no versions gets the newest answer, 3." in page
        assert "A program with the newest kernel and software in this store gets answer 2" in page

    def test_an_answer_of_another_problem_is_not_found(self, client: TestClient) -> None:
        for number in ("3", "99999999999"):
            got = client.get("/pages/problem", params={**SCALED, "answer": number})
            assert got.status_code in (404, 422)
        got = client.get("/pages/problem", params={**SCALED, "M": "64", "answer": "1"})
        assert "answer 1 is none of scale M=64" in unescape(got.text)

    def test_a_forgotten_and_a_pinned_one_say_so(self, store: Store, client: TestClient) -> None:
        store.forget([1])
        store.pins.add(2, "the driver")
        assert "forgotten" in text_of(client, **SCALED, answer="1")
        assert "pinned" in text_of(client, **SCALED)

    def test_only_a_person_who_may_write_sees_buttons(self, client: TestClient) -> None:
        assert "Roll back to this" not in text_of(client, **SCALED)
        client.post("/pages/sign-in", data={"token": TOKEN}, headers={"origin": "http://testserver"})
        page = text_of(client, **SCALED)
        for label in ("Roll back to this", "Pin", "Search again"):
            assert label in page


class TestWithoutAnAnswer:
    def test_it_has_the_command_the_misses_and_the_nearest(self, store: Store) -> None:
        answer(store, problem(M=64))
        store.count_requests({("gemm", problem(M=77).text, "nvidia-b200"): 12})
        client = TestClient(create_app(store))
        page = text_of(client, op="gemm", M="77", device=H200.id)
        assert "No answer is stored for gemm M=77 N=77 K=77 dtype=bf16 on nvidia-h200 ." in page
        assert "tuner search gemm --M 77 --N 77 --K 77 --dtype bf16" in page
        assert "nvidia-b200 12" in page
        assert "gemm 64 x 64 x 64 bf16" in page
        missed = text_of(client, op="gemm", M="77", device="nvidia-b200")  # known by its misses alone
        assert "No problem of gemm has an answer on this card." in missed

    def test_a_neighbour_serves_with_its_expected_loss(self, store: Store) -> None:
        for size in (64, 128, 200, 256, 400, 512):
            answer(store, problem(M=size, N=4096, K=4096))
        for came, went in permutations(store.answers(), 2):
            away = distance(came.answer.problem, went.answer.problem)
            store.add_transfers(went.run_id, [(came.id, away, 1.013)])
        page = text_of(TestClient(create_app(store)), op="gemm", M="300", N="4096", K="4096", device=H200.id)
        assert "a neighbour serves" in page
        assert "The config of gemm 256 x 4096 x 4096 bf16 serves until this problem is tuned." in page
        assert "1.3 %" in page

    @pytest.mark.parametrize(
        ("query", "code", "error"),
        [
            ({}, 422, "op is missing"),
            ({"op": "conv"}, 404, "no op is called 'conv'"),
            ({"op": "gemm"}, 422, "gemm needs M"),
            ({"op": "gemm", "M": "64", "triton": "3.6.0"}, 422, "whatever the triton; leave it out"),
            ({"op": "gemm", "M": "64", "device": "<b>"}, 404, "no device is called '<b>'"),
            ({"op": "gemm", "M": "64", "answer": "x"}, 422, "answer is a whole number"),
        ],
    )
    def test_errors_are_the_apis(self, store: Store, query: dict[str, str], code: int, error: str) -> None:
        answer(store, problem(M=64))
        got = TestClient(create_app(store)).get("/pages/problem", params=query)
        assert got.status_code == code
        assert error in unescape(got.text)
        assert "<b>" not in got.text


def test_parameters_may_be_called_as_values_of_the_pages_are(store: Store) -> None:
    attributes = tuple(Attribute(name, None, "none") for name in ("answer", "page", "key", "find"))
    knobs = (spec.Knob("num_warps", (4,)), spec.Knob("num_stages", (1,)))
    odd = Signature("odd", (Dim("path"), Dim("self", default="path")), ("fp16",), knobs, attributes)
    given = odd.problem({"path": 8, "answer": "a=b&c", "page": "'\"<b>"})
    store.import_answers(
        [ImportedAnswer(odd, Answer(given, IMPORTED, odd.config({"num_warps": 4, "num_stages": 1})), HERE, "x.json")]
    )
    client = TestClient(create_app(store))
    asked = {"op": "odd", "path": "8", "answer": "a=b&c", "page": "'\"<b>", "device": H200.id}
    page = text_of(client, **asked)
    assert "odd 8 x 8 fp16 answer=" in page
    for address in ("/", "/pages/coverage?op=odd", "/pages/compare?op=odd"):
        assert client.get(address).status_code == 200
    assert client.get("/pages/lookup", params=asked).status_code == 200


def test_an_older_answer_has_the_knobs_that_its_kernel_has_got_since(store: Store) -> None:
    answered(store)
    wide = replace(SCALE, knobs=(*SCALE.knobs, spec.Knob("WIDE", (False, True), default=False)))
    store.start_run(wide, PROBLEM, replace(HERE, source="edited"), {})
    client = TestClient(create_app(store))
    served = client.get("/best-config", params=SCALED).json()["config"]
    assert served == {**scale_answer().config, "WIDE": False}
    for shown in ({}, {"answer": "1"}):
        assert '"WIDE": False' in text_of(client, **SCALED, **shown)


def test_an_answer_does_not_serve_for_a_reason(store: Store) -> None:
    answered(store)
    (stored,) = store.answers()
    assert [each.text for each in states(stored, stored, None, ())] == ["serves"]
    assert [each.about for each in states(stored, replace(stored, id=9), None, ())] == ["Another generation serves."]
    assert [each.about for each in states(stored, None, None, ())] == ["Today's kernel does not offer its config."]


def test_the_reason_for_a_missing_roofline_is_the_right_one(store: Store) -> None:
    measured = "The roofline limits of this card are not measured"
    answered(store, replace(scale_answer(), bytes=0))
    page = text_of(TestClient(create_app(store)), **SCALED)
    assert measured in page
    store.keep_roofline_limits(H200, RooflineLimits(4000.0, {}, {}))
    page = text_of(TestClient(create_app(store)), **SCALED)
    assert measured not in page
    assert "The bytes that this problem moves are not known." in page
    assert "Share of roofline" not in page


def test_no_two_configs_of_the_comparison_have_one_label(store: Store) -> None:
    choices = product(("", "evict_first", "evict_last"), (4, 8), (1, 2, 3))
    configs = [
        SCALE.config({**config(), "EVICT": evict, "num_warps": warps, "num_stages": stages})
        for evict, warps, stages in choices
    ]
    run = started(store)
    for each in configs:
        store.add_trial(run, Measurement(each, Outcome.OK, (10.0, 10.0, 10.0)))
    rounds = (tuple(100 + place / 10 for place in range(len(configs))),) * 3
    given = replace(scale_answer(), config=configs[0])
    comparison = Comparison(tuple(each.text for each in configs), rounds)
    store.add_answer(run, given, HERE, "trials", SECONDS, comparison)
    (stored,) = store.answers()

    ladder = plots_of(evidence_of(store, stored), stored, "").ladder

    assert ladder is not None
    texts = drawn.texts(drawn.read(ladder))
    labels = [text.partition(" ")[2] for text in texts if "num_stages=" in text]
    assert len(set(labels)) == len(configs) == 18
    latencies = [text.split()[0] for text in texts if " us" in text and "," not in text]
    assert latencies == [f"{100 + place / 10:.2f}" for place in range(len(configs))]


@pytest.mark.parametrize(
    ("configs", "address", "is_scripted"), [(500, "x.json", False), (501, "x.json", True), (501, "", False)]
)
def test_a_script_draws_all_configs_if_they_are_many(configs: int, address: str, is_scripted: bool) -> None:
    tried = tuple(Tried((place % 2,), 10.0 + place) for place in range(configs))
    known = Evidence(None, None, "", None, Landscape((Knob("A", ("1", "2")),), tried, {}), ())
    plots = plots_of(known, StoredAnswer(1, scale_answer(), HERE, "", 1), address)
    assert (plots.all_configs is not None) is is_scripted
    assert plots.lines is not None
    assert plots.lines.count("<path") < 320


def test_a_config_is_written_as_triton_reads_it() -> None:
    config = GEMM.default_config(problem(M=64), H200.limits)
    names: dict[str, Any] = {}

    class Config:
        def __init__(self, kwargs: dict[str, object], **options: object) -> None:
            names.update(kwargs, **options)

    eval(triton_config(config), {"triton": type("triton", (), {"Config": Config})})
    assert names == {name: value for name, value in config.items() if value is not None}
