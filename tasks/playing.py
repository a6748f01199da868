"""How stages play episodes: with a policy in the process's one resident engine, or with scripted baseline policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from tasks.models_in_memory import base_of, model_in_memory
from turnwise import progress, seeding
from turnwise.agent.added_rewards import BUILT_IN, files_of, reward_function, with_added_rewards
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import FORMATS, make_format
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, play_scripted, require_few_losses, roll_out
from turnwise.agent.modes import make_mode
from turnwise.config.agent import Agent
from turnwise.config.agent_rewards import AddedReward
from turnwise.config.model_settings import Compute
from turnwise.config.schema import RetryOptions, Section, WorldSection
from turnwise.data.metrics import recorded_in
from turnwise.data.task_sets import read_task_set
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import write_trajectories
from turnwise.plugins import FORMAT, REWARD, plugin_modules
from turnwise.policy.declared_functions import DeclaredFunctions
from turnwise.policy.engines.contract import Sampling, Shares
from turnwise.policy.engines.resident import close_resident_engine, resident_engine
from turnwise.policy.engines.spread import EngineSpread
from turnwise.store import Draft, Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients
from turnwise.world import Split, Task, World, make_world, world_class

if TYPE_CHECKING:
    from turnwise.policy.tokenizer import ChatFrame

MOST_EPISODES_AT_ONCE = 256

MakeEpisodes = Callable[[EpisodeConfig], Sequence[Episode]]
"""Makes the episodes of a rollout under the given episode config."""


class PlayParameters(Section):
    """The parameters of every stage that plays episodes."""

    world: WorldSection
    agent: Agent
    patience: RetryOptions
    further_rewards: tuple[str, ...] = ()
    """The agent's rewards that are recorded in addition to those of every episode: see `GIVEN_ON_REQUEST`."""
    added_rewards: dict[str, AddedReward] = Field(default_factory=dict)
    """Rewards of the user's own, by name."""


class PlaysWorld(Protocol):
    """Parameters that name a world."""

    @property
    def world(self) -> WorldSection:
        """The world's name and parameters."""


def world_code(parameters: PlaysWorld) -> list[str]:
    """The modules of the world and of its parts, for the cache key: their code determines the result too."""
    return list(world_class(parameters.world.name).modules(parameters.world.parameters))


def playing_code(parameters: PlayParameters) -> list[str]:
    """The modules that determine how episodes are played, for the cache key: the world's, and those of plug-ins."""
    return [*world_code(parameters), *_plugin_modules(parameters)]


def playing_reads(parameters: PlayParameters) -> dict[str, Any]:
    """What the plug-ins that play episodes read besides their code, for the cache key; empty without any."""
    added = parameters.added_rewards
    declared = {name for each in added.values() for name in reward_function(each.function).distributions}
    files = {f"{name}.{option}": path for name, each in added.items() for option, path in files_of(each).items()}
    return plugin_ingredients(_plugin_modules(parameters), declared, files)


def _plugin_modules(parameters: PlayParameters) -> list[str]:
    functions = [BUILT_IN.get(each.function, each.function) for each in parameters.added_rewards.values()]
    return [*format_code(parameters.agent.format), *plugin_modules(REWARD, functions)]


def format_code(name: str) -> list[str]:
    """The module of a reply format, for the cache key; none for those of this package."""
    return plugin_modules(FORMAT, [] if name in FORMATS else [name])


def the_world(section: WorldSection) -> World:
    """Make the world that a section names."""
    return make_world(section.name, section.parameters)


def play_with_policy(
    parameters: PlayParameters,
    compute: Compute,
    tasks: Sequence[Task],
    replicas: int,
    *,
    policy: Path,
    digest: str,
    tokenizer: Reference,
    temperature: float,
    seed: int,
    what: str,
    horizon: int | None = None,
) -> RolloutResult:
    """Play `replicas` episodes of each task with a policy, sampled at `temperature` (0: greedy).

    `digest` names the weights in the folder `policy`: an engine that already holds them does not reload them.
    `horizon` is a turn limit of this rollout; a task may have a shorter limit of its own.
    """
    return play_episodes(
        parameters,
        compute,
        lambda rules: make_episodes(rules, tasks, replicas, worlds_seed(seed)),
        policy=policy,
        digest=digest,
        tokenizer=tokenizer,
        temperature=temperature,
        seed=seed,
        what=what,
        horizon=horizon,
    )


def worlds_seed(seed: int) -> int:
    """The seed from which the seeds of the worlds' noise are derived, by `turnwise.agent.loop.episode_seed`."""
    return seeding.derive(seed, "worlds")


def play_episodes(
    parameters: PlayParameters,
    compute: Compute,
    make: MakeEpisodes,
    *,
    policy: Path,
    digest: str,
    tokenizer: Reference,
    temperature: float,
    seed: int,
    what: str,
    most_at_once: int | None = None,
    horizon: int | None = None,
) -> RolloutResult:
    """Play the episodes that `make` makes from the episode config. All other arguments are as in `play_with_policy`."""
    agent = parameters.agent
    form = make_format(agent.format, the_world(parameters.world))
    frame = _frame(default_store().folder(tokenizer), form.functions)
    engine = resident_engine(
        compute.engine,
        device=compute.device,
        threads=compute.engine_threads,
        context_length=agent.context_tokens,
        maximum_episodes=MOST_EPISODES_AT_ONCE,
        sleep_level=compute.sleep_level,
        spread=EngineSpread.of(compute),
    )
    engine.load(policy, digest, model_in_memory(digest), base_of(policy))
    engine.begin(
        seeding.derive(seed, "sampling"),
        Sampling(temperature=temperature, max_reply_tokens=agent.maximum_reply_tokens, end_tokens=frame.end_tokens),
    )
    episodes = make(_rules(parameters, frame, horizon))
    if isinstance(engine, Shares):
        engine.share_out([episode.group for episode in episodes])
    before = engine.tokens_generated
    try:
        played = roll_out(
            episodes,
            engine,
            frame.decode,
            world_delay=parameters.patience.world_delay,
            most_at_once=min(filter(None, (most_at_once, engine.slots)), default=None),
            on_progress=partial(progress.report, what),
        )
    except BaseException:
        close_resident_engine()  # replies may still be in flight: a retry must not receive them
        raise
    played.seconds["sampled_tokens"] = engine.tokens_generated - before
    played = with_added_rewards(played, parameters.added_rewards)
    require_few_losses(played, parameters.world.name, parameters.patience.maximum_lost_share)
    return played


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
    rules = _rules(parameters, None)
    episodes = make_episodes(rules, tasks, replicas, worlds_seed(seed))
    write, baseline_seed = rules.format.demonstrate, seeding.derive(seed, "players")
    played = play_scripted(episodes, write, choose, baseline_seed, looks_ahead=looks_ahead)
    played = with_added_rewards(played, parameters.added_rewards)
    require_few_losses(played, parameters.world.name, parameters.patience.maximum_lost_share)
    return played


def tasks_of(task_set: Reference, split: Split) -> Sequence[Task]:
    """The tasks of the task set of one split, in order."""
    return _tasks(default_store().folder(task_set), split)


# An artifact never changes under its digest, so its tasks and tokenizer can be cached by folder.
@cache
def _tasks(folder: Path, split: Split) -> tuple[Task, ...]:
    return tuple(read_task_set(folder, split))


def frame_of(tokenizer: Reference) -> ChatFrame:
    """The chat frame of a tokenizer."""
    return _frame(default_store().folder(tokenizer))


@cache
def _frame(folder: Path, functions: DeclaredFunctions | None = None) -> ChatFrame:
    from turnwise.policy.function_frame import load_frame_of

    return load_frame_of(folder, functions)


def save_played(draft: Draft, played: RolloutResult, folder: str = ".") -> Sequence[Trajectory]:
    """Write the trajectories and the lost episodes into a draft; returns the trajectories."""
    path = draft.folder / folder
    path.mkdir(exist_ok=True)
    write_trajectories(path, played.trajectories, played.lost)
    return played.trajectories


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
    said = [make_format(agent.format, world).instruction(world), make_mode(agent.mode).instruction]
    return "\n".join(part for part in said if part)


def _rules(parameters: PlayParameters, frame: ChatFrame | None, horizon: int | None = None) -> EpisodeConfig:
    world, agent = the_world(parameters.world), parameters.agent
    form = make_format(agent.format, world)
    return EpisodeConfig(
        world=world,
        format=form,
        limits=None,
        patience=RetryPolicy(parameters.patience.world_seconds, parameters.patience.world_retries),
        frame=frame,
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
