"""Causes of differences between two readings: each cause, and that noise is none."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from readings import THEN, changed, reading

from tuner.records import VENDOR, Provenance
from tuner.records.readings import machine_factor
from tuner.records.retune import Cause, Reading
from tuner.retuning.cause import cause_of, is_decided, role_ahead, spread_of
from tuner.retuning.gain import is_gain
from tuner.retuning.settings import SETTINGS

COMPILER = changed(triton="3.7.1")
SOURCE = changed(source="0000")
TORCH = changed(torch="2.13.0")
DRIVER = changed(driver="590.1")
SLOWER = {"answer": 1.08, "default": 1.08, "runner-up": 1.08}


def cause(now: Reading, then: Reading | None = None, machine: float | None = None) -> Cause:
    return cause_of(then or reading(), now, machine=machine).cause


class TestAVendorIsBeside:
    def test_the_same_again_is_unchanged(self) -> None:
        judged = cause_of(reading(), reading(1.004))
        assert judged.cause is Cause.UNCHANGED
        assert judged.text == "1.100 x torch (1.100 - 1.100), was 1.100 (1.100 - 1.100)"

    @pytest.mark.parametrize("provenance", [COMPILER, SOURCE])
    @pytest.mark.parametrize(("factor", "expected"), [(1.08, Cause.SLOWER_CODE), (0.94, Cause.FASTER_CODE)])
    def test_a_config_that_moved_against_a_vendor_that_held(
        self, provenance: Provenance, factor: float, expected: Cause
    ) -> None:
        ours = dict.fromkeys(("answer", "default", "runner-up"), factor)
        assert cause(reading(ours, provenance)) is expected
        assert cause(reading({"answer": factor, "runner-up": factor}, provenance)) is expected

    @pytest.mark.parametrize(("factor", "expected"), [(1.07, Cause.SLOWER_MACHINE), (0.9, Cause.FASTER_MACHINE)])
    @pytest.mark.parametrize("provenance", [THEN, COMPILER, SOURCE, DRIVER])
    def test_all_that_move_alike_are_the_machine(self, provenance: Provenance, factor: float, expected: Cause) -> None:
        assert cause(reading(factor, provenance)) is expected

    def test_a_little_of_everything_is_no_change(self) -> None:
        assert cause(reading(1.04, COMPILER)) is Cause.UNCHANGED

    def test_code_cannot_be_the_cause_if_source_and_compiler_are_the_same(self) -> None:
        judged = cause_of(reading(), reading(SLOWER, DRIVER))
        assert judged.cause is Cause.SLOWER_MACHINE
        assert "the code is not the cause" in judged.text

    def test_a_ratio_moves_by_some_percent_between_days_if_nothing_changed(self) -> None:
        slightly = {"answer": 1.04, "default": 1.04, "runner-up": 1.04}
        assert cause(reading(slightly)) is Cause.UNCHANGED
        assert cause(reading(slightly, COMPILER)) is Cause.SLOWER_CODE
        assert cause(reading(SLOWER)) is Cause.SLOWER_MACHINE

    @pytest.mark.parametrize("provenance", [TORCH, COMPILER])
    def test_a_vendor_that_became_faster_is_no_regression(self, provenance: Provenance) -> None:
        judged = cause_of(reading(), reading({VENDOR: 0.9}, provenance))
        assert judged.cause is Cause.UNCHANGED
        assert judged.text.endswith("torch takes 0.900 x its stored latency, and that of the config is unchanged")

    def test_a_slower_code_is_seen_on_a_faster_machine_too(self) -> None:
        faster = {"answer": 0.96, "default": 0.9, "runner-up": 0.9, VENDOR: 0.9}
        assert cause(reading(faster, COMPILER)) is Cause.SLOWER_CODE

    def test_clocks_that_rose_a_little_hide_no_slower_code(self) -> None:
        held = reading({VENDOR: 0.96}, COMPILER)
        assert cause(held) is Cause.SLOWER_CODE
        assert cause(reading({VENDOR: 0.96}, TORCH)) is Cause.UNCHANGED
        assert cause(held, machine=1.0) is Cause.UNCHANGED

    def test_and_on_a_slower_one(self) -> None:
        slower = {"answer": 1.2, "default": 1.2, "runner-up": 1.2, VENDOR: 1.1}
        assert cause(reading(slower, COMPILER)) is Cause.SLOWER_CODE


class TestAVendorThatTritonCompiles:
    """`torch.compile`, or a library such as liger."""

    def test_one_that_moves_with_the_configs_under_another_triton_is_no_machine(self) -> None:
        then, slower = reading(vendor="liger"), reading(1.08, COMPILER, vendor="liger")
        assert cause(slower, then) is Cause.SLOWER_CODE
        assert cause(slower, then, machine=1.08) is Cause.SLOWER_MACHINE
        assert cause(reading(1.08, DRIVER, vendor="liger"), then) is Cause.SLOWER_MACHINE

    def test_the_machine_is_known_by_it_only_under_the_same_triton(self) -> None:
        then = reading(vendor="liger")
        assert machine_factor(then, reading(1.1, DRIVER, vendor="liger")) == pytest.approx(1.1)
        assert machine_factor(then, reading(1.1, COMPILER, vendor="liger")) is None

    def test_another_vendor_is_no_partner(self) -> None:
        assert cause(reading(SLOWER, COMPILER, vendor="liger"), reading()) is cause(
            reading(SLOWER, COMPILER, without=(VENDOR,)), reading(without=(VENDOR,))
        )


class TestNoVendor:
    def now(self, factor: float, provenance: Provenance) -> Reading:
        return reading(factor, provenance, without=(VENDOR,))

    def test_both_that_move_alike_are_the_code_if_it_changed_else_the_machine(self) -> None:
        then = reading(without=(VENDOR,))
        assert cause(self.now(1.08, COMPILER), then) is Cause.SLOWER_CODE
        assert cause(self.now(1.08, THEN), then) is Cause.SLOWER_MACHINE
        assert cause(self.now(0.9, SOURCE), then) is Cause.FASTER_CODE

    def test_unless_other_problems_show_that_the_machine_moved(self) -> None:
        then = reading(without=(VENDOR,))
        assert cause(self.now(1.08, COMPILER), then, machine=1.09) is Cause.SLOWER_MACHINE
        assert cause(self.now(1.3, COMPILER), then, machine=1.09) is Cause.SLOWER_CODE

    def test_a_config_that_lost_against_the_default(self) -> None:
        now = reading({"answer": 1.1}, COMPILER, without=(VENDOR, "runner-up"))
        assert cause(now, reading(without=(VENDOR, "runner-up"))) is Cause.SLOWER_CODE

    def test_alone_its_latency_is_all_there_is(self) -> None:
        others = ("default", "runner-up", VENDOR)
        then = reading(without=others)
        for factor, provenance, expected in (
            (1.08, COMPILER, Cause.SLOWER_CODE),
            (1.08, THEN, Cause.SLOWER_MACHINE),
            (1.03, COMPILER, Cause.UNCHANGED),
            (0.9, SOURCE, Cause.FASTER_CODE),
        ):
            assert cause(reading(factor, provenance, without=others), then) is expected

    def test_another_default_is_no_partner(self) -> None:
        then = reading(without=(VENDOR, "runner-up"))
        other = replace(then.contenders["default"], config=None)
        assert machine_factor(replace(then, contenders={"default": other}), then) is None


class TestOrder:
    def test_a_runner_up_that_leads_is_named(self) -> None:
        judged = cause_of(reading(), reading({"runner-up": 0.93}))
        assert (judged.cause, judged.ahead) == (Cause.ORDER, "runner-up")
        assert judged.text == "runner-up takes 0.949 (0.949 - 0.949) of the answer's time"

    def test_the_fastest_of_both_is_named(self) -> None:
        assert role_ahead(None, reading({"runner-up": 0.93, "default": 0.7})) == "default"

    def test_the_vendor_is_no_config(self) -> None:
        assert role_ahead(None, reading({VENDOR: 0.5})) is None

    def test_a_lead_of_a_percent_is_none(self) -> None:
        assert role_ahead(None, reading({"runner-up": 0.975})) is None

    def test_if_nothing_changed_both_nights_must_show_it(self) -> None:
        then = reading({"runner-up": 1.02})
        assert role_ahead(then, reading({"runner-up": 0.96})) is None
        assert role_ahead(then, reading({"runner-up": 0.9})) == "runner-up"
        assert role_ahead(then, reading({"runner-up": 0.96}, COMPILER)) == "runner-up"

    def test_it_counts_under_another_policy_and_without_stored_rounds(self) -> None:
        now = reading({"runner-up": 0.9}, changed(policy="warm-events-1"))
        assert cause(now) is Cause.ORDER
        assert cause_of(None, now).cause is Cause.ORDER

    def test_slower_code_stays_the_cause(self) -> None:
        judged = cause_of(reading(), reading({"answer": 1.2}, COMPILER))
        assert (judged.cause, judged.ahead) == (Cause.SLOWER_CODE, "runner-up")
        assert "; runner-up takes 0.850" in judged.text


def test_latencies_of_two_policies_are_not_compared() -> None:
    judged = cause_of(reading(), reading(0.5, changed(policy="warm-events-1")))
    assert judged.cause is Cause.METHOD


def test_without_stored_rounds_there_is_nothing_to_compare() -> None:
    assert cause_of(None, reading(3.0)).cause is Cause.UNCHANGED


def test_the_machine_is_what_the_kernel_has_no_part_in() -> None:
    assert machine_factor(reading(), reading({VENDOR: 1.1}, COMPILER)) == pytest.approx(1.1)
    assert machine_factor(reading(), reading({VENDOR: 1.1}, TORCH)) == pytest.approx(1.0)
    assert machine_factor(reading(), reading(1.1, changed(torch="2.13", triton="3.7"))) is None
    assert machine_factor(None, reading()) is None


def test_what_a_ratio_varies_by_between_processes_is_no_change() -> None:
    """The vendor's latency is off by 1 % to 2 % in each process; under another compiler the answer is 4 % slower."""
    nights = [reading({VENDOR: factor}) for factor in (1.0, 1.02, 0.99, 1.01, 0.98)]
    spread = spread_of(nights)
    assert spread == pytest.approx(0.0158, abs=0.0001)
    slower = reading({"answer": 1.04, "default": 1.04, "runner-up": 1.04}, COMPILER)
    assert cause_of(nights[0], slower).cause is Cause.SLOWER_CODE
    assert cause_of(nights[0], slower, settings=replace(SETTINGS, spread=spread)).cause is Cause.UNCHANGED
    much = reading({"answer": 1.09, "default": 1.09, "runner-up": 1.09}, COMPILER)
    assert cause_of(nights[0], much, settings=replace(SETTINGS, spread=spread)).cause is Cause.SLOWER_CODE


def test_a_spread_needs_three_readings_and_a_partner_in_all() -> None:
    nights = [reading({VENDOR: factor}) for factor in (1.0, 1.02, 0.99)]
    assert spread_of(nights[:2]) == spread_of([]) == 0.0
    without = reading({"default": 1.02}, without=(VENDOR,))
    assert spread_of([*nights, without]) == pytest.approx(0.0099, abs=0.0001)  # of the default


def test_rounds_go_on_until_the_cause_is_decided() -> None:
    noisy = reading({"runner-up": 100 / 102 * 0.992}, noise=0.01, rounds=8)
    assert not is_decided(reading(), noisy)
    assert is_decided(reading(), reading())
    assert is_decided(reading(), reading({"runner-up": 0.9}))
    assert not is_decided(reading(), reading({VENDOR: 0.98}, COMPILER, noise=0.01, rounds=8))


@pytest.mark.parametrize("provenance", [THEN, DRIVER, COMPILER])
def test_noise_is_never_reported_as_change(provenance: Provenance) -> None:
    """A thousand nights with noise of 1 %, of near-ties: the runner-up is as fast as the answer."""
    dice = random.Random(1)
    ties = {"runner-up": 100 / 102, "default": 100.5 / 130}
    causes = Counter(
        cause_of(
            reading(ties, noise=0.01, dice=dice), reading(ties, provenance, noise=0.01, rounds=rounds, dice=dice)
        ).cause
        for rounds in (20, 45)
        for _ in range(250)
    )
    assert causes[Cause.UNCHANGED] >= 499, causes


@pytest.mark.parametrize(
    ("least", "before", "expected"),
    [(1.021, None, True), (1.02, None, False), (1.03, 1.0, True), (1.03, 0.98, False), (1.019, 1.1, False)],
)
def test_a_gain_is_shown_tonight_and_not_refuted_by_the_stored_rounds(
    least: float, before: float | None, expected: bool
) -> None:
    assert is_gain(least, before, 0.02) is expected


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.01])
def test_ten_nights_of_near_ties_change_a_stored_config_at_most_once(noise: float) -> None:
    """Each latency has noise of 1 %, and each config is off for a whole night besides, by a normal factor."""
    changes = [_nights(random.Random(seed), noise) for seed in range(100)]
    assert max(changes) <= 1
    assert sum(changes) <= (15 if noise == 0.01 else 0)


def _nights(dice: random.Random, night_noise: float, ties: int = 6, nights: int = 10) -> int:
    """Return how often the answer changed: a search follows a lead, and its best replaces one that it beats by 2 %."""
    true = [100 * (1 + 0.01 * dice.random()) for _ in range(ties)]
    then = tonight = [us * (1 + dice.gauss(0, night_noise)) for us in true]
    served, changes = min(range(ties), key=lambda tie: then[tie]), 0

    def judged(answer: int, other: int, latencies: list[float]) -> Reading:
        factors = {"answer": latencies[answer] / 100, "runner-up": latencies[other] / 102}
        return reading(factors, noise=0.01, dice=dice)

    for _ in range(nights):
        tonight = [us * (1 + dice.gauss(0, night_noise)) for us in true]
        others = [tie for tie in range(ties) if tie != served]
        runner_up = min(others, key=lambda tie: then[tie])
        if role_ahead(judged(served, runner_up, then), judged(served, runner_up, tonight)) is None:
            continue
        best = min(others, key=lambda tie: tonight[tie])
        least = judged(best, served, tonight).contenders["runner-up"].interval[0]
        if is_gain(least, then[served] / then[best], SETTINGS.threshold):
            served, then, changes = best, tonight, changes + 1
    return changes
