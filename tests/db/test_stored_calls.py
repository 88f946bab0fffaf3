"""Captured calls in the store: one row for each problem and device, of limited number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from called import LARGE, SIZED, SMALL, call, described
from faults import CAPTURED
from helpers import A100, H200
from sqlalchemy import insert
from stored import HERE, change, outside, rows
from stored import SETTINGS as RUN_SETTINGS

from tuner.captured.call import AGREEMENT, CapturedCall, Contents, Examined, Function, TensorArgument
from tuner.db import schema
from tuner.db.database import Database
from tuner.db.settings import SETTINGS
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.records import Measurement, Outcome

EXAMINED = Examined({"x": "inout"}, AGREEMENT, CAPTURED.configs[0], 1, 0, "abc", "3.6.0")


def sized(size: int) -> CapturedCall:
    return replace(CAPTURED, key={"M": size})


def test_a_call_comes_back_whole(store: Store) -> None:
    odd = replace(
        CAPTURED,
        key={"M": 3, "scale": float("nan"), "act": "a \u00fc"},
        arguments={
            "x": TensorArgument((2,), (1,), "int64", 8, contents=Contents((-(2**63), 2**63 - 1), low=float("inf")))
        },
        examined=EXAMINED,
    )
    assert store.captured.add(odd, H200)
    (stored,) = store.captured.all()
    assert repr(stored.call) == repr(odd)
    assert (stored.id, stored.device, stored.count) == (1, H200.id, 1)
    assert stored.problem == 'scale M=3 dtype=int64 act="a \u00fc" scale=nan'
    assert stored.first_at == stored.last_at


def test_it_is_counted_for_each_problem_and_device(store: Store) -> None:
    other_strides = replace(CAPTURED, arguments={"x": TensorArgument((64, 3), (4, 1), "bf16"), "M": 64})
    for given, device in (
        (CAPTURED, H200),
        (other_strides, H200),
        (sized(65), H200),
        (CAPTURED, A100),
        (CAPTURED, H200),
    ):
        assert store.captured.add(given, device)
    found = store.captured.all()
    assert [(stored.call, stored.device, stored.count) for stored in found] == [
        (CAPTURED, H200.id, 3),
        (sized(65), H200.id, 1),
        (CAPTURED, A100.id, 1),
    ]
    assert found[0].first_at <= found[0].last_at
    assert [stored.id for stored in store.captured.all(device=A100.id)] == [3]
    assert [stored.id for stored in store.captured.all(op="scale", device=H200.id)] == [1, 2]
    assert store.captured.all(op="gemm") == []


def test_an_examination_stays_until_the_function_is_another(store: Store) -> None:
    store.captured.add(CAPTURED, H200)
    store.captured.examined(1, EXAMINED)
    store.captured.add(CAPTURED, H200)
    assert store.captured.all()[0].call == replace(CAPTURED, examined=EXAMINED)
    changed = replace(CAPTURED, configs=(*CAPTURED.configs, {"BLOCK": 32, "num_warps": 4, "num_stages": 3}))
    moved = replace(changed, function=Function("library.kernels", "/elsewhere/kernels.py", "scale"))
    for given in (changed, moved):
        store.captured.add(given, H200)
        assert store.captured.all()[0].call == given
    assert store.captured.all()[0].count == 4
    with pytest.raises(UnknownName, match="there is no captured call 7; it was removed meanwhile"):
        store.captured.examined(7, EXAMINED)


def test_an_examination_of_a_call_that_was_captured_anew_is_refused(store: Store) -> None:
    renamed = replace(CAPTURED, arguments={"y": CAPTURED.arguments["x"], "M": 64})
    assert store.captured.add(CAPTURED, H200)
    assert store.captured.add(renamed, H200)
    with pytest.raises(UsageError, match="roles name tensors among the arguments, not 'x'"):
        store.captured.examined(1, EXAMINED)
    assert [stored.call for stored in store.captured.all()] == [renamed]


def test_their_number_is_limited(store: Store, database: Database) -> None:
    store.captured.add(CAPTURED, H200)
    (first,) = rows(database, "SELECT op, device_id, count, first_at, last_at FROM captured")
    values = dict(zip(("op", "device_id", "count", "first_at", "last_at"), first, strict=True))
    others = [{**values, "problem": f"number {n}", "call": {}} for n in range(1, SETTINGS.captured_calls)]
    with outside(database).begin() as connection:
        connection.execute(insert(schema.CapturedRow), others)
    assert not store.captured.add(sized(65), H200)
    assert store.captured.add(CAPTURED, H200)


def test_calls_are_dropped(store: Store) -> None:
    for size in (1, 2, 3):
        store.captured.add(sized(size), H200)
    assert store.captured.drop([1, 3, 3, 99]) == 2
    assert [stored.call for stored in store.captured.all()] == [sized(2)]
    assert store.captured.drop(range(2000)) == 1
    assert store.captured.drop([]) == 0


def test_a_call_that_could_not_be_read_again_is_refused(store: Store) -> None:
    large = Contents(tuple(range(10**6, 10**6 + 130_000)))
    tensor = TensorArgument((130_000,), (1,), "int32", contents=large)
    with pytest.raises(
        UsageError, match=r"up to 1,000,000 bytes, not 1,[0-9]*,[0-9]*; capture it with TUNER_CAPTURE_VALUES=0"
    ):
        store.captured.add(replace(CAPTURED, arguments={"x": tensor}), H200)
    with pytest.raises(UsageError, match="as file"):
        store.captured.add(replace(CAPTURED, function=Function("m", "/a/\udcff.py", "f")), H200)
    with pytest.raises(UsageError, match="text of up to 200 printable characters"):
        store.captured.add(replace(CAPTURED, key={"mode": "x" * 201}), H200)
    long = {f"mode{number}": "x" * 200 for number in range(11)}
    with pytest.raises(UsageError, match="have up to 2,000 bytes together, not 2,3"):
        store.captured.add(replace(CAPTURED, key=long), H200)
    assert store.captured.all() == []


def test_an_unreadable_call_costs_itself_and_is_replaced_when_captured_again(store: Store, database: Database) -> None:
    for size in (64, 65):
        store.captured.add(sized(size), H200)
    change(database, """UPDATE captured SET call = '{"format": 1}' WHERE id = 1""")
    assert [stored.id for stored in store.captured.all()] == [2]
    assert store.unreadable.counts == {"captured": 1}
    with pytest.raises(UsageError, match="a captured call has arguments, and here it is missing"):
        store.captured.examined(1, EXAMINED)
    assert store.captured.add(sized(64), H200)
    assert [(stored.call, stored.count) for stored in store.captured.all()] == [(sized(64), 2), (sized(65), 1)]
    change(database, "UPDATE captured SET problem = 'scale M=9 dtype=bf16' WHERE id = 1")
    assert [stored.id for stored in store.captured.all()] == [2]


def test_trials_of_other_configs_are_not_known(store: Store) -> None:
    """The source hash does not cover the configs of an autotuned function, so they may change under it."""
    changed = call(SIZED.key, SMALL, LARGE)
    for given, config in ((SIZED, SMALL), (changed, LARGE)):
        signature, problem = described(given)
        number = store.start_run(signature, problem, HERE, RUN_SETTINGS)
        full = signature.config({knob.name: config.get(knob.name) for knob in signature.knobs})
        store.add_trial(number, Measurement(full, Outcome.OK, (10.0,)))
    assert [dict(known.config) for known in store.known(*described(SIZED), HERE)] == [SMALL]
    assert [dict(known.config) for known in store.known(*described(changed), HERE)] == [LARGE]
    run = store.run(2)
    assert run is not None
    assert [dict(known.config) for known in store.known_to(run)] == [LARGE]
    assert store.unreadable.counts == {}
