"""The episodes of recorded runs: MLflow names a run's artifacts, the episodes are read from the store.

It joins what was recorded (`tracking`), the table of advantages (which the stage `credit` writes), the texts of tokens
(`policy`), and what a page shows (`reporting`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from turnwise.config.schema import RewardSection
from turnwise.credit.batch import weighted_returns
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_credit, read_evaluation, read_trajectories
from turnwise.errors import ConfigurationError
from turnwise.policy.token_texts import Spelling
from turnwise.reporting.data.episodes import OCCASIONS, Occasion, ShownEpisode, Wanted, by_task, whole_tasks
from turnwise.results.cells import WARM_START
from turnwise.results.report_data import Sample
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RecordedRun


def evaluated(run: RecordedRun) -> list[int]:
    """The iterations after which the policy was evaluated; the warm start's evaluation (0) is not included."""
    return [number for number, artifacts in enumerate(run.artifacts.iterations, start=1) if "evaluation" in artifacts]


def on_task_sets(run: RecordedRun, wanted: Wanted) -> Iterator[ShownEpisode]:
    """The run's episodes on the validation and the test task set."""
    artifacts = run.artifacts
    evaluations: list[tuple[Occasion, int, Reference]] = [("validation", 0, artifacts.start)]
    evaluations += [("validation", number, artifacts.iterations[number - 1]["evaluation"]) for number in evaluated(run)]
    if artifacts.test is not None:
        evaluations.append(("test", len(artifacts.iterations), artifacts.test))
    for occasion, iteration, reference in evaluations:
        if wanted.occasion in (None, occasion) and wanted.includes_iteration(iteration):
            yield from _evaluation(run, run.name, occasion, iteration, reference, wanted)


def baseline_episodes(run: RecordedRun, wanted: Wanted) -> Iterator[ShownEpisode]:
    """The episodes of the world's baselines and the warm start on the test task set, from the run's ablation."""
    for name, reference in run.baselines.items():
        iteration = 0 if name == WARM_START else None
        if wanted.occasion in (None, "test") and wanted.includes_iteration(iteration):
            yield from _evaluation(run, name, "test", iteration, reference, wanted)


def in_training(run: RecordedRun, wanted: Wanted, iterations: Collection[int]) -> Iterator[ShownEpisode]:
    """The run's training episodes in these iterations, with their advantages."""
    if wanted.occasion not in (None, "training"):
        return
    for number in sorted(iterations):
        if not wanted.includes_iteration(number):
            continue
        artifacts = run.artifacts.iterations[number - 1]
        advantages = read_credit(artifacts["credit"])
        for index, trajectory in enumerate(read_trajectories(default_store().folder(artifacts["rollout"]))):
            episode = ShownEpisode(
                run.name, "training", number, SAMPLED, _sample(run, trajectory, advantages.get(index))
            )
            if wanted.includes(episode):
                yield episode


def weighted_return(sample: Sample) -> float:
    """The sum of an episode's weighted rewards as training counts them: of attempts, the last one's outcome."""
    rewards = {name: RewardSection(level=each.level, weight=each.weight) for name, each in sample.rewards.items()}
    return weighted_returns(trajectory_arrays([sample.trajectory]), rewards)[0]


def legible(runs: Sequence[RecordedRun], episodes: Iterable[ShownEpisode]) -> list[ShownEpisode]:
    """Label the episodes and decode their tokens. Costly, so only for episodes to show. Baselines use `runs[0]`."""
    by_name = {run.name: run for run in runs}
    decoded_episodes = []
    for episode in episodes:
        run = by_name.get(episode.policy, runs[0])
        spelling = _spelling(default_store().folder(run.artifacts.prepared["tokenizer"]))
        sample = dataclasses.replace(
            episode.sample,
            label=f"{episode.policy} · {episode.when}",
            spelling=[spelling(turn.reply_tokens) for turn in episode.sample.trajectory.turns],
        )
        decoded_episodes.append(dataclasses.replace(episode, sample=sample))
    return decoded_episodes


def instructions(runs: Sequence[RecordedRun], episodes: Iterable[ShownEpisode]) -> dict[str, str]:
    """What policies were shown before the first observation, each text with the names of its policies joined.

    It is the beginning of the prompt as the chat template makes it of the instruction, and of functions that it
    declares; one that is no more than the header of the user's message is left out. Baseline policies are shown none.
    """
    by_name = {run.name: run for run in runs}
    beginnings: dict[str, str] = {}
    for episode in episodes:
        turns = episode.sample.trajectory.turns
        run = by_name.get(episode.policy)
        if run is None or episode.policy in beginnings or not turns or not turns[0].observation_tokens:
            continue
        spelling = _spelling(default_store().folder(run.artifacts.prepared["tokenizer"]))
        beginnings[episode.policy] = "".join(spelling(turns[0].observation_tokens)).partition(turns[0].observation)[0]
    texts = [text for text in beginnings.values() if "\n" in text.strip()]
    return {text: ", ".join(name for name in beginnings if beginnings[name] == text) for text in texts}


def asked_for(runs: Sequence[RecordedRun], wanted: Wanted) -> list[ShownEpisode]:
    """All episodes that match the request, to be read one by one.

    If the request names no task, iterations or task set, only the last training batch, whose episodes have advantages.
    """
    episodes: list[ShownEpisode] = []
    for run in runs:
        batches = range(1, len(run.artifacts.iterations) + 1)
        episodes += in_training(run, wanted, batches if wanted.iterations or wanted.task else batches[-1:])
        if wanted.task or wanted.mode or wanted.occasion not in (None, "training"):
            episodes += on_task_sets(run, wanted)
    return episodes


def sample_of(runs: Sequence[RecordedRun], wanted: Wanted, limit: int) -> tuple[list[ShownEpisode], int]:
    """A sample of about `limit` episodes that can be compared with each other, and the number it was taken from.

    From each task set the first tasks that fit, each with one greedy and one sampled episode of every policy and
    baseline; from each batch after which a policy was evaluated, the whole first group whose advantages differ.
    """
    sample: list[ShownEpisode] = []
    count = 0
    for occasion in OCCASIONS:
        episodes: list[ShownEpisode] = []
        for place, run in enumerate(runs):
            if occasion == "training":
                batches = (list(in_training(run, wanted, [number])) for number in evaluated(run))
                for batch in batches:
                    count += len(batch)
                    episodes += _first_group_with_spread(batch)
                continue
            candidates = [episode for episode in on_task_sets(run, wanted) if episode.occasion == occasion]
            if place == 0:
                candidates += [episode for episode in baseline_episodes(run, wanted) if episode.occasion == occasion]
            count += len(candidates)
            episodes += [episode for episode in candidates if episode.sample.trajectory.replica == 0]
        sample += whole_tasks(episodes, limit // len(OCCASIONS))
    return legible(runs, sample), count


def paired(
    run: RecordedRun, others: Sequence[RecordedRun], against: str, wanted: Wanted, limit: int
) -> tuple[list[ShownEpisode], int]:
    """Per shared task an episode of the run and one of another run or a baseline; and the number of shared tasks.

    From the test task set, unless the validation task set is asked for. Raises ConfigurationError if no task is shared.
    """
    narrowed = wanted if wanted.occasion else dataclasses.replace(wanted, occasion="test")
    theirs = list(baseline_episodes(run, narrowed)) if against in run.baselines else []
    theirs = [episode for episode in theirs if episode.policy == against]
    theirs += [episode for other in others for episode in on_task_sets(other, narrowed)]
    ours, theirs_by_task = by_task(_last(on_task_sets(run, narrowed))), by_task(_last(theirs))
    shared = [task for task in ours if task in theirs_by_task]
    if not shared:
        raise ConfigurationError(
            f"two policies stand side by side on tasks that both have played; {run.name!r} and {against!r} share none "
            f"on the {narrowed.occasion} task set that is asked for: choose others, or fewer conditions",
            "TW-no-shared-tasks",
        )
    pairs = [episode for task in shared[:limit] for episode in (ours[task][0], theirs_by_task[task][0])]
    return legible([run, *others], pairs), len(shared)


def _last(episodes: Iterable[ShownEpisode]) -> list[ShownEpisode]:
    """The episodes of the latest iteration."""
    episode_list = list(episodes)
    latest = max((episode.iteration or 0 for episode in episode_list), default=0)
    return [episode for episode in episode_list if episode.iteration in (None, latest)]


def _first_group_with_spread(batch: Sequence[ShownEpisode]) -> list[ShownEpisode]:
    """The episodes of the first group whose advantages are not all the same."""
    groups: dict[int, list[ShownEpisode]] = {}
    for episode in batch:
        groups.setdefault(episode.sample.trajectory.group, []).append(episode)
    for members in groups.values():
        first = members[0].sample.advantages
        if any(member.sample.advantages != first for member in members):
            return members
    return []


def _evaluation(
    run: RecordedRun, baseline: str, occasion: Occasion, iteration: int | None, reference: Reference, wanted: Wanted
) -> Iterator[ShownEpisode]:
    for mode in (GREEDY, SAMPLED):
        if wanted.mode not in (None, mode):
            continue
        for trajectory in read_evaluation(reference, mode):
            episode = ShownEpisode(baseline, occasion, iteration, mode, _sample(run, trajectory, None))
            if wanted.includes(episode):
                yield episode


def _sample(run: RecordedRun, trajectory: Trajectory, credit: TrajectoryAdvantages | None) -> Sample:
    rewards = {name: RewardSection(**values) for name, values in run.artifacts.experiment["rewards"].items()}
    return Sample(run.name, trajectory, None, {}).with_credit(credit, rewards)


@cache
def _spelling(tokenizer: Path) -> Spelling:
    return Spelling(tokenizer)
