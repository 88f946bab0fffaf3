"""Nights over recorded spaces: each cause and each action, from the search before to the answer after."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest
from helpers import A100
from nights import after, before, near_ties, noisy, only_slower, written

import tuner
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config
from tuner.recorded import RecordedSpace
from tuner.records import StoredAnswer
from tuner.records.retune import Action, Cause, Finding, Retune
from tuner.report.retune.summary import summarise
from tuner.retuning.api import plan_retune
from tuner.retuning.selection import Wanted, select_recorded
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import StopToken
from tuner.tuning.several import tune_target
from tuner.tuning.target import recorded_target

SPACE = before()
CONFIGS = [measurement.config for measurement in SPACE.measurements]


class Nights:
    """A store with the answer of a search, and the nights after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spaces"
        self.folder.mkdir()
        self.store = Store.open(folder / "tuner.db")

    def search(self, space: RecordedSpace) -> None:
        replay = written(space, self.folder)
        tuner.tune(
            "softmax", space.problem, store=self.store, replay=replay, effort="exhaustive", on_event=tuner.Events()
        )

    def retune(self, space: RecordedSpace, **options: object) -> Retune:
        given = {"store": self.store, "replay": written(space, self.folder), "on_event": tuner.Events(), **options}
        return tuner.retune(**given)  # type: ignore[arg-type]

    def __call__(self, space: RecordedSpace, **options: object) -> Finding:
        """Return the only finding of a night."""
        (finding,) = self.retune(space, **options).findings
        return finding

    @property
    def answers(self) -> list[StoredAnswer]:
        return self.store.answers()

    @property
    def served(self) -> Config:
        """The config of the newest answer."""
        return self.answers[-1].answer.config


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of one search."""
    folder = tmp_path_factory.mktemp("searched")
    nights = Nights(folder)
    nights.search(SPACE)
    nights.store.close()
    return folder / "tuner.db"


@pytest.fixture
def night(tmp_path: Path, searched: Path) -> Iterator[Nights]:
    copyfile(searched, tmp_path / "tuner.db")
    nights = Nights(tmp_path)
    yield nights
    nights.store.close()


def outcome(finding: Finding) -> tuple[Cause, Action]:
    return finding.cause, finding.action


def test_the_next_night_nothing_changed(night: Nights) -> None:
    retune = night.retune(SPACE)
    (finding,) = retune.findings
    assert outcome(finding) == (Cause.UNCHANGED, Action.KEPT)
    assert (retune.status, retune.left, retune.device) == ("done", [], SPACE.device.id)
    assert finding.then is not None
    assert finding.now is not None
    assert finding.now.contenders.keys() == {"vendor", "runner-up"}  # the default is the answer
    assert finding.now.contenders["runner-up"].interval[0] > 0.99
    assert len(night.answers) == 1
    assert summarise(retune).exit_code == 0


class TestStaleOtherwiseUnchanged:
    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"driver": "590.1"}, "driver 580.159.04, now 590.1"),
            ({"triton": "3.7.1"}, "Triton 3.6.0, now 3.7.1"),
            ({"source": "0000"}, "the kernel's source"),
        ],
    )
    def test_it_is_confirmed_once_for_todays_key(self, night: Nights, changed: dict[str, str], reason: str) -> None:
        new = after(SPACE, changed=changed)
        finding = night(new)
        assert outcome(finding) == (Cause.UNCHANGED, Action.CONFIRMED)
        assert finding.reasons == (reason,)
        before, stored = night.answers
        assert (stored.id, stored.answer.config) == (finding.new_answer_id, before.answer.config)
        assert (stored.provenance.environment, stored.provenance.source) == (new.environment, new.source)
        assert stored.answer.ties[0].config == before.answer.ties[0].config
        again = night(new)
        assert (outcome(again), again.reasons) == ((Cause.UNCHANGED, Action.KEPT), ())
        assert len(night.answers) == 2

    def test_a_confirmed_answer_is_not_taken_for_a_thorough_search(self, night: Nights) -> None:
        new = after(SPACE, changed={"triton": "3.7.1"})
        night(new)
        night.search(new)
        assert night.store.runs(1)[0].trials == len(CONFIGS) - 2  # the two that the retune measured are known

    def test_another_torch_is_a_reason_and_makes_nothing_stale(self, night: Nights) -> None:
        finding = night(after(SPACE, changed={"torch": "2.13.0"}, vendor=0.8))
        assert outcome(finding) == (Cause.UNCHANGED, Action.KEPT)
        assert finding.reasons == ("PyTorch 2.11.0, now 2.13.0",)
        assert finding.text.endswith("torch takes 0.800 x its stored latency, and that of the config is unchanged")


class TestSlower:
    def test_a_slower_machine_changes_no_answer(self, night: Nights) -> None:
        retune = night.retune(after(SPACE, lambda config: 1.1, vendor=1.1))
        (finding,) = retune.findings
        assert outcome(finding) == (Cause.SLOWER_MACHINE, Action.KEPT)
        assert len(night.answers) == 1
        assert summarise(retune).machine == pytest.approx(1.1)

    def test_a_slower_compiler_is_a_regression_even_if_the_config_is_still_the_best(self, night: Nights) -> None:
        slower = after(SPACE, lambda config: 1.1, changed={"triton": "3.7.1"})
        retune = night.retune(slower)
        (finding,) = retune.findings
        assert outcome(finding) == (Cause.SLOWER_CODE, Action.CONFIRMED)
        assert finding.text == "1.895 x torch (1.884 - 1.900), was 2.084 (2.072 - 2.090)"
        assert summarise(retune).exit_code == 4
        assert outcome(night(slower)) == (Cause.UNCHANGED, Action.KEPT)

    @pytest.mark.parametrize(("vendor", "cause"), [(0.0, Cause.SLOWER_CODE), (0.02, Cause.UNCHANGED)])
    def test_what_a_vendor_varied_by_in_earlier_nights_is_no_slower_compiler(
        self, night: Nights, vendor: float, cause: Cause
    ) -> None:
        for sign in (1, -1, 1):
            assert outcome(night(after(SPACE, vendor=1 + sign * vendor), check_only=True))[0] is Cause.UNCHANGED
        slower = after(SPACE, lambda config: 1.04, changed={"triton": "3.7.1"})
        assert outcome(night(slower, check_only=True))[0] is cause

    def test_a_faster_one_is_none(self, night: Nights) -> None:
        retune = night.retune(after(SPACE, lambda config: 0.9, changed={"source": "0000"}))
        assert outcome(retune.findings[0]) == (Cause.FASTER_CODE, Action.CONFIRMED)
        assert summarise(retune).exit_code == 0


class TestOrderMoved:
    def test_a_config_that_is_ahead_replaces_the_answer(self, night: Nights) -> None:
        lost = only_slower(SPACE, night.served, 1.3)
        finding = night(lost)
        assert outcome(finding) == (Cause.ORDER, Action.REPLACED)
        assert finding.new_config == night.served != finding.config
        assert finding.gain == pytest.approx(1.3, abs=0.02)
        assert finding.gain_interval is not None
        assert finding.gain_interval[0] > 1.02
        assert finding.searched == 0  # each config is known from the search, and no key changed
        assert outcome(night(lost)) == (Cause.UNCHANGED, Action.KEPT)

    def test_under_another_compiler_it_is_slower_code_that_a_search_repairs(self, night: Nights) -> None:
        finding = night(only_slower(SPACE, night.served, 1.3, changed={"triton": "3.7.1"}))
        assert outcome(finding) == (Cause.SLOWER_CODE, Action.REPLACED)
        assert finding.searched == len(CONFIGS) - 2
        assert "; runner-up takes 0.7" in finding.text

    def test_a_gain_below_the_threshold_keeps_the_answer(self, night: Nights) -> None:
        finding = night(only_slower(SPACE, night.served, 1.06), threshold=0.2)
        assert outcome(finding) == (Cause.ORDER, Action.KEPT)
        assert finding.new_config is not None
        assert finding.new_answer_id is None
        assert finding.text.endswith("which does not show a gain of 20.0%")
        assert len(night.answers) == 1

    def test_a_stale_one_below_the_threshold_is_confirmed(self, night: Nights) -> None:
        finding = night(only_slower(SPACE, night.served, 1.06, changed={"driver": "590.1"}), threshold=0.2)
        assert outcome(finding) == (Cause.ORDER, Action.CONFIRMED)
        before, stored = night.answers
        assert (stored.answer.config, stored.provenance.environment.driver) == (before.answer.config, "590.1")
        assert stored.answer.ties

    def test_a_planted_slower_config_is_found(self, night: Nights) -> None:
        (stored,) = night.answers
        slow = max((m for m in SPACE.measurements if m.ok), key=lambda m: m.latency_us).config
        run = night.store.run(stored.run_id)
        assert run is not None
        comparison = night.store.comparison(run.id)
        assert comparison is not None
        again = night.store.start_run(run.signature, run.problem, run.provenance, run.settings)
        planted = replace(stored.answer, config=slow, kind="tuned", ties=())
        night.store.add_answer(again, planted, stored.provenance, "trials", {}, comparison)
        finding = night(SPACE)
        assert (outcome(finding), finding.config) == ((Cause.ORDER, Action.REPLACED), slow)
        assert night.served == stored.answer.config


class TestBroken:
    def test_a_config_that_is_wrong_is_replaced(self, night: Nights) -> None:
        wrong = night.served
        retune = night.retune(after(SPACE, wrong=[wrong]))
        (finding,) = retune.findings
        assert outcome(finding) == (Cause.BROKEN, Action.REPLACED)
        assert finding.error.startswith("wrong_result: deviates")
        assert (finding.now, finding.gain) == (None, None)
        assert night.served == finding.new_config != wrong
        assert summarise(retune).exit_code == 4

    def test_if_none_works_it_is_retired(self, night: Nights) -> None:
        finding = night(after(SPACE, wrong=CONFIGS))
        assert outcome(finding) == (Cause.BROKEN, Action.RETIRED)
        assert night.answers == []
        with pytest.raises(NothingFound, match="no answer of nvidia-h200 that can be measured is in service"):
            night.retune(SPACE)

    def test_a_wrong_kernel_leaves_the_answer_to_those_who_have_the_right_one(self, night: Nights) -> None:
        finding = night(after(SPACE, wrong=CONFIGS, changed={"source": "0000"}))
        assert outcome(finding) == (Cause.BROKEN, Action.KEPT)
        assert "no other config works, and the answer is kept" in finding.text
        assert finding.is_open_regression
        assert len(night.answers) == 1

    def test_a_config_that_is_no_longer_feasible_is_broken(self, night: Nights) -> None:
        gone = replace(
            SPACE, measurements=tuple(m for m in SPACE.measurements if m.config != night.served), default=None
        )
        names = [name for name in SPACE.comparison.contenders if name != night.served.text]
        finding = night(replace(gone, comparison=SPACE.comparison.among(names)))
        assert outcome(finding) == (Cause.BROKEN, Action.REPLACED)
        assert finding.error == f"infeasible: now not among the configs that {gone.name} recorded"


class TestNewChoices:
    def narrow(self) -> RecordedSpace:
        """Return the space of a kernel that had fewer numbers of warps."""
        kept = tuple(m for m in SPACE.measurements if m.config["num_warps"] != 16)
        names = [m.config.text for m in kept if m.config.text in SPACE.comparison.contenders]
        knobs = tuple(
            replace(knob, choices=tuple(choice for choice in knob.choices if choice != 16))
            if knob.name == "num_warps"
            else knob
            for knob in SPACE.signature.knobs
        )
        return replace(
            SPACE,
            signature=replace(SPACE.signature, knobs=knobs),
            measurements=kept,
            default=None,
            comparison=SPACE.comparison.among([*names, "vendor"]),
        )

    def test_only_the_new_configs_are_measured(self, tmp_path: Path) -> None:
        nights, narrow, wide = Nights(tmp_path), self.narrow(), replace(SPACE, default=None)
        entry, effort = Entry("softmax", narrow.signature, narrow.problem), Effort.named("exhaustive")
        tune_target(entry, recorded_target(narrow, narrow.problem), effort, nights.store, tuner.Events(), StopToken())
        finding = nights(wide)
        assert finding.reasons == ("choices of num_warps: 16",)
        run = nights.store.runs(1)[0]
        measured = {m.config["num_warps"] for m in nights.store.known_to(run)}
        assert finding.searched == sum(config["num_warps"] == 16 for config in CONFIGS)
        assert 16 in measured
        assert finding.action in (Action.REPLACED, Action.CONFIRMED)
        again = nights(wide)
        assert (outcome(again), again.reasons, again.searched) == ((Cause.UNCHANGED, Action.KEPT), (), 0)
        nights.store.close()


class TestNothingIsChanged:
    @pytest.mark.parametrize("option", ["check_only", "pinned"])
    @pytest.mark.parametrize("changed", ["lost", "stale", "wrong"])
    def test_by_a_check_nor_of_a_pinned_answer(self, night: Nights, option: str, changed: str) -> None:
        space = {
            "lost": only_slower(SPACE, night.served, 1.3),
            "stale": after(SPACE, changed={"triton": "3.7.1"}),
            "wrong": after(SPACE, wrong=CONFIGS),
        }[changed]
        if option == "pinned":
            night.store.pins.add(night.answers[-1].id)
        finding = night(space, check_only=option == "check_only")
        expected = {"lost": Cause.ORDER, "stale": Cause.UNCHANGED, "wrong": Cause.BROKEN}[changed]
        assert outcome(finding) == (expected, Action.KEPT)
        assert finding.pinned is (option == "pinned")
        assert [stored.id for stored in night.answers] == [1]
        assert len(night.store.runs(5)) == 1
        stored = night.store.retunes.newest(1)[0]
        assert stored.findings == (finding,)


class Meanwhile(tuner.Events):
    """Acts at the start of a retune, or of its search."""

    def __init__(self, event: str, act: Callable[[], object]) -> None:
        self._event, self._act = event, act

    def retune_started(self, retune: Retune) -> None:
        self._at("retune")

    def search_started(self, problem: object, trials: int, known: int) -> None:
        self._at("search")

    def _at(self, event: str) -> None:
        if event == self._event:
            self._act()


@pytest.mark.parametrize("event", ["retune", "search"])
@pytest.mark.parametrize("changed", ["lost", "wrong", "all wrong"])
class TestMeanwhile:
    def space(self, night: Nights, changed: str) -> RecordedSpace:
        if changed == "lost":
            return only_slower(SPACE, night.served, 1.3)
        return after(SPACE, wrong=CONFIGS if changed == "all wrong" else [night.served])

    def test_an_answer_that_is_pinned_is_kept(self, night: Nights, event: str, changed: str) -> None:
        pinning = Meanwhile(event, lambda: night.store.pins.add(1))
        finding = night(self.space(night, changed), on_event=pinning)
        assert (finding.action, finding.pinned) == (Action.KEPT, True)
        assert [stored.id for stored in night.answers] == [1]

    def test_one_that_is_forgotten_is_not_restored(self, night: Nights, event: str, changed: str) -> None:
        forgetting = Meanwhile(event, lambda: night.store.forget([1]))
        finding = night(self.space(night, changed), on_event=forgetting)
        assert finding.action is Action.KEPT
        assert finding.text.endswith("; it was forgotten meanwhile, so nothing is stored")
        assert night.answers == []

    def test_one_that_another_follows_is_not_put_before_it(self, night: Nights, event: str, changed: str) -> None:
        (stored,) = night.answers
        assert stored.signature is not None
        run = night.store.start_run(stored.signature, SPACE.problem, stored.provenance, stored.settings)

        def search() -> None:
            night.store.add_answer(run, stored.answer, stored.provenance, "trials", {}, SPACE.comparison)

        finding = night(self.space(night, changed), on_event=Meanwhile(event, search))
        assert finding.action is Action.KEPT
        assert finding.text.endswith("; another answer was stored meanwhile, so nothing is stored")
        assert [stored.id for stored in night.answers] == [1, 2]


def test_a_stale_answer_that_is_forgotten_meanwhile_is_not_confirmed(night: Nights) -> None:
    forgetting = Meanwhile("retune", lambda: night.store.forget([1]))
    finding = night(after(SPACE, changed={"driver": "590.1"}), on_event=forgetting)
    assert outcome(finding) == (Cause.UNCHANGED, Action.KEPT)
    assert night.answers == []


def test_answers_of_two_cards_to_one_problem_are_measured_each_on_its_own(night: Nights) -> None:
    other = replace(SPACE, device=A100)
    night.search(other)
    chosen = select_recorded(night.store, Wanted(), [SPACE, other]).chosen
    assert {each.stored.id: each.space for each in chosen} == {1: SPACE, 2: other}


def test_a_pinned_answer_of_a_card_keeps_none_of_a_recorded_space(night: Nights) -> None:
    (replayed,) = night.answers
    assert replayed.signature is not None
    provenance = replace(replayed.provenance, recorded=None)
    run = night.store.start_run(replayed.signature, SPACE.problem, provenance, replayed.settings)
    measured = night.store.add_answer(run, replayed.answer, provenance, "trials", {}, SPACE.comparison)
    night.store.pins.add(measured)
    finding = night(only_slower(SPACE, night.served, 1.3))
    assert (outcome(finding), finding.pinned) == ((Cause.ORDER, Action.REPLACED), False)


class TestSelection:
    def test_by_op_problem_and_state(self, night: Nights) -> None:
        assert len(night.retune(SPACE, kernel="softmax").planned) == 1
        assert len(night.retune(SPACE, kernel="softmax", problem={"M": 8192, "N": 8192, "dtype": "fp32"}).planned) == 1
        assert night.retune(SPACE, stale=True).planned == ()
        assert night.retune(SPACE, demand=True).planned == ()
        night.store.count_requests({("softmax", SPACE.problem.text, SPACE.device.id): 3})
        assert len(night.retune(SPACE, demand=True).planned) == 1
        assert len(night.retune(after(SPACE, changed={"driver": "590.1"}), stale=True).planned) == 1
        with pytest.raises(NothingFound, match="no answer of nvidia-h200 that can be measured is in service"):
            night.retune(SPACE, kernel="gemm")

    def test_a_plan_measures_nothing(self, night: Nights) -> None:
        replay = written(after(SPACE, changed={"driver": "590.1"}), night.folder)
        plan = plan_retune(store=night.store, replay=replay)
        (chosen,) = plan.chosen
        assert (chosen.stored.id, chosen.is_stale, chosen.reasons) == (1, True, ("driver 580.159.04, now 590.1",))
        assert (plan.device, plan.seconds, night.store.retunes.newest(1)) == ("nvidia-h200", 1.0, [])

    def test_options_are_checked(self, night: Nights) -> None:
        with pytest.raises(UsageError, match=r"threshold is a share from 0 to 10, such as 0\.02 for 2 %, not -1"):
            night.retune(SPACE, threshold=-1.0)
        with pytest.raises(UsageError, match="sizes by name are of a kernel"):
            night.retune(SPACE, problem={"M": 1})
        with pytest.raises(NoDevice, match="a retune measures on a GPU, and there is no GPU here"):
            tuner.retune(store=night.store, on_event=tuner.Events())


@pytest.mark.parametrize("seed", range(3))
def test_ten_nights_of_near_ties_change_the_answer_at_most_once(tmp_path: Path, seed: int) -> None:
    dice, ties = random.Random(seed), near_ties(SPACE)
    nights = Nights(tmp_path)
    nights.search(noisy(ties, dice))
    findings = [nights(noisy(ties, dice)) for _ in range(10)]
    assert sum(finding.action is not Action.KEPT for finding in findings) <= 1
    assert {finding.cause for finding in findings} <= {Cause.UNCHANGED, Cause.ORDER}
    nights.store.close()


class TestInterrupted:
    def test_it_goes_on_with_what_is_left(self, night: Nights) -> None:
        replay = written(SPACE, night.folder)
        stopped = tuner.retune(store=night.store, replay=replay, on_event=tuner.Events(), stop=lambda: True)
        assert (stopped.status, stopped.left) == ("interrupted", [1])
        resumed = tuner.retune(store=night.store, replay=replay, on_event=tuner.Events())
        assert (resumed.id, resumed.status, len(resumed.findings)) == (stopped.id, "done", 1)
        assert tuner.retune(store=night.store, replay=replay, on_event=tuner.Events()).id == 2

    def test_a_spent_budget_leaves_the_rest(self, night: Nights) -> None:
        retune = night.retune(SPACE, budget=1e-9)
        assert (retune.status, retune.left) == ("done", [1])


def test_the_answer_of_a_rollback_is_compared_with_the_rounds_of_the_one_it_restores(night: Nights) -> None:
    first = night.served
    night(only_slower(SPACE, first, 1.3))
    night.store.roll_back(1)
    finding = night(SPACE)
    assert (outcome(finding), finding.config) == ((Cause.UNCHANGED, Action.KEPT), first)
    assert finding.then is not None
