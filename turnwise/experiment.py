"""The `Experiment` model: one complete, validated configuration, used by the command line, DVC and deployments alike.

A wrong configuration is refused before any compute, with the key, what must hold, and the nearest known key.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from turnwise import credit
from turnwise.agent.branching import require_branching
from turnwise.agent.formats import format_class, make_format
from turnwise.config import schema
from turnwise.config.agent import Agent
from turnwise.config.agent_rewards import AGENT_REWARDS
from turnwise.config.messages import explain, with_places
from turnwise.config.model_settings import Compute
from turnwise.config.monitoring import Alarms, Guards, Monitors
from turnwise.config.optimization import Evolution, Optimization
from turnwise.config.overlays import layered, merged
from turnwise.config.presets import preset_and_own
from turnwise.config.schema import (
    Ablation,
    Credit,
    CriticSection,
    Data,
    EvaluationSection,
    Policy,
    RewardSection,
    Rollout,
    Section,
    SelectionSection,
    Storage,
    Tracking,
    WarmStart,
    WorldSection,
)
from turnwise.config.variants import require_distinct_variants
from turnwise.credit.rejection_sampling import require_shares
from turnwise.credit.selection import require_selection
from turnwise.curriculum.rules import Curriculum, make_curriculum
from turnwise.data.conversations import require_conversations_file
from turnwise.errors import ConfigurationError, CreditError
from turnwise.health.alarm_checks import require_alarms
from turnwise.policy.choice import require_policy
from turnwise.policy.learner.settings import require_full_distribution, require_loss
from turnwise.store.paths import project_root
from turnwise.suggestions import unknown
from turnwise.world import World, make_world, world_class


class Experiment(Section):
    """One experiment: every knob of the chain."""

    compute: Compute
    world: WorldSection
    agent: Agent
    rewards: dict[str, RewardSection]
    data: Data
    policy: Policy
    warm_start: WarmStart
    rollout: Rollout
    selection: SelectionSection
    curriculum: schema.CurriculumSection
    credit: Credit
    critic: CriticSection
    optimization: Optimization
    monitors: Monitors
    alarms: Alarms
    guards: Guards
    evolution: Evolution
    evaluation: EvaluationSection
    ablation: Ablation
    variants: dict[str, dict[str, Any]]
    storage: Storage
    tracking: Tracking

    def make_world(self) -> World:
        """The world, constructed with its parameters. Raises ConfigurationError."""
        try:
            world_class(self.world.name)
        except ValueError as error:
            raise ConfigurationError(f"world.name: {error}") from error
        try:
            return make_world(self.world.name, self.world.parameters)
        except (ImportError, OSError, TypeError, ValueError) as error:
            named = str(error).partition(" ")[0]
            key = f"parameters.{named}" if named in self.world.parameters else "parameters"
            raise ConfigurationError(f"world.{key}: {error}") from error

    def make_curriculum(self) -> Curriculum:
        """The schedule of the limit on turns per training episode. Raises ConfigurationError."""
        turns = self.make_world().limits.turns
        with _named("curriculum.options: "):
            return make_curriculum(self.curriculum.rule, self.curriculum.options, turns)

    def variant(self, name: str) -> Experiment:
        """The experiment with one variant's preset and changes applied. Raises ConfigurationError, e.g. if unknown."""
        if name not in self.variants:
            raise ConfigurationError(f"ablation.variants: {unknown(name, self.variants)}")
        preset, own = preset_and_own(self.variants[name])
        return build(merged(merged(self.model_dump(mode="json"), preset), own))

    @property
    def has_critic(self) -> bool:
        """Whether the advantage estimator needs a critic's state values."""
        return "values" in credit.ESTIMATORS[self.credit.estimator].needs

    @property
    def critic_on_trunk(self) -> bool:
        """Whether there is a critic, as a head on the policy's trunk."""
        return self.has_critic and self.critic.trunk == "policy"

    @model_validator(mode="after")
    def _require_sense(self) -> Experiment:
        world = self.make_world()
        make_format(self.agent.format, world)
        self._require_primary_column(world)
        self._require_demonstrations(world)
        self._require_known_rewards(world)
        self._require_curriculum(world)
        self._require_room()
        tags = format_class(self.agent.format).tags
        require_policy(self.policy, self.optimization.adapter, self.compute.engine, tags)
        self._require_credit(world)
        with _named("selection: "):
            require_selection(self.selection.rule, self.selection.options)
        self._require_update()
        require_alarms(self.alarms, self.monitors, self.selection, self.optimization.iterations)
        self._require_critic()
        self._require_evolution(world)
        return self

    def _require_primary_column(self, world: World) -> None:
        if not any(column.value == world.primary_metric for column in world.columns):
            raise ConfigurationError(
                f"a world's columns must show its primary metric, by which variants are compared; {world.name!r} has "
                f"{world.primary_metric!r} and shows {', '.join(column.value for column in world.columns)}"
            )

    def _require_demonstrations(self, world: World) -> None:
        """Refuse a warm start, or a policy from scratch, that has neither an oracle nor conversations to imitate."""
        if self.data.conversations is not None:
            require_conversations_file(project_root() / self.data.conversations)
            return
        if "oracle" in world.players or not (self.warm_start.enabled or self.policy.model == "scratch"):
            return
        raise ConfigurationError(
            f"a warm start, and a policy from scratch, learn from demonstrations by the world's oracle; the world "
            f"{world.name!r} has none, its players are {', '.join(world.players) or 'none'}; found warm_start.enabled: "
            f"{str(self.warm_start.enabled).lower()} and policy.model: {self.policy.model}: set warm_start.enabled to "
            "false and policy.model to a directory or a hub id, or data.conversations to a file to learn from"
        )

    def _require_evolution(self, world: World) -> None:
        """Refuse settings that AgentEvol does not use: it imitates whole episodes, without selection, KL or critic."""
        if self.optimization.method != "evolution":
            return
        for key, found, wanted in (
            ("selection.rule", self.selection.rule, "all"),
            ("rollout.scheme", self.rollout.scheme, "independent"),
            ("optimization.reference", self.optimization.reference, None),
        ):
            if found != wanted:
                raise ConfigurationError(
                    f"optimization.method: evolution must have {key}: {wanted or 'null'}, since it imitates whole "
                    f"episodes and nothing else; found {found!r}"
                )
        if self.has_critic:
            raise ConfigurationError(
                "optimization.method: evolution has no critic; found credit.estimator: "
                f"{self.credit.estimator}, which needs one: set it to grpo, which evolution does not ask either"
            )
        require_shares(self.evolution.batch, self.evolution.demonstration_share)
        if self.evolution.demonstration_share and "oracle" not in world.players and self.data.conversations is None:
            raise ConfigurationError(
                f"evolution.demonstration_share must be 0 where there are no demonstrations; found "
                f"{self.evolution.demonstration_share}, and the world {world.name!r} has no oracle: set it to 0, or "
                "data.conversations to a file to learn from"
            )

    def _require_known_rewards(self, world: World) -> None:
        known = {**world.rewards, **AGENT_REWARDS}
        for name in self.rewards:
            if name not in known:
                raise ConfigurationError(f"rewards of the world {world.name!r}: {unknown(name, known)}")
        if not any(reward.weight for reward in self.rewards.values()):
            raise ConfigurationError("rewards must give at least one reward a weight other than 0; found none")

    def _require_curriculum(self, world: World) -> None:
        """Refuse a curriculum with stages that training never reaches, or limits that the world does not accept."""
        curriculum = self.make_curriculum()
        curriculum.require_iterations(self.optimization.iterations)
        if curriculum.shortest == world.limits.turns:
            return
        if "turns" in inspect.signature(world_class(self.world.name)).parameters:
            try:
                make_world(self.world.name, {**self.world.parameters, "turns": curriculum.shortest})
            except ValueError as error:
                raise ConfigurationError(
                    f"a curriculum's limits must be ones that the world {world.name!r} can be played under; found "
                    f"{curriculum.shortest}, of which it says: {error}"
                ) from error

    def _require_room(self) -> None:
        """Refuse a context that is too short for the longest reply plus the longest summary, in tokens."""
        agent = self.agent
        reply, summary = max(agent.maximum_reply_tokens, agent.mode.tokens or 0), agent.context.summary_tokens or 0
        if reply + summary >= agent.context_tokens:
            raise ConfigurationError(
                "agent.context_tokens must hold more than the longest reply and, where there is one, the longest "
                f"summary; found {agent.context_tokens} for {reply} and {summary} tokens: raise "
                "it, or lower agent.maximum_reply_tokens"
            )

    def _require_credit(self, world: World) -> None:
        self._require_estimator("credit", self.credit.estimator, self.credit.options, world)
        if (thought := self.credit.thought) is None:
            return
        self._require_estimator("credit.thought", thought.estimator, thought.options, world)
        if (thought.estimator, thought.options, thought.weight) == (self.credit.estimator, self.credit.options, 1.0):
            raise ConfigurationError(
                "credit.thought must differ from the credit of the action in its estimator, options or weight; found "
                "the same, which is the credit of the whole reply: set credit.thought to null"
            )
        if "values" in credit.ESTIMATORS[thought.estimator].needs and not self.has_critic:
            raise ConfigurationError(
                f"credit.thought.estimator {thought.estimator} needs a critic, which learns from credit.estimator; "
                f"found {self.credit.estimator} there, which has none: set it to an estimator of the GAE family too"
            )

    def _require_estimator(self, key: str, estimator: str, options: dict[str, Any], world: World) -> None:
        """Refuse an unknown estimator, an option that it does not have, or an input that this experiment lacks."""
        with _named(f"{key}.estimator: " if estimator not in credit.ESTIMATORS else f"{key}.options: "):
            credit.require_options(estimator, options)
        if credit.ESTIMATORS[estimator].grouped and self.rollout.group_size < 2:
            raise ConfigurationError(
                "group size must be at least 2 to form a baseline; "
                f"found rollout.group_size: {self.rollout.group_size} with {key}.estimator: {estimator}"
            )
        if "anchors" in credit.ESTIMATORS[estimator].needs and not world.names_states:
            raise ConfigurationError(
                f"{key}.estimator {estimator} compares visits to the same state, which the world must name; "
                f"{world.name!r} names none: choose another estimator"
            )
        paper = estimator == "mt-grpo" and options.get("rule") == "paper"
        if paper and (longest := self.make_curriculum().longest) > 2:
            raise ConfigurationError(
                f"{key}.estimator mt-grpo with rule 'paper' is defined on at most two turns; training allows "
                f"{longest}; set {key}.options.rule to 'return-to-go', or the curriculum's limit to 2"
            )
        if paper and (self.agent.context.policy == "summary" or self.agent.mode.name != "plain"):
            raise ConfigurationError(
                f"{key}.estimator mt-grpo with rule 'paper' is defined on at most two turns, and a summary, a plan or "
                f"a lesson is a turn; set {key}.options.rule to 'return-to-go', agent.mode to plain and "
                "agent.context.policy to 'full' or 'window'"
            )
        reference = self.optimization.reference
        if paper and reference is not None and reference.place == "reward":
            raise ConfigurationError(
                f"{key}.estimator mt-grpo with rule 'paper' has no place for rewards per token, which "
                "optimization.reference with place: reward is; set its place to loss, or "
                f"{key}.options.rule to 'return-to-go'"
            )
        if self.rollout.scheme == "branching":
            require_branching(estimator, self.selection.rule)

    def _require_critic(self) -> None:
        """Refuse a critic's warm-up that leaves no iteration to train the policy."""
        if self.has_critic and self.critic.warm_up >= self.optimization.iterations:
            raise ConfigurationError(
                "critic.warm_up must leave iterations in which the policy is trained; found "
                f"{self.critic.warm_up} of optimization.iterations: {self.optimization.iterations}"
            )

    def _require_update(self) -> None:
        require_loss(self.optimization)
        batch = self.rollout.prompts * self.rollout.group_size
        if batch % self.optimization.mini_batches:
            raise ConfigurationError(
                f"optimization.mini_batches must divide rollout.prompts x rollout.group_size = {batch}; "
                f"found {self.optimization.mini_batches}"
            )


@contextmanager
def _named(before: str) -> Iterator[None]:
    """Prefix the message of a ConfigurationError or CreditError of the block with `before`, unless it names its key."""
    try:
        yield
    except (ConfigurationError, CreditError) as error:
        has_key = str(error).startswith(f"{before.partition('.')[0]}.")
        raise ConfigurationError(str(error) if has_key else f"{before}{error}") from error


def load(
    parameters: Path, overlays: Sequence[Path] = (), settings: Iterable[str] | Mapping[str, Any] = ()
) -> Experiment:
    """The experiment of a parameters file, overlays applied in order, then settings (`a.b=value`, or by dotted key).

    Raises ConfigurationError, with `file:line:column` where the mistake is in a file.
    """
    read = layered(parameters, overlays, settings)
    try:
        experiment = build(read.values)
        require_distinct_variants(experiment)
    except ConfigurationError as error:
        raise ConfigurationError(with_places(str(error), read.written)) from error.__cause__
    return experiment


def build(values: Mapping[str, Any]) -> Experiment:
    """The experiment of plain nested values. Raises ConfigurationError that lists the mistakes found."""
    _require_whole_distribution(values.get("rollout"))
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, Experiment)) from None


def _require_whole_distribution(rollout: Any) -> None:
    """Explain to users who set `top_p` or `top_k` why neither exists. Raises ConfigurationError."""
    if isinstance(rollout, Mapping):
        require_full_distribution(**{name: rollout[name] for name in ("top_p", "top_k") if name in rollout})


def single(experiment: Experiment, variant: str | None, seed: int | None) -> Experiment:
    """The experiment reduced to one variant and one seed.

    Defaults: the parameters as they are, as a variant called `base`, and the ablation's first seed.
    """
    values = experiment.model_dump(mode="json")
    if variant is None:
        variant = "base"
        values["variants"] = {"base": {}}
    elif variant not in experiment.variants:
        raise ConfigurationError(f"variant: {unknown(variant, experiment.variants)}")
    chosen = experiment.ablation.seeds[0] if seed is None else seed
    name = f"{experiment.ablation.name}-{variant}-{chosen}"
    values["ablation"] = {"name": name, "seeds": [chosen], "variants": [variant]}
    return build(values)
