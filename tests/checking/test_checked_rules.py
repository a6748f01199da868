"""`turnwise check` for credit rules and rewards: those of the package pass, and each mistake is found by its check."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from flows.commands import cli
from turnwise.checking.added_rewards import check_reward
from turnwise.checking.credit_rules import check_rule
from turnwise.checking.named_subjects import kind_of
from turnwise.credit import ESTIMATORS, CreditBatch, Estimator
from turnwise.data.arrays import Ragged
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError, RewardMissing, TurnwiseError

HERE = __name__


def raw(batch: CreditBatch) -> Ragged:
    """Not compared with anything."""
    return batch.on_every_turn(batch.totals("outcome"))


def of_neighbours(batch: CreditBatch) -> Ragged:
    """Takes neighbours in the batch for a group."""
    totals = batch.totals("outcome")
    return batch.on_every_turn(totals - np.roll(totals, 1))


def by_chance(batch: CreditBatch) -> Ragged:
    return batch.on_every_turn(batch.totals("outcome") * random.random())


def changing(batch: CreditBatch) -> Ragged:
    batch.turn_rewards.values[:] = 0.0
    return batch.on_every_turn(batch.totals("outcome") * 0.0)


def clipping(batch: CreditBatch) -> Ragged:
    """Changes what a critic has said, in place; done twice it is no other."""
    assert batch.values is not None
    np.clip(batch.values.values, -0.1, 0.1, out=batch.values.values)
    return raw(batch)


def overflowing(batch: CreditBatch) -> Ragged:
    with np.errstate(over="ignore", invalid="ignore"):
        return batch.on_every_turn(np.exp(batch.totals("outcome")) * 0.0)


undeclared = Estimator(lambda batch: batch.on_reply_tokens(batch.turn_rewards), "token")
needing = Estimator(raw, "turn", needs=("luck",))
alone = Estimator(raw, "turn")
of_clipped_values = Estimator(clipping, "turn", needs=("reply_lengths", "values"))


def length(trajectory: Trajectory) -> float:
    return float(len(trajectory.turns))


def counting(trajectory: Trajectory) -> float:
    counted.append(1)
    return float(len(counted))


counted: list[int] = []


def missing_of_even_groups(trajectory: Trajectory) -> float:
    """One that cannot be known of half of the groups."""
    if trajectory.group % 2 == 0:
        raise RewardMissing("the judge is away")
    return 1.0


def always_missing(trajectory: Trajectory) -> float:
    """One that can never be known."""
    raise RewardMissing("the judge is away")


def fragile(trajectory: Trajectory) -> float:
    return 1.0 / len(trajectory.turns[0].actions)


def unannotated(first):  # type: ignore[no-untyped-def]
    return 0.0


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_rule_of_the_package_passes(name: str) -> None:
    report = check_rule(name)
    assert report.passed, report.lines()


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("raw", {"a constant added to a group cancels", "a group that is all alike gets nothing"}),
        ("of_neighbours", {"order does not matter"}),
        (
            "by_chance",
            {"the same batch gives the same", "order does not matter", "a constant added to a group cancels"},
        ),
        ("changing", {"the same batch gives the same"}),
        ("of_clipped_values", {"the same batch gives the same"}),
        ("overflowing", {"any rewards give finite numbers"}),
        ("needing", {"the rule declares itself"}),
    ],
)
def test_each_mistake_of_a_rule_is_found(name: str, failed: set[str]) -> None:
    found = {check.name for check in check_rule(f"{HERE}:{name}").failed}
    assert failed <= found, check_rule(f"{HERE}:{name}").lines()


def test_a_rule_that_does_not_say_that_it_compares_may_see_a_constant() -> None:
    report = check_rule(f"{HERE}:alone")
    (constant,) = (check for check in report.checks if check.name == "a constant added to a group cancels")
    assert constant.passed and constant.found.startswith("it does not, and the rule does not say")


def test_a_rule_of_tokens_must_declare_their_number() -> None:
    (found,) = (check for check in check_rule(f"{HERE}:undeclared").failed if check.name == "the rule declares itself")
    assert "needs reply_lengths" in found.found


def test_the_bias_is_that_of_the_page() -> None:
    found = {check.name: check.found for check in check_rule("mt-grpo").checks}
    assert found["bias: Two turns: look, then answer"].startswith("unbiased: keeps 100% / 100%")
    options = {"rewards": "merged", "deviation": "none"}
    merged = {check.name: check.found for check in check_rule("grpo", options).checks}
    assert merged["bias: Three turns: each look costs something"].startswith("rescaled: keeps 75% / 75% / 75%")


def test_rewards_are_checked_on_episodes_of_every_kind() -> None:
    assert check_reward(f"{HERE}:length").passed
    of_order = {check.name for check in check_reward(f"{HERE}:counting").failed}
    assert of_order == {"the same episode gives the same", "order does not matter"}
    (first, *_) = check_reward(f"{HERE}:fragile").failed
    assert f"({__file__}:" in first.found
    assert first.name == "every episode has a number" and "raised ZeroDivisionError" in first.found


def test_a_reward_may_be_missing_of_some_episodes_and_not_of_all() -> None:
    sometimes = check_reward(f"{HERE}:missing_of_even_groups")
    assert sometimes.passed
    assert "3 episodes, one number per episode, 1 to 1; 4 lost, whose reward is missing" in str(sometimes.checks)
    (first, *_) = check_reward(f"{HERE}:always_missing").failed
    assert "a reward must be determined; of 7 episodes" in first.found


def test_a_name_tells_what_it_is() -> None:
    named = ("bandit", "grpo", "judge", "no_such_module:Name", "envs.bandit:Bandit")
    assert [kind_of(name) for name in named] == ["world", "rule", "reward", "world", "world"]
    assert [kind_of(f"{HERE}:{name}") for name in ("raw", "alone", "length")] == ["rule", "rule", "reward"]
    with pytest.raises(ConfigurationError, match=r"test_checked_rules:unannotated.*TW-unannotated-function"):
        kind_of(f"{HERE}:unannotated")


def test_a_word_that_names_nothing_to_check_is_answered_with_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"'sokoban'.*TW-unknown-subject"):
        kind_of("sokobann")
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").write_text("[turnwise.monitors]\nlongest = other:longest\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"'longest'.*TW-unknown-subject"):
        kind_of("longest")


def test_the_command_checks_rules_and_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    assert HERE in sys.modules
    assert cli.run(["check", "grpo", "-s", "rewards=merged", "-s", "deviation=none"]) == 0
    assert "rescaled: keeps 75% / 75% of the true gradient" in capsys.readouterr().out
    assert cli.run(["check", f"{HERE}:length"]) == 0
    assert "The reward 'test_checked_rules:length' keeps its contract: 5 of 5 checks passed." in capsys.readouterr().out
    with pytest.raises(TurnwiseError, match=r"'test_checked_rules:raw'.*TW-contract-broken"):
        cli.run(["check", f"{HERE}:raw"])
    with pytest.raises(ConfigurationError, match=r"--preset.*TW-unread-option"):
        cli.run(["check", "grpo", "--preset", "x"])
