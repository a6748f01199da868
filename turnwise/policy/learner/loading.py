"""How learners and critics are loaded from folders: in this process, or in several that hold them together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

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
) -> Learner:
    """The learner of a policy, with its optimizer's state where the folder holds one, and with its critic.

    `name` is what a saved adapter calls the policy that it belongs to, `base` the folder of the weights that the
    adapter in `folder` belongs to. With `processes` these hold it, and what is returned stands for it.
    """
    from turnwise.policy.learner.learner import OPTIMIZER_FILE

    learner = _loaded(folder, parameters, (folder / OPTIMIZER_FILE).exists(), name, base, processes)
    if parameters.with_critic:
        learner.add_critic(folder)
    return learner


def load_frozen_policy(
    folder: Path, parameters: LearnerParameters, processes: LearnerProcesses | None = None
) -> Learner:
    """A policy for log-probabilities alone: the folder holds all its weights."""
    return _loaded(folder, parameters, restored=False, processes=processes)


def _loaded(
    folder: Path,
    parameters: LearnerParameters,
    restored: bool,
    name: str = "",
    base: Path | None = None,
    processes: LearnerProcesses | None = None,
) -> Learner:
    compute, model = parameters.compute, parameters.model
    if processes is not None:
        from turnwise.policy.learner.processes import LearnerOnProcesses

        threads = compute.learner_threads
        return cast("Learner", LearnerOnProcesses(processes, folder, threads=threads, model=model, restored=restored))
    from turnwise.policy.learner.learner import Learner

    device, threads = compute.device, compute.learner_threads
    if restored:
        return Learner.restore(folder, device=device, threads=threads, model=model, base=base)
    return Learner(folder, device=device, threads=threads, model=model, name=name)


def load_critic(folder: Path, parameters: LearnerParameters, processes: LearnerProcesses | None = None) -> Critic:
    """The critic with a trunk of its own that was saved in a folder, with its optimizer's state."""
    compute, model = parameters.compute, parameters.model
    if processes is not None:
        from turnwise.policy.learner.processes import CriticOnProcesses

        held = CriticOnProcesses.restore(processes, folder, threads=compute.learner_threads, model=model)
        return cast("Critic", held)
    from turnwise.policy.critic.critic import Critic

    return Critic.restore(folder, device=compute.device, threads=compute.learner_threads, model=model)


def new_critic(
    policy: Path,
    section: CriticSection,
    parameters: LearnerParameters,
    seed: int,
    processes: LearnerProcesses | None = None,
) -> Critic:
    """A critic with a trunk of its own and no training, of the architecture of the policy in a folder."""
    compute, model = parameters.compute, parameters.model
    if processes is not None:
        from turnwise.policy.learner.processes import CriticOnProcesses

        threads = compute.learner_threads
        held = CriticOnProcesses.with_own_trunk(processes, policy, section, seed=seed, threads=threads, model=model)
        return cast("Critic", held)
    from turnwise.policy.critic.critic import Critic

    threads, device = compute.learner_threads, compute.device
    return Critic.with_own_trunk(policy, section, seed=seed, threads=threads, device=device, model=model)
