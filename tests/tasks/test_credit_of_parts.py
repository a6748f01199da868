"""The credit stage divides replies where their thought ends, without Prefect: the function of the stage."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tasks.credit.credit import CreditParameters, credit
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.config.schema import Credit, RewardSection, ThoughtCredit
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.data.trajectory_files import read_credit, write_trajectories
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer
from turnwise.store import Reference, default_store
from turnwise.world import ScriptedAction, Task

FORM = ThinkAnswerFormat()
TOKENIZER = train_tokenizer(["go up", "go down"] * 20, 300, FORM.tags)
FRAME = ChatFrame(TOKENIZER)
THOUGHT_TOKENS = len(FRAME.reply(FORM.write_thought("go up"))) - 1  # without the end of the reply


def turn(reply: str, reward: float, *, invalid: str | None = None) -> Turn:
    tokens = FRAME.reply(reply)
    return Turn("", (), reply, tokens, (-1.0,) * len(tokens), invalid=invalid, rewards={"goal": reward})


def credited(thought: ThoughtCredit) -> list[list[float]]:
    """The advantages of tokens of a good reply, a bad one and an unreadable one; rloo gives 1, -0.5 and -0.5."""
    written = FORM.write(ScriptedAction("go up", ("up",)))
    turns = [turn(written, 1.0), turn(written, 0.0), turn("go up", 0.0, invalid="no form")]
    task = Task("hill", "hill/1", "train", 1)
    trajectories = [Trajectory(task, 0, place, (each,), Ending.FAILURE, "") for place, each in enumerate(turns)]
    parameters = CreditParameters(
        rewards={"goal": RewardSection(level="outcome", weight=1.0)},
        credit=Credit(estimator="rloo", options={}, thought=thought),
        reference=None,
        format=FORM.name,
    )
    with default_store().write("rollout") as rollout:
        write_trajectories(rollout.folder, trajectories, [])
    with default_store().write("tokenizer") as tokenizer:
        TOKENIZER.save_pretrained(tokenizer.folder)
    made: Reference = credit.fn(parameters, rollout=rollout.reference, tokenizer=tokenizer.reference)
    rows = [found.tokens for found in read_credit(made).values()]
    assert all(row is not None for row in rows)
    return [list(row or ()) for row in rows]


def test_thoughts_and_actions_have_their_own_advantages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    good, bad, unreadable = credited(ThoughtCredit(estimator="rloo", options={}, weight=0.25))
    for row, whole in ((good, 1.0), (bad, -0.5)):
        tokens = iter(row)
        assert list(islice(tokens, THOUGHT_TOKENS)) == pytest.approx([0.25 * whole] * THOUGHT_TOKENS)
        action = list(tokens)
        assert len(action) > 1 and action == pytest.approx([whole] * len(action))
    assert unreadable == pytest.approx([-0.5] * len(unreadable))  # it has no parts
