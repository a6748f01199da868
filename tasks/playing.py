"""What stages that play episodes share: the code of worlds and plug-ins, task sets, tokenizers, what they write.

How episodes are played is in `turnwise.agent.playing` and `turnwise.agent.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.restoring import MODELS, opened
from turnwise.agent.added_rewards import BUILT_IN, files_of, reward_function
from turnwise.agent.formats import FORMATS
from turnwise.agent.loop import RolloutResult
from turnwise.agent.playing import PlayParameters
from turnwise.agent.sampling import PolicyWeights
from turnwise.config.schema import WorldSection
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import write_trajectories
from turnwise.plugins import FORMAT, REWARD, plugin_modules
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import Draft, Reference, default_store
from turnwise.store.plugin_identity import Outside, plugin_ingredients
from turnwise.world import world_class

if TYPE_CHECKING:
    from turnwise.policy.tokenizer import ChatFrame


SAMPLING = ("turnwise.agent.sampling", "turnwise.policy.engines.worker")
"""The modules with which a policy plays episodes, for cache keys."""
SCORING = ("turnwise.policy.adapted", "turnwise.policy.scored_policy")
"""The modules that compute log-probabilities, for cache keys."""
TRAINING = (
    "turnwise.policy.adapted",
    "turnwise.policy.learner.loading",
    "turnwise.policy.learner.worker",
    "turnwise.policy.model_files",
)
"""The modules that train a policy and a critic, for cache keys."""


def world_code(world: WorldSection) -> list[str]:
    """The modules of the world and of its parts, for the cache key: their code determines the result too."""
    return list(world_class(world.name).modules(world.parameters))


def playing_code(parameters: PlayParameters) -> list[str]:
    """The modules that determine how episodes are played, for the cache key: the world's, and those of plug-ins."""
    return [*world_code(parameters.world), *_plugin_modules(parameters)]


def playing_reads(parameters: PlayParameters) -> dict[str, Any]:
    """What the plug-ins that play episodes read besides their code, for the cache key; empty without any."""
    added = parameters.added_rewards
    packages = {name for each in added.values() for name in reward_function(each.function).distributions}
    files = {f"{name}.{option}": path for name, each in added.items() for option, path in files_of(each).items()}
    return plugin_ingredients(_plugin_modules(parameters), packages, files)


def asking_code(play: PlayParameters | None, teacher: Outside | None) -> list[str]:
    """The modules of what a policy is asked in hindsight, and of a teacher, for the cache key; none without either."""
    hindsight = ("turnwise.agent.hindsight", "turnwise.agent.playing", "turnwise.policy.function_frame")
    teacher_modules = [] if teacher is None else ["turnwise.policy.pretrained", "turnwise.policy.tokenizer"]
    return teacher_modules if play is None else [*hindsight, *playing_code(play), *teacher_modules]


def hindsight_reads(play: PlayParameters | None) -> dict[str, Any]:
    """What the plug-ins among `asking_code` read besides their code, for the cache key."""
    return {} if play is None else playing_reads(play)


def _plugin_modules(parameters: PlayParameters) -> list[str]:
    functions = [BUILT_IN.get(each.function, each.function) for each in parameters.added_rewards.values()]
    return [*format_code(parameters.agent.format), *plugin_modules(REWARD, functions)]


def format_code(name: str) -> list[str]:
    """The module of a reply format, for the cache key; none for those of this package."""
    return plugin_modules(FORMAT, [name], FORMATS)


def sampled_policy(policy: Reference) -> PolicyWeights:
    """The weights of a policy, for an engine to sample from."""
    folder = opened(policy, MODEL_FILES)
    return PolicyWeights(folder, policy.digest, MODELS.base_of(folder), MODELS.model_in_memory(policy.digest))


def frame_of(tokenizer: Reference) -> ChatFrame:
    """The chat frame of a tokenizer."""
    from turnwise.policy.function_frame import chat_frame

    return chat_frame(default_store().folder(tokenizer))


def save_rollout(draft: Draft, rollout: RolloutResult, folder: str = ".") -> Sequence[Trajectory]:
    """Write the trajectories and the lost episodes into a draft; returns the trajectories."""
    path = draft.folder / folder
    path.mkdir(exist_ok=True)
    write_trajectories(path, rollout.trajectories, rollout.lost)
    return rollout.trajectories
