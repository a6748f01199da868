"""The reward of own_reward.py: an example worked by hand, and the contract. Run by `pytest test_own_reward.py`."""

from __future__ import annotations

from own_reward import own_reward

import turnwise as tw


def turn(reply_tokens: int) -> tw.Turn:
    """A turn with a reply of so many tokens. Give it what your reward reads."""
    return tw.Turn(
        observation="Ask.",
        observation_tokens=(1, 2),
        reply="<think> so </think><answer> go </answer>",
        reply_tokens=(3,) * reply_tokens,
        log_probabilities=(-0.5,) * reply_tokens,
        thought="so",
        actions=("go",),
        invalid=None,
        effective=True,
        rewards={},
    )


def test_an_example_worked_by_hand() -> None:
    episode = tw.Trajectory(
        task=tw.Task("any", "any/1", "train", 0),
        group=0,
        replica=0,
        turns=(turn(10), turn(11)),
        ending=tw.Ending.SUCCESS,
        final_observation="Done.",
    )
    assert own_reward(episode, most=10) == [1.0, 0.0]


def test_it_keeps_the_contract_of_a_reward() -> None:
    report = tw.check_reward("own_reward:own_reward")
    assert report.passed, "\n".join(report.lines())
