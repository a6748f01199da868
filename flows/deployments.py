"""The flows that prefect.yaml deploys: all that the command line computes of an experiment, with typed parameters.

The parameters correspond to the command line's arguments. `changes` is a pydantic model that has every value of every
section: the form on Prefect's page has a field with a description for each, and the server refuses a wrong one before
there is a run. All are read into one configuration, `turnwise.experiment`: what only the whole shows to be wrong fails
the run before any stage. The work is a flow run within theirs, whose tags say what it is of: they are
known once the parameters are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from inspect import cleandoc
from typing import Annotated, Any

from prefect import flow, pause_flow_run, runtime
from prefect.client.schemas.objects import State
from prefect.input import RunInput
from prefect.states import Cancelled
from pydantic import ConfigDict, Field, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from flows.ablation import comparison
from flows.credit_study import study_credit
from flows.evaluate import evaluation, preparation
from flows.plan import Plan, plan_ablation
from flows.python.experiments import load
from flows.runtime.disk import free_disk, needs_of
from flows.runtime.flow_runs import run_flow
from flows.runtime.process_settings import prepare_process
from flows.sweep import sweep as compare_values
from flows.sweep import sweep_experiment
from turnwise.config.quantities import Seed
from turnwise.config.schema import Section
from turnwise.config.sweeps import candidates
from turnwise.experiment import Experiment, single
from turnwise.own_process import collect_rarely
from turnwise.project import project_root
from turnwise.reporting.formatting import readable_bytes
from turnwise.reporting.markdown import table
from turnwise.training_runs.memory import require_memory

YamlFile = Annotated[str, Field(pattern=r"\.ya?ml$")]
PARAMETERS = "params.yaml"
SECONDS_TO_APPROVE = 7 * 24 * 3600
SECONDS_BETWEEN_LOOKS = 5
"""How often a paused run looks whether there is an answer."""


def _optional_fields(section: type[Section]) -> Any:
    """The model of a section's values of which each may be left out, with their types and descriptions."""
    fields: dict[str, Any] = {
        name: (
            field.rebuild_annotation() | None,
            Field(None, description=field.description, json_schema_extra=_without_null),
        )
        for name, field in section.model_fields.items()
    }
    return create_model(section.__name__, __config__=_CLOSED, __doc__=section.__doc__, **fields)


def _without_null(schema: dict[str, Any]) -> None:
    """Leave null out of the schema of a number or a text: the form has a plain field for it, which may stay empty.

    A wrong value is then refused with its key and its bounds, and not as one that fits none of two schemas. Values of
    other kinds keep their null: the form would send the defaults of a section that stays empty.
    """
    kinds = [each for each in schema["anyOf"] if each != {"type": "null"}]
    if len(kinds) == 1 and kinds[0].get("type") in ("number", "integer", "string"):
        del schema["anyOf"], schema["default"]
        schema.update(kinds[0])


_CLOSED = ConfigDict(extra="forbid")
_SECTIONS = {
    name: field.annotation
    for name, field in Experiment.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
_FIELDS: dict[str, Any] = {
    name: (_optional_fields(section) | None, Field(None, description=cleandoc(section.__doc__ or "")))
    for name, section in _SECTIONS.items()
}
_Changes: Any = create_model("Changes", __config__=_CLOSED, **_FIELDS)


class Changes(_Changes):
    """Values that take precedence over those of the files, by section. What is left empty stays as it is there."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        _say_bounds(schema, handler, set())
        return schema

    def settings(self) -> dict[str, Any]:
        """The values by dotted key."""
        sections = self.model_dump(mode="json", exclude_none=True)
        return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


_NO_CHANGES = Changes()


def _say_bounds(schema: Any, handler: GetJsonSchemaHandler, seen: set[str]) -> None:
    """Add to the description of each number its bounds: of a wrong value the form says only that it is wrong."""
    if isinstance(schema, list):
        for each in schema:
            _say_bounds(each, handler, seen)
    if not isinstance(schema, dict):
        return
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in seen:
            seen.add(reference)
            _say_bounds(handler.resolve_ref_schema(schema), handler, seen)
        return
    for field in schema.get("properties", {}).values():
        if bounds := [_bounds(each) for each in field.get("anyOf", [field]) if _bounds(each)]:
            field["description"] = " ".join(filter(None, [field.get("description"), f"A number {bounds[0]}."]))
    for each in schema.values():
        _say_bounds(each, handler, seen)


def _bounds(number: Mapping[str, Any]) -> str:
    """The bounds of a number in a JSON schema, in words; of two lower ones the one that excludes its value."""
    wordings = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = {name: f"{words} {number[name]:g}" for name, words in wordings.items() if name in number}
    if "exclusiveMinimum" in limits:
        limits.pop("minimum", None)
    return ", ".join(limits.values())


class Approval(RunInput):
    """The answer to a plan, as the form of a paused run asks for it."""

    approved: bool = Field(
        True, description="Whether the stages of the plan may be computed. No: the run is cancelled."
    )


def question(plan: Plan) -> str:
    """A plan as Markdown: what would be computed, how often, and the disk that it takes."""
    experiment, missing = plan.experiment, Counter(each.stage for each in plan.stages if each.recorded is None)
    needs = needs_of(experiment, experiment.compute.runner.processes)
    disk = (
        "" if needs is None else f" Disk: at most {readable_bytes(needs.disk)}, of {readable_bytes(free_disk())} free."
    )
    return (
        f"**{experiment.ablation.name}**, {len(plan.runs)} runs: at most {missing.total()} of {len(plan.stages)} "
        f"stages are computed; the others are recorded.{disk}\n\n{table(('stage', 'times'), list(missing.items()))}"
    )


def _is_approved(experiment: Experiment) -> bool:
    """Pause the flow run with its plan as the question, and return the answer: yes where everything is recorded.

    Raises ConfigurationError where the run would be refused, and FlowPauseTimeout a week without an answer.
    """
    require_memory(experiment, experiment.compute.runner.processes)
    plan = plan_ablation(experiment)
    if plan.is_recorded:
        return True
    form = Approval.with_initial_data(description=question(plan), approved=True)
    answer = pause_flow_run(
        wait_for_input=form, timeout=SECONDS_TO_APPROVE, poll_interval=SECONDS_BETWEEN_LOOKS, key="approval"
    )
    return bool(answer.approved)


def _run_name() -> str:
    """The name of a flow run: its flow and parameters, written as on the command line."""
    parameters = runtime.flow_run.parameters
    changes = Changes.model_validate(parameters["changes"]).settings()
    settings = [f"{key}={value}" for key, value in {**changes, **(parameters["settings"] or {})}.items()]
    variant_and_seed = [str(parameters[name]) for name in ("variant", "seed") if parameters.get(name) is not None]
    files = parameters["overlays"] or [parameters["parameters"]]
    return " ".join([runtime.flow_run.flow_name, *files, *variant_and_seed, *settings])


@flow(name="prepare", flow_run_name=_run_name)
def prepare(
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment. Returns them by name.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key, e.g. `{"variants.mt-grpo.rollout.group_size": 8}`.
    """
    prepared = run_flow(preparation, _load(parameters, overlays, changes, settings))
    return {name: str(reference) for name, reference in vars(prepared).items()}


@flow(name="evaluate", flow_run_name=_run_name)
def evaluate(
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
) -> dict[str, dict[str, float]]:
    """Evaluate the baseline policies and the warm start on the test tasks. Returns their metrics by name.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key.
    """
    return run_flow(evaluation, _load(parameters, overlays, changes, settings))


@flow(name="ablation", flow_run_name=_run_name)
def ablation(
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
    approval: bool = False,
) -> str | State[Any]:
    """Compare the variants of a parameters file over its seeds. Returns the digest of all that was computed.

    Runs that were ended early count. Where a fault has left out runs, the flow run fails once the report is written.
    One that is not approved ends as cancelled.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key, e.g. `{"variants.mt-grpo.rollout.group_size": 8}`.
        approval: pause before anything is computed, with the plan as the question, until somebody has answered it.
    """
    return _compare(_load(parameters, overlays, changes, settings), approval)


@flow(name="experiment", flow_run_name=_run_name)
def experiment(
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
    variant: str | None = None,
    seed: Seed | None = None,
    approval: bool = False,
) -> str | State[Any]:
    """Train and test one variant with one seed. Returns the digest of all that was computed.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key.
        variant: a name of the section `variants`; by default the parameters as they are.
        seed: a whole number, 0 or more; by default the first of `ablation.seeds`.
        approval: pause before anything is computed, with the plan as the question, until somebody has answered it.
    """
    return _compare(single(_load(parameters, overlays, changes, settings), variant, seed), approval)


@flow(name="sweep", flow_run_name=_run_name)
def sweep(
    values: dict[str, list[Any]],
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
    variant: str | None = None,
    seeds: Annotated[int, Field(ge=1, le=100)] = 3,
    random: Annotated[int, Field(ge=1, le=1000)] | None = None,
) -> str:
    """Try values of some keys, on validation tasks and with seeds that no comparison uses. Returns the digest.

    Args:
        values: what is tried, by dotted key, e.g. `{"optimization.learning_rate": [0.0001, 0.0003]}`.
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key.
        variant: the variant that they are tried in; by default the parameters as they are.
        seeds: how many seeds each candidate gets, 1 to 100.
        random: how many candidates are drawn, at most 1,000; by default every combination of the values is tried.
    """
    trials = candidates(values, random)
    sweep_ablation = sweep_experiment(_load(parameters, overlays, changes, settings), trials, variant, seeds)
    result = run_flow(compare_values, sweep_ablation, trials)
    result.require_whole()
    return result.digest


@flow(name="credit-study", flow_run_name=_run_name)
def credit_study(
    parameters: YamlFile = PARAMETERS,
    overlays: list[YamlFile] | None = None,
    changes: Changes = _NO_CHANGES,
    settings: dict[str, Any] | None = None,
    policy: str | None = None,
    tasks: Annotated[int, Field(ge=1)] = 16,
    replays: Annotated[int, Field(ge=1, le=10_000)] = 8,
    success: list[str] | None = None,
) -> str:
    """Compare every credit rule with the truth, found by playing each state of a policy's episodes on many times.

    Returns the digest of the study.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        changes: values that take precedence over those of the files, by section.
        settings: further values by dotted key.
        policy: a folder, or the digest of a stored policy; by default the experiment's warm start.
        tasks: how many validation tasks are played, 1 or more.
        replays: how often each state is played on, 1 to 10,000.
        success: recorded runs or ablations with whose success each rule's closeness to the truth is compared.
    """
    experiment = _load(parameters, overlays, changes, settings)
    return run_flow(study_credit, experiment, policy, tasks, replays, success or ()).digest


def _compare(experiment: Experiment, approval: bool) -> str | State[Any]:
    """The digest of an ablation, or a cancelled state. Raises TrainingEnded where a fault has left out runs."""
    if approval and not _is_approved(experiment):
        return Cancelled(message="The plan was not approved.")
    result = run_flow(comparison, experiment)
    result.require_whole()
    return result.digest


def _load(parameters: str, overlays: list[str] | None, changes: Changes, settings: dict[str, Any] | None) -> Experiment:
    """The experiment, for a worker's process to begin with. Raises ConfigurationError where values do not fit."""
    collect_rarely()
    prepare_process()
    layers = [project_root() / each for each in overlays or []]
    return load(*layers, parameters=parameters, settings={**changes.settings(), **(settings or {})})
