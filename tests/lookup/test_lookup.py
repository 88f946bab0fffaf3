"""Lookup in a table: which answer serves a query, and its result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

import click
import pytest
from helpers import H200, OURS, problems

from tuner import catalog
from tuner.api.schemas import BestConfigDocument
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Attribute, Dim, Knob, Problem, Signature
from tuner.lookup.devices import resolve_device
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult, Table
from tuner.records import Answer, Environment, Evidence, Provenance, StoredAnswer, Tie

MATMUL = Signature(
    op="matmul",
    dims=(Dim("M"), Dim("N", default="M"), Dim("K", default="M")),
    dtypes=("bf16", "fp16", "fp32", "fp8e4m3"),
    attributes=(Attribute("layout", ("nn", "nt", "tn"), "nn"), Attribute("out_dtype", ("same", "fp32"), "same")),
    knobs=(Knob("BLOCK", (64, 128)), Knob("num_warps", (4, 8)), Knob("num_stages", (2, 3))),
)
CONFIG = MATMUL.config({"BLOCK": 128, "num_warps": 8, "num_stages": 3})
PROBLEM = MATMUL.problem({"M": 4096})
HERE = Provenance(
    device=H200,
    environment=Environment(triton="3.6.0", ptxas="12.9", torch="2.10.0", driver="580.159"),
    source="9f2c0a1b2c3d4e5f",
    definition="4d2c0a1b2c3d4e5f",
    policy="cold-events-1",
    tuner="0.1.0",
)
IN_FULL = Query(PROBLEM, "3.6.0", HERE.source, "580.159", "12.9", "cold-events-1", HERE.definition)


def answer(problem: Problem = PROBLEM) -> Answer:
    return Answer(
        problem=problem,
        kind="tuned",
        config=CONFIG,
        latency_us=179.234567,
        interval_us=(178.8, 179.987654),
        speedup=1.0761234,
        speedup_interval=(1.071, 1.081),
        default_latency_us=192.9,
        vendor_latency_us=176.5,
        flops=2 * 4096**3,
        bytes=3 * 2 * 4096**2,
    )


def stored(id: int, provenance: Provenance = HERE, given: Answer | None = None) -> StoredAnswer:
    return StoredAnswer(id, given or answer(), provenance, "2026-07-01T12:00:00.000+00:00", run_id=id)


def tuned(id: int, *, triton: str = "3.6.0", source: str = HERE.source, recorded: str | None = None) -> StoredAnswer:
    """Return an answer with other fields that preference depends on."""
    environment = replace(HERE.environment, triton=triton)
    return stored(id, replace(HERE, environment=environment, source=source, recorded=recorded))


def find(answers: Iterable[StoredAnswer], query: Query = IN_FULL) -> LookupResult:
    return Table(H200.id, answers).find(query)


def served(found: LookupResult) -> int | None:
    return None if found.stored is None else found.stored.id


class TestExact:
    def test_an_answer_whose_key_driver_and_ptxas_are_in_the_query_is_exact(self) -> None:
        found = find([stored(1)])
        assert found == LookupResult(PROBLEM, "nvidia-h200", "exact", stored(1))
        assert found.stale == found.nearest == ()

    @pytest.mark.parametrize("kept", ["triton", "source", "driver", "ptxas", "policy"])
    def test_a_field_that_was_not_sent_is_not_compared(self, kept: str) -> None:
        query = Query(PROBLEM, **{kept: getattr(IN_FULL, kept)})
        elsewhere = {"triton": "3.5.0", "source": "0123456789abcdef", "driver": "570.1", "ptxas": "12.8"}
        for name, value in elsewhere.items():
            if name == "source":
                other = replace(HERE, source=value)
            else:
                other = replace(HERE, environment=replace(HERE.environment, **{name: value}))
            assert find([stored(1, other)], query).match == ("stale" if name == kept else "exact")

    def test_asked_for_nothing_but_the_problem_the_newest_is_exact(self) -> None:
        found = find([tuned(1, triton="3.7.0"), tuned(3, triton="3.4.0"), tuned(2)], Query(PROBLEM))
        assert (found.match, served(found), found.stale) == ("exact", 3, ())

    def test_what_else_is_known_of_the_environment_is_not_compared(self) -> None:
        other = replace(HERE, environment=replace(HERE.environment, torch="2.9.0"), tuner="0.0.1")
        assert find([stored(1, other)]).match == "exact"

    def test_the_newest_exact_answer_serves_in_whatever_order_they_come(self) -> None:
        for order in permutations([stored(1), stored(2), stored(3), tuned(4, triton="3.5.0")]):
            assert served(find(order)) == 3

    def test_an_exact_answer_goes_before_a_newer_stale_one(self) -> None:
        newer_driver = replace(HERE, environment=replace(HERE.environment, driver="590.1"))
        others = tuned(2, triton="3.5.9"), tuned(3, source="ffff"), tuned(4, recorded="r"), stored(5, newer_driver)
        found = find([stored(1), *others])
        assert (found.match, served(found)) == ("exact", 1)

    def test_the_same_problem_said_in_another_way_is_the_same(self) -> None:
        other = MATMUL.problem({"layout": "nn", "dtype": "bfloat16", "K": "4096", "N": 4096, "M": "4096"})
        assert find([stored(1)], replace(IN_FULL, problem=other)).match == "exact"


class TestStale:
    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            (replace(IN_FULL, source="ffff"), "source: tuned with 9f2c0a1b2c3d4e5f, the query has ffff"),
            (replace(IN_FULL, triton="3.7.0"), "triton: tuned with 3.6.0, the query has 3.7.0"),
            (replace(IN_FULL, triton="3.6.0+git1"), "triton: tuned with 3.6.0, the query has 3.6.0+git1"),
            (replace(IN_FULL, driver="590.1"), "driver: tuned with 580.159, the query has 590.1"),
            (replace(IN_FULL, ptxas="13.0"), "ptxas: tuned with 12.9, the query has 13.0"),
        ],
        ids=("source", "triton", "triton-build", "driver", "ptxas"),
    )
    def test_each_difference_is_named(self, query: Query, reason: str) -> None:
        found = find([stored(1)], query)
        assert (found.match, served(found), found.stale) == ("stale", 1, (reason,))

    def test_what_was_not_known_when_it_was_tuned_is_named_none(self) -> None:
        found = find([stored(1, replace(HERE, environment=Environment("3.6.0")))])
        assert found.stale == (
            "driver: tuned with none, the query has 580.159",
            "ptxas: tuned with none, the query has 12.9",
        )

    def test_a_replayed_answer_is_stale_however_well_it_fits(self) -> None:
        reason = "recorded: replayed from matmul-h200, not measured here"
        for query in (IN_FULL, Query(PROBLEM)):
            found = find([tuned(1, recorded="matmul-h200")], query)
            assert (found.match, found.stale) == ("stale", (reason,))

    def test_all_differences_are_named_in_one_order(self) -> None:
        found = find([tuned(1, recorded="r")], Query(PROBLEM, "3.7.0", "ffff", "590.1", "13.0"))
        assert [reason.partition(":")[0] for reason in found.stale] == [
            "source",
            "triton",
            "driver",
            "ptxas",
            "recorded",
        ]


class TestDefinition:
    """An answer rests on the code that found it right: the reference, the inputs and the rounding."""

    REASON = "definition: tuned with 4d2c0a1b2c3d4e5f, the query has ffff"

    def test_another_definition_makes_it_stale(self) -> None:
        found = find([stored(1)], replace(IN_FULL, definition="ffff"))
        assert (found.match, served(found), found.stale) == ("stale", 1, (self.REASON,))
        refused = find([stored(1)], replace(IN_FULL, definition="ffff", strict=True))
        assert (refused.match, refused.differences) == ("none", (self.REASON,))

    def test_what_was_stored_without_one_is_not_compared(self) -> None:
        older = stored(1, replace(HERE, definition=""))
        assert find([older], replace(IN_FULL, definition="ffff")).match == "exact"
        assert find([stored(1)], replace(IN_FULL, definition=None)).match == "exact"

    def test_of_two_stale_answers_that_of_the_querys_definition_serves(self) -> None:
        driver = replace(HERE, environment=replace(HERE.environment, driver="570.1"))
        answers = [stored(1, driver), stored(2, replace(driver, definition="eeee"))]
        assert served(find(answers)) == served(find(answers[::-1])) == 1
        assert served(find(answers, replace(IN_FULL, definition=None))) == 2


class TestPreference:
    """Among stale answers; whatever order they come in, and whichever is the newest."""

    def best(self, *answers: StoredAnswer, triton: str = "3.6.0") -> int | None:
        query = replace(IN_FULL, triton=triton)
        found = {served(find(order, query)) for order in permutations(answers)}
        assert len(found) == 1
        assert find(answers, query).match == "stale"
        return found.pop()

    def test_measured_goes_before_recorded_even_with_another_source_and_triton(self) -> None:
        assert self.best(tuned(1, source="ffff", triton="3.0.0"), tuned(2, recorded="r")) == 1

    def test_the_same_source_goes_before_a_nearer_triton(self) -> None:
        assert self.best(tuned(1, triton="3.0.0"), tuned(2, triton="3.6.0", source="ffff")) == 1
        assert self.best(tuned(1, triton="3.9.0"), tuned(2, triton="3.6.0", source="ffff")) == 1

    def test_the_nearest_triton_not_newer_than_the_querys_goes_first(self) -> None:
        older = tuned(1, triton="3.5.1"), tuned(2, triton="3.4.0"), tuned(3, triton="3.7.0")
        assert self.best(*older) == 1

    def test_a_newer_triton_serves_where_there_is_no_older_the_nearest_first(self) -> None:
        assert self.best(tuned(1, triton="3.7.0"), tuned(2, triton="3.8.0"), triton="3.6.0") == 1

    def test_versions_are_compared_as_numbers(self) -> None:
        assert self.best(tuned(1, triton="3.10.0"), tuned(2, triton="3.9.0"), triton="3.11.0") == 1
        assert self.best(tuned(1, triton="3.9.0"), tuned(2, triton="3.10.0"), triton="3.9.5") == 1

    def test_a_local_build_of_the_querys_version_is_the_nearest(self) -> None:
        assert self.best(tuned(1, triton="3.6.0+git99ffff"), tuned(2, triton="3.5.1")) == 1

    def test_among_equals_the_newest_serves(self) -> None:
        assert self.best(*(tuned(number, triton="3.5.0") for number in (1, 2, 3))) == 3

    def test_without_a_triton_in_the_query_the_newest_of_the_same_source_serves(self) -> None:
        answers = [tuned(1, triton="3.7.0"), tuned(2, triton="3.4.0"), tuned(3, source="ffff")]
        query = Query(PROBLEM, source=HERE.source, driver="590.1")
        assert served(find(answers, query)) == 2


class TestPolicy:
    def test_an_answer_timed_in_another_way_never_serves_a_query_with_a_policy(self) -> None:
        warm = stored(2, replace(HERE, policy="warm-events-1"))
        assert served(find([stored(1), warm])) == 1
        found = find([warm])
        assert (found.match, found.stored) == ("none", None)

    def test_without_a_policy_the_newest_serves(self) -> None:
        warm = stored(2, replace(HERE, policy="warm-events-1"))
        assert served(find([stored(1), warm], replace(IN_FULL, policy=None))) == 2


class TestStrict:
    @pytest.mark.parametrize(
        "query",
        [
            pytest.param(replace(IN_FULL, source="ffff"), id="source"),
            pytest.param(replace(IN_FULL, triton="3.7.0"), id="triton"),
            pytest.param(replace(IN_FULL, driver="590.1"), id="driver"),
            pytest.param(replace(IN_FULL, ptxas="13.0"), id="ptxas"),
        ],
    )
    def test_a_stale_answer_is_a_miss(self, query: Query) -> None:
        found = find([stored(1)], replace(query, strict=True))
        assert (found.match, found.stored) == ("none", None)
        assert found.stale == find([stored(1)], query).stale != ()

    def test_a_replayed_answer_is_a_miss(self) -> None:
        assert find([tuned(1, recorded="r")], replace(IN_FULL, strict=True)).match == "none"

    def test_an_exact_answer_is_a_hit(self) -> None:
        assert find([stored(1), tuned(2, triton="3.5.0")], replace(IN_FULL, strict=True)).match == "exact"

    def test_the_reason_is_that_the_answer_is_stale_not_that_there_is_none(self) -> None:
        found = find([stored(1)], replace(IN_FULL, triton="3.7.0", strict=True))
        assert found.as_json("uuid:1")["reason"] == (
            "the answer for matmul M=4096 N=4096 K=4096 dtype=bf16 on nvidia-h200 is refused: "
            "triton: tuned with 3.6.0, the query has 3.7.0"
        )
        assert found.nearest == ()  # it is not a neighbour of itself


def test_an_answer_of_an_older_triton_is_never_fresh() -> None:
    rows = [tuned(1, triton="3.1.0"), tuned(2, triton="3.2.0")]
    found = find(rows, replace(IN_FULL, triton="3.3.0"))
    assert (found.match, served(found)) == ("stale", 2)
    assert found.stale == ("triton: tuned with 3.2.0, the query has 3.3.0",)
    document = found.as_json("uuid:2")
    assert (document["match"], document["stale"]) == ("stale", ["triton: tuned with 3.2.0, the query has 3.3.0"])
    assert document["tuned_with"]["triton"] == "3.2.0"
    assert find(rows, replace(IN_FULL, triton="3.3.0", strict=True)).match == "none"
    assert find(rows, replace(IN_FULL, triton="3.2.0")).match == "exact"


class TestOtherProblems:
    TABLE: tuple[dict[str, object], ...] = (
        {"M": 4096},
        {"M": 16, "N": 4096, "K": 4096},
        {"M": 4096, "N": 16, "K": 4096},
        {"M": 4096, "N": 4096, "K": 16},
        {"M": 4096, "dtype": "fp16"},
        {"M": 4096, "dtype": "fp32"},
        {"M": 4096, "dtype": "fp8e4m3"},
        {"M": 4096, "dtype": "fp16", "out_dtype": "fp32"},
        {"M": 4096, "layout": "nt"},
        {"M": 4096, "layout": "tn"},
    )

    @pytest.mark.parametrize("values", TABLE, ids=str)
    def test_dtype_shape_and_layout_never_answer_for_one_another(self, values: dict[str, object]) -> None:
        problem = MATMUL.problem(values)
        others = [MATMUL.problem(other) for other in self.TABLE if other is not values]
        for strict in (False, True):
            for query in (replace(IN_FULL, problem=problem, strict=strict), Query(problem, strict=False)):
                found = find([stored(n, given=answer(other)) for n, other in enumerate(others)], query)
                assert (found.match, found.stored, found.stale) == ("none", None, ())

    @pytest.mark.parametrize("values", TABLE, ids=str)
    def test_each_is_found_among_the_others(self, values: dict[str, object]) -> None:
        rows = [stored(n, given=answer(MATMUL.problem(other))) for n, other in enumerate(self.TABLE)]
        found = find(rows, replace(IN_FULL, problem=MATMUL.problem(values)))
        assert (found.match, served(found)) == ("exact", self.TABLE.index(values))


class TestNone:
    def test_the_three_nearest_problems_are_named_the_nearest_first(self) -> None:
        sizes = (64, 1024, 2048, 3000, 4097, 16384)
        rows = [stored(size, given=answer(MATMUL.problem({"M": size}))) for size in sizes]
        found = find(rows)
        assert (found.match, found.stored) == ("none", None)
        assert found.nearest == (
            "matmul M=4097 N=4097 K=4097 dtype=bf16",
            "matmul M=3000 N=3000 K=3000 dtype=bf16",
            "matmul M=2048 N=2048 K=2048 dtype=bf16",
        )

    def test_distance_is_that_of_the_dim_that_is_farthest_off(self) -> None:
        near, far = MATMUL.problem({"M": 2048}), MATMUL.problem({"M": 4096, "N": 4096, "K": 1024})
        assert find([stored(1, given=answer(far)), stored(2, given=answer(near))]).nearest == (near.text, far.text)

    def test_another_dtype_is_farther_than_another_layout(self) -> None:
        dtype, layout = MATMUL.problem({"M": 64}), MATMUL.problem({"M": 64, "dtype": "fp16", "layout": "nt"})
        query = Query(MATMUL.problem({"M": 64, "dtype": "fp16"}))
        found = find([stored(1, given=answer(dtype)), stored(2, given=answer(layout))], query)
        assert found.nearest == (layout.text, dtype.text)

    def test_a_problem_with_several_answers_is_named_once(self) -> None:
        near = MATMUL.problem({"M": 2048})
        assert find([stored(1, given=answer(near)), stored(2, given=answer(near))]).nearest == (near.text,)

    def test_an_empty_table_names_none(self) -> None:
        assert find([]) == LookupResult(PROBLEM, "nvidia-h200", "none")

    def test_answers_from_before_a_dim_was_added_do_not_disturb(self) -> None:
        batched = replace(MATMUL, dims=(*MATMUL.dims, Dim("B", default=1)))
        found = find([stored(1)], Query(batched.problem({"M": 4096})))
        assert found.match == "none"


class TestDeviceAsked:
    STORED = ("nvidia-a100-sxm4-80gb", "nvidia-h200")

    def test_the_one_that_is_named_goes_first(self) -> None:
        assert resolve_device("nvidia-a100-sxm4-80gb", "nvidia-h200", self.STORED) == "nvidia-a100-sxm4-80gb"

    def test_else_the_askers_own_though_nothing_is_stored_for_it(self) -> None:
        assert resolve_device(None, "nvidia-l4", self.STORED) == "nvidia-l4"
        assert resolve_device("nvidia-l4", "nvidia-l4", self.STORED) == "nvidia-l4"

    def test_else_the_only_one_with_answers(self) -> None:
        assert resolve_device(None, None, ["nvidia-h200"]) == "nvidia-h200"

    def test_a_name_that_only_resembles_one_is_refused(self) -> None:
        with pytest.raises(UnknownName) as refused:
            resolve_device("nvidia-h20", None, ["nvidia-h20-3e"])
        assert str(refused.value) == "no device is called 'nvidia-h20'; there are nvidia-h20-3e"

    @pytest.mark.parametrize(("stored", "shown"), [(STORED, "nvidia-a100-sxm4-80gb, nvidia-h200"), ((), "none")])
    def test_where_there_is_not_just_one_it_must_be_named(self, stored: tuple[str, ...], shown: str) -> None:
        with pytest.raises(UsageError) as refused:
            resolve_device(None, None, stored)
        assert str(refused.value) == f"device is missing; answers are stored for {shown}"


class TestG01Command:
    def test_it_says_the_problem_in_full(self) -> None:
        problem = MATMUL.problem({"M": 16, "N": 4096, "dtype": "fp16", "out_dtype": "fp32"})
        command = "tuner search matmul --M 16 --N 4096 --K 16 --dtype fp16 --out_dtype fp32"
        assert find([], Query(problem)).command == command

    def test_an_op_that_only_imports_know_is_tuned_from_a_kernel_file(self) -> None:
        imported = replace(stored(1), signature=replace(MATMUL, knobs=(Knob("BLOCK", ()),)))
        ours = replace(stored(2), signature=MATMUL)
        other = Query(MATMUL.problem({"M": 16}))
        options = "--M 16 --N 16 --K 16 --dtype bf16"
        found = find([imported], other)
        assert found.command == f"tuner search FILE.py {options}"
        assert replace(found, reference="matmul").command == f"tuner search FILE.py {options}"
        assert replace(found, reference="my/matmul.py").command == f"tuner search my/matmul.py {options}"
        assert find([imported, ours], other).command == f"tuner search matmul {options}"
        table = Table(H200.id, [imported])
        assert table.extended([ours]).find(other).command == f"tuner search matmul {options}"
        assert table.extended([]).find(replace(other, problem=PROBLEM)).command.startswith("tuner search FILE.py ")

    @pytest.mark.parametrize("op", OURS)
    def test_the_command_line_takes_it_for_that_very_problem(self, op: str) -> None:
        from tuner.cli.search import command as search

        signature = catalog.load(op).signature
        command = search.get_command(click.Context(search), op)
        assert command is not None
        for problem in problems(op):
            tuner, verb, name, *options = shlex.split(find([], Query(problem)).command)
            assert (tuner, verb, name) == ("tuner", "search", op)
            given = command.make_context(op, options).params
            assert signature.problem({parameter: given[parameter] for parameter in signature.parameters}) == problem


class TestJson:
    def test_an_answer_has_exactly_the_documented_fields(self) -> None:
        ties = (Tie(CONFIG, 1.0023456, (0.999, 1.004)),)
        given = replace(answer(), ties=ties, unresolved=True, evidence=Evidence(1.5e-7, 0.0078125, ("normal",), 17))
        document = find([stored(7, given=given)], replace(IN_FULL, driver="590.1")).as_json("uuid:7")
        assert {*document, "alias"} == {*BestConfigDocument.model_fields}
        assert (
            document
            | {
                "op": "matmul",
                "problem": {"M": 4096, "N": 4096, "K": 4096, "dtype": "bf16", "layout": "nn", "out_dtype": "same"},
                "device": "nvidia-h200",
                "config": {"BLOCK": 128, "num_warps": 8, "num_stages": 3},
                "match": "stale",
                "neighbour": None,
                "kind": "tuned",
                "latency_us": 179.2346,
                "interval_us": [178.8, 179.9877],
                "speedup": 1.0761,
                "speedup_interval": [1.071, 1.081],
                "tflops": 766.8105,
                "gb_per_s": 561.6288,
                "default_latency_us": 192.9,
                "vendor_latency_us": 176.5,
                "ties": [{"config": {"BLOCK": 128, "num_warps": 8, "num_stages": 3}, "slowdown": 1.0023}],
                "unresolved": True,
                "recorded": None,
                "imported": None,
                "max_error": 1.5e-7,
                "tolerance": 0.0078125,
                "checked": {"inputs": ["normal"], "launches": 17},
                "marks": [],
                "tuned_with": {
                    "triton": "3.6.0",
                    "ptxas": "12.9",
                    "torch": "2.10.0",
                    "driver": "580.159",
                    "source": "9f2c0a1b2c3d4e5f",
                    "definition": "4d2c0a1b2c3d4e5f",
                    "policy": "cold-events-1",
                    "tuner": "0.1.0",
                },
                "stale": ["driver: tuned with 580.159, the query has 590.1"],
                "tuned_at": "2026-07-01T12:00:00.000+00:00",
                "snapshot": "uuid:7",
            }
            == document
        )
        assert json.loads(json.dumps(document)) == document

    def test_what_is_not_known_is_null(self) -> None:
        alone = replace(
            answer(), speedup=None, speedup_interval=None, default_latency_us=None, vendor_latency_us=None, flops=0
        )
        document = find([stored(1, given=alone)]).as_json("uuid:1")
        assert document["match"] == "exact"
        for name in ("speedup", "speedup_interval", "default_latency_us", "vendor_latency_us", "tflops", "max_error"):
            assert document[name] is None
        assert document["ties"] == document["stale"] == []

    def test_a_replayed_answer_names_what_it_was_replayed_from(self) -> None:
        assert find([tuned(1, recorded="matmul-h200")]).as_json("uuid:1")["recorded"] == "matmul-h200"

    def test_none_has_exactly_the_documented_fields(self) -> None:
        near = MATMUL.problem({"M": 2048, "dtype": "fp16"})
        assert find([stored(1, given=answer(near))]).as_json("uuid:1") == {
            "op": "matmul",
            "problem": {"M": 4096, "N": 4096, "K": 4096, "dtype": "bf16", "layout": "nn", "out_dtype": "same"},
            "device": "nvidia-h200",
            "match": "none",
            "reason": "no answer is stored for matmul M=4096 N=4096 K=4096 dtype=bf16 on nvidia-h200",
            "nearest": ["matmul M=2048 N=2048 K=2048 dtype=fp16"],
            "command": "tuner search matmul --M 4096 --N 4096 --K 4096 --dtype bf16",
            "snapshot": "uuid:1",
        }
