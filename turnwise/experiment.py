"""The `Experiment` model: one complete, validated configuration, used by the command line, DVC and deployments alike.

A wrong configuration is refused before any compute, with the key, what must hold, and the nearest known key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnwise.agent.added_rewards import require_added_rewards
from turnwise.agent.formats import make_format
from turnwise.config import schema
from turnwise.config.agent import Agent
from turnwise.config.messages import explain, with_places
from turnwise.config.model_settings import require_engines, require_parts, require_processes
from turnwise.config.monitoring import Alarms, Guards, Monitors
from turnwise.config.optimization import Evolution, Optimization
from turnwise.config.overlays import Overlay, layered, merged
from turnwise.config.presets import preset_and_own
from turnwise.config.quantities import NAME, NAME_RULE
from turnwise.config.runner import ComputeSection
from turnwise.config.schema import (
    BESIDE_RESULTS,
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
from turnwise.config.world_checks import require_examples, require_files, require_primary_column, require_rewards
from turnwise.credit.batch import Rescored
from turnwise.credit.rejection_sampling import require_shares
from turnwise.credit.requirements import (
    CreditInputs,
    needs_critic,
    needs_greedy,
    require_branching,
    require_credit,
    require_greedy,
    require_privileged,
    require_trees,
    rescored_needs,
    teacher_of,
)
from turnwise.credit.selection import require_selection
from turnwise.curriculum.rules import Curriculum, make_curriculum, require_playable
from turnwise.data.conversations import require_demonstrations
from turnwise.errors import ConfigurationError
from turnwise.health.alarms import require_alarms
from turnwise.policy.choice import require_policy
from turnwise.policy.learner.settings import require_distillation, require_full_distribution, require_update
from turnwise.policy.suggested import Suggestion, with_suggestions
from turnwise.suggestions import unknown
from turnwise.world import World, make_world, world_class


class Experiment(Section):
    """One experiment: every knob of the chain."""

    compute: ComputeSection
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

    @cached_property
    def suggested(self) -> Mapping[str, Suggestion]:
        """What `turnwise.policy.suggested` has put in place of `suggested`, by dotted key; `build` sets it."""
        return {}

    @cached_property
    def made_world(self) -> World:
        """The world, constructed with its parameters. Raises ConfigurationError."""
        try:
            world_class(self.world.name)
        except ValueError as error:
            raise ConfigurationError(f"world.name: {error}", "TW-plugin-import") from error
        try:
            return make_world(self.world.name, self.world.parameters)
        except (ImportError, OSError, TypeError, ValueError) as error:
            parameter_name = str(error).partition(" ")[0]
            key = f"parameters.{parameter_name}" if parameter_name in self.world.parameters else "parameters"
            raise ConfigurationError(f"world.{key}: {error}", "TW-world-parameter") from error

    def require_programs(self) -> None:
        """Raise ConfigurationError for a program that plays the world and is not on this machine.

        For whoever is about to play: a configuration is read, compared and planned without.
        """
        try:
            self.made_world.require_programs()
        except ValueError as error:
            raise ConfigurationError(f"world {self.world.name!r}: {error}", "TW-missing-program") from error

    def __getstate__(self) -> dict[Any, Any]:
        """What is pickled: the sections. The world and the variants are made again where they are asked for."""
        state = super().__getstate__()
        sections = {name: value for name, value in state["__dict__"].items() if name in type(self).model_fields}
        return {**state, "__dict__": sections}

    @cached_property
    def made_curriculum(self) -> Curriculum:
        """The schedule of the limit on turns per training episode. Raises ConfigurationError."""
        with _prefix_errors("curriculum.options: "):
            return make_curriculum(self.curriculum.rule, self.curriculum.options, self.made_world.limits.turns)

    def values(self) -> dict[str, Any]:
        """The nested values from which `build` makes this experiment, with the runner, which no record has."""
        values = self.model_dump(mode="json")
        values["compute"]["runner"] = self.compute.runner
        return values

    def variant(self, name: str) -> Experiment:
        """The experiment with one variant's preset and changes applied. Raises ConfigurationError, e.g. if unknown."""
        if name not in self.variants:
            raise ConfigurationError(f"ablation.variants: {unknown(name, self.variants)}", "TW-unknown-variant")
        if name not in self._variants_made:
            preset, own = preset_and_own(self.variants[name])
            values = merged(merged(self.values(), preset), own)
            self._variants_made[name] = build(values, like=self)
        return self._variants_made[name]

    @cached_property
    def _variants_made(self) -> dict[str, Experiment]:
        return {}

    @property
    def has_critic(self) -> bool:
        """Whether the advantage estimator needs a critic's state values."""
        return needs_critic(self.credit.estimator)

    @property
    def rescored(self) -> tuple[Rescored, ...]:
        """What the credit rules need for which a policy must read each rollout once more."""
        return () if self.optimization.method == "evolution" else rescored_needs(self.credit)

    @property
    def branches(self) -> int | None:
        """The trajectories of a tree of the scheme `tree`; None for another scheme."""
        rollout = self.rollout
        return rollout.group_size // rollout.trees if rollout.scheme == "tree" and rollout.trees else None

    @property
    def plays_greedily(self) -> bool:
        """Whether the credit rules compare with a greedy episode of each task."""
        return self.optimization.method != "evolution" and needs_greedy(self.credit)

    @property
    def teachers(self) -> Mapping[str, str]:
        """The models that the policy learns from, by the keys that name them."""
        distillation = self.optimization.distillation
        models = {
            "credit.options.teacher": teacher_of(self.credit),
            "optimization.distillation.teacher": None if distillation is None else distillation.teacher,
        }
        return {key: model for key, model in models.items() if model is not None}

    @property
    def rewrites_context(self) -> bool:
        """Whether an episode may be more than one token sequence."""
        agent = self.agent
        return agent.context.policy != "full" or agent.mode.name != "plain" or agent.thoughts != "kept"

    @property
    def critic_on_trunk(self) -> bool:
        """Whether there is a critic, as a head on the policy's trunk."""
        return self.has_critic and self.critic.trunk == "policy"

    def first_turn_limit(self, number: int = 1) -> int | None:
        """The turn limit of an early iteration, while no result is known; None if the world's own is as short."""
        return self.below_the_worlds(self.made_curriculum.first_at(number).limit)

    def below_the_worlds(self, limit: int) -> int | None:
        """A turn limit of training; None if the world's own is as short."""
        return limit if limit < self.made_world.limits.turns else None

    def require_sense(self) -> None:
        """Raise ConfigurationError for sections that contradict each other, or what they name.

        Each check lives with its subject, and gets what it needs.
        """
        world, optimization = self.made_world, self.optimization
        self.compute.runner.require_cards(self.compute.device, self.compute.cards)
        require_processes(
            self.compute, optimization.adapter, self.warm_start.optimizer if self.warm_start.enabled else None
        )
        require_engines(self.compute.engines, self.rollout.prompts)
        if self.policy.model == "scratch":
            require_parts(self.compute.tensor_parallel, self.policy.heads)
        form = make_format(self.agent.format, world)
        require_examples(self.agent, world)
        require_primary_column(world)
        require_demonstrations(self.data, self.warm_start, self.policy, world)
        require_rewards(self.rewards, world, form.tags)
        require_added_rewards(self.rewards, world)
        curriculum = self.made_curriculum
        require_playable(curriculum, optimization.iterations, self.world, world)
        engine, needs_functions = self.compute.engine, form.functions is not None
        require_policy(self.policy, optimization.adapter, engine, form.tags, needs_functions=needs_functions)
        require_credit(self.credit, self.credit_inputs)
        if self.has_critic and self.critic.privileged:
            require_privileged(self.credit_inputs)
        if self.rollout.scheme == "branching":
            for rule in (self.credit, self.credit.thought):
                if rule is not None:
                    require_branching(rule.estimator, self.selection.rule)
        rollout = self.rollout
        require_trees(self.credit, rollout.scheme, rollout.trees, rollout.group_size, self.selection.rule)
        require_greedy(self.credit, self.rollout.scheme, self.selection.rule)
        with _prefix_errors("selection: "):
            require_selection(self.selection.rule, self.selection.options)
        require_update(optimization, self.rollout)
        require_distillation(
            optimization,
            rewrites_context=self.rewrites_context,
            learner_processes=self.compute.learner_processes,
        )
        require_alarms(self.alarms, self.monitors, self.selection, optimization.iterations)
        self._require_trained_iterations()
        if optimization.method == "evolution":
            self._require_evolution(world)

    @property
    def credit_inputs(self) -> CreditInputs:
        """What it has for its credit rules. Raises ConfigurationError where its world or curriculum cannot be made."""
        world, penalty = self.made_world, self.optimization.reference
        return CreditInputs(
            world=world.name,
            names_states=world.names_states,
            names_answers=world.names_answers,
            group_size=self.rollout.group_size,
            acting_turns=self.made_curriculum.longest,
            further_turns=self.agent.context.policy == "summary" or self.agent.mode.name != "plain",
            rewrites_context=self.rewrites_context,
            token_rewards=penalty is not None and penalty.place == "reward",
        )

    def _require_trained_iterations(self) -> None:
        """Refuse a critic's warm-up that leaves no iteration to train the policy."""
        if self.has_critic and self.critic.warm_up >= self.optimization.iterations:
            raise ConfigurationError(
                "critic.warm_up must leave iterations in which the policy is trained; found "
                f"{self.critic.warm_up} of optimization.iterations: {self.optimization.iterations}",
                "TW-critic-warm-up",
            )

    def _require_evolution(self, world: World) -> None:
        """Refuse settings that AgentEvol does not use: it imitates whole episodes, without selection, KL or critic."""
        for key, value, wanted in (
            ("selection.rule", self.selection.rule, "all"),
            ("rollout.scheme", self.rollout.scheme, "independent"),
            ("optimization.reference", self.optimization.reference, None),
            ("optimization.distillation", self.optimization.distillation, None),
            ("rollout.lag", self.rollout.lag, 0),
        ):
            if value != wanted:
                needed = "null" if wanted is None else wanted
                raise ConfigurationError(
                    f"optimization.method: evolution must have {key}: {needed}, since it imitates whole episodes and "
                    f"nothing else; found {value!r}",
                    "TW-evolution-method",
                )
        if self.has_critic:
            raise ConfigurationError(
                "optimization.method: evolution has no critic; found credit.estimator: "
                f"{self.credit.estimator}, which needs one: set it to grpo, which evolution does not ask either",
                "TW-evolution-method",
            )
        require_shares(self.evolution.batch, self.evolution.demonstration_share)
        if self.evolution.demonstration_share and "oracle" not in world.baselines and self.data.conversations is None:
            raise ConfigurationError(
                f"evolution.demonstration_share must be 0 where there are no demonstrations; found "
                f"{self.evolution.demonstration_share}, and the world {world.name!r} has no oracle: set it to 0, or "
                "data.conversations to a file to learn from",
                "TW-no-oracle",
            )


@contextmanager
def _prefix_errors(before: str) -> Iterator[None]:
    """Prefix the message of a ConfigurationError of the block with `before`, unless it names its key."""
    try:
        yield
    except ConfigurationError as error:
        has_key = str(error).startswith(f"{before.partition('.')[0]}.")
        raise ConfigurationError(str(error) if has_key else f"{before}{error}") from error


def load(
    parameters: Path,
    overlays: Sequence[Overlay] = (),
    settings: Iterable[str] | Mapping[str, Any] = (),
    *,
    to_plan: bool = False,
) -> Experiment:
    """The experiment of a parameters file, overlays applied in order, then settings (`a.b=value`, or by dotted key).

    An overlay is a file, or a mapping of sections as such a file would hold.

    `to_plan`: it is counted and not run, so that files which its world reads need not be there.

    Raises ConfigurationError, with `file:line:column` where the mistake is in a file.
    """
    configuration = layered(parameters, overlays, settings)
    try:
        experiment = build(configuration.values)
        if not to_plan:
            require_files(experiment.world)
        require_distinct_variants(experiment)
    except ConfigurationError as error:
        raise ConfigurationError(with_places(str(error), configuration.written)) from error.__cause__
    return experiment


def build(values: Mapping[str, Any], like: Experiment | None = None) -> Experiment:
    """The experiment of plain nested values, with every check made. Raises ConfigurationError.

    `like` is an experiment that this one is derived from: where both have the same world, it is not made again.
    """
    _require_whole_distribution(values.get("rollout"))
    values, suggested = with_suggestions(values)
    try:
        experiment = Experiment.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, Experiment)) from None
    vars(experiment)["suggested"] = suggested
    if like is not None and like.world == experiment.world:
        vars(experiment)["made_world"] = like.made_world  # where cached_property keeps it
    experiment.require_sense()
    return experiment


def _require_whole_distribution(rollout: Any) -> None:
    """Explain to users who set `top_p` or `top_k` why neither exists. Raises ConfigurationError."""
    if isinstance(rollout, Mapping):
        require_full_distribution(**{name: rollout[name] for name in ("top_p", "top_k") if name in rollout})


def after_steps(experiment: Experiment, steps: int) -> Experiment:
    """The experiment with a warm start of so many supervised steps, which takes them all; of 0 with none.

    Raises ConfigurationError if the experiment cannot have one.
    """
    values = experiment.values()
    values["warm_start"]["enabled"] = steps > 0
    if steps:
        values["warm_start"] |= {"maximum_steps": steps, "check_every": steps}
    return build(values, like=experiment)


def single(experiment: Experiment, variant: str | None, seed: int | None) -> Experiment:
    """The experiment reduced to one variant and one seed.

    Defaults: the parameters as they are, as a variant called `base`, and the ablation's first seed.
    """
    values = experiment.values()
    if variant is None:
        variant = "base"
        values["variants"] = {"base": {}}
    elif variant not in experiment.variants:
        raise ConfigurationError(f"variant: {unknown(variant, experiment.variants)}", "TW-unknown-variant")
    selected_seed = experiment.ablation.all_seeds[0] if seed is None else seed
    name = f"{experiment.ablation.name}-{variant}-{selected_seed}"
    values["ablation"] = {"name": name, "seeds": [selected_seed], "variants": [variant]}
    return build(values, like=experiment)


SHARED = ("world", "agent", "data", "policy", "warm_start", "evaluation", "ablation", *BESIDE_RESULTS)
"""Sections that a variant cannot change, since all variants of an ablation share the artifacts made from them."""
UNREAD: Mapping[str, tuple[str, ...]] = {
    "reinforcement": ("evolution",),
    "evolution": ("credit", "critic", "selection"),
}
"""Sections that each method of optimization does not read, so that its variants cannot change them."""


def require_distinct_variants(experiment: Experiment) -> None:
    """Raise ConfigurationError for a variant that changes nothing, equals another, or is invalid.

    An empty entry (`name: {}`) is allowed: it is the base itself.
    """
    ablation = experiment.ablation
    if not ablation.variants or not ablation.all_seeds:
        raise ConfigurationError(
            "ablation.variants and ablation.seeds must each name at least one; found none", "TW-no-variants"
        )
    if len(set(ablation.all_seeds)) < len(ablation.all_seeds):
        raise ConfigurationError(
            f"ablation.seeds must differ from each other; found {ablation.seeds}", "TW-repeated-seeds"
        )
    if len(ablation.variants) == 1 and ablation.until is not None and ablation.until.compare == "pairs":
        raise ConfigurationError(
            "ablation.seeds.compare must be warm-start where there is one variant, which has no pair; found pairs",
            "TW-missing-pair",
        )
    base = experiment.model_dump(mode="json")
    seen: dict[str, str] = {}
    for name in ablation.variants:
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"a variant's name {NAME_RULE}; found {name!r}", "TW-name-form")
        # Files and metrics are named after rows, and each of these policies has a row.
        if name in (*experiment.made_world.baselines, "warm-start", "warm_start"):
            raise ConfigurationError(
                f"a variant's name must not be that of another row of the table, the warm start or a baseline; found "
                f"{name!r}: choose another",
                "TW-name-form",
            )
        try:
            variant = experiment.variant(name)
        except ConfigurationError as error:
            raise ConfigurationError(f"variant {name!r}: {error}") from None
        _require_own_sections(name, experiment.variants[name], variant)
        values = variant.model_dump(mode="json")
        if experiment.variants[name] and values == base:
            raise ConfigurationError(
                f"variant {name!r} must change something; variants.{name} repeats the base's values",
                "TW-changes-nothing",
            )
        key = repr(values)
        if key in seen:
            raise ConfigurationError(
                f"variants must differ; {name!r} is the same as {seen[key]!r}", "TW-repeated-variants"
            )
        seen[key] = name


def _require_own_sections(name: str, changes: Mapping[str, object], variant: Experiment) -> None:
    """Raise ConfigurationError where a variant changes a section that it does not use, or that all variants share."""
    if "critic" in changes and not variant.has_critic:
        raise ConfigurationError(
            f"variant {name!r} sets critic, which its estimator {variant.credit.estimator!r} has not: only those of "
            "the GAE family have one",
            "TW-no-critic",
        )
    method = variant.optimization.method
    for section in (section for section in UNREAD[method] if section in changes):
        raise ConfigurationError(
            f"variant {name!r} must not change {section}, which optimization.method: {method} does not read",
            "TW-variant-unread",
        )
    compute = changes.get("compute")
    if isinstance(compute, Mapping) and "runner" in compute:
        raise ConfigurationError(
            f"variant {name!r} must not change compute.runner: whoever makes the runs of an ablation makes all of them",
            "TW-variant-shared",
        )
    for section in (section for section in SHARED if section in changes):
        raise ConfigurationError(
            f"variant {name!r} must not change {section}: what is prepared is shared by all variants; compare such "
            "settings as ablations of their own",
            "TW-variant-shared",
        )
