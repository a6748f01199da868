"""How learners and critics are loaded from folders: in this process, or in several that hold them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import CriticSection

if TYPE_CHECKING:
    from turnwise.policy.critic.critic import Critic
    from turnwise.policy.learner.learner import Learner
    from turnwise.policy.learner.processes import LearnerProcesses


def load_learner(
    folder: Path,
    parameters: LearnerParameters,
    *,
    name: str = "",
    base: Path | None = None,
    processes: LearnerProcesses | None = None,
    kind: type[Learner] | None = None,
) -> Learner:
    """The learner of a policy, with its optimizer's state where the folder holds one, and with its critic.

    `name` is what a saved adapter calls the policy that it belongs to, `base` the folder of the weights that the
    adapter in `folder` belongs to, whose optimizer's state must be there. With `processes` these hold it, and what is
    returned stands for it. `kind`, in this process alone: a class of learners, None for `Learner`.
    """
    from turnwise.policy.learner.learner import OPTIMIZER_FILE

    learner: Learner
    if base is not None or (folder / OPTIMIZER_FILE).exists():
        learner = _make("learner.restore", parameters, processes, kind)(folder, base=base)
    else:
        learner = _make("learner", parameters, processes, kind)(folder, name=name)
    if parameters.with_critic:
        learner.add_critic(folder)
    return learner


def load_frozen_policy(
    folder: Path, parameters: LearnerParameters, processes: LearnerProcesses | None = None
) -> Learner:
    """A policy for log-probabilities alone: the folder holds all its weights."""
    learner: Learner = _make("learner", parameters, processes)(folder)
    return learner


def load_critic(folder: Path, parameters: LearnerParameters, processes: LearnerProcesses | None = None) -> Critic:
    """The critic with a trunk of its own that was saved in a folder, with its optimizer's state."""
    critic: Critic = _make("critic.restore", parameters, processes)(folder)
    return critic


def new_critic(
    policy: Path,
    section: CriticSection,
    parameters: LearnerParameters,
    seed: int,
    processes: LearnerProcesses | None = None,
) -> Critic:
    """A critic with a trunk of its own and no training, of the architecture of the policy in a folder."""
    critic: Critic = _make("critic", parameters, processes)(policy, section, seed=seed)
    return critic


def makers(kind: type[Learner] | None = None) -> Mapping[str, Callable[..., Any]]:
    """What makes learners, of this class, and critics, by the name under which processes are asked for them."""
    from turnwise.policy.critic.critic import Critic
    from turnwise.policy.learner.learner import Learner

    return {
        "learner": kind or Learner,
        "learner.restore": (kind or Learner).restore,
        "critic": Critic.with_own_trunk,
        "critic.restore": Critic.restore,
    }


def _make(
    path: str,
    parameters: LearnerParameters,
    processes: LearnerProcesses | None,
    kind: type[Learner] | None = None,
) -> Callable[..., Any]:
    """One of `makers`, of this process or of these, with what is to compute."""
    maker = makers(kind)[path] if processes is None else partial(processes.make, path)
    compute = parameters.compute
    return partial(maker, device=compute.device, threads=compute.learner_threads, model=parameters.model)
