"""How episodes are configured, and how scripted baseline policies play them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from turnwise import seeding
from turnwise.agent.added_rewards import with_added_rewards
from turnwise.agent.context import ConversationFrame
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.examples import FrameWithExamples, WorkedExample
from turnwise.agent.formats import make_format
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, play_scripted, require_few_losses
from turnwise.agent.modes import make_mode
from turnwise.agent.scripted import MISTAKEN
from turnwise.config.agent import AddedReward, Agent
from turnwise.config.schema import RetryOptions, Section, WorldSection
from turnwise.data.metrics import recorded_in
from turnwise.data.trajectory import Ending
from turnwise.errors import ConfigurationError
from turnwise.world import Task, World, make_world

if TYPE_CHECKING:
    from turnwise.policy.tokenizer import ChatFrame


class PlayParameters(Section):
    """The parameters of every stage that plays episodes."""

    world: WorldSection
    agent: Agent
    patience: RetryOptions
    further_rewards: tuple[str, ...] = ()
    """The agent's rewards that are recorded in addition to those of every episode: see `GIVEN_ON_REQUEST`."""
    added_rewards: dict[str, AddedReward] = Field(default_factory=dict)
    """Rewards of the user's own, by name."""
    examples: tuple[WorkedExample, ...] = ()
    """What every policy is shown before its task: `play_examples`, by content."""


def the_world(section: WorldSection) -> World:
    """Make the world that a section names."""
    return make_world(section.name, section.parameters)


def worlds_seed(seed: int) -> int:
    """The seed from which the seeds of the worlds' noise are derived, by `turnwise.agent.loop.episode_seed`."""
    return seeding.derive(seed, "worlds")


def play_with_script(
    parameters: PlayParameters,
    tasks: Sequence[Task],
    replicas: int,
    choose: Callable[[int, int], str],
    seed: int,
    *,
    looks_ahead: bool = False,
) -> RolloutResult:
    """Play `replicas` episodes of each task with baseline policies: `choose(episode, turn)` names the one that acts.

    With `looks_ahead`, the plans and reflections that they are asked for are true (an oracle rollout).
    """
    rules = episode_config(parameters, None)
    episodes = make_episodes(rules, tasks, replicas, worlds_seed(seed))
    write, baseline_seed = rules.format.demonstrate, seeding.derive(seed, "players")
    rollout = play_scripted(episodes, write, choose, baseline_seed, looks_ahead=looks_ahead)
    rollout = with_added_rewards(rollout, parameters.added_rewards)
    require_few_losses(rollout, parameters.world.name, parameters.patience.maximum_lost_share)
    return rollout


def play_noisy_oracle(
    parameters: PlayParameters, tasks: Sequence[Task], count: int, *, noise: float, seed: int
) -> RolloutResult:
    """Play `count` episodes with a noisy oracle: each turn is played by the random baseline with probability `noise`.

    If the agent's mode asks for thoughts, half of this noise is deliberate errors, which no world or format accepts:
    they give plans a reason to be revised and reflections a subject. The plans and reflections themselves are true.

    The noise is imitated too: it leaves reinforcement learning room to improve. A world without an oracle has no
    demonstrations, and the configuration refuses settings that need them.
    """
    episodes = count if "oracle" in the_world(parameters.world).baselines else 0
    # Only train tasks, in their fixed order: imitating others would show what is tested.
    repeated = [tasks[index % len(tasks)] for index in range(episodes)]
    share_of_errors = 0.0 if parameters.agent.mode.name == "plain" else 0.5

    def baseline(episode: int, turn: int) -> str:
        # A generator per turn: an episode that ends early, or more episodes, shift no draw of another.
        draw = seeding.generator(seed, "noise", episode, turn).random()
        if draw < noise * share_of_errors:
            return MISTAKEN
        return "random" if draw < noise else "oracle"

    return play_with_script(parameters, repeated, 1, baseline, seed, looks_ahead=True)


CANDIDATES = 8
"""Training tasks that the oracle plays for each worked example; the shortest episodes are shown."""


def play_examples(parameters: PlayParameters, tasks: Sequence[Task]) -> tuple[WorkedExample, ...]:
    """The worked examples that `agent.examples` asks for, of training tasks.

    The oracle plays the first tasks. Of the episodes that it solves, the ones with the fewest characters are taken.
    Raises ConfigurationError if it solves too few.
    """
    count = parameters.agent.examples
    rollout = play_noisy_oracle(parameters, tasks, min(len(tasks), count * CANDIDATES), noise=0.0, seed=0)
    solved = sorted(
        (each for each in rollout.trajectories if each.ending is Ending.SUCCESS),
        key=lambda each: sum(len(turn.observation) + len(turn.reply) for turn in each.turns),
    )
    if len(solved) < count:
        raise ConfigurationError(
            f"agent.examples must be at most the training tasks that the world's oracle solves, {len(solved)} of the "
            f"first {len(rollout.trajectories)}; found {count}: lower it, or raise data.train_tasks",
            "TW-too-few-examples",
        )
    return tuple(map(WorkedExample.of, solved[:count]))


def conversation_frame(parameters: PlayParameters, frame: ChatFrame) -> ConversationFrame:
    """The frame of a policy's conversations, with the worked examples if there are any."""
    return FrameWithExamples(frame, parameters.examples) if parameters.examples else frame


def recorded_by(parameters: PlayParameters) -> frozenset[str]:
    """The metrics that episodes under these parameters may record, by `turnwise.data.metrics.recorded_in`.

    Call this before playing: if the world became unreachable afterwards, all episodes would be wasted.
    """
    further = [*parameters.further_rewards, *parameters.added_rewards]
    return recorded_in(the_world(parameters.world), parameters.agent, further)


def instruction_of(agent: Agent, world: World) -> str | None:
    """The instruction of an episode: world and format, then mode; None where `agent.instruction` is off."""
    if not agent.instruction:
        return None
    parts = [make_format(agent.format, world).instruction(world), make_mode(agent.mode).instruction]
    return "\n".join(part for part in parts if part)


def episode_config(parameters: PlayParameters, frame: ChatFrame | None, horizon: int | None = None) -> EpisodeConfig:
    """The configuration of episodes; `frame` is None where no policy plays, `horizon` a turn limit of this rollout."""
    world, agent = the_world(parameters.world), parameters.agent
    form = make_format(agent.format, world)
    return EpisodeConfig(
        world=world,
        format=form,
        limits=None,
        patience=RetryPolicy(parameters.patience.world_seconds, parameters.patience.world_retries),
        frame=None if frame is None else conversation_frame(parameters, frame),
        instruction=instruction_of(agent, world),
        token_budget=agent.context_tokens,
        reply_tokens=agent.maximum_reply_tokens,
        context=agent.context,
        thoughts=agent.thoughts,
        mode=make_mode(agent.mode),
        invalid_limit=agent.invalid_limit,
        turn_frame=agent.turn_frame,
        drop_surplus_actions=agent.surplus_actions == "drop",
        further_rewards=parameters.further_rewards,
        horizon=horizon,
    )
