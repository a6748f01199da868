"""The presets of `experiments/paper` say what the papers say: numbers copied from the papers and their releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.search.corpus_episode import CorpusEnvironment
from envs.search.corpus_world import SearchCorpus
from envs.search.question_files import OpenQuestion
from envs.search.retriever import Document
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import SearchFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import make_episodes
from turnwise.config.agent import requested_rewards
from turnwise.credit.batch import weighted_rewards
from turnwise.curriculum.rules import Staged
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.experiment import Experiment, load
from turnwise.world import Limits, ScriptedAction, Task

ROOT = Path(__file__).parents[2]
KALOR = OpenQuestion("q", "Where does the Kalor rise?", ("Mount Oth",), "Kalor")


class OneRiver:
    """A retriever that knows where one river rises."""

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        known = "It rises on Mount Oth." if query == "kalor" else "It rises somewhere."
        return (Document(query, "A river", known),)


class SmallCorpus(SearchCorpus):
    """The world of the second version with one question, and no file."""

    def __init__(self) -> None:
        super().__init__(questions="unread", retriever="http://127.0.0.1:1", turns=4)

    def make(self, task: Task, seed: int) -> CorpusEnvironment:
        return CorpusEnvironment(KALOR, OneRiver(), 3, 60, (KALOR,))


def paper(name: str, variant: str | None = None, over: tuple[str, ...] = ()) -> Experiment:
    """A preset, with files of the folder of its name laid over it."""
    folder = ROOT / "experiments" / "paper"
    overlays = [folder / f"{name}.yaml", *(folder / name / f"{each}.yaml" for each in over)]
    experiment = load(ROOT / "params.yaml", overlays, to_plan=True)
    return experiment if variant is None else experiment.variant(variant)


def weights(experiment: Experiment, level: str) -> dict[str, float]:
    return {name: each.weight for name, each in experiment.rewards.items() if each.level == level and each.weight}


def steps(experiment: Experiment) -> int:
    """Optimizer steps of a run."""
    optimization = experiment.optimization
    return optimization.iterations * optimization.epochs * optimization.mini_batches


def test_mt_grpo_is_the_papers() -> None:
    first = paper("mt_grpo")
    assert (first.policy.model, first.warm_start.enabled) == ("Qwen/Qwen2.5-7B", False)
    assert (first.rollout.prompts, first.rollout.group_size, first.rollout.temperature) == (16, 21, 0.9)
    # `num_iterations` 2 and 300 steps: 150 batches, each of them twice and as a whole.
    assert (first.optimization.epochs, first.optimization.mini_batches, steps(first)) == (2, 1, 300)
    assert first.optimization.betas == (0.9, 0.99)
    assert (first.optimization.learning_rate, first.optimization.learning_rate_warmup) == (1e-6, 20)
    assert first.optimization.learning_rate_schedule == "constant"
    assert (first.optimization.maximum_gradient_norm, first.optimization.reference) == (0.1, None)
    assert (first.made_world.limits.turns, first.world.parameters["passages"]) == (2, 1)


def test_mt_grpos_rewards_sum_to_the_papers_largest() -> None:
    turn, outcome = weights(paper("mt_grpo"), "turn"), weights(paper("mt_grpo"), "outcome")
    assert turn == {"tool_execution": 0.2, "answer_in_results": 0.5}
    assert outcome == {"exact_match": 1.0, "answer_present": 0.5, "format": 0.2, "tags": 0.2}
    assert sum(turn.values()) == pytest.approx(0.7)
    assert sum(outcome.values()) == pytest.approx(1.9)


@pytest.mark.parametrize(
    ("variant", "estimator", "options"),
    [
        ("grpo-or", "grpo", {"rewards": "outcome"}),
        ("grpo-mr", "grpo", {"rewards": "merged"}),
        ("mt-grpo", "mt-grpo", {"rule": "paper"}),
    ],
)
def test_mt_grpos_rows_differ_in_their_credit_alone(variant: str, estimator: str, options: dict[str, Any]) -> None:
    own, base = paper("mt_grpo", variant), paper("mt_grpo")
    assert (own.credit.estimator, own.credit.options) == (estimator, options)
    sections = set(type(own).model_fields) - {"credit"}
    assert all(getattr(own, section) == getattr(base, section) for section in sections)


def test_mt_ppo_is_that_of_mt_grpos_second_version() -> None:
    second = paper("mt_ppo", "mt-ppo")
    assert (second.made_world.limits.turns, second.world.parameters["passages"]) == (4, 3)
    assert (second.rollout.prompts * second.rollout.group_size, second.optimization.epochs) == (512, 4)
    assert second.optimization.iterations == 500
    assert (second.optimization.learning_rate, second.critic.learning_rate) == (1e-6, 1e-5)
    penalty = second.optimization.reference
    assert penalty is not None and (penalty.coefficient, penalty.estimator, penalty.place) == (0.001, "k1", "reward")
    assert (second.credit.estimator, second.credit.options) == ("gae", {"rewards": "turn", "bootstrap": False})


@pytest.mark.parametrize(
    ("found", "turn", "outcome"),
    [
        # The second search finds the answer, and it is given: 0.1 - 0.1, 0.3 + 0.1 - 0.2, and 1.
        (["search[rises]", "search[kalor]", "answer[Mount Oth]"], [0.0, 0.2, 0.0], 1.0),
        (["search[kalor]", "answer[Mount Ida]"], [0.3, 0.0], 0.2),
        # Four searches and no answer: 0.1 less the number of searches so far.
        (["search[kalor]", *["search[rises]"] * 3], [0.3, -0.1, -0.2, -0.3], -1.0),
    ],
)
def test_mt_ppos_rewards_are_those_of_the_paper(found: list[str], turn: list[float], outcome: float) -> None:
    rewards = paper("mt_ppo", "mt-ppo").rewards
    world = SmallCorpus()
    rules = EpisodeConfig(
        world, SearchFormat(world.verbs), world.limits, RetryPolicy(), further_rewards=requested_rewards(rewards, world)
    )
    (episode,) = make_episodes(rules, [Task("search_corpus", "kalor", "train", 0)], 1, seed=0)
    episode.open()
    for action in found:
        episode.receive(rules.format.write(ScriptedAction("so", (action,))), (), (), True)
        episode.settle()
    trajectory = episode.result()
    assert isinstance(trajectory, Trajectory)
    of_turns, of_outcome = weighted_rewards(trajectory_arrays([trajectory]), rewards)
    assert of_turns[0] == pytest.approx(turn)
    assert of_outcome == pytest.approx(outcome)


def test_mt_ppos_rows_are_the_papers_and_one_holds_the_content_fixed() -> None:
    assert weights(paper("mt_ppo", "ppo-or"), "outcome") == {"exact_match": 1.0}
    assert weights(paper("mt_ppo", "ppo-or"), "turn") == {}
    assert weights(paper("mt_ppo", "ppo-mr"), "turn") == {"answer_in_results": 0.3}
    whole = weights(paper("mt_ppo", "mt-ppo"), "turn")
    assert whole == {"answer_in_results": 0.3, "searched": 0.1, "invalid_turn": -0.2, "search_count": -0.1}
    same = paper("mt_ppo", "ppo-mr-all")
    assert same.rewards == paper("mt_ppo", "mt-ppo").rewards and same.credit.options["rewards"] == "merged"


@pytest.mark.parametrize(
    ("over", "tasks", "batch", "steps_of_batch", "fixed", "stages", "each"),
    [
        ((), (374, 100), (32, 8), 4, 30, (10, 20, 30), 100),
        (("babyai",), (810, 90), (32, 4), 4, 20, (6, 13, 20), 100),
        (("sciworld",), (2120, 200), (16, 8), 2, 20, (10, 20, 30), 100),
        (("search",), (60_000, 400), (32, 4), 4, 5, (5, 8, 10), 100),
        (("webarena",), (372, 50), (32, 4), 8, 15, (8, 12, 15), 80),
    ],
    ids=["textcraft", "babyai", "sciworld", "search", "webarena"],
)
def test_agentgym_rls_worlds_have_the_papers_horizons_and_the_releases_batches(
    over: tuple[str, ...],
    tasks: tuple[int, int],
    batch: tuple[int, int],
    steps_of_batch: int,
    fixed: int,
    stages: tuple[int, ...],
    each: int,
) -> None:
    base = paper("agentgym_rl", over=over)
    assert (base.data.train_tasks, base.data.test_tasks) == tasks
    assert (base.rollout.prompts, base.rollout.group_size) == batch
    optimization = base.optimization
    assert (optimization.mini_batches, optimization.epochs) == (steps_of_batch, 1)
    assert base.critic.mini_batches == steps_of_batch
    for variant in set(base.ablation.variants) - {"scaling-inter"}:
        assert base.variant(variant).made_curriculum == Staged((fixed,))
    scaling = base.variant("scaling-inter")
    assert scaling.made_curriculum == Staged(stages, (each, each))
    assert scaling.made_world.limits.turns == stages[-1]
    assert scaling.credit == base.variant("grpo").credit


def test_agentgym_rl_is_the_papers() -> None:
    base = paper("agentgym_rl")
    assert base.policy.model == "Qwen/Qwen2.5-7B-Instruct"
    assert paper("agentgym_rl", over=("sciworld", "3b")).policy.model == "Qwen/Qwen2.5-3B-Instruct"
    penalty = base.optimization.reference
    assert penalty is not None and (penalty.coefficient, penalty.estimator, penalty.place) == (0.001, "k3", "loss")
    assert (base.optimization.learning_rate, base.critic.learning_rate) == (1e-6, 1e-5)
    assert base.optimization.entropy_coefficient == 0.001
    assert {base.variant(name).credit.estimator for name in base.ablation.variants} == {
        "grpo",
        "gae",
        "rloo",
        "reinforce++",
    }


def test_ragen_is_the_papers() -> None:
    base = paper("ragen")
    assert (base.rollout.prompts, base.rollout.group_size, base.optimization.iterations) == (8, 16, 200)
    assert base.rollout.prompts * base.rollout.group_size // base.optimization.mini_batches == 32
    assert (base.optimization.learning_rate, base.critic.learning_rate) == (1e-6, 1e-5)
    assert (base.optimization.entropy_coefficient, base.optimization.aggregation) == (0.001, "sequence-mean")
    penalty = base.optimization.reference
    assert penalty is not None and (penalty.coefficient, penalty.estimator, penalty.place) == (0.001, "k1", "reward")
    assert base.evaluation.temperature == 0.5
    assert (base.agent.turn_frame, base.agent.surplus_actions) == (True, "drop")
    assert base.made_world.limits == Limits(turns=5, actions_per_turn=5, actions=10)
    bi_level = base.variant("bi-level").credit
    assert (bi_level.estimator, bi_level.options["gamma_turn"]) == ("bi-level-gae", 0.95)


def test_starpo_s_keeps_a_quarter_for_one_step_without_kl_and_clips_higher() -> None:
    base, own = paper("ragen", "starpo-ppo"), paper("ragen", "starpo-s")
    assert (own.selection.rule, own.selection.options) == ("uncertainty", {"share": 0.25})
    assert (own.optimization.reference, own.optimization.clip_low, own.optimization.clip_high) == (None, 0.2, 0.28)
    assert (own.optimization.mini_batches, own.critic.mini_batches) == (1, 1)
    assert own.credit == base.credit and own.rewards == base.rewards
    control = paper("ragen", "random-filter")
    assert control.selection.rule == "random" and control.optimization == own.optimization


def test_ragens_worlds_and_sizes_are_the_papers() -> None:
    assert paper("ragen").policy.model == "Qwen/Qwen2.5-0.5B-Instruct"
    assert paper("ragen", over=("frozen_lake", "3b")).policy.model == "Qwen/Qwen2.5-3B-Instruct"
    shop = paper("ragen", over=("webshop",))
    assert (shop.made_world.limits.turns, weights(shop, "outcome")) == (9, {"solved": 1.0})
    lake = paper("ragen", over=("frozen_lake",)).world.parameters
    assert (lake["frozen"], lake["success_rate"]) == (0.8, 1 / 3)
    arms = paper("ragen", over=("bandit",)).world.parameters
    assert (arms["low_payoff"], arms["high_payoff"], arms["high_probability"]) == (0.15, 1.0, 0.25)


def test_ragen_2_filters_by_the_sum_of_deviations_and_tells_boards_by_coordinates() -> None:
    filtered = paper("ragen", "ppo-filter", over=("ragen_2",))
    assert (filtered.selection.rule, filtered.selection.options) == ("cumulative", {"share": 0.9})
    assert (filtered.world.parameters["view"], filtered.made_world.limits.actions_per_turn) == ("coordinates", 2)
    assert (filtered.monitors.probe_every, filtered.monitors.probe_sample) == (5, 64)
    assert filtered.policy.model == "Qwen/Qwen2.5-3B-Instruct"
    lake = paper("ragen", "ppo-filter", over=("ragen_2", "ragen_2_frozen_lake"))
    assert (lake.world.parameters["view"], lake.world.parameters["success_rate"]) == ("coordinates", 1.0)
