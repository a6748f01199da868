"""The configuration: one model for the file, the command line and deployments; mistakes are refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.update.update import UpdateParameters
from tests.config.counted_world import CountedLake
from turnwise.config.agent import requested_rewards
from turnwise.config.optimization import UpdateOptions
from turnwise.config.overlays import REPLACED_WHOLE, merged, parse_setting, read_yaml, with_value
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load, single
from turnwise.policy.learner.settings import UpdateSettings

ROOT = Path(__file__).parents[2]
DEFAULT = ROOT / "params.yaml"
PARAMETERS = ROOT / "tests" / "parameters.yaml"
YAML_FILES = sorted([*ROOT.glob("*.yaml"), *ROOT.glob("experiments/*.yaml")])


def refused(*settings: str, overlays: tuple[Path, ...] = ()) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(PARAMETERS, overlays, settings)
    return str(caught.value)


def test_the_default_parameters_are_accepted() -> None:
    experiment = load(DEFAULT)
    assert experiment.ablation.variants == ["grpo-or", "per-index", "mt-grpo"]
    assert experiment.variant("mt-grpo").credit.options == {"rule": "return-to-go"}
    assert experiment.variant("per-index").credit.options == {"rule": "per-index"}


def test_the_tests_own_parameters_have_the_keys_of_the_default_ones() -> None:
    def keys(path: Path) -> set[str]:
        sections = read_yaml(path)
        return {f"{name}.{key}" for name, section in sections.items() for key in section if name not in REPLACED_WHOLE}

    assert keys(PARAMETERS) == keys(DEFAULT)
    assert load(PARAMETERS).ablation.variants == ["grpo-or", "grpo-mr", "mt-grpo"]


OVERLAYS = sorted(ROOT.glob("experiments/*.yaml"))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_every_overlay_is_accepted(overlay: Path) -> None:
    overlays = [overlay]
    while base := re.match(r"# Laid over (\S+\.yaml)", overlays[0].read_text()):
        if base[1] == DEFAULT.name:
            break
        overlays.insert(0, overlay.with_name(base[1]))
    load(DEFAULT, overlays)


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_every_value_of_every_file_reads_alike_in_both_readers(path: Path) -> None:
    # PyYAML (YAML 1.1, which Prefect uses) reads 3e-4 as a string and NO as false; DVC's reader (YAML 1.2) does not.
    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: typed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [typed(inner) for inner in value]
        return (type(value).__name__, value)

    assert typed(yaml.safe_load(path.read_text())) == typed(read_yaml(path))


def test_the_two_readers_do_differ_on_what_the_files_avoid(tmp_path: Path) -> None:
    path = tmp_path / "traps.yaml"
    path.write_text("rate: 3e-4\nanswer: NO\n")
    assert yaml.safe_load(path.read_text()) == {"rate": "3e-4", "answer": False}
    assert read_yaml(path) == {"rate": 3e-4, "answer": "NO"}


def test_who_changes_what_was_read_changes_it_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("seeds: [1, 2]\n")
    read_yaml(path)["seeds"].append(3)
    assert read_yaml(path) == {"seeds": [1, 2]}
    path.write_text("seeds: [4]\n")
    assert read_yaml(path) == {"seeds": [4]}


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    message = refused("optimization.learning_rat=0.1")
    assert "optimization.learning_rat" in message
    assert "did you mean 'learning_rate'?" in message


@pytest.mark.parametrize(
    ("setting", "now"),
    [
        ("guards.dead_groups=3", "guards.dead_groups: 'dead_groups' is not a known name; it is now called"),
        ("ablation.stated_success=0.5", "'stated_success' is not a known name; it is now called"),
        ("alarms.rules={dead_groups: {above: 0.9}}", "'dead_groups' is not a monitor; it is now called"),
    ],
)
def test_a_key_that_was_renamed_is_refused_with_its_new_name(setting: str, now: str) -> None:
    assert now in refused(setting)


def test_an_unknown_section_is_refused() -> None:
    assert "did you mean 'rollout'?" in refused("rollouts.prompts=3")


def test_an_unknown_reward_is_refused() -> None:
    assert "did you mean 'exact_match'?" in refused("rewards.exact_matches={level: outcome, weight: 1.0}")


def test_an_unknown_variant_is_refused() -> None:
    assert "did you mean 'mt-grpo'?" in refused("ablation.variants=[mt-grp]")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("optimization.learning_rate=fast", "optimization.learning_rate"),
        ("optimization.iterations=2.5", "optimization.iterations"),
        ("optimization.iterations=0", "must be at least 1"),
        ("rollout.temperature='0.9'", "rollout.temperature"),
        ("warm_start.enabled=1", "warm_start.enabled"),
        ("compute.device=tpu", "must be one of cpu, cuda"),
    ],
)
def test_a_wrong_type_or_range_is_refused_with_its_key(setting: str, expected: str) -> None:
    assert expected in refused(setting)


@pytest.mark.parametrize(
    "setting",
    [
        "rollout.group_size=1000000000",
        "rollout.temperature=1e-300",
        "rollout.world_retries=-1",
        "policy.layers=100000",
        "compute.engine_threads=10000",
        "tracking.traces=-1",
        "tracking.register_as=a/b",
        "tracking.register_as=..",
        "data.train_tasks=100000000000",
        "rewards.exact_match.weight=.nan",
        "alarms.rules.entropy={below: .inf}",
        "ablation.name=../../x",
        "ablation.name=/x",
        "ablation.name=''",
        f"ablation.name={'x' * 300}",
    ],
)
def test_what_no_machine_and_no_paper_has_is_refused_with_its_key(setting: str) -> None:
    assert refused(setting).startswith(setting.partition("=")[0])


def test_an_option_of_the_update_is_a_key_of_its_section_and_reaches_the_learner() -> None:
    experiment = load(PARAMETERS, settings=["optimization.betas=[0.9, 0.95]"])
    update = UpdateParameters.of(experiment.variant("mt-grpo").optimization, experiment.compute, 1.0, 1, 1)
    assert update.settings.betas == (0.9, 0.95)
    of_a_call = {"temperature", "critic", "seed", "run_steps"}
    assert set(UpdateOptions.model_fields) == set(UpdateSettings.model_fields) - of_a_call


def test_a_learning_rate_falls_over_the_steps_that_train_the_policy_and_a_constant_one_knows_of_none() -> None:
    settings = {
        "optimization.iterations": 12,
        "optimization.epochs": 2,
        "optimization.mini_batches": 4,
        "optimization.learning_rate_schedule": "linear",
    }
    falling, constant = load(PARAMETERS, settings=settings), load(PARAMETERS)

    def steps(read: Experiment, untrained: int) -> int | None:
        of = UpdateParameters.of(read.optimization, read.compute, 1.0, 1, 1, untrained=untrained)
        return of.settings.run_steps

    assert (steps(falling, 0), steps(falling, 2)) == (96, 80)
    assert steps(constant, 0) is None, "or a longer run would not reuse the iterations of a shorter one"


def test_tags_are_rewarded_only_in_a_format_that_has_tags() -> None:
    settings = ["rewards.tags={level: outcome, weight: 0.2}"]
    experiment = load(PARAMETERS, settings=settings)
    assert requested_rewards(experiment.rewards, experiment.made_world) == ("tags",)
    assert requested_rewards(load(PARAMETERS).rewards, experiment.made_world) == ()
    assert "rewards.tags must be left out" in refused(*settings, "agent.format=react")


def test_a_group_of_one_with_a_group_baseline_is_refused() -> None:
    message = refused("rollout.group_size=1")
    assert "group size must be at least 2 to form a baseline; found rollout.group_size: 1" in message


def test_mini_batches_that_divide_nothing_are_refused() -> None:
    message = refused("optimization.mini_batches=3")
    assert "must divide rollout.prompts x rollout.group_size = 128; found 3" in message


def test_a_variant_that_changes_nothing_is_refused() -> None:
    message = refused("variants.grpo-mr={rollout: {prompts: 16}}")
    assert "variant 'grpo-mr' must change something" in message


def test_two_equal_variants_are_refused() -> None:
    message = refused("variants.grpo-mr={credit: {estimator: mt-grpo, options: {rule: paper}}}")
    assert "'mt-grpo' is the same as 'grpo-mr' [TW-repeated-variants]" in message


def test_a_variant_that_makes_no_sense_is_refused_under_its_name() -> None:
    message = refused("variants.grpo-mr={credit: {options: {reward: merged}}}")
    assert "variant 'grpo-mr'" in message and "options of 'grpo'" in message


@pytest.mark.parametrize("name", ["warm-start", "warm_start", "oracle"])
def test_a_variant_is_not_called_as_another_row_of_the_table(name: str) -> None:
    message = refused(f"variants.{name}={{}}", f"ablation.variants=[{name}]")
    assert f"found '{name}'" in message and "TW-name-form" in message


def test_a_critic_without_an_estimator_that_has_one_is_refused() -> None:
    message = refused("variants.grpo-mr={critic: {clip: 0.1}}")
    assert "variant 'grpo-mr' sets critic, which its estimator 'grpo' has not" in message


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("optimization.loss=gsppo", "loss must be one of"),
        ("optimization.reference={coefficient: 0.1, estimator: k1, place: loss}", "zero in expectation"),
        ("optimization.aggregation=constant", "aggregation_constant must be"),
        ("selection.rule=uncertain", "the selection must be one of"),
        ("credit={estimator: rloo, options: {epsilon: 0.1}}", "options of 'rloo'"),
        ("rollout.lag=1", "optimization.correction must be set where rollout.lag is 1"),
        ("rollout.lag=2", "rollout.lag must be one of 0, 1; found 2"),
        ("compute.sleep_level=7", "compute.sleep_level must be one of 0, 1, 2; found 7"),
    ],
)
def test_an_update_that_makes_no_sense_is_refused_with_the_reason(setting: str, expected: str) -> None:
    assert expected in refused(setting)


@pytest.mark.parametrize(
    "setting", ["rollout.top_p=0.9", "rollout.top_k=50", "variants.grpo-or={rollout: {top_p: 0.9}}"]
)
def test_sampling_from_a_part_of_the_distribution_is_refused_with_the_reason(setting: str) -> None:
    assert "the gradient would be biased, and the ratio wrong" in refused(setting)


def test_a_critic_that_warms_up_until_the_end_is_refused() -> None:
    settings = ("credit.estimator=gae", "variants={base: {}}", "ablation.variants=[base]")
    assert load(PARAMETERS, settings=[*settings, "critic.warm_up=19"]).critic.warm_up == 19
    message = refused(*settings, "critic.warm_up=20")
    assert "critic.warm_up must leave iterations in which the policy is trained; found 20 of" in message


@pytest.mark.parametrize(
    "settings",
    [
        ("credit={estimator: mt-grpo, options: {rule: paper}}",),
        ("credit.thought={estimator: mt-grpo, options: {rule: paper}, weight: 1.0}",),
    ],
)
def test_a_penalty_in_the_reward_is_refused_under_a_rule_that_has_no_place_for_it(settings: tuple[str, ...]) -> None:
    base = (*settings, "variants={base: {}}", "ablation.variants=[base]")
    in_the_loss = "optimization.reference={coefficient: 0.1, estimator: k2, place: loss}"
    assert load(PARAMETERS, settings=[*base, in_the_loss]).optimization.reference is not None
    message = refused(*base, "optimization.reference={coefficient: 0.1, estimator: k1, place: reward}")
    assert "has no place for rewards per token, which optimization.reference with place: reward is" in message


def test_branching_groups_without_a_rule_that_compares_within_them_are_refused() -> None:
    assert "branching" in refused("rollout.scheme=branching", "credit={estimator: reinforce++, options: {}}")


def test_the_paper_rule_with_more_than_two_turns_is_refused() -> None:
    message = refused("world.parameters.turns=4")
    assert "mt-grpo with rule 'paper' is defined on at most 2 turns; training allows 4" in message


def test_a_context_without_room_for_the_longest_replies_is_refused() -> None:
    assert "must hold more than the longest reply" in refused("agent.context_tokens=40")
    summary = "agent.context={policy: summary, every: 2, summary_tokens: 280}"
    assert "found 320 for 40 and 280 tokens" in refused(summary)


@pytest.mark.parametrize(
    "setting",
    [
        "agent.context={policy: summary, every: 1, summary_tokens: 40}",
        "agent.mode={name: plan, tokens: 20}",
        "agent.mode={name: reflect, tokens: 20}",
    ],
)
def test_more_turns_than_those_that_act_are_refused_under_a_rule_for_two(setting: str) -> None:
    assert "a summary, a plan or a lesson is a turn" in refused(setting)


def test_a_format_that_cannot_express_the_world_is_refused() -> None:
    message = refused("agent.format=search", overlays=(ROOT / "experiments" / "frozen_lake.yaml",))
    assert "agent.format 'search' writes the actions search[...] and answer[...]" in message


def test_an_unknown_world_and_an_unknown_world_parameter_are_refused() -> None:
    assert "world must be one of" in refused("world.name=serch")
    assert "hop" in refused("world.parameters.hop=[1]")


def test_a_setting_is_read_as_yaml_1_2() -> None:
    assert parse_setting("a.b=3e-4") == ("a.b", 3e-4)
    assert parse_setting("a=[1, 2]") == ("a", [1, 2])
    with pytest.raises(ConfigurationError, match="TW-option-format"):
        parse_setting("a.b")


def test_settings_from_a_deployment_pass_through_the_same_model() -> None:
    assert load(PARAMETERS, settings={"optimization.iterations": 3}).optimization.iterations == 3
    with pytest.raises(ConfigurationError, match=r"'iterations'.*TW-unknown-option"):
        load(PARAMETERS, settings={"optimization.iteration": 3})


def test_a_setting_through_a_value_that_is_no_section_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TW-not-a-section"):
        with_value({"a": 1}, "a.b", 2)


def test_an_overlay_merges_mappings_and_replaces_everything_else() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 3}, "d": [2]}) == {"a": {"b": 1, "c": 3}, "d": [2]}


@pytest.mark.parametrize("name", ["grpo@0.001", "reinforce++", "a b", "a/b"])
def test_a_variant_has_a_name_that_mlflow_and_file_systems_take(name: str) -> None:
    message = refused(f"variants={{{name}: {{optimization: {{iterations: 3}}}}}}", f"ablation.variants=[{name}]")
    assert message.endswith(f"found {name!r} [TW-name-form]")


def test_a_world_whose_columns_do_not_show_what_variants_are_compared_by_is_refused() -> None:
    message = refused("world={name: 'corridor_worlds:Unshown', parameters: {}}", "agent.format=think-answer")
    assert "'corridor' has 'speed' and shows success, format, turns" in message


def test_another_world_brings_its_own_parameters_and_rewards() -> None:
    experiment = load(PARAMETERS, [ROOT / "experiments" / "frozen_lake.yaml"])
    assert "hops" not in experiment.world.parameters
    assert "tool_execution" not in experiment.rewards


def test_credit_by_visits_to_a_state_needs_a_world_that_names_its_states() -> None:
    blackjack = (
        "world={name: gymnasium, parameters: {id: Blackjack-v1}}",
        "rewards={reward: {level: outcome, weight: 1.0}}",
        "agent.format=think-answer",
        "policy.model=a/b",
        "warm_start.enabled=false",
        "variants={base: {}}",
        "ablation.variants=[base]",
    )
    assert load(PARAMETERS, settings=blackjack).credit.estimator == "grpo"
    assert "'gymnasium' names none: choose another estimator" in refused(*blackjack, "credit.estimator=gigpo")


@pytest.mark.parametrize(
    ("thought", "message"),
    [
        ("{estimator: grpo, options: {}, weight: 1.0}", "credit.thought must differ from the credit of the action"),
        (
            "{estimator: gae, options: {}, weight: 1.0}",
            "needs a critic, which learns from credit.estimator",
        ),
        (
            "{estimator: rloo, options: {epsilon: 1.0}, weight: 1.0}",
            "credit.thought.options: the options of 'rloo' are",
        ),
        ("{estimator: grpo, options: {}, weight: -1.0}", "credit.thought.weight"),
        ("{estimator: grpo}", "credit.thought.weight must be set; found nothing"),
    ],
)
def test_credit_of_thoughts_that_makes_no_sense_is_refused(thought: str, message: str) -> None:
    assert message in refused(f"credit.thought={thought}")


def test_a_single_run_is_the_parameters_as_they_are_or_a_named_variant() -> None:
    experiment = load(
        PARAMETERS,
        settings=[
            "credit.estimator=mt-grpo",
            "ablation.variants=[grpo-mr]",
            "variants={grpo-mr: {rollout: {prompts: 8}}}",
        ],
    )
    base = single(experiment, None, 7)
    assert (base.ablation.variants, base.ablation.seeds) == (["base"], [7])
    assert base.variant("base").credit.estimator == "mt-grpo"
    assert single(load(PARAMETERS), "grpo-mr", None).ablation.seeds == [1]
    with pytest.raises(ConfigurationError, match=r"'grpo-mr'.*TW-unknown-variant"):
        single(load(PARAMETERS), "grpo-m", None)


def test_a_variant_that_changes_what_is_shared_is_refused() -> None:
    message = refused("variants.grpo-mr={warm_start: {threshold: 0.9}}")
    assert "variant 'grpo-mr' must not change warm_start" in message


LAKE = (ROOT / "experiments" / "frozen_lake.yaml",)
SHOP = (
    "world={name: webshop, parameters: {}}",
    "agent.format=think-answer",
    "rewards={score: {level: outcome, weight: 1.0}}",
)
AS_IT_IS = ("variants={base: {}}", "ablation.variants=[base]")


def test_without_options_training_has_the_worlds_own_limit() -> None:
    curriculum = load(PARAMETERS, LAKE).made_curriculum
    assert (curriculum.shortest, curriculum.longest) == (8, 8)


def test_a_variant_can_have_a_curriculum_of_its_own() -> None:
    settings = ("variants={a: {}, b: {curriculum: {options: {limit: 4}}}}", "ablation.variants=[a, b]")
    experiment = load(PARAMETERS, LAKE, settings)
    assert experiment.variant("b").made_curriculum.longest == 4


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("curriculum.options={limit: 9}",), "must not be above the world's, which allows 8 turns; found 9"),
        (("curriculum={rule: staged, options: {limits: [4, 8], lengths: 20}}",), "found 20 and 20"),
        (("curriculum={rule: adaptive, options: {first: 4, window: 10}}",), "window: 10 and 20 iterations"),
        (("variants.grpo-or={curriculum: {rule: stage}}",), "variant 'grpo-or': curriculum.rule must be one of"),
    ],
)
def test_a_curriculum_that_the_world_or_the_run_has_no_room_for_is_refused(
    settings: tuple[str, ...], expected: str
) -> None:
    assert expected in refused(*settings, overlays=LAKE)


def test_a_limit_within_which_no_task_can_be_solved_is_refused_in_the_worlds_own_words() -> None:
    load(PARAMETERS, settings=[*SHOP, "curriculum.options={limit: 3}", *AS_IT_IS])
    message = refused(*SHOP, "curriculum.options={limit: 2}", *AS_IT_IS)
    assert "'webshop' can be played under; found 2, of which it says: turns must be a whole number from 3" in message


EVOLUTION = "optimization.method=evolution"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((EVOLUTION, "selection.rule=uncertainty"), "must have selection.rule: all"),
        ((EVOLUTION, "optimization.reference={coefficient: 0.1, estimator: k2, place: loss}"), "reference: null"),
        ((EVOLUTION, "rollout.scheme=branching"), "must have rollout.scheme: independent"),
        ((EVOLUTION, "credit.estimator=gae"), "has no critic; found credit.estimator: gae"),
        ((EVOLUTION, "evolution.demonstration_share=0.99"), "which is 32 demonstrations"),
        ((EVOLUTION, "evolution.demonstration_share=0.01"), "which is 0 demonstrations"),
        ((EVOLUTION,), "variant 'grpo-mr' must not change credit, which optimization.method: evolution does not read"),
        (("variants.grpo-mr={evolution: {steps: 9}}",), "must not change evolution, which optimization.method: rein"),
    ],
)
def test_an_evolution_that_makes_no_sense_is_refused(settings: tuple[str, ...], expected: str) -> None:
    assert expected in refused(*settings)


def test_conversations_must_be_a_file_that_can_be_read(tmp_path: Path) -> None:
    assert "found no file at" in refused("data.conversations=nowhere.jsonl")
    (tmp_path / "a.jsonl").write_text("{}")
    load(PARAMETERS, settings=[f"data.conversations={tmp_path / 'a.jsonl'}"])


def test_the_paper_rule_counts_the_turns_of_training() -> None:
    load(PARAMETERS, settings=["world.parameters.turns=4", "curriculum.options={limit: 2}"])


def test_the_paper_rule_with_plans_or_lessons_is_refused() -> None:
    message = refused("agent.mode={name: plan, tokens: 20}")
    assert "mt-grpo with rule 'paper' is defined on at most 2 turns" in message and "a plan" in message


def test_a_modes_options_are_read_or_refused() -> None:
    assert "the mode 'plan' must have tokens" in refused("agent.mode={name: plan}")
    assert "'attempt' is not a known name; did you mean 'attempts'" in refused("agent.mode={name: reflect, attempt: 2}")


def test_a_width_that_the_engine_refuses_is_refused_before_anything_is_computed() -> None:
    assert "found 96 / 4 = 24: change hidden or heads" in refused("policy.hidden=96")
    assert load(PARAMETERS, settings=["policy.hidden=96", "compute.engine=embedded"]).policy.hidden == 96


def test_an_experiment_and_its_variants_make_their_world_once() -> None:
    counted = "world={name: 'tests.config.counted_world:CountedLake', parameters: {size: 4, turns: 8}}"
    CountedLake.made = 0
    experiment = load(PARAMETERS, LAKE, [counted])
    assert experiment.variant("mt-grpo").made_world is experiment.made_world
    assert experiment.variant("mt-grpo") is experiment.variant("mt-grpo")
    assert single(experiment, "mt-grpo", 1).variant("mt-grpo").made_curriculum.longest == 8
    assert CountedLake.made == 1


@pytest.mark.parametrize(
    "other", ["agent.context={policy: window, turns: 2}", "agent.mode={name: plan, tokens: 20}"], ids=["window", "plan"]
)
def test_thoughts_are_dropped_from_a_whole_plain_conversation_alone(other: str) -> None:
    with pytest.raises(ConfigurationError, match=r"context\.policy.*mode\.name.*TW-conflicting-options"):
        load(ROOT / "tests" / "parameters.yaml", settings=["agent.thoughts=dropped", other])
    assert load(ROOT / "tests" / "parameters.yaml", settings=["agent.thoughts=dropped"]).agent.thoughts == "dropped"


def test_native_tools_are_for_a_published_model_that_only_acts_and_keeps_its_thoughts() -> None:
    native = "agent.format=native-tools"
    with pytest.raises(ConfigurationError, match=r"policy\.model.*TW-functions-not-shown"):
        load(ROOT / "tests" / "parameters.yaml", settings=[native])
    settings = [native, "policy.model=Qwen/Qwen2.5-0.5B-Instruct"]
    assert load(ROOT / "tests" / "parameters.yaml", settings=settings).agent.format == "native-tools"
    summary = "agent.context={policy: summary, every: 2, summary_tokens: 8}"
    for other in ("agent.thoughts=dropped", "agent.mode={name: plan, tokens: 8}", summary):
        with pytest.raises(ConfigurationError, match=r"mode\.name.*TW-conflicting-options"):
            load(ROOT / "tests" / "parameters.yaml", settings=[*settings, other])
