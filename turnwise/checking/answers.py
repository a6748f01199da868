"""The checks of a world's answers: rewards are declared, states are named, and refused actions change nothing."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import ExitStack

import numpy as np

from turnwise import seeding
from turnwise.checking.playing import at_the_start
from turnwise.checking.report import Broken, shortened
from turnwise.checking.subject import Subject
from turnwise.world import Environment, Observation, ScriptedAction, Step, Task, World

REPLIES = 1000
"""Minimum number of fuzz replies that a world is given, over all tasks and points."""
HUNDRED_KILOBYTES = 100_000
LEAST_NOISE = 10
"""Minimum number of random replies at each tested point of an episode."""

FIXED_REPLIES = (
    "",
    " ",
    "\n\n\t",
    "\x00",
    "\x1b[2J",
    "None",
    "nan",
    "-1",
    "99999999999999999999999999",
    "{}",
    '{"action": null}',
    "%s %n {0} {} \\",
    "'; drop table worlds; --",
    "../../etc/passwd",
    "||",
    "a || b",
    "[",
    "]",
    "x[",
    "x[y]z",
    "[[[[]]]]",
    "<answer>",
    "</answer>",
    "<answer><answer>x</answer></answer>",
    "<think>" * 500 + "</think>" * 400,
    "(" * 5000,
    "ｌｅｆｔ",
    "🧑‍🚀🏳️‍🌈",
    "\u202eright to left",
    "e\u0301\u0323" * 50,
    "İıſß",
    "\ufffd\ufeff\u2028",
    "x" * HUNDRED_KILOBYTES,
    "word " * (HUNDRED_KILOBYTES // 5),
    "√" * (HUNDRED_KILOBYTES // 3),
)


def rewards_are_declared(subject: Subject) -> str:
    """Check that every reward is in `World.rewards`, and no metric has a reward's name."""
    declared = subject.world.rewards
    for name, reward in declared.items():
        if reward.level not in ("turn", "outcome"):
            raise Broken(f"the level of reward {name!r} must be 'turn' or 'outcome'; found {reward.level!r}")
    emitted: set[str] = set()
    for episode in subject.all_episodes:
        for step in episode.steps:
            _require_declared(step, declared.keys(), episode.task)
            emitted.update(step.rewards)
    silent = sorted(set(declared) - emitted)
    return f"emitted: {', '.join(sorted(emitted)) or 'none'}" + (f"; never: {', '.join(silent)}" if silent else "")


def ineffective_steps_leave_the_state(subject: Subject) -> str:
    """Check that a step with `effective=False` has the same `state` as the observation before it."""
    ineffective = 0
    for episode in subject.all_episodes:
        before = episode.first.state
        for action, step in zip(episode.actions, episode.steps, strict=True):
            ineffective += not step.effective
            if not step.effective and step.observation.state != before:
                raise Broken(f"{action!r} says effective=False but changed the state, at {episode.task.id}")
            before = step.observation.state
    return f"{ineffective} ineffective steps"


def states_are_named_as_said(subject: Subject) -> str:
    """Check that, with `names_states`, every observation that a policy acts on has a state (the last need not)."""
    if not subject.world.names_states:
        return "not all are named, as the world says"
    acted_on = 0
    for episode in subject.all_episodes:
        seen = [episode.first, *(step.observation for step in episode.steps)]
        for observation in seen[: len(episode.steps)]:
            acted_on += 1
            if observation.state is None:
                raise Broken(
                    f"every observation must name its state, as names_states says; {shortened(observation.text)} at "
                    f"{episode.task.id} does not: name it, or set names_states to False"
                )
    return f"{acted_on} observations name their state"


def named_answers_are_right(subject: Subject) -> str:
    """Check that, with `names_answers`, the answer that the world names for a task solves it."""
    if not subject.world.names_answers:
        return "no task has one, as the world says"
    for task in subject.sample:
        answer = subject.world.answer(task)
        with subject.reached(task, ()) as (environment, _):
            if not environment.step(answer).success:
                raise Broken(f"the answer that the world names must solve its task; {answer!r} does not at {task.id}")
    return f"{len(subject.sample)} tasks have a right answer"


def any_reply_is_answered(subject: Subject) -> str:
    """Check that any reply gets a text and raises nothing, and that an invalid one changes nothing.

    "Nothing" means: neither the state nor the oracle's next action.
    """
    guided = [(task, subject.guided(task).actions) for task in subject.sample]
    points = [(task, actions, prefix) for task, actions in guided for prefix in sorted({0, min(1, len(actions) - 1)})]
    each = -(-REPLIES // len(points))
    taken: list[bool] = []
    for task, actions, prefix in points:
        strange = fuzz_replies(subject.world, subject.seed, f"{task.id} after {prefix}", actions[prefix], each)
        taken += _taken_as_actions(subject, task, actions[:prefix], strange)
    return f"{len(taken)} replies, {sum(taken)} of them taken as actions"


def _taken_as_actions(subject: Subject, task: Task, prefix: Sequence[str], strange: Sequence[str]) -> list[bool]:
    """For each fuzz reply after the prefix, whether the world accepted it as a valid action.

    The replies go to one episode in sequence, which goes on from any that the world accepts; when it ends, a fresh
    episode after the same prefix takes its place.
    """
    remaining = at_the_start(subject.world.limits_of(task))

    def mind(environment: Environment) -> ScriptedAction | None:
        return environment.oracle(remaining) if subject.has_oracle else None

    taken = []
    with ExitStack() as episode:
        environment, before = episode.enter_context(subject.reached(task, prefix))
        decision = mind(environment)
        for reply in strange:
            step = environment.step(reply)
            taken.append(step.valid)
            _require_an_answer(reply, step)
            _require_declared(step, subject.world.rewards.keys(), task)
            if not step.valid:
                _require_no_change(reply, step, before)
                if mind(environment) != decision:
                    raise Broken(f"an invalid reply must not change what the oracle does; {shortened(reply)} did")
                continue
            before = step.observation
            if step.terminated or step.truncated:
                episode.close()
                environment, before = episode.enter_context(subject.reached(task, prefix))
            decision = mind(environment)
    return taken


def _require_an_answer(reply: str, step: Step) -> None:
    if not isinstance(step.observation.text, str) or not step.observation.text.strip():
        raise Broken(f"every reply must be answered with a text; {shortened(reply)} got {step.observation.text!r}")


def _require_no_change(reply: str, step: Step, before: Observation) -> None:
    if step.effective or step.terminated or step.truncated or step.observation.state != before.state:
        raise Broken(f"an invalid reply must leave the state as it was; {shortened(reply)} was answered with {step}")


def _require_declared(step: Step, declared: Set[str], task: Task) -> None:
    if strange := sorted(set(step.rewards) - declared):
        raise Broken(f"a reward must be one of {sorted(declared)}; found {strange} at {task.id}")
    if ambiguous := sorted(set(step.metrics) & declared):
        raise Broken(f"a metric must not bear the name of a reward; found {ambiguous} at {task.id}")


def fuzz_replies(world: World, seed: int, place: str, offered: str, count: int) -> list[str]:
    """At least `count` replies: fixed ones, corruptions of the valid action `offered`, misused verbs, and random ones.

    Random replies are random characters, or copies of `offered` with one character replaced. `place` names the point of
    the episode and seeds them, so each point has different ones.
    """
    spoiled = [offered[:-1], offered + offered, offered + "\x00", "\ufeff" + offered, offered[::-1], f"<{offered}>"]
    verbs = [
        text
        for verb in sorted(world.verbs or ())
        for text in (verb, f"{verb}[", f"{verb}[]", f"{verb}[[]]", f"{verb}[\x00]", f"{verb}[{'z ' * 50_000}]")
    ]
    fixed = [*FIXED_REPLIES, *spoiled, *verbs]
    missing = max(LEAST_NOISE, count - len(fixed))
    return [*fixed, *(_noise(seeding.generator(seed, "fuzz", place, number), offered) for number in range(missing))]


def _noise(generator: np.random.Generator, offered: str) -> str:
    """`offered` with one character replaced, or 1 to 59 random characters.

    These are uniform over Unicode without surrogates, which no decoded reply can contain.
    """
    if offered and generator.integers(4) == 0:
        place = int(generator.integers(len(offered)))
        return offered[:place] + chr(int(generator.integers(32, 127))) + offered[place + 1 :]
    points = generator.integers(0, 0x110000 - 0x800, size=int(generator.integers(1, 60)))
    return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points.tolist())
