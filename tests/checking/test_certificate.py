"""The certificate of a world: what it measures of worlds whose faults are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from corridor_worlds import LENGTH, Corridor, Walk

from turnwise import progress
from turnwise.checking.certificate import Certificate, certify
from turnwise.reporting.html.pages import CERTIFICATE_FILES, write_certificate
from turnwise.world import Reward, Split, Step, Task


def certificate(world: Corridor, *, tasks: int = 4, replicas: int = 4) -> Certificate:
    return certify(world, tasks=tasks, replicas=replicas)


class Echoing(Walk):
    """Pays half a point for each reply that repeats what was shown."""

    def step(self, action: str) -> Step:
        echo = {"echo": 0.5} if self.observe().text in action else {}
        step = super().step(action)
        return Step(step.observation, {**step.rewards, **echo}, step.terminated, success=step.success)


class Hackable(Corridor):
    """Its reward for copying is what a policy learns first."""

    rewards: ClassVar[Mapping[str, Reward]] = {
        "goal": Reward("1 at the goal", "outcome", 1.0),
        "echo": Reward("a half for copying", "turn", 1.0),
    }
    walk = Echoing


class OutOfReach(Corridor):
    """Its last task is beyond the turns that there are."""

    def __init__(self) -> None:
        super().__init__(turns=LENGTH - 2)


class Unguided(Hackable):
    """Has no policy of its own."""

    baselines = ()


class SameEverywhere(Corridor):
    """Has one task, in every split."""

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"corridor/{split}/{number}", split, 0) for number in range(count)]


def test_of_a_sound_world_with_four_tasks_only_these_are_remarked() -> None:
    measured = certificate(Corridor())
    assert measured.contract.passed
    assert measured.impossible is not None and measured.impossible.count == 0
    assert measured.remarks == [
        "The random policy always solves 1 of 4 tasks (corridor/test/0).",  # its goal is the next cell
        "4 of 4 validation tasks begin like a training task and have the same solution: they test memory.",
        "4 of 4 test tasks begin like a training task and have the same solution: they test memory.",
    ]


def test_a_reward_for_copying_is_found_by_the_probe_that_copies() -> None:
    measured = certificate(Hackable())
    paid = {probe.name: probe for probe in measured.probes if probe.pays}
    assert list(paid) == ["copy"]
    assert paid["copy"].score.rewards.value == 0.5 * 6, "half a point in each of six turns"
    assert paid["copy"].solved == 0
    assert any("sends back what it was shown" in remark for remark in measured.remarks)


def test_a_task_that_the_oracle_never_solves_is_named() -> None:
    measured = certificate(OutOfReach())
    assert measured.impossible is not None
    assert (measured.impossible.count, measured.impossible.of) == (1, 4)
    assert measured.impossible.examples == ("corridor/test/3",), (
        "the goal is four steps away, and there are three turns"
    )


def test_a_test_task_that_is_a_training_task_under_another_name_is_counted() -> None:
    measured = certificate(SameEverywhere(), tasks=3)
    twins = {each.splits: each for each in measured.twins}
    assert (twins["train", "test"].alike.count, twins["train", "test"].same_solution) == (3, 3)
    assert twins["test", "test"].alike.count == 3, "each is like another of its own split"
    assert (
        "3 of 3 test tasks begin like a training task and have the same solution: they test memory." in measured.remarks
    )
    assert [remark for remark in measured.remarks if "like another" in remark] == [
        "3 of 3 test tasks begin like another and have the same solution: an interval over tasks counts each, and is "
        "too narrow."
    ]


class EasyTest(Corridor):
    """Its test tasks end at the next cell."""

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [
            Task(self.name, task.id, split, 0 if split == "test" else task.seed) for task in super().tasks(split, count)
        ]


def test_a_test_that_is_easier_than_training_is_remarked() -> None:
    measured = certificate(EasyTest())
    assert [(each.split, each.actions.value) for each in measured.efforts] == [
        ("train", 2.5), ("validation", 2.5), ("test", 1.0),
    ]  # fmt: skip
    (remark,) = [each for each in measured.remarks if "equally hard" in each]
    assert remark.startswith("The oracle takes 1.0 actions on test tasks, and 2.5 actions (")
    assert not any("equally hard" in each for each in certificate(Corridor()).remarks)
    assert certificate(Unguided()).efforts == ()


def test_groups_of_a_perfect_oracle_do_not_differ_and_those_of_a_weak_one_do() -> None:
    spread = {each.random_share: each for each in certificate(Corridor(), replicas=8).spread}
    assert spread[0.0].success == 1.0 and spread[0.0].differing == 0.0
    assert 0.0 < spread[1.0].success < 1.0 and spread[1.0].differing > 0.0


def test_lengths_are_those_of_the_oracles_episodes_worked_by_hand() -> None:
    words = certify(Corridor(), tasks=4, replicas=2, count_tokens=lambda text: len(text.split()), tokenizer="words")
    oracle = next(each for each in words.lengths if each.policy == "oracle")
    # "Walk from P to G." and "left or right": 8 words. An observation has 5, an action 1. Goals are 1 to 4 steps away.
    assert (oracle.unit, oracle.prompt, oracle.observation, oracle.action) == ("tokens of words", 13.0, 5.0, 1.0)
    assert oracle.longest == 13 + 4 * 1 + 3 * 5, "nobody reads the last observation"
    assert oracle.episode == 13 + 2.5 * 1 + 1.5 * 5


def test_the_same_world_and_seed_give_the_same_certificate() -> None:
    assert certificate(Corridor()).json() == certificate(Corridor()).json()


def test_one_task_or_one_episode_has_no_spread_and_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2; found 1 and 8"):
        certify(Corridor(), tasks=1)


def test_the_page_and_the_data_say_the_same(tmp_path: Path) -> None:
    measured = certificate(Hackable())
    write_certificate(measured, tmp_path)
    data, page = ((tmp_path / name).read_text() for name in CERTIFICATE_FILES)
    assert [probe["name"] for probe in json.loads(data)["probes"]] == [probe.name for probe in measured.probes]
    for remark in measured.remarks:
        assert remark.replace("'", "&#39;") in page
    assert "Certificate of the world corridor" in page


def test_a_world_without_a_policy_is_measured_by_the_probe() -> None:
    measured = certificate(Unguided())
    assert measured.scores == () and measured.impossible is measured.trivial is None
    (length,) = measured.lengths
    assert (length.policy, length.unit) == ("probe", "characters") and length.prompt > len(Corridor.instruction)
    assert [(probe.name, probe.score.rewards.value) for probe in measured.probes] == [("empty", 0.0), ("copy", 3.0)]


def test_a_certificate_assures_of_what_was_measured_alone(tmp_path: Path) -> None:
    measured = replace(certificate(Corridor()), impossible=None, trivial=None, twins=())
    without = replace(measured, probes=tuple(replace(each, over_random=None, solved=0) for each in measured.probes))
    write_certificate(without, tmp_path)
    page = (tmp_path / CERTIFICATE_FILES[1]).read_text()
    assert not without.remarks and "It keeps its contract. No probe solved a task.</p>" in page
    assert "The oracle solved each test task." in certificate(Corridor()).assurance


def test_a_certificate_reports_how_many_of_all_tasks_of_all_policies_are_played() -> None:
    reports: list[progress.Progress] = []
    with progress.listening(reports.append):
        certificate(Corridor())
    played = [(each.done, each.total) for each in reports if each.what == "certificate of corridor: tasks"]
    policies = 2 + 3 + 5  # random and oracle, the probes, the shares of random turns
    assert played == [(done, policies * 4) for done in range(policies * 4)]
