"""A branching rollout through the real stage: real worlds with noise of their own, a real policy, a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stage_samples import rollout_parameters

from flows.prepare import prepare_materials, prepare_policy
from flows.train import train
from tasks.rollout.rollout import rollout
from tests.stage_calls import stage_calls
from turnwise import seeding
from turnwise.agent.branching import turn_of
from turnwise.agent.loop import episode_seed
from turnwise.agent.playing import worlds_seed
from turnwise.credit.batch import nodes, surprisals
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_arrays, read_trajectories
from turnwise.experiment import Experiment, load
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import Prepared, play_parameters
from turnwise.world import Observation

pytestmark = [pytest.mark.engine, pytest.mark.chain]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
PROMPTS, GROUP_SIZE, SEED, BRANCHES = 4, 3, 1, 4


def experiment(**settings: object) -> Experiment:
    """Three turns on a slippery lake, so that continuations need the recorded noise."""
    every = {
        "world.parameters.turns": 3,
        "world.parameters.actions": 3,
        "world.parameters.success_rate": 0.6,
        "agent.context_tokens": 256,
        "rollout.prompts": PROMPTS,
        "rollout.group_size": GROUP_SIZE,
        "rollout.scheme": "branching",
        "variants": {"grpo-or": {}},
        "ablation.variants": ["grpo-or"],
        **settings,
    }
    return load(ROOT / "params.yaml", [TINY], every)


@pytest.fixture(scope="module")
def prepared(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(tmp_path_factory.mktemp("branching")))
        chosen = experiment()
        yield prepare_policy(chosen, prepare_materials(chosen))


def rolled_out(prepared: Prepared, scheme: str) -> tuple[Reference, bool]:
    """The rollout of one scheme, and whether it was found."""
    trees = {"rollout.trees": 2, "rollout.group_size": 2 * BRANCHES} if scheme == "tree" else {}
    chosen = experiment(**{"rollout.scheme": scheme, **trees})
    parameters = rollout_parameters(
        play_parameters(chosen),
        chosen.compute,
        scheme=chosen.rollout.scheme,
        prompts=PROMPTS,
        group_size=chosen.rollout.group_size,
        branches=chosen.branches,
        seed=SEED,
    )
    with stage_calls() as calls:
        made = rollout(
            parameters, policy=prepared.warm_start, tokenizer=prepared.tokenizer, task_set=prepared.train_task_set
        )
    return made, calls[0].cached


def trajectories(reference: Reference) -> list[Trajectory]:
    return read_trajectories(default_store().folder(reference))


def by_group(found: list[Trajectory]) -> dict[int, list[Trajectory]]:
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in found:
        groups.setdefault(trajectory.group, []).append(trajectory)
    return groups


@pytest.fixture(scope="module")
def branched(prepared: Prepared) -> Reference:
    return rolled_out(prepared, "branching")[0]


def test_every_turn_of_a_trunk_has_a_full_group_and_nothing_else_does(branched: Reference) -> None:
    groups = by_group(trajectories(branched))
    trunks = [groups[prompt][0] for prompt in range(PROMPTS)]
    assert max(len(trunk.turns) for trunk in trunks) == 3
    expected = [turn * PROMPTS + prompt for prompt in range(PROMPTS) for turn in range(len(trunks[prompt].turns))]
    assert list(groups) == sorted(expected)
    for group, members in groups.items():
        assert [member.replica for member in members] == list(range(GROUP_SIZE))
        assert {member.task.id for member in members} == {trunks[group % PROMPTS].task.id}


def test_a_group_shares_its_context_to_the_bit_and_only_the_reply_to_it_is_trained(branched: Reference) -> None:
    groups = by_group(trajectories(branched))
    for group, members in groups.items():
        turn, trunk = turn_of(group, PROMPTS), groups[group % PROMPTS][0]
        whole = trunk.segments(every_reply=True)[0]
        begins = whole.turn_of_token.index(turn)
        for member in members:
            sequence = member.segments()[0]
            assert [place for place, each in enumerate(member.turns) if each.trained] == [turn]
            assert set(sequence.turn_of_token) == {-1, turn}
            assert sequence.turn_of_token.index(turn) == begins
            if turn:
                assert sequence.tokens[:begins] == whole.tokens[:begins]
                assert replace(member.turns[0], trained=True) == replace(trunk.turns[0], trained=True)
            trained = [token for token, mask in zip(sequence.tokens, sequence.mask, strict=True) if mask]
            assert tuple(trained) == member.turns[turn].reply_tokens


def test_the_tokens_that_are_trained_are_those_that_were_sampled(branched: Reference, prepared: Prepared) -> None:
    # The behaviour's log-probabilities are the policy's own, of exactly these tokens in exactly these contexts.
    from turnwise.policy.learner.learner import Learner

    sequences = [trajectory.segments()[0] for trajectory in trajectories(branched)]
    learner = Learner(default_store().folder(prepared.warm_start), threads=1)
    own = learner.log_probabilities(sequences, temperature=1.0, micro_batch_tokens=2048)
    for sequence, row in zip(sequences, own, strict=True):
        assert row == pytest.approx(list(sequence.log_probabilities), abs=1e-4)
        assert any(sequence.log_probabilities)


def test_the_continuations_meet_the_world_that_was_recorded(branched: Reference) -> None:
    chosen = experiment()
    world = chosen.made_world
    of_worlds = worlds_seed(seeding.derive(SEED, "rollout", 1))
    for trajectory in trajectories(branched):
        prompt = trajectory.group % PROMPTS
        replica = trajectory.replica if trajectory.group < PROMPTS else 0
        environment = world.make(trajectory.task, episode_seed(of_worlds, prompt, replica))
        said = [environment.reset()]
        for turn in trajectory.turns:
            said += [environment.step(action).observation for action in turn.actions] or [Observation("")]
        shown = [turn.observation for turn in trajectory.turns if turn.state is not None]
        assert shown[0] == said[0].text
        played = [turn for turn in trajectory.turns if turn.actions]
        if len(played) == len(trajectory.turns):
            assert [*shown, trajectory.final_observation] == [each.text for each in said]
        environment.close()


def test_continuations_differ_from_the_trunk(branched: Reference) -> None:
    groups = by_group(trajectories(branched))
    later = [members for group, members in groups.items() if group >= PROMPTS]
    replies = [{member.turns[turn_of(member.group, PROMPTS)].reply_tokens for member in members} for members in later]
    assert max(len(different) for different in replies) > 1


def test_turn_ones_groups_are_an_ordinary_rollouts_worlds(branched: Reference, prepared: Prepared) -> None:
    independent = by_group(trajectories(rolled_out(prepared, "independent")[0]))
    own = {group: members for group, members in by_group(trajectories(branched)).items() if group < PROMPTS}
    assert list(independent) == list(own)
    for group, members in own.items():
        for member, other in zip(members, independent[group], strict=True):
            assert (member.task, member.turns[0].observation_tokens) == (other.task, other.turns[0].observation_tokens)
    assert all(turn.trained for members in independent.values() for each in members for turn in each.turns)


def test_the_metrics_tell_the_policys_success_and_what_branching_cost(branched: Reference) -> None:
    found, metrics = trajectories(branched), default_store().metrics(branched)
    own = [trajectory for trajectory in found if trajectory.group < PROMPTS]
    assert metrics["success"] == pytest.approx(sum(trajectory.success for trajectory in own) / len(own))
    sampled = sum(len(turn.reply_tokens) for each in found for turn in each.turns[turn_of(each.group, PROMPTS) :])
    assert metrics["branching/sampled_tokens"] == sampled
    assert metrics["branching/trained_tokens"] < metrics["branching/sampled_tokens"]
    assert metrics["branching/cost"] == pytest.approx(sampled / metrics["branching/independent_tokens"])
    assert metrics["branching/cost"] > 1.5
    assert default_store().clock(branched)["sampled_tokens"] == sampled  # what the engine counted


def test_a_repeat_is_found_and_computed_anew_it_has_the_same_digest(
    branched: Reference, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rolled_out(prepared, "branching") == (branched, True)
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    chosen = experiment()
    again = prepare_policy(chosen, prepare_materials(chosen))
    assert rolled_out(again, "branching") == (branched, False)


def test_a_policy_is_trained_on_branching_groups(prepared: Prepared) -> None:
    chosen = experiment(**{"credit.options": {"rewards": "merged"}, "optimization.mini_batches": 2})
    run = train(chosen, prepared, "grpo-or", SEED)
    for iteration in run.iterations:
        metrics = default_store().metrics(iteration.policy)
        assert metrics["skipped"] or metrics["mismatch"] < 1e-5
        sampled = default_store().metrics(iteration.rollout)
        if not metrics["skipped"]:
            assert metrics["tokens"] <= sampled["branching/trained_tokens"]
    assert run.policy != prepared.warm_start


def test_a_group_of_trees_is_branches_that_share_their_first_turns_with_a_trunk(prepared: Prepared) -> None:
    made = rolled_out(prepared, "tree")[0]
    groups = by_group(trajectories(made))
    assert [*groups] == [*range(PROMPTS)]
    shared_turns = shared_tokens = 0
    for members in groups.values():
        assert [member.replica for member in members] == list(range(2 * BRANCHES))
        assert all(turn.trained for member in members for turn in member.turns)
        for first in (0, BRANCHES):
            trunk = members[first]
            for branch in members[first + 1 : first + BRANCHES]:
                assert branch.task == trunk.task
                pairs = list(zip(branch.turns, trunk.turns, strict=False))
                shared = next((place for place, (mine, its) in enumerate(pairs) if mine != its), len(pairs))
                shared_turns += shared
                shared_tokens += sum(len(turn.reply_tokens) for turn in branch.turns[:shared])
    assert shared_turns > 0
    arrays = read_arrays(default_store().folder(made))
    numbers = nodes(arrays, BRANCHES).tolist()
    improbable = surprisals(arrays).tolist()
    played = list(zip((each for members in groups.values() for each in members), numbers, strict=True))
    for one, its in played:
        for other, theirs in played:
            same_tree = (one.group, one.replica // BRANCHES) == (other.group, other.replica // BRANCHES)
            for turn, (node, another) in enumerate(zip(its, theirs, strict=False)):
                assert (node == another) is (same_tree and one.turns[: turn + 1] == other.turns[: turn + 1])
    for trajectory, row in zip((each for members in groups.values() for each in members), improbable, strict=True):
        assert row == pytest.approx([-np.mean(turn.log_probabilities) for turn in trajectory.turns])
    metrics = default_store().metrics(made)
    assert metrics["tree/sampled_tokens"] >= metrics["tree/tokens"] - shared_tokens
    assert metrics["tree/cost"] == metrics["tree/sampled_tokens"] / metrics["tree/tokens"] < 1.0


def test_trees_train_with_the_rule_that_compares_their_branches(prepared: Prepared) -> None:
    settings = {"rollout.scheme": "tree", "rollout.trees": 2, "rollout.group_size": 6, "credit.estimator": "at2po"}
    run = train(experiment(**settings), prepared, "grpo-or", 1, tested=False)
    assert run.policy.digest != prepared.warm_start.digest
