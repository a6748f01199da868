"""Every check catches a world that breaks its property, and passes a world that keeps the contract."""

import os
from collections.abc import Mapping
from typing import Any

import pytest
from corridor_worlds import (
    Clinging,
    Communal,
    Confused,
    Corridor,
    Counting,
    Entangled,
    Failures,
    Fragile,
    Frank,
    Generous,
    Hashed,
    Hasty,
    Idle,
    Infinite,
    Longer,
    Lost,
    Misguided,
    Mistaken,
    Modest,
    Mute,
    Nameless,
    Numbered,
    Punishing,
    Reordered,
    Repeated,
    Shared,
    Shorter,
    Silent,
    Speechless,
    Telling,
    Timid,
    Touching,
    Undrawn,
    Unknown,
    Unplayed,
    Unshown,
    Untidy,
    Vagrant,
)

from turnwise import progress
from turnwise.checking import CheckReport, check_world, examination
from turnwise.checking.playing import digests, play
from turnwise.checking.report import Check
from turnwise.progress import Progress
from turnwise.world import Limits, Split, Step, Task, World, make_world


def failures(report: CheckReport) -> dict[str, str]:
    return {check.name: check.found for check in report.failed}


@pytest.fixture
def other_processes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests have nothing to do with other processes, whose start is most of a check's time."""

    def here(name: str, parameters: Mapping[str, Any], count: int, seed: int, hash_seed: str) -> dict[str, str]:
        return digests(make_world(name, parameters), count, seed)

    monkeypatch.setattr(examination, "digests_elsewhere", here)


@pytest.mark.parametrize(
    ("world", "name", "found"),
    [
        (Speechless, "the world introduces itself", "grammar must be a text"),
        (Unshown, "the world introduces itself", "has 'speed' and shows success, format, turns"),
        (Failures, "the world introduces itself", "those of 'failed' in 'failures' are worse: compare by its negative"),
        (Shorter, "splits have the size that they say", "one more was given"),
        (Longer, "splits have the size that they say", "there are fewer"),
        (Reordered, "tasks are a prefix of one order", "must begin tasks('train', 8)"),
        (Repeated, "tasks are a prefix of one order", "'corridor/train/0' more than once"),
        (Shared, "splits share no task", "'corridor/0' in train and validation"),
        (Silent, "first observations tell and do not leak", "must be a text; found '  '"),
        (Telling, "first observations tell and do not leak", "must name neither its task nor the seed"),
        (Counting, "episodes repeat in any order", "corridor/train/0 by random differs when played again"),
        (Entangled, "open episodes leave one another alone", "differs when played beside others"),
        (Touching, "asking the oracle changes nothing", "differs when played with the oracle asked"),
        (Misguided, "oracle: actions are accepted", "'onwards' at corridor/test/0 got 'Legal: left, right."),
        (Hasty, "random: actions are accepted", "must offer 1 to 1 actions; found ('left', 'right')"),
        (Idle, "oracle: actions are accepted", "must offer 1 to 1 actions; found ()"),
        (Idle, "any reply is answered", "must offer an action to begin with"),
        (Generous, "rewards are declared", "must be one of ['goal']; found ['gift']"),
        (Infinite, "rewards are declared", "reward goal of corridor/test/0 must be a finite number; found nan"),
        (Numbered, "rewards are declared", "must be a text (str); found 1"),
        (Vagrant, "the process stays as it was", "step changed it from "),
        (Nameless, "states are named as the world says", "at corridor/test/0 does not: name it, or set names_states"),
        (Mistaken, "named answers are right", "'left' does not at corridor/"),
        (Modest, "an ineffective step leaves the state", "says effective=False but changed the state"),
        (Fragile, "any reply is answered", "raised MemoryError: too long for me"),
        (Mute, "any reply is answered", "must be answered with a text; '' got ''"),
        (Punishing, "any reply is answered", "must leave the state as it was"),
        (Confused, "any reply is answered", "must not change what the oracle does"),
        (Clinging, "close works after any prefix", "raised AttributeError"),
        (Communal, "close works after any prefix", "after 0 actions must not change another"),
        (Lost, "the oracle reaches its score", "no less than the random baseline policy; found random"),
    ],
)
@pytest.mark.usefixtures("other_processes_agree")
def test_a_broken_world_is_caught_by_the_check_of_what_it_breaks(world: type[World], name: str, found: str) -> None:
    report = check_world(world(), count=8)
    assert not report.passed
    assert found in failures(report)[name]


def test_what_several_checks_found_alike_is_written_out_once() -> None:
    found = [Check("first", False, "so"), Check("second", True, "3 tasks"), Check("third", False, "so")]
    assert CheckReport("corridor", tuple(found)).lines()[:3] == [
        "FAILED  first   so",
        "ok      second  3 tasks",
        "FAILED  third   the same",
    ]


def test_in_a_terminal_what_was_found_is_wrapped_beside_the_name_of_its_check() -> None:
    report = CheckReport("corridor", (Check("first", True, "3 tasks and what they begin with"),))
    assert report.lines(40)[0].splitlines() == [
        "ok      first  3 tasks and what they",
        "               begin with",
    ]
    assert report.lines()[0] == "ok      first  3 tasks and what they begin with"


def test_a_world_that_keeps_the_contract_passes_every_check() -> None:
    report = check_world(Corridor(turns=9), count=8, parameters={"turns": 9})
    assert report.passed, report.lines()
    assert report.lines()[-1] == "The world 'corridor' keeps its contract: 21 of 21 checks passed."


@pytest.mark.usefixtures("other_processes_agree")
@pytest.mark.parametrize(("world", "left_out"), [(Undrawn, 1), (Unplayed, 3)])
def test_a_world_whose_actions_cannot_be_drawn_passes_with_a_warning(world: type[World], left_out: int) -> None:
    report = check_world(world(), count=8)
    assert report.passed, report.lines()
    assert report.checks[0].doubtful and "no table shows what chance reaches" in report.checks[0].found
    assert sum(not check.applies for check in report.checks) == left_out, report.lines()


@pytest.mark.usefixtures("other_processes_agree")
@pytest.mark.parametrize(
    ("world", "name", "found"),
    [
        (Counting, "episodes repeat in any order", "corridor/train/0 by probe differs when played again"),
        (Entangled, "open episodes leave one another alone", "differs when played beside others"),
        (Vagrant, "the process stays as it was", "step changed it from "),
        (Mute, "any reply is answered", "must be answered with a text; '' got ''"),
        (Clinging, "close works after any prefix", "raised AttributeError"),
    ],
)
def test_a_world_without_a_policy_is_checked_by_replies_that_do_not_read_the_task(
    world: type[World], name: str, found: str
) -> None:
    unplayed = type("Unplayed", (world,), {"baselines": ()})
    assert found in failures(check_world(unplayed(), count=8))[name]


def test_a_check_reports_what_it_does_and_how_much_of_it_is_done(other_processes_agree: None) -> None:
    reports: list[Progress] = []
    with progress.listening(reports.append):
        check_world(Corridor(), count=8)
    whats = list(dict.fromkeys(report.what for report in reports))
    assert whats[0] == "check 1 of 21: the world introduces itself"
    assert [what.split(":")[0] for what in whats] == [f"check {number} of 21" for number in range(1, 22)]
    played = [
        (each.done, each.total) for each in reports if each.what == "check 12 of 21: random: actions are accepted"
    ]
    assert played == [(0, 0), *((done, 8) for done in range(8))]


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_that_changes_the_environment_or_prints_passes_with_a_warning() -> None:
    report = check_world(Untidy(), count=8)
    assert report.passed, report.lines()
    (doubt,) = [check for check in report.checks if check.doubtful]
    assert doubt.name == "the process stays as it was"
    assert "step prints 'step! " in doubt.found
    assert "reset changes the environment variable CORRIDOR" in doubt.found


@pytest.mark.usefixtures("other_processes_agree")
def test_the_check_leaves_the_working_directory_as_it_was() -> None:
    before = os.getcwd()
    failed = failures(check_world(Vagrant(), count=8))
    assert list(failed) == ["the process stays as it was"]
    assert os.getcwd() == before


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_that_says_that_it_names_no_states_passes_without_them() -> None:
    assert check_world(Frank(), count=8).passed


def test_the_hash_seed_of_the_process_is_caught_when_it_shows() -> None:
    found = failures(check_world(Hashed(), count=8))
    assert set(found) == {"episodes repeat in another process"}
    assert "must play alike; it differs in corridor/train/0 by random" in found["episodes repeat in another process"]


def test_a_world_that_another_process_cannot_make_is_told_so() -> None:
    class Local(Corridor):
        @classmethod
        def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
            return ("pytest",)  # which its module imports

    found = failures(check_world(Local(), count=8))
    assert set(found) == {"episodes repeat in another process"}
    assert "Local' must name a subclass" in found["episodes repeat in another process"]


def test_parameters_that_make_another_world_are_told_so() -> None:
    found = failures(check_world(Corridor(turns=9), count=8))
    assert set(found) == {"episodes repeat in another process"}
    assert "`parameters` must make this world again" in found["episodes repeat in another process"]


@pytest.mark.usefixtures("other_processes_agree")
def test_the_oracle_must_reach_the_score_that_is_asked_for() -> None:
    # Goals are 1 to 4 cells away: three turns reach three of four.
    parameters = {"turns": 3}
    assert check_world(Corridor(turns=3), count=8, parameters=parameters, oracle_success=0.75).passed
    found = failures(check_world(Corridor(turns=3), count=8, parameters=parameters, oracle_success=0.8))
    assert set(found) == {"the oracle reaches its score"}
    assert "oracle 75% of 8 test tasks" in found["the oracle reaches its score"]


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_without_an_oracle_is_checked_in_all_but_what_an_oracle_does() -> None:
    report = check_world(Unknown(), count=8)
    assert report.passed, report.lines()
    assert {check.name: check.found for check in report.checks if not check.applies} == {
        "asking the oracle changes nothing": "does not apply: the world has no oracle",
        "the oracle reaches its score": "does not apply: the world has no oracle",
    }
    assert report.lines()[-1].endswith("18 of 18 checks passed, 2 do not apply.")
    assert any(line.startswith("-       asking the oracle changes nothing") for line in report.lines())


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_without_an_oracle_is_caught_like_any_other() -> None:
    class Fragile(Unknown):
        class walk(Unknown.walk):
            def step(self, action: str) -> Step:
                if len(action) > 10_000:
                    raise MemoryError("too long for me")
                return super().step(action)

    assert "raised MemoryError" in failures(check_world(Fragile(), count=8))["any reply is answered"]


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_is_given_a_thousand_strange_replies_however_short_its_episodes_are() -> None:
    found = {check.name: check.found for check in check_world(Corridor(), count=8).checks}
    assert int(found["any reply is answered"].split()[0]) >= 1000


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_whose_random_policy_never_earns_a_difference_passes_with_a_warning() -> None:
    report = check_world(Timid(), count=2)
    assert report.passed, report.lines()
    (warned,) = [line for line in report.lines() if line.startswith("warn ")]
    assert "mean success 0.00; rewards differ within 0% of 2 groups of 8: a policy that plays like the random" in warned
    assert "must begin with demonstrations (warm_start) or an easier parameter" in warned
    assert report.lines()[-1].endswith("21 of 21 checks passed, 1 with a warning.")


@pytest.mark.usefixtures("other_processes_agree")
def test_a_world_whose_random_policy_sometimes_arrives_has_a_beginning() -> None:
    found = {check.name: check for check in check_world(Corridor(), count=4).checks}
    assert not found["random play earns differences"].doubtful
    # Six random steps miss the goal next to the start once in 64 times; the farther ones they reach now and then.
    assert "rewards differ within 75% of 4 groups of 8" in found["random play earns differences"].found


@pytest.mark.usefixtures("other_processes_agree")
def test_a_task_is_played_under_limits_of_its_own() -> None:
    class Hurried(Corridor):
        def limits_of(self, task: Task) -> Limits:
            return Limits(turns=1 + task.seed % 2)

    world = Hurried()
    turns = [len(play(world, task, 0, "oracle").turns) for task in world.tasks("test", 4)]
    # Goals are 1, 2, 3 and 4 cells away, and 1, 2, 1 and 2 turns are allowed.
    assert turns == [1, 2, 1, 2]


@pytest.mark.usefixtures("other_processes_agree")
def test_a_split_that_says_how_many_tasks_it_has_is_held_to_it() -> None:
    class Small(Corridor):
        def split_size(self, split: Split) -> int | None:
            return {"train": 6, "validation": None, "test": 3}[split]

        def tasks(self, split: Split, count: int) -> list[Task]:
            if count > (self.split_size(split) or count):
                raise ValueError(f"count must be at most {self.split_size(split)}; found {count}")
            return super().tasks(split, count)

    found = {check.name: check for check in check_world(Small(), count=8).checks}
    assert found["splits have the size that they say"].passed
    assert found["splits have the size that they say"].found == "6 train, 3 test"


@pytest.mark.usefixtures("other_processes_agree")
def test_a_split_with_few_tasks_is_checked_on_those() -> None:
    class Small(Corridor):
        def tasks(self, split: Split, count: int) -> list[Task]:
            if count > 5:
                raise ValueError(f"count must be at most 5; found {count}")
            return super().tasks(split, count)

    found = {check.name: check.found for check in check_world(Small(), count=16).checks}
    assert found["tasks are a prefix of one order"] == "4 train, 4 validation, 4 test"


def test_a_task_set_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 2"):
        check_world(Corridor(), count=1)


@pytest.mark.parametrize("parameters", [{}, {"success_rate": 0.8, "size": 5}])
def test_frozen_lake_keeps_the_contract(parameters: dict[str, Any]) -> None:
    report = check_world(make_world("frozen_lake", parameters), count=20, parameters=parameters)
    assert report.passed, report.lines()
