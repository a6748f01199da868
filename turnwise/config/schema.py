"""The sections of `params.yaml` as typed models: what each key means, its unit and its bounds.

A stage takes the sections that it reads and nothing else, so that only those are part of its cache key. Values are read
strictly: `"3e-4"` is not a number, `1.0` is not a count.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from turnwise.config.addresses import ModelName, StoreUrl, Title, TrackingUri
from turnwise.config.messages import KINDS_OF_SEEDS
from turnwise.config.quantities import (
    Amount,
    Batch,
    Betas,
    Count,
    Layers,
    LearningRate,
    Name,
    NotNegative,
    Number,
    Options,
    Positive,
    Repeats,
    Seconds,
    Seed,
    Share,
    Temperature,
    Tokens,
    TrainingTemperature,
    Whole,
    Width,
    because,
)
from turnwise.errors import ConfigurationError
from turnwise.world import with_preset

BESIDE_RESULTS = frozenset({"storage", "tracking"})
"""The sections that no result depends on."""


def is_none(value: object) -> bool:
    """Whether a key is left out of what is recorded: null has the digests of before it was."""
    return value is None


def is_one(number: int) -> bool:
    """Likewise 1."""
    return number == 1


class Section(BaseModel):
    """Frozen, strict, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @classmethod
    def taken_from(cls, section: Section, **further: Any) -> Self:
        """The fields that this model shares with a section, with the section's values, and `further` ones."""
        shared = {name: getattr(section, name) for name in cls.model_fields if name in type(section).model_fields}
        return cls(**shared, **further)

    def changed(self, **changes: Any) -> Self:
        """A copy with other values for these fields. Raises pydantic's ValidationError."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})


class WorldSection(Section):
    """Which world, with the parameters that its constructor takes."""

    name: str
    """A world's name, or `module:Class`."""
    preset: str = ""
    """A name of the world's `presets`, published settings which `parameters` are laid over. Empty: none."""
    parameters: Options
    """What the world is made with, once this is read: those of the preset included."""

    @field_validator("preset")
    @classmethod
    def _require_known_preset(cls, preset: str, info: ValidationInfo) -> str:
        if "name" in info.data:
            with_preset(info.data["name"], preset, {})
        return preset

    @field_validator("parameters")
    @classmethod
    def _lay_over_preset(cls, parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if {"name", "preset"} <= info.data.keys():
            return with_preset(info.data["name"], info.data["preset"], parameters)
        return parameters


class RewardSection(Section):
    """Where a named reward counts, and how much."""

    level: Literal["turn", "outcome"]
    weight: Number
    function: str | None = None
    """A reward of your own: the function that gives it, as `module:name` or by entry point, see
    `turnwise.agent.added_rewards`. null: the world or the agent gives it."""
    options: Options = {}
    """Of that function."""

    @field_validator("options")
    @classmethod
    def _require_function(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if options and info.data.get("function") is None:
            raise ConfigurationError(
                "belongs to a reward with a function of its own; this one has none: leave it out", "TW-unread-option"
            )
        return options


class Data(Section):
    """Task sets and demonstrations."""

    seed: Seed
    """Of the demonstrations' noise. Task sets depend on the world's data alone."""
    train_tasks: Count
    validation_tasks: Count
    test_tasks: Count
    demonstrations: Count
    """Episodes by the oracle, on train tasks."""
    demonstration_noise: Share
    """Probability that a turn of a demonstration is a random baseline policy's instead of the oracle's."""
    conversations: str | None
    """A file of conversations, from the project's folder: see `turnwise.data.conversations`. The warm start then
    imitates these in place of demonstrations, and needs no oracle. null: none."""


class Policy(Section):
    """The policy: made from scratch, or loaded."""

    model: str
    """`scratch`, a local directory from the project's folder, or a hub id. A directory is known by its content: another
    file in it is another policy, another place is not."""
    revision: str | None = None
    """Of a hub id: a commit, a branch or a tag. null: the main branch, as it is in the hub's local cache or, where it
    is not there, on the hub. Either way the commit is part of the cache key and is recorded."""
    chat_template_kwargs: Options = {}
    """Switches of a published model's chat template, such as `enable_thinking: false` of Qwen3. They are set in the
    template itself, so that an exported policy is prompted with it as it was trained."""
    seed: Seed
    vocabulary: Width
    """Entries of the tokenizer that is trained on the demonstrations. Used from scratch only, as what follows."""
    hidden: Width
    layers: Layers
    heads: Layers
    feed_forward: Width
    initial_deviation: Positive
    """Standard deviation of the initial weights."""
    tied_embeddings: bool
    """Whether the output layer is the transposed embedding."""


SupervisedOptimizer = Literal["adamw", "muon"]


class SupervisedSteps(Section):
    """Steps of supervised learning."""

    learning_rate_warmup: Whole
    """Steps over which the learning rate grows from zero."""
    final_learning_rate: Annotated[NotNegative, Field(le=10.0)]
    """What the learning rate falls to, linearly, by the last step."""
    weight_decay: NotNegative
    """Of AdamW. It keeps names from being learned by heart, so that copying is learned instead."""
    micro_batch_tokens: Tokens


class WarmStart(SupervisedSteps):
    """Supervised learning on the demonstrations, before reinforcement."""

    enabled: bool
    """Whether there is any; without it reinforcement starts from the initial policy."""
    seed: Seed
    maximum_steps: Count
    batch: Batch
    """Demonstrations per step."""
    learning_rate: LearningRate
    check_every: Count
    """Steps between two greedy evaluations on the validation task set."""
    threshold: Share
    """The warm start ends as soon as the world's primary metric, greedy on the validation task set, reaches this."""
    optimizer: SupervisedOptimizer = "adamw"
    """Of the weight matrices. `muon` needs fewer steps, and from scratch less time: see `turnwise.policy.muon`."""


class RetryOptions(Section):
    """What is done where a world is slow or fails: the keys of `rollout` that every stage that plays episodes reads."""

    world_seconds: Seconds
    """Seconds that a world may take for one call before its episode is tried again."""
    world_retries: Repeats
    maximum_lost_share: Share
    """Share of episodes that worlds may lose before the run is stopped."""
    world_delay: Whole
    """Engine steps that a world may work on before it is waited for. 0: not at all; more suits slow, remote worlds."""


class Rollout(RetryOptions):
    """How trajectories are sampled."""

    scheme: Literal["independent", "branching", "tree"]
    """Independent groups; for each turn's state of one trajectory a group that begins there, costlier in tokens; or
    groups of trees, whose branches share their first turns, cheaper in tokens: see `turnwise.agent.branching`."""
    prompts: Batch
    """Tasks per iteration."""
    group_size: Batch
    """Trajectories per group."""
    temperature: TrainingTemperature
    trees: Batch | None = None
    """Trees per group of the scheme `tree`, each with group_size / trees branches. null: another scheme."""
    lag: Literal[0, 1] = 0
    """Iterations by which the policy that samples is older than the one that is updated. 0: update n trains the policy
    that sampled its batch. 1: while the policy of iteration n is updated, the rollout of iteration n + 1 is sampled
    with it as it was before that update. Iterations 1 and 2 are then both sampled by the warm start. It needs
    `optimization.correction`; see docs/performance.md."""


class SelectionSection(Section):
    """Which groups of a batch are trained on: see `turnwise.credit.selection`."""

    rule: str
    """`all`, `uncertainty`, `cumulative`, `mixed`, or `random`, the control."""
    options: Options
    """Of that rule."""


class CurriculumSection(Section):
    """How many turns an episode of training may have: see `turnwise.curriculum.rules`."""

    rule: str
    """`fixed`, `staged` or `adaptive`."""
    options: Options
    """`fixed` without any is at the world's own limit."""


class ThoughtCredit(Section):
    """Advantages of its own for the thought of a reply: see `turnwise.credit.parts`."""

    estimator: str
    """A credit rule, as in the section `credit`."""
    options: Options
    """Of that rule."""
    weight: NotNegative
    """What its advantages are multiplied by. 0: thoughts are not trained."""


class Credit(Section):
    """How the rewards of an episode become advantages: see `turnwise.credit`."""

    estimator: str
    """A credit rule, such as `grpo`, `mt-grpo`, `gigpo`, `rloo` or `gae`; or one of your own."""
    options: Options
    """Of that rule."""
    thought: ThoughtCredit | None = None
    """Credit of its own for the tokens of a reply's thought; the estimator above then judges its action alone. null:
    the whole reply has one credit."""


class CriticSection(Section):
    """The critic that estimators of the GAE family need; the others have none. `turnwise.policy.critic` takes it."""

    trunk: Literal["own", "policy"] = "own"
    """`own`: a second model, trained by itself. `policy`: a head on the policy's trunk, whose update descends both
    losses; it learns from the replies that the policy does, and `epochs` and `mini_batches` are those of its warm-up
    alone."""
    coefficient: Annotated[Positive | None, Field(validate_default=True)] = None
    """Factor of its loss where it is added to the policy's: for trunk `policy`, and null for `own`."""
    initial: Literal["policy", "random"] = "policy"
    """Weights that a trunk of its own begins with: the warm start's, or random ones."""
    heads: Annotated[int, Field(ge=1, le=2, exclude_if=is_one)] = 1
    """2, for trunk `own`: two values from one trunk, of which the smaller counts (ArCHer). They begin random, since
    alike ones would stay alike, and learn the same targets."""
    privileged: Annotated[bool, Field(exclude_if=not_)] = False
    """For trunk `own`: whether it is shown the task's right answer, at the end of the first message (SWEET-RL)."""
    learning_rate: LearningRate
    warm_up: Whole = 0
    """Iterations at the start in which the critic is trained and the policy is not."""
    clip: Annotated[Positive | None, Field(validate_default=True)] = 0.2
    """How far a value may move from the one that the returns were computed with. null: no clip."""
    epochs: Batch = 1
    mini_batches: Batch = 1
    """Optimizer steps per epoch. Above 1 the sequences are shuffled and dealt out as evenly as possible."""
    maximum_gradient_norm: Positive = 1.0
    betas: Betas = (0.9, 0.999)
    """AdamW's decay rates, of the mean of the gradients and of that of their squares."""
    weight_decay: NotNegative = 0.0
    micro_batch_tokens: Tokens
    """Tokens, padding included, that go through the model at once. Changes memory and speed, not what is computed."""

    @field_validator("coefficient")
    @classmethod
    def _require_coefficient(cls, coefficient: float | None, info: ValidationInfo) -> float | None:
        if "trunk" in info.data and (info.data["trunk"] == "policy") != (coefficient is not None):
            raise ConfigurationError(
                f"must be set for trunk: policy and for no other; found trunk {info.data['trunk']!r} and coefficient "
                f"{coefficient}: it weighs the critic's loss against the policy's on the trunk that they share",
                "TW-critic-trunk",
            )
        return coefficient

    @field_validator("initial", "heads", "privileged")
    @classmethod
    def _require_own_trunk(cls, value: Any, info: ValidationInfo) -> Any:
        wanted, why = {
            "initial": (
                "policy",
                ", where a critic must begin with the policy's weights: set trunk to own, or initial to policy",
            ),
            "heads": (1, f"; found {value}: leave it out, or set trunk to own"),
            "privileged": (False, ", which reads what the policy does: leave it out, or set trunk to own"),
        }[str(info.field_name)]
        if value != wanted and info.data.get("trunk") == "policy":
            raise ConfigurationError(f"must be {str(wanted).lower()} on the policy's trunk{why}", "TW-critic-trunk")
        return value

    @field_validator("clip")
    @classmethod
    def _require_no_clip(cls, clip: float | None, info: ValidationInfo) -> float | None:
        if clip is not None and info.data.get("heads", 1) > 1:
            raise ConfigurationError(
                f"must be null with two heads, of which only the smaller value is known from before; found {clip}: set "
                "it to null, or heads to 1",
                "TW-conflicting-options",
            )
        return clip


class EvaluationSection(Section):
    """How policies are evaluated."""

    every: Count
    """Iterations between two evaluations on the validation task set."""
    samples: Batch
    """Sampled episodes per task, beside one greedy."""
    temperature: Temperature
    seed: Seed


Compared = Literal["pairs", "warm-start", "all"]
"""Which comparisons seeds are added for: of the variants with each other, with the warm start, or both."""


class SeedsUntil(Section):
    """Seeds 1, 2, ... until comparisons are decided: see `turnwise.statistics.until_decided`."""

    until: Literal["decided"]
    """When each comparison is decided."""
    at_most: Annotated[int, Field(ge=3, le=1000)]
    """Seeds of a variant."""
    first: Annotated[int, Field(ge=3), because("the spread of two seeds says next to nothing")] = 3
    """Seeds of each variant before the first look."""
    step: Annotated[int, Field(ge=1, le=1000)] = 1
    """Seeds from one look to the next, of each variant that is still in the race. With so many variants times seeds as
    there are processes, or more, none waits."""
    compare: Compared = "pairs"
    """Which comparisons seeds are added for: `pairs` of variants, each variant with the `warm-start`, or `all`. The
    others are looked at as often, and reported."""
    worth_having: Annotated[NotNegative | None, Field(validate_default=True)] = None
    """The difference that is worth having, in the unit of the world's primary metric: where it is ruled out, there are
    no more seeds. 0: nothing rules it out. null: 0.05 where the metric is a share, and otherwise 0."""

    @field_validator("first")
    @classmethod
    def _require_room(cls, first: int, info: ValidationInfo) -> int:
        if first > info.data.get("at_most", first):
            raise ConfigurationError(
                f"must be at most ablation.seeds.at_most: {info.data['at_most']}; found {first}", "TW-reversed-bounds"
            )
        return first


class Budget(Section):
    """The cost of a run at which the variants are compared, too, on one axis: see `turnwise.results.costs`."""

    iterations: Count | None = None
    sampled_tokens: Amount | None = None
    """Of the replies that are sampled to learn from."""
    trained_tokens: Amount | None = None
    """Of the replies that updates train on; a token counts once, whatever the number of epochs."""
    environment_steps: Amount | None = None
    """Replies that the world answers; one may hold several actions."""
    optimizer_steps: Amount | None = None
    seconds: Positive | None = None
    """Of all stages but the evaluations. Other machines take others: no result to repeat."""

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        axes = [name for name in BUDGET_AXES if getattr(self, name) is not None]
        if len(axes) != 1:
            raise ConfigurationError(
                f"must name one of {', '.join(BUDGET_AXES)}; found {', '.join(axes) or 'none'}", "TW-missing-option"
            )
        return self

    @property
    def axis(self) -> str:
        """The name of the axis that is given."""
        return next(name for name in BUDGET_AXES if getattr(self, name) is not None)

    @property
    def amount(self) -> float:
        """What a run spends on it."""
        return float(getattr(self, self.axis))

    @property
    def heading(self) -> str:
        """The budget in words, such as `2,000,000 sampled tokens`."""
        unit = self.axis.replace("_", " ")
        return f"{self.amount:,.15g} {unit.removesuffix('s') if self.amount == 1 else unit}"


BUDGET_AXES = tuple(Budget.model_fields)
"""The costs at which runs are compared."""


class Ablation(Section):
    """Which variants are compared, over which seeds."""

    name: Name
    """Names the comparison in MLflow and its folder in `results`."""
    seeds: Annotated[
        Annotated[list[Seed], Tag(KINDS_OF_SEEDS[0])] | Annotated[SeedsUntil, Tag(KINDS_OF_SEEDS[1])],
        Discriminator(lambda seeds: KINDS_OF_SEEDS[isinstance(seeds, dict | SeedsUntil)]),
    ]
    """A list, or `{until: decided, at_most: 20}`: then seeds are added until each comparison is decided."""
    variants: list[str]
    """Names of entries of `variants`."""
    success_threshold: Share = 0.8
    """Of the validation task set: the report tells after how many iterations each run reached it."""
    budget: Annotated[Budget | None, Field(exclude_if=is_none)] = None
    """What a run may spend at which the variants are compared, too, such as `{sampled_tokens: 2_000_000}`: on the
    validation task set, between evaluations on a straight line. null: the report shows each cost, without verdicts."""

    @property
    def until(self) -> SeedsUntil | None:
        """By what rule seeds are added; None where they are listed."""
        return self.seeds if isinstance(self.seeds, SeedsUntil) else None

    @property
    def all_seeds(self) -> list[int]:
        """Every seed that a variant is given, or may be."""
        return list(range(1, self.seeds.at_most + 1)) if isinstance(self.seeds, SeedsUntil) else self.seeds

    @property
    def runs_at_once(self) -> int:
        """The most runs that can be made at the same time."""
        seeds = max(self.seeds.first, self.seeds.step) if isinstance(self.seeds, SeedsUntil) else len(self.seeds)
        return len(self.variants) * seeds


class Storage(Section):
    """What stays on the disk; the rest is pruned while a run goes on and made again where it is needed: see
    docs/storage.md. What a run makes does not depend on it.
    """

    keep_last: Count | None
    """Last policies of each run whose weights stay, or whose adapter where that is trained. null: all."""
    keep_evaluated: bool
    """Whether the weights of every policy that was evaluated stay."""
    keep_best: Whole
    """Of the evaluated policies of each run, those with the most success whose weights stay, where not all do."""
    keep_optimizer: Count | None
    """Last policies of each run whose optimizer state and critic stay, which a resume goes on from. null: all."""
    keep_rollouts: Whole | None
    """Last rollouts of each run that `turnwise prune` leaves. A run itself prunes none, since its report reads all.
    null: all."""
    url: StoreUrl = ""
    """A store that several machines share, `s3://bucket/prefix` or an absolute folder: what is computed is written and
    looked for there, too. Empty: none. No result depends on it."""
    cache_gigabytes: Positive | None = None
    """With a shared store: what the files of its local copy may take, in 10^9 bytes; those that were used longest ago
    make room. null: no bound."""
    keep_finished_days: Count = 30
    """Days for which the local Prefect server lists a run that has ended. A server that runs keeps what it was started
    with."""


class Tracking(Section):
    """Where MLflow records."""

    uri: TrackingUri
    """A tracking URI; empty: a SQLite file in the project's home."""
    experiment: Title
    """The name of the experiment in MLflow."""
    traces: Repeats
    """Trajectories per evaluation that are recorded as traces."""
    new_files: bool = False
    """Whether the recorded diff holds source files that the commit does not have. What looks secret it never holds."""
    register_as: ModelName | None = None
    """A model in MLflow's registry that gets the ablation's best final policy, by success in validation, as its newest
    version and under the alias `best`. null: none."""
