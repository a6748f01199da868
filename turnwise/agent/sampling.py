"""How a policy plays episodes: with the process's one resident engine, through the loop of `turnwise.agent.loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise import progress, seeding
from turnwise.agent.added_rewards import with_added_rewards
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import make_format
from turnwise.agent.loop import RolloutResult, make_episodes, require_few_losses, roll_out
from turnwise.agent.playing import PlayParameters, episode_config, the_world, worlds_seed
from turnwise.config.model_settings import Compute
from turnwise.policy.engines.contract import Sampling, Shares
from turnwise.policy.engines.processes import EngineSpread
from turnwise.policy.engines.resident import close_resident_engine, resident_engine
from turnwise.world import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_EPISODES_AT_ONCE = 256

MakeEpisodes = Callable[[EpisodeConfig], Sequence[Episode]]
"""Makes the episodes of a rollout under the given episode config."""


@dataclass(frozen=True)
class PolicyWeights:
    """The weights that an engine samples from."""

    folder: Path
    """In Hugging Face's layout: all weights, or an adapter alone."""
    digest: str
    """The name of these weights: an engine that already holds them does not load them again."""
    base: Path | None = None
    """The folder of the weights that an adapter belongs to; None where the policy has no adapter."""
    model: PreTrainedModel | None = None
    """The model where this process holds it with these weights; None: they are read from the folder."""


def independent(tasks: Sequence[Task], replicas: int, seed: int) -> MakeEpisodes:
    """Makes `replicas` episodes of each task, with the worlds that a rollout with this seed gives them."""
    return lambda rules: make_episodes(rules, tasks, replicas, worlds_seed(seed))


def play_episodes(
    parameters: PlayParameters,
    compute: Compute,
    make: MakeEpisodes,
    *,
    policy: PolicyWeights,
    tokenizer: Path,
    temperature: float,
    seed: int,
    what: str,
    most_at_once: int | None = None,
    horizon: int | None = None,
) -> RolloutResult:
    """Play the episodes that `make` makes from the episode config, sampled at `temperature` (0: greedy).

    `tokenizer` is the folder of the policy's tokenizer, `what` is what progress is reported of. `horizon` is a turn
    limit of this rollout; a task may have a shorter limit of its own.
    """
    from turnwise.policy.function_frame import chat_frame

    agent = parameters.agent
    frame = chat_frame(tokenizer, make_format(agent.format, the_world(parameters.world)).functions)
    engine = resident_engine(
        compute.engine,
        device=compute.device,
        threads=compute.engine_threads,
        context_length=agent.context_tokens,
        maximum_episodes=MOST_EPISODES_AT_ONCE,
        precision=compute.precision,
        sleep_level=compute.sleep_level,
        spread=EngineSpread.of(compute),
    )
    engine.load(policy.folder, policy.digest, policy.model, policy.base)
    engine.begin(
        seeding.derive(seed, "sampling"),
        Sampling(temperature=temperature, max_reply_tokens=agent.maximum_reply_tokens, end_tokens=frame.end_tokens),
    )
    episodes = make(episode_config(parameters, frame, horizon))
    if isinstance(engine, Shares):
        engine.share_out([episode.group for episode in episodes])
    before = engine.tokens_generated
    try:
        rollout = roll_out(
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
    rollout.seconds["sampled_tokens"] = engine.tokens_generated - before
    rollout = with_added_rewards(rollout, parameters.added_rewards)
    require_few_losses(rollout, parameters.world.name, parameters.patience.maximum_lost_share)
    return rollout
