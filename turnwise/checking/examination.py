"""`check_world` and its checks: each takes the world under test and returns its finding as text, or raises `Broken`."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from typing import Any, TypeVar

import numpy as np

from turnwise import progress, seeding
from turnwise.checking.baselines import weighted_return
from turnwise.checking.playing import (
    PlayedEpisode,
    at_the_start,
    baseline_policy,
    digests,
    digests_elsewhere,
    digests_of,
    open_episode,
    play_in_turns,
    play_turns,
)
from turnwise.checking.report import Broken, Check, CheckReport, Doubtful, NotApplicable, examine, shortened
from turnwise.checking.subject import Subject
from turnwise.config.world_checks import require_primary_column
from turnwise.errors import ConfigurationError
from turnwise.statistics.group_spread import expected_spread
from turnwise.store.fingerprint import installed_imports
from turnwise.store.plugin_identity import providers, what_it_reads
from turnwise.store.run_environment import COMPUTING_PACKAGES
from turnwise.world import (
    SPLITS,
    Environment,
    Observation,
    Remaining,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    make_world,
)

HASH_SEEDS = ("1", "2")
"""Candidate hash seeds of the other process; the first that differs from this process's own is used."""
CARRIERS = ("aiohttp", "botocore", "fsspec", "httpx", "pydantic", "s3fs")
"""Packages that only transport data; another version of them changes no episode, so they need no declaration."""
GROUPS, GROUP_SIZE = 8, 8
"""Test tasks on which the random policy is played, and its episodes of each: groups of the size that training has by
default."""


def check_world(
    world: World,
    *,
    count: int = 50,
    seed: int = 0,
    oracle_success: float | None = None,
    parameters: Mapping[str, Any] | None = None,
    sample: int = 3,
) -> CheckReport:
    """Run all checks on a world and report whether it keeps the contract of `turnwise.world`.

    Errors of the world become findings and are not raised. `count`: tasks listed per split; success of the baseline
    policies is measured on that many test tasks. `oracle_success`: the share of tasks (0 to 1) that the oracle must
    solve; by default more than 0, and no less than the random policy. `parameters`: the keyword arguments that the
    world was made with, to make it again in another process. `sample`: tasks per split on which whole episodes are
    compared; each is played some twenty times. Raises ValueError for a `count` below 2.
    """
    if count < 2:
        raise ValueError(f"count must be at least 2, so that a task set can be a prefix of another; found {count}")
    subject = Subject(world, dict(parameters or {}), count, seed, sample)
    checks: list[tuple[str, Callable[[Subject], str]]] = [
        ("the world introduces itself", introduces_itself),
        ("the process stays as it was", process_is_left_alone),
        ("what it reads is declared", reads_are_declared),
        ("tasks are a prefix of one order", tasks_are_a_prefix),
        ("splits have the size that they say", splits_have_their_size),
        ("splits share no task", splits_share_no_task),
        ("first observations tell and do not leak", observations_tell),
        ("episodes repeat in any order", episodes_repeat),
        ("open episodes leave one another alone", episodes_are_independent),
        ("asking the oracle changes nothing", asking_changes_nothing),
        ("episodes repeat in another process", episodes_repeat_elsewhere),
        *(
            (f"{baseline}: actions are accepted", partial(actions_are_accepted, baseline))
            for baseline in world.baselines
        ),
        ("rewards are declared", rewards_are_declared),
        ("states are named as the world says", states_are_named_as_said),
        ("named answers are right", named_answers_are_right),
        ("an ineffective step leaves the state", ineffective_steps_leave_the_state),
        ("any reply is answered", any_reply_is_answered),
        ("close works after any prefix", close_works),
        ("the oracle reaches its score", partial(oracle_reaches_its_score, oracle_success)),
        ("random play earns differences", random_play_earns_differences),
    ]
    return CheckReport(
        world.name,
        tuple(
            _examine(f"check {number} of {len(checks)}", name, check, subject)
            for number, (name, check) in enumerate(checks, start=1)
        ),
    )


def _examine(place: str, name: str, check: Callable[[Subject], str], subject: Subject) -> Check:
    subject.check = f"{place}: {name}"
    progress.report(subject.check, 0, 0)
    with process_put_back():
        return examine(name, partial(check, subject))


def introduces_itself(subject: Subject) -> str:
    """Check that there are an instruction, a grammar, a column of the primary metric and limits.

    A world without a random policy gets a warning: not every world can draw its actions, as those of tools.
    """
    world = subject.world
    for name, text in (("instruction", world.instruction), ("grammar", world.grammar)):
        if not isinstance(text, str) or not text.strip():
            raise Broken(f"the world's {name} must be a text; found {text!r}")
    try:
        require_primary_column(world)
    except ConfigurationError as error:
        raise Broken(str(error)) from error
    start = at_the_start(world.limits)
    if min(start.turns, start.actions_per_turn, start.actions) < 1:
        raise Broken(f"limits must leave at least 1 turn and 1 action; found {world.limits}")
    baselines = ", ".join(world.baselines) or "none"
    summary = f"version {world.version}; at most {start.turns} turns, {start.actions} actions; baselines: {baselines}"
    if "random" not in world.baselines:
        raise Doubtful(f"{summary}; without random, no table shows what chance reaches")
    return summary


def tasks_are_a_prefix(subject: Subject) -> str:
    """Check that `tasks(split, n)` is a prefix of `tasks(split, m)` for n < m, and that tasks are well-formed.

    Well-formed: ids are unique within a split, a task names its world and split, and it can be written as JSON.
    """
    for split, tasks in subject.task_sets.items():
        for shorter in sorted({1, len(tasks) // 2, len(tasks)} - {0}):
            if subject.world.tasks(split, shorter) != tasks[:shorter]:
                raise Broken(f"tasks({split!r}, {shorter}) must begin tasks({split!r}, {len(tasks)}); it does not")
        for task in tasks:
            if (task.world, task.split) != (subject.world.name, split):
                raise Broken(f"a {split} task of {subject.world.name!r} must say so; found {task}")
            json.dumps([task.id, task.seed, dict(task.tags)])
        names = [task.id for task in tasks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise Broken(f"a task's id must name one task of {split}; found {repeated[0]!r} more than once")
    return ", ".join(f"{len(tasks)} {split}" for split, tasks in subject.task_sets.items())


def splits_have_their_size(subject: Subject) -> str:
    """Check that a split with a stated size gives that many tasks and raises ValueError for one more."""
    sizes = {split: size for split in SPLITS if (size := subject.world.split_size(split)) is not None}
    for split, size in sizes.items():
        if len(subject.world.tasks(split, size)) != size:
            raise Broken(f"split_size({split!r}) = {size} must be the number of tasks that there are; there are fewer")
        try:
            subject.world.tasks(split, size + 1)
        except ValueError:
            continue
        raise Broken(f"split_size({split!r}) = {size} must be the number of tasks that there are; one more was given")
    return ", ".join(f"{size} {split}" for split, size in sizes.items()) or "no split says that it ends"


def splits_share_no_task(subject: Subject) -> str:
    """Check that no task id is in two splits.

    The number of held-out tasks whose first observation equals that of a training task is reported, not judged.
    """
    owner: dict[str, Split] = {}
    for split, tasks in subject.task_sets.items():
        for task in tasks:
            if owner.setdefault(task.id, split) != split:
                raise Broken(f"a task must be in one split; found {task.id!r} in {owner[task.id]} and {split}")
    texts = {name: observation.text for name, observation in subject.first_observations.items()}
    trained = {texts[name] for name, split in owner.items() if split == "train"}
    held_out = [name for name, split in owner.items() if split != "train"]
    count = sum(texts[name] in trained for name in held_out)
    return f"{count} of {len(held_out)} held-out tasks begin with the text of a training task"


def observations_tell(subject: Subject) -> str:
    """Check that the first observation is a text without the task's id or seed, which would allow memorising."""
    texts = {name: observation.text for name, observation in subject.first_observations.items()}
    for task in (task for tasks in subject.task_sets.values() for task in tasks):
        text = texts[task.id]
        if not isinstance(text, str) or not text.strip():
            raise Broken(f"the first observation of {task.id} must be a text; found {text!r}")
        # A short seed may occur in a text by chance.
        if task.id in text or (task.seed > 999_999 and str(task.seed) in text):
            raise Broken(f"an observation must name neither its task nor the seed; found {shortened(text)}")
    return f"{len(texts)} tasks, at most {max(map(len, texts.values()))} characters"


def episodes_repeat(subject: Subject) -> str:
    """Check that an episode is a function of task, seed and actions, whatever was played before it."""
    pairs = [(task, baseline) for task in subject.sample for baseline in subject.policies]
    before = [subject.played(task, baseline) for task, baseline in pairs]
    again = [subject.play(task, baseline) for task, baseline in reversed(pairs)]
    return _compare(before, again[::-1], "played again in reverse order")


def episodes_are_independent(subject: Subject) -> str:
    """Check that episodes open at the same time, two of each task, equal the same episodes played alone."""
    tasks = [task for task in subject.sample for _ in range(2)]
    alone = [subject.played(task, subject.wanderer) for task in tasks]
    beside = play_in_turns(subject.world, tasks, subject.seed, subject.wanderer)
    return _compare(alone, beside, "played beside others")


def asking_changes_nothing(subject: Subject) -> str:
    """Check that asking the oracle has no side effect: the episode continues as if it had not been asked."""
    _require_oracle(subject)
    plain_episodes = [subject.played(task, subject.wanderer) for task in subject.sample]
    queried_episodes = [subject.play(task, subject.wanderer, ask_the_oracle=True) for task in subject.sample]
    return _compare(plain_episodes, queried_episodes, "played with the oracle asked before every turn")


def episodes_repeat_elsewhere(subject: Subject) -> str:
    """Check that another process with another hash seed lists the same tasks and plays the same episodes."""
    world, parameters, seed, count = subject.world, subject.parameters, subject.seed, subject.sample_size
    name = f"{type(world).__module__}:{type(world).__qualname__}"
    here = digests_of(world, count, subject.played)
    hash_seed = next(one for one in HASH_SEEDS if one != os.environ.get("PYTHONHASHSEED"))
    there = digests_elsewhere(name, parameters, count, seed, hash_seed)
    if difference := _first_difference(here, there):
        # Rule out first that `parameters` are wrong: then a world remade in this process differs as well.
        if remade := _first_difference(here, digests(make_world(name, parameters), count, seed)):
            raise Broken(f"`parameters` must make this world again, but with {parameters} it differs in {remade}")
        raise Broken(f"a process with PYTHONHASHSEED={hash_seed} must play alike; it differs in {difference}")
    return f"{len(here)} digests"


def actions_are_accepted(baseline: str, subject: Subject) -> str:
    """Check that the actions of a baseline policy are valid when offered, and within the remaining limits."""
    episodes = subject.episodes(baseline)
    for episode in episodes:
        for turn in episode.turns:
            most = min(turn.remaining.actions_per_turn, turn.remaining.actions)
            offered = turn.decision.actions
            if not 1 <= len(offered) <= most:
                raise Broken(f"{baseline} must offer 1 to {most} actions; found {offered} at {episode.task.id}")
        for action, step in zip(episode.actions, episode.steps, strict=True):
            if not step.valid:
                answer = shortened(step.observation.text)
                raise Broken(f"{baseline} must offer valid actions; {action!r} at {episode.task.id} got {answer}")
    return f"{sum(len(episode.steps) for episode in episodes)} actions"


def close_works(subject: Subject) -> str:
    """Check that an episode can be closed before reset, after any prefix and at its end, without affecting others."""
    for task in subject.sample[: subject.sample_size]:
        guide_episode = subject.guided(task)
        open_episode(subject.world, task, subject.seed).close()
        length = len(guide_episode.actions)
        with closing(open_episode(subject.world, task, subject.seed)) as bystander:
            bystander.reset()
            for place, prefix in enumerate(sorted({0, min(1, length), length // 2, length})):
                with subject.reached(task, guide_episode.actions[:prefix]):
                    pass
                if place < length and bystander.step(guide_episode.actions[place]) != guide_episode.steps[place]:
                    raise Broken(f"closing an episode after {prefix} actions must not change another; it did")
    return "before reset, after it, after an action, halfway and at the end"


def oracle_reaches_its_score(needed: float | None, subject: Subject) -> str:
    """Check that the oracle solves the share `needed`; with None, more than 0 and no less than the random policy."""
    _require_oracle(subject)
    shares = {baseline: subject.success(baseline) for baseline in subject.world.baselines}
    success = ", ".join(f"{baseline} {share:.0%}" for baseline, share in shares.items())
    summary = f"{success} of {len(subject.task_sets['test'])} test tasks"
    if needed is not None and shares["oracle"] < needed:
        raise Broken(f"the oracle must solve at least {needed:.0%}; found {summary}")
    if needed is None and (shares["oracle"] == 0 or shares["oracle"] < shares.get("random", 0.0)):
        raise Broken(f"the oracle must solve something, and no less than the random baseline policy; found {summary}")
    return summary


def reads_are_declared(subject: Subject) -> str:
    """Check that declared files exist, imported packages are in `distributions`, and every version can be found."""
    world = type(subject.world)
    try:
        inputs = what_it_reads(world, subject.parameters)
        imported = installed_imports(world.modules(subject.parameters))
    except (ConfigurationError, ValueError) as error:
        raise Broken(f"all that a world reads must be found; {error}") from error
    json.dumps(inputs)
    declared = inputs["distributions"]
    if missing := [each for each, version in declared.items() if version is None]:
        raise Broken(f"the world's distributions must be installed packages, as pip calls them; found {missing[0]!r}")
    known = {_plain(each) for each in (*declared, *COMPUTING_PACKAGES, *CARRIERS)}
    for top in sorted(imported):
        names = providers().get(top, [])
        if names and not known.intersection(map(_plain, names)):
            raise Broken(f"the world imports {top}, so `distributions` must name {names[0]!r}; it names {[*declared]}")
    return f"{len(inputs['files'])} files, {len(declared)} packages, {len(inputs['state'])} programs or servers"


def _plain(distribution: str) -> str:
    """A package's normalised name: the package index treats `a.b`, `a_b` and `A-B` as the same."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def random_play_earns_differences(subject: Subject) -> str:
    """Warn where no group of random episodes of the same task differs in its rewards, by the world's own weights."""
    groups = subject.random_groups(GROUPS, GROUP_SIZE)
    returns = [[weighted_return(subject.world, episode) for episode in group] for group in groups]
    differing = expected_spread(returns, GROUP_SIZE).most
    success = sum(episode.success for group in groups for episode in group) / (len(groups) * GROUP_SIZE)
    summary = (
        f"mean success {success:.2f}; rewards differ within {differing:.0%} of {len(groups)} groups of {GROUP_SIZE}"
    )
    if differing:
        return summary
    raise Doubtful(
        f"{summary}: a policy that plays like the random baseline never earns a difference, so it must begin with "
        "demonstrations (warm_start) or an easier parameter"
    )


def _require_oracle(subject: Subject) -> None:
    if not subject.has_oracle:
        raise NotApplicable("the world has no oracle")


def _compare(expected: Sequence[PlayedEpisode], actual: Sequence[PlayedEpisode], how: str) -> str:
    for one, other in zip(expected, actual, strict=True):
        if one.as_json() != other.as_json():
            name = f"{one.task.id} by {one.baseline}"
            raise Broken(f"an episode must be a function of task, seed and actions; {name} differs when {how}")
    return f"{len(expected)} episodes {how}"


def _first_difference(expected: Mapping[str, str], actual: Mapping[str, str]) -> str | None:
    names = [*expected, *(name for name in actual if name not in expected)]
    return next((name for name in names if expected.get(name) != actual.get(name)), None)


Result = TypeVar("Result")


class _Watch:
    """Compares the process before and after each call of a world, and remembers what a call has printed."""

    def __init__(self) -> None:
        self.folder, self.environment = os.getcwd(), dict(os.environ)
        self.changes: dict[str, str] = {}
        """What a call has changed in the environment, and the call."""
        self.printed_texts: dict[str, str] = {}
        """By call, the first text that it has printed."""

    def call(self, name: str, call: Callable[[], Result]) -> Result:
        """What the call returns. Raises Broken where it has changed the working directory."""
        stdout = io.StringIO()
        with redirect_stdout(stdout):
            result = call()
        before, self.folder = self.folder, _folder()
        if self.folder != before:
            raise Broken(
                "a world must leave the working directory as it was, by which relative paths are read; "
                f"{name} changed it from {before} to {self.folder}: name files by absolute paths"
            )
        for variable in sorted(os.environ.keys() | self.environment.keys()):
            if os.environ.get(variable) != self.environment.get(variable):
                self.changes.setdefault(variable, name)
        if stdout.getvalue():
            self.printed_texts.setdefault(name, stdout.getvalue())
        return result


class _Watched(Environment):
    """An environment, each call of which is watched."""

    def __init__(self, environment: Environment, watch: _Watch) -> None:
        self._environment, self._watch = environment, watch

    def reset(self) -> Observation:
        return self._watch.call("reset", self._environment.reset)

    def step(self, action: str) -> Step:
        return self._watch.call("step", partial(self._environment.step, action))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return self._watch.call("oracle", partial(self._environment.oracle, remaining))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return self._watch.call("random", partial(self._environment.random, generator, remaining))

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return self._watch.call(baseline, partial(self._environment.decide, baseline, generator, remaining))

    def close(self) -> None:
        self._watch.call("close", self._environment.close)


def process_is_left_alone(subject: Subject) -> str:
    """Check that playing leaves the working directory as it was.

    Changed environment variables, and what is printed, get a warning: every other library of the process sees the
    first, and the second stands between the lines of a progress display.
    """
    tasks = subject.sample
    watch = _Watch()
    for task in tasks:
        for baseline in subject.policies:
            _play(subject, task, baseline, watch)
    side_effects = [f"{call} prints {shortened(text.strip())}" for call, text in watch.printed_texts.items()]
    side_effects += [f"{call} changes the environment variable {name}" for name, call in watch.changes.items()]
    if side_effects:
        raise Doubtful("; ".join(side_effects))
    return f"{len(tasks)} tasks leave the working directory and the environment as they were, and print nothing"


def _play(subject: Subject, task: Task, baseline: str, watch: _Watch) -> None:
    inner = watch.call("make", partial(open_episode, subject.world, task, subject.seed))
    with closing(_Watched(inner, watch)) as environment:
        first, decide = environment.reset(), baseline_policy(subject.world, task, subject.seed, baseline)
        for _ in play_turns(environment, first, subject.world.limits_of(task), decide):
            pass


@contextmanager
def process_put_back() -> Iterator[None]:
    """Put the working directory and the environment back at the end of a check, for those that follow."""
    folder, environment = os.getcwd(), dict(os.environ)
    try:
        yield
    finally:
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a folder that is gone"


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
        observations = [episode.first, *(step.observation for step in episode.steps)]
        for observation in observations[: len(episode.steps)]:
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
    valid: list[bool] = []
    for task, actions, prefix in points:
        strange = fuzz_replies(subject.world, subject.seed, f"{task.id} after {prefix}", actions[prefix], each)
        valid += _validate_replies(subject, task, actions[:prefix], strange)
    return f"{len(valid)} replies, {sum(valid)} of them taken as actions"


def _validate_replies(subject: Subject, task: Task, prefix: Sequence[str], strange: Sequence[str]) -> list[bool]:
    """For each fuzz reply after the prefix, whether the world accepted it as a valid action.

    The replies go to one episode in sequence, which goes on from any that the world accepts; when it ends, a fresh
    episode after the same prefix takes its place.
    """
    remaining = at_the_start(subject.world.limits_of(task))

    def mind(environment: Environment) -> ScriptedAction | None:
        return environment.oracle(remaining) if subject.has_oracle else None

    valid = []
    with ExitStack() as episode:
        environment, before = episode.enter_context(subject.reached(task, prefix))
        decision = mind(environment)
        for reply in strange:
            step = environment.step(reply)
            valid.append(step.valid)
            if not isinstance(step.observation.text, str) or not step.observation.text.strip():
                text = step.observation.text
                raise Broken(f"every reply must be answered with a text; {shortened(reply)} got {text!r}")
            _require_declared(step, subject.world.rewards.keys(), task)
            if not step.valid:
                if step.effective or step.terminated or step.truncated or step.observation.state != before.state:
                    answer = f"{shortened(reply)} was answered with {step}"
                    raise Broken(f"an invalid reply must leave the state as it was; {answer}")
                if mind(environment) != decision:
                    raise Broken(f"an invalid reply must not change what the oracle does; {shortened(reply)} did")
                continue
            before = step.observation
            if step.terminated or step.truncated:
                episode.close()
                environment, before = episode.enter_context(subject.reached(task, prefix))
            decision = mind(environment)
    return valid


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
    corruptions = [offered[:-1], offered + offered, offered + "\x00", "\ufeff" + offered, offered[::-1], f"<{offered}>"]
    verbs = [
        text
        for verb in sorted(world.verbs or ())
        for text in (verb, f"{verb}[", f"{verb}[]", f"{verb}[[]]", f"{verb}[\x00]", f"{verb}[{'z ' * 50_000}]")
    ]
    replies = [*FIXED_REPLIES, *corruptions, *verbs]
    missing = max(LEAST_NOISE, count - len(replies))
    return [*replies, *(_noise(seeding.generator(seed, "fuzz", place, number), offered) for number in range(missing))]


def _noise(generator: np.random.Generator, offered: str) -> str:
    """`offered` with one character replaced, or 1 to 59 random characters.

    These are uniform over Unicode without surrogates, which no decoded reply can contain.
    """
    if offered and generator.integers(4) == 0:
        place = int(generator.integers(len(offered)))
        return offered[:place] + chr(int(generator.integers(32, 127))) + offered[place + 1 :]
    points = generator.integers(0, 0x110000 - 0x800, size=int(generator.integers(1, 60)))
    return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points.tolist())
