"""The certificate of a world: what training in it will meet, measured by scripted policies, without a model.

`turnwise.checking.examination` checks that a world keeps its contract. A world that keeps it may still teach nothing,
or the wrong thing. So the certificate measures, on the first test tasks:

* the scores of the baseline policies, which bound what can be learned;
* what **probes** earn: policies that do not read the task. A probe that earns more than the random policy shows how the
  reward can be had without solving anything (reward hacking), or that a task is trivial;
* tasks that the oracle never solves, and tasks that the random policy always does: neither moves a policy;
* tasks that begin alike, within a split and across splits, and whether their solution is the same, too;
* how many actions the oracle takes on the tasks of each split: a test that is easier than training tests little;
* how long an episode is, in tokens where a tokenizer is named, else in characters;
* the share of groups whose returns differ, for oracles that play some of their turns at random: the signal that GRPO
  and its kin have, by the strength of the policy that training begins with.

Everything is a function of the world, the seed and the counts: the same certificate, to the byte.
"""

from __future__ import annotations

import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from pydantic import TypeAdapter

from turnwise import progress, seeding
from turnwise.checking.baselines import Score, score_of, weighted_return
from turnwise.checking.examination import check_world
from turnwise.checking.playing import (
    PROBE,
    Decide,
    PlayedEpisode,
    baseline_policy,
    first_tasks,
    play_by,
    policies,
    unread_replies,
)
from turnwise.checking.report import CheckReport
from turnwise.statistics import Interval, over_tasks
from turnwise.statistics.group_spread import expected_spread
from turnwise.store.plugin_identity import world_digest
from turnwise.world import SPLITS, Environment, Observation, Remaining, ScriptedAction, Split, Task, World

RANDOM_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of turns that an oracle plays at random, for the spread of groups."""
EXAMPLES = 3
"""Task ids that are named of a kind; the others are counted."""


@dataclass(frozen=True)
class Probe:
    """A scripted policy that does not read the task, and what it earned."""

    name: str
    does: str
    """What it does, in words."""
    score: Score
    over_random: Interval | None
    """The mean of its return minus the random policy's on the same tasks; None where there is no random policy."""
    solved: int
    """The number of tasks that it solved at least once."""

    @property
    def pays(self) -> bool:
        """Whether it earns more than the random policy beyond chance or, where there is none, solves anything."""
        if self.over_random is None:
            return self.solved > 0
        low = self.over_random.value if self.over_random.low is None else self.over_random.low
        return low > 0.0


@dataclass(frozen=True)
class NamedTasks:
    """Tasks of one kind: how many of how many there are, and the first ids."""

    count: int
    of: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Twins:
    """Tasks whose first observation is that of another task."""

    splits: tuple[str, str]
    """The two splits that are compared, or twice the same one."""
    alike: NamedTasks
    """Tasks of the second split that begin like another of the first."""
    same_solution: int | None
    """How many of them the oracle solves by the same actions, too; None without an oracle."""


@dataclass(frozen=True)
class Effort:
    """How many actions the oracle takes on a task of a split."""

    split: str
    actions: Interval

    def is_apart_from(self, other: Effort) -> bool:
        """Whether the two intervals have nothing in common; where all tasks are equal, an interval is its value."""
        (low, high), (other_low, other_high) = self._bounds, other._bounds
        return low > other_high or other_low > high

    @property
    def _bounds(self) -> tuple[float, float]:
        low, high = self.actions.low, self.actions.high
        return self.actions.value if low is None else low, self.actions.value if high is None else high


@dataclass(frozen=True)
class Length:
    """Means over episodes of one policy, and the largest: what a context must hold."""

    policy: str
    unit: str
    """`tokens of NAME`, or `characters`."""
    prompt: float
    """Instruction, grammar and first observation."""
    observation: float
    """One observation after the first."""
    action: float
    """One turn's actions, without thought or format."""
    episode: float
    longest: int


@dataclass(frozen=True)
class Spread:
    """Groups of a policy that plays a share of its turns at random, and the others like the oracle."""

    random_share: float
    success: float
    differing: float
    """The expected share of groups whose returns differ."""


@dataclass(frozen=True)
class Certificate:
    """What `certify` has measured."""

    world: str
    version: str
    parameters: dict[str, Any]
    digest: str
    """Of the world's code and all that its episodes depend on."""
    turnwise: str
    """The version that measured."""
    seed: int
    contract: CheckReport
    scores: tuple[Score, ...]
    probes: tuple[Probe, ...]
    impossible: NamedTasks | None
    """Tasks that the oracle never solved; None without an oracle."""
    trivial: NamedTasks | None
    """Tasks that the random policy always solved; None without one."""
    twins: tuple[Twins, ...]
    efforts: tuple[Effort, ...]
    """By split; empty without an oracle."""
    lengths: tuple[Length, ...]
    group_size: int
    spread: tuple[Spread, ...]

    @property
    def remarks(self) -> list[str]:
        """What somebody who trains in this world should know first, a sentence each."""
        return list(_remarks(self))

    @property
    def assurance(self) -> str:
        """What was measured and gave no remark, in sentences: without an oracle or a random policy there is less."""
        random, oracle = self.trivial is not None, self.impossible is not None
        sentences = [
            "It keeps its contract.",
            f"No probe {'earned more than the random policy beyond chance' if random else 'solved a task'}.",
            *(["The oracle solved each test task."] if oracle else []),
            *(["The random policy always solved none."] if random else []),
            *(["None of another split begins like a training task and has its solution."] if oracle else []),
        ]
        return " ".join(sentences)

    def json(self) -> str:
        """The certificate as JSON text."""
        return TypeAdapter(Certificate).dump_json(self, indent=2).decode() + "\n"


def certify(
    world: World,
    *,
    parameters: Mapping[str, Any] | None = None,
    tasks: int = 50,
    replicas: int = 8,
    seed: int = 0,
    count_tokens: Callable[[str], int] | None = None,
    tokenizer: str = "",
    contract: CheckReport | None = None,
) -> Certificate:
    """Measure a world's certificate.

    Args:
        world: the world, and `parameters` what it was made with.
        tasks: the number of tasks that are looked at in each split.
        replicas: episodes of each test task by each policy, and the size of the groups whose spread is measured.
        seed: of the worlds' noise and the scripted policies.
        count_tokens: the number of tokens of a text, by the tokenizer of this name; without it characters are counted.
        tokenizer: the name of the tokenizer.
        contract: what `check_world` has returned, where it was run already.

    Raises ValueError for fewer than 2 tasks or replicas: neither a mean nor a group has a spread then.
    """
    if min(tasks, replicas) < 2:
        raise ValueError(f"tasks and replicas must be at least 2; found {tasks} and {replicas}")
    world_parameters = dict(parameters or {})
    contract = contract or check_world(world, parameters=world_parameters, count=tasks, seed=seed)
    test_tasks = first_tasks(world, "test", tasks)
    policies_by_name = {name: partial(baseline_policy, world, baseline=name) for name in policies(world)}
    spread = RANDOM_SHARES if {"random", "oracle"} <= policies_by_name.keys() else ()
    probe_policies = list(probes(world))
    player = _Player(world, test_tasks, replicas, seed, len(policies_by_name) + len(probe_policies) + len(spread))
    groups_by_policy = {name: player.play(name, policy) for name, policy in policies_by_name.items()}
    random, oracle = groups_by_policy.get("random"), groups_by_policy.get("oracle")
    guide, guide_episodes = _play_guide(world, tasks, seed)
    measure, unit = (len, "characters") if count_tokens is None else (count_tokens, f"tokens of {tokenizer}")
    return Certificate(
        world=world.name,
        version=world.version,
        parameters=world_parameters,
        digest=world_digest(f"{type(world).__module__}:{type(world).__qualname__}", world_parameters),
        turnwise=importlib.metadata.version("turnwise"),
        seed=seed,
        contract=contract,
        scores=tuple(score_of(world, name, groups_by_policy[name], seed) for name in world.baselines),
        probes=tuple(_probe(player, name, does, policy, random) for name, does, policy in probe_policies),
        impossible=None if oracle is None else _name_tasks(test_tasks, oracle, lambda group: not any(_outcomes(group))),
        trivial=None if random is None else _name_tasks(test_tasks, random, lambda group: all(_outcomes(group))),
        twins=tuple(_twins(guide, guide_episodes)),
        efforts=tuple(_efforts(guide_episodes, seed)) if guide == "oracle" else (),
        lengths=tuple(_length(world, name, episodes, measure, unit) for name, episodes in groups_by_policy.items()),
        group_size=replicas,
        spread=tuple(_spread(player, share, replicas) for share in spread),
    )


def probes(world: World) -> Iterator[tuple[str, str, Callable[[Task, int], Decide]]]:
    """The probes that can be played in a world: name, what it does, and the policy of an episode by task and seed."""
    for name, does, reply in unread_replies(world):
        yield name, does, _always(reply)
    if "random" in world.baselines:
        yield "repeat", "draws one random action and repeats it to the end", partial(_repeat, world)


def _always(reply: Callable[[Observation], str]) -> Callable[[Task, int], Decide]:
    """A policy whose action is a function of the last observation."""

    def decide(environment: Environment, observation: Observation, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("", (reply(observation),))

    return lambda task, seed: decide


def _repeat(world: World, task: Task, seed: int) -> Decide:
    first: list[ScriptedAction] = []
    random = baseline_policy(world, task, seed, "random")

    def decide(environment: Environment, observation: Observation, remaining: Remaining) -> ScriptedAction:
        if not first:
            first.append(random(environment, observation, remaining))
        return ScriptedAction("", first[0].actions[:1])

    return decide


def _partly_random(world: World, share: float) -> Callable[[Task, int], Decide]:
    """An oracle that plays a share of its turns at random, each turn by its own draw."""

    def policy(task: Task, seed: int) -> Decide:
        oracle, random = (baseline_policy(world, task, seed, name) for name in ("oracle", "random"))
        generator = seeding.generator(seed, "certificate", task.id)

        def decide(environment: Environment, observation: Observation, remaining: Remaining) -> ScriptedAction:
            player = random if generator.random() < share else oracle
            return player(environment, observation, remaining)

        return decide

    return policy


class _Player:
    """Plays scripted policies on the same tasks with the same noise, so that they can be compared task by task."""

    def __init__(self, world: World, tasks: Sequence[Task], replicas: int, seed: int, policy_count: int) -> None:
        self.world, self.tasks, self.seed = world, tasks, seed
        self._seeds = [seeding.derive(seed, "certificate", replica) for replica in range(replicas)]
        self._done, self._total = 0, policy_count * len(tasks)
        """Of the tasks of as many policies as will be played."""

    def play(self, name: str, policy: Callable[[Task, int], Decide]) -> list[list[PlayedEpisode]]:
        """The episodes of each task."""
        groups = []
        for task in self.tasks:
            progress.report(f"certificate of {self.world.name}: tasks", self._done, self._total)
            groups.append([play_by(self.world, task, seed, name, policy(task, seed)) for seed in self._seeds])
            self._done += 1
        return groups

    def returns(self, groups: Sequence[Sequence[PlayedEpisode]]) -> list[list[float]]:
        """The return of each episode of each task."""
        return [[weighted_return(self.world, episode) for episode in group] for group in groups]


def _probe(
    player: _Player,
    name: str,
    does: str,
    policy: Callable[[Task, int], Decide],
    random: Sequence[Sequence[PlayedEpisode]] | None,
) -> Probe:
    groups = player.play(name, policy)
    over = None
    if random is not None:
        pairs = zip(player.returns(groups), player.returns(random), strict=True)
        over = over_tasks(
            [sum(ours) / len(ours) - sum(theirs) / len(theirs) for ours, theirs in pairs],
            seed=player.seed,
            proportion=False,
        )
    solved_count = sum(any(_outcomes(group)) for group in groups)
    return Probe(name, does, score_of(player.world, name, groups, player.seed), over, solved_count)


def _outcomes(group: Sequence[PlayedEpisode]) -> list[bool]:
    return [episode.success for episode in group]


def _name_tasks(
    tasks: Sequence[Task], groups: Sequence[Sequence[PlayedEpisode]], applies: Callable[[Sequence[PlayedEpisode]], bool]
) -> NamedTasks:
    names = [task.id for task, group in zip(tasks, groups, strict=True) if applies(group)]
    return NamedTasks(len(names), len(tasks), tuple(names[:EXAMPLES]))


Guided = Mapping[Split, Sequence[PlayedEpisode]]
"""An episode of each task, by split."""


def _play_guide(world: World, count: int, seed: int) -> tuple[str, Guided]:
    """The policy that knows most of the world, and its episodes."""
    guide = next(name for name in ("oracle", "random", PROBE) if name in policies(world))
    return guide, {
        split: [
            play_by(world, task, seed, guide, baseline_policy(world, task, seed, guide))
            for task in progress.each(f"tasks of {split}, by {guide}", first_tasks(world, split, count))
        ]
        for split in SPLITS
    }


def _efforts(guide_episodes: Guided, seed: int) -> Iterator[Effort]:
    for split, episodes in guide_episodes.items():
        if episodes:
            yield Effort(
                split, over_tasks([float(len(each.actions)) for each in episodes], seed=seed, proportion=False)
            )


def _twins(guide: str, episodes: Guided) -> Iterator[Twins]:
    """For each split with itself, then each pair of splits, the tasks that begin alike, where there are any."""
    pairs = [*((split, split) for split in SPLITS), *combinations(SPLITS, 2)]
    for first, second in pairs:
        solutions: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for episode in episodes[first]:
            solutions[episode.first.text].append(episode.actions)
        alone = 1 if first == second else 0  # a task is no twin of itself
        alike = [each for each in episodes[second] if len(solutions[each.first.text]) > alone]
        if not alike:
            continue
        same = sum(solutions[each.first.text].count(each.actions) > alone for each in alike)
        yield Twins(
            (first, second),
            NamedTasks(len(alike), len(episodes[second]), tuple(each.task.id for each in alike[:EXAMPLES])),
            same if guide == "oracle" else None,
        )


def _length(
    world: World, policy: str, groups: Sequence[Sequence[PlayedEpisode]], measure: Callable[[str], int], unit: str
) -> Length:
    counts: Counter[str] = Counter()

    def size(text: str) -> int:
        if text not in counts:
            counts[text] = measure(text)
        return counts[text]

    instruction = size(f"{world.instruction}\n{world.grammar}")
    prompts, observations, actions, episodes = [], [], [], []
    for episode in (episode for group in groups for episode in group):
        prompts.append(instruction + size(episode.first.text))
        turns = [sum(map(size, turn.decision.actions)) for turn in episode.turns]
        answers = [sum(size(step.observation.text) for step in turn.steps) for turn in episode.turns]
        actions += turns
        observations += answers[:-1]  # nobody reads the last
        episodes.append(prompts[-1] + sum(turns) + sum(answers[:-1]))
    return Length(
        policy, unit, _mean(prompts), _mean(observations), _mean(actions), _mean(episodes), max(episodes, default=0)
    )


def _spread(player: _Player, share: float, group_size: int) -> Spread:
    groups = player.play(f"{share:.0%} random", _partly_random(player.world, share))
    success = [float(solved) for group in groups for solved in _outcomes(group)]
    return Spread(share, _mean(success), expected_spread(player.returns(groups), group_size).least)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _remarks(certificate: Certificate) -> Iterator[str]:
    if not certificate.contract.passed:
        yield f"It does not keep its contract: {len(certificate.contract.failed)} checks failed."
    for probe in certificate.probes:
        if probe.pays:
            than = "" if probe.over_random is None else f", {probe.over_random.value:.2f} more than the random policy"
            yield (
                f"A policy that {probe.does} earns {probe.score.rewards.value:.2f} an episode{than}, and solves "
                f"{probe.solved} of {probe.score.tasks} tasks."
            )
    if certificate.impossible is not None and certificate.impossible.count:
        yield f"The oracle never solves {_format_tasks(certificate.impossible)}."
    if certificate.trivial is not None and certificate.trivial.count:
        yield f"The random policy always solves {_format_tasks(certificate.trivial)}."
    for twins in certificate.twins:
        first, second = twins.splits
        if first == "train" != second and twins.same_solution:
            yield (
                f"{twins.same_solution} of {twins.alike.of} {second} tasks begin like a training task and have the "
                "same solution: they test memory."
            )
        if first == second == "test" and twins.same_solution:
            yield (
                f"{twins.same_solution} of {twins.alike.of} test tasks begin like another and have the same solution: "
                "an interval over tasks counts each, and is too narrow."
            )
    for other in certificate.efforts[1:]:
        training = certificate.efforts[0]
        if other.is_apart_from(training):
            yield (
                f"The oracle takes {_format_mean(other.actions)} on {other.split} tasks, and "
                f"{_format_mean(training.actions)} on {training.split} tasks: these splits are not equally hard."
            )
    if certificate.spread and not certificate.spread[0].differing:
        yield (
            f"No group of {certificate.group_size} random episodes has returns that differ: training must begin with "
            "demonstrations or with easier parameters."
        )


def _format_tasks(tasks: NamedTasks) -> str:
    further = ", ..." if tasks.count > len(tasks.examples) else ""
    return f"{tasks.count} of {tasks.of} tasks ({', '.join(tasks.examples)}{further})"


def _format_mean(actions: Interval) -> str:
    within = "" if actions.low is None else f" ({actions.low:.1f} to {actions.high:.1f})"
    return f"{actions.value:.1f} actions{within}"
