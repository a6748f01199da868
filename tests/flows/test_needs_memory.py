"""The memory plan of an ablation: what is in memory in which phase, whether that fits, and what to change."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flows.ablation import comparison
from flows.commands.plan import show_memory
from tests.policy.published_shapes import write_published
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.dimensions import Dimensions, dimensions_in, dimensions_of
from turnwise.policy.memory_plan import GIB
from turnwise.policy.sizes import count
from turnwise.training_runs import memory
from turnwise.training_runs.memory import (
    MemoryPlan,
    crowded,
    fits,
    largest_plan,
    memory_plan,
    parts_of,
    placement,
    remedies,
    require_memory,
)

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
RAGEN = ROOT / "experiments" / "paper" / "ragen.yaml"
Devices = Callable[[int | None], None]


def tiny(**settings: Any) -> Experiment:
    return load(ROOT / "params.yaml", [TINY], settings)


def planned(**settings: Any) -> MemoryPlan:
    experiment = tiny(**settings)
    return largest_plan(experiment, dimensions(experiment))


def dimensions(experiment: Experiment) -> Dimensions:
    found = dimensions_of(experiment.policy)
    assert found is not None
    return found


def parts(plan: MemoryPlan, phase: str) -> dict[str, int]:
    return dict(next(each for each in plan.phases if each.name == phase).parts)


@pytest.fixture
def with_device(monkeypatch: pytest.MonkeyPatch) -> Devices:
    return lambda size: monkeypatch.setattr(memory, "device_bytes", lambda device: size)


def test_a_teacher_is_in_memory_in_every_phase_of_an_iteration_and_is_asked_in_one() -> None:
    learned = {"optimization.distillation": {"weight": 1.0, "teacher": "base-3m"}}
    plan = planned(**{"monitors.probe_every": None, **learned})
    teacher = dimensions_of(tiny().policy.model_copy(update={"model": "base-3m"}))
    assert teacher is not None
    held = 4 * count(teacher.shapes)
    assert [parts(plan, phase).get("teacher") for phase in ("sampling", "scoring", "update")] == [held] * 3
    assert "teacher" not in parts(plan, "warm start")
    without = planned(**{"monitors.probe_every": None})
    assert parts(plan, "update") == {**parts(without, "update"), "teacher": held}
    assert [phase.name for phase in plan.phases] == ["warm start", "sampling", "scoring", "update"]


def test_the_plan_of_a_tiny_policy_is_that_worked_by_hand() -> None:
    plan = planned(**{"monitors.probe_every": None})
    # 300 x 64 embeddings; a layer: 4 x 64 x 64 + 3 x 64 x 128 matrices, 2 x 64 + 2 x 32 norms; the last norm, 64.
    weights = 19_200 + 2 * (16_384 + 24_576 + 192) + 64
    # Micro-batches of 2048 tokens. A token in a layer: 16 x 64 + (12 + 4) x 64 + (12 + 4) x 64 + 16 x 128 bytes; joined
    # weights in a layer: 64 x 192 numbers. Logits: 300 to a token, and the gradient of the output layer, 300 x 64.
    training = {
        "weights": 4 * weights,
        "moments": 8 * weights,
        "gradients": 4 * weights,
        "activations": 2 * (2048 * 5120 + 4 * 64 * 192),
        "logits": 3 * 4 * 2048 * 300 + 4 * 300 * 64,
    }
    # 32 episodes at once, each with 160 tokens of keys and values in two layers of width 64.
    always = {
        "libraries": 7 * GIB // 8,
        "engine: weights": 4 * weights,
        "engine: cache": 32 * 160 * 2 * 2 * 64 * 4,
    }
    assert parts(plan, "update") == parts(plan, "warm start") == {**always, **training}
    assert [phase.name for phase in plan.phases] == ["warm start", "sampling", "update"]
    assert plan.peak.bytes == sum(always.values()) + sum(training.values())


@pytest.mark.parametrize(
    ("size", "parameters", "cache"),
    [
        # Of a token: 2 x 24 layers x 2 heads x 64 x 2 bytes, 2 x 36 x 2 x 128 x 2, 2 x 28 x 4 x 128 x 2.
        ("0.5B", 494_032_768, 12_288),
        ("3B", 3_085_938_688, 36_864),
        ("7B", 7_615_616_512, 57_344),
    ],
)
def test_the_plans_of_published_shapes_are_those_worked_by_hand(
    size: str, parameters: int, cache: int, tmp_path: Path
) -> None:
    experiment = load(ROOT / "params.yaml", [RAGEN], {"agent.context_tokens": 2048})
    found = dimensions_in(write_published(tmp_path, size))
    plan = memory_plan(experiment.variant("starpo-ppo"), found, "starpo-ppo")
    update, critic = parts(plan, "update"), parts(plan, "critic")
    assert update["weights"] == update["gradients"] == update["reference policy"] == 4 * parameters
    assert update["moments"] == 8 * parameters
    assert update["engine: weights"] == 2 * parameters
    assert update["engine: cache"] == min(256 * 2048 * cache, 16 * GIB)
    trunk = parameters if size != "7B" else parameters - 152_064 * 3584  # the output layer of 7B is its own
    assert update["critic: weights, moments"] == 12 * trunk and critic["gradients"] == 4 * trunk
    # 4096 reply tokens of 16384 at once: four tensors of logits, an output layer rounded to two bytes, two gradients.
    output_layer = found.vocabulary * found.hidden
    assert update["logits"] == 4 * 4 * 4096 * found.vocabulary + 2 * output_layer + 2 * 4 * output_layer


def test_an_adapter_leaves_moments_and_gradients_to_itself() -> None:
    plan = planned(**{"optimization.adapter": {"rank": 2, "alpha": 4}, "monitors.probe_every": None})
    weights = count(dimensions(tiny()).shapes)
    adapter = 2 * 2 * (4 * (64 + 64) + 3 * (64 + 128))
    update = parts(plan, "update")
    assert (update["weights"], update["moments"], update["gradients"]) == (
        4 * weights + 4 * adapter,
        8 * adapter,
        4 * adapter,
    )
    assert parts(plan, "warm start")["moments"] == 8 * weights, "the warm start trains everything"


def test_what_an_ablation_does_not_use_is_not_in_its_plan() -> None:
    update = parts(planned(**{"monitors.probe_every": None}), "update")
    assert not {"reference policy", "policy that sampled", "critic: weights, moments"} & set(update)
    assert "reference policy" in parts(planned(), "update"), "a probe asks it"
    penalty = {"optimization.reference": {"coefficient": 0.1}, "monitors.probe_every": None}
    assert "reference policy" in parts(planned(**penalty), "scoring")
    adapter = {"optimization.adapter": {"rank": 2, "alpha": 4}}
    assert all("reference policy" not in phase.parts for phase in planned(**penalty, **adapter).phases), "adapter off"
    assert "scoring" in {phase.name for phase in planned(**penalty, **adapter).phases}
    lag = {"rollout.lag": 1, "optimization.correction": {"kind": "truncate"}}
    assert "policy that sampled" in parts(planned(**lag), "update")
    assert "warm start" not in {phase.name for phase in planned(**{"warm_start.enabled": False}).phases}


def test_the_plan_is_that_of_the_variant_that_takes_the_most() -> None:
    variants = {"plain": {}, "with-critic": {"credit": {"estimator": "gae"}}}
    plan = planned(**{"variants": variants, "ablation.variants": list(variants)})
    assert plan.variant == "with-critic"


def test_a_sequence_longer_than_the_budget_of_a_micro_batch_has_one_of_its_own() -> None:
    small, long = (planned(**{"optimization.micro_batch_tokens": tokens}) for tokens in (16, 160))
    assert parts(small, "update") == parts(long, "update")


@pytest.mark.parametrize(("needed", "verdict"), [(99, True), (100, True), (101, None), (114, None), (116, False)])
def test_only_what_is_too_large_beyond_the_plans_tolerance_does_not_fit(needed: int, verdict: bool | None) -> None:
    assert fits(needed, 100) is verdict


def test_an_ablation_that_cannot_fit_is_refused_before_anything_is_computed(
    turnwise_home: Path, with_device: Devices
) -> None:
    experiment = tiny()
    peak = largest_plan(experiment, dimensions(experiment)).peak.bytes
    with_device(peak // 2)
    with pytest.raises(ConfigurationError) as refused:
        comparison.fn(experiment, quiet=True)
    said = str(refused.value)
    assert re.match(r"the ablation must fit into the memory of cpu, 0\.\d GiB; by the plan \S+ takes \d\.\d GiB", said)
    assert "libraries 0.9" in said and "turnwise ablation --dry-run" in said
    assert not list((turnwise_home / "store").glob("*/*")), "nothing was computed"


def test_processes_need_their_memory_at_the_same_time(with_device: Devices) -> None:
    experiment = tiny()  # two variants with one seed: at most two processes train
    peak = largest_plan(experiment, dimensions(experiment)).peak.bytes
    with_device(2 * peak)
    require_memory(experiment, processes=5)
    with_device(peak)
    require_memory(experiment)
    with pytest.raises(ConfigurationError, match=r"\b2\b.*--processes.*TW-small-memory"):
        require_memory(experiment, processes=2)


def test_a_device_that_is_not_there_refuses_nothing(with_device: Devices) -> None:
    with_device(None)
    require_memory(load(ROOT / "params.yaml", [RAGEN]))


def test_every_remedy_lowers_the_peak_to_what_the_plan_with_its_options_is() -> None:
    overlays, large = [TINY], ["policy.hidden=512", "policy.heads=8", "optimization.micro_batch_tokens=16384"]
    experiment = load(ROOT / "params.yaml", overlays, large)
    found = dimensions(experiment)
    before = largest_plan(experiment, found).peak.bytes
    offered = remedies(experiment, found)
    assert len(offered) >= 3 and offered[-1].options == "all of these"
    assert [each.peak for each in offered[:-1]] == sorted(each.peak for each in offered[:-1])
    for each in offered[:-1]:
        assert each.peak < before
        settings = [option for option in shlex.split(each.options) if option != "-s"]
        assert largest_plan(load(ROOT / "params.yaml", overlays, [*large, *settings]), found).peak.bytes == each.peak
    assert offered[-1].peak < offered[0].peak


def test_a_remedy_that_the_other_settings_refuse_is_not_offered() -> None:
    large = {"policy.hidden": 512, "policy.heads": 8, "optimization.micro_batch_tokens": 16384}

    def offered(**critic: Any) -> str:
        experiment = tiny(**large, **{"credit.estimator": "gae", "critic.clip": None, **critic})
        return " ".join(each.options for each in remedies(experiment, dimensions(experiment)))

    assert "critic.trunk=policy" in offered() and "critic.initial" not in offered()
    assert "critic.trunk=policy" not in offered(**{"critic.heads": 2})
    assert "-s critic.initial=policy" in offered(**{"critic.initial": "random"})


def test_the_table_has_every_phase_and_says_whether_it_fits(
    monkeypatch: pytest.MonkeyPatch, with_device: Devices, tmp_path: Path
) -> None:
    experiment = load(ROOT / "params.yaml", [RAGEN])
    found = dimensions_in(write_published(tmp_path, "0.5B"))

    def said(size: int | None) -> str:
        monkeypatch.setattr("flows.commands.plan.device_bytes", lambda device: size)
        written = io.StringIO()
        show_memory(experiment, found, 1, Console(file=written, width=80))
        return written.getvalue()

    plan = largest_plan(experiment, found)
    assert all(phase.name in said(None).splitlines()[3] for phase in plan.phases)
    assert "no card to compare it with" in said(None) and "gradient_checkpointing=true" in said(None)
    assert "It fits." in said(plan.peak.bytes) and "gradient_checkpointing" not in said(plan.peak.bytes)
    assert "would be refused" in said(plan.peak.bytes // 2)
    assert max(map(len, said(None).splitlines())) <= 80


def test_where_other_programs_have_left_too_little_the_plan_says_so_and_a_run_is_warned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = load(ROOT / "params.yaml", [TINY])
    found = dimensions(experiment)
    peak = largest_plan(experiment, found).peak.bytes

    def left(size: int | None) -> None:
        monkeypatch.setattr("turnwise.training_runs.memory.free_bytes", lambda device: size)

    def planned() -> str:
        written = io.StringIO()
        show_memory(experiment, found, 2, Console(file=written, width=80))
        return " ".join(written.getvalue().split())

    left(2 * peak)
    assert crowded(experiment, 2) is None and "other programs" not in planned()
    left(None)
    assert crowded(experiment, 2) is None
    left(peak)
    warning = crowded(experiment, 2)
    assert warning is not None and warning in planned()
    assert f"left {peak / GIB:,.1f} GiB" in warning and f"2 processes take {2 * peak / GIB:,.1f}" in warning
    assert "fewer --processes" in warning and crowded(experiment, 1) is None
    left(peak // 2)
    alone = crowded(experiment, 1)
    assert alone is not None and "the ablation takes" in alone and "--processes" not in alone


def test_the_parts_of_a_peak_are_named_the_largest_first() -> None:
    named = parts_of(planned())
    assert named.startswith("libraries 0.9")
    sizes = [float(each.rpartition(" ")[2]) for each in named.split(", ")]
    assert sizes == sorted(sizes, reverse=True)


def test_an_engine_that_sleeps_keeps_its_graphs_alone_while_others_compute(tmp_path: Path) -> None:
    found = dimensions_in(write_published(tmp_path, "0.5B"))
    awake, asleep = (
        memory_plan(
            load(ROOT / "params.yaml", [RAGEN], {"compute.sleep_level": level}).variant("starpo-ppo"), found, "it"
        )
        for level in (0, 2)
    )
    assert parts(asleep, "sampling") == parts(awake, "sampling")
    for name in ("scoring", "update", "critic"):
        of_engine = {"engine: weights", "engine: cache"}  # its CUDA graphs stay
        assert parts(asleep, name).keys() == parts(awake, name).keys() - of_engine


def test_on_a_card_the_remedies_name_moments_offload_and_sleep(tmp_path: Path) -> None:
    found = dimensions_in(write_published(tmp_path, "0.5B"))
    experiment = load(ROOT / "params.yaml", [RAGEN])
    offered = {each.options for each in remedies(experiment, found)}
    assert {"-s compute.offload_moments=true", "-s compute.sleep_level=2"} <= offered
    assert any(options.startswith("-s compute.moments=") for options in offered)
    on_two = load(ROOT / "params.yaml", [RAGEN], {"compute.learner_processes": 2}, to_plan=True)
    assert "all of these" in {each.options for each in remedies(on_two, found)}, "none that processes cannot slice"


def test_several_learner_processes_slice_what_they_hold_and_the_first_card_has_the_engine(tmp_path: Path) -> None:
    found = dimensions_in(write_published(tmp_path, "0.5B"))

    def of(processes: int) -> dict[str, int]:
        own = load(ROOT / "params.yaml", [RAGEN], {"compute.learner_processes": processes})
        return parts(memory_plan(own.variant("starpo-grpo"), found, "starpo-grpo"), "update")

    one, four = of(1), of(4)
    for name in ("weights", "moments", "gradients"):
        assert four[name] == one[name] / 4
    for name in ("engine: weights", "engine: cache", "activations", "logits"):
        assert four[name] == one[name]
    assert four["libraries"] == 2 * one["libraries"]
    # Weights and gradients of 151,936 x 896 embeddings and the last norm, and of two layers of 14,912,384.
    assert four["gathered weights, gradients"] == 8 * (151_936 * 896 + 896 + 2 * 14_912_384)


def test_the_placement_of_a_run_names_every_process() -> None:
    def of(**settings: Any) -> dict[str, str]:
        return dict(placement(tiny(**settings).compute))

    assert of() == {"host": "embedded, in the run's own process; the learner, in the same"}
    assert of(**{"compute.learner_processes": 2}) == {"host": "embedded, in the run's own process; 2 learner processes"}
    on_cards = of(**{"compute.learner_processes": 4, "compute.device": "cuda"})
    assert on_cards == {
        "card 0": "embedded, in the run's own process; learner process 0 of 4",
        "cards 1 to 3": "a learner process each",
    }
    assert of(**{"compute.engines": 2}) == {
        "host": "2 engines (embedded), a process each; the learner, in the run's own process"
    }
    engines = {"compute.device": "cuda", "compute.engine": "vllm", "compute.engines": 3}
    assert of(**engines, **{"compute.learner_processes": 2}) == {
        "card 0": "vllm, engine process 0 of 3; learner process 0 of 2",
        "card 1": "vllm, engine process 1 of 3; learner process 1",
        "card 2": "vllm, engine process 2 of 3",
    }
    assert of(**engines, **{"compute.tensor_parallel": 2, "compute.engines_apart": True}) == {
        "card 0": "the learner, in the run's own process",
        "cards 1 to 6": "a part of an engine each",
    }


def test_several_engines_count_as_often_as_there_are_and_on_a_card_once() -> None:
    one, two = (parts(planned(**{"compute.engines": number}), "sampling") for number in (1, 2))
    assert two["weights"] == one["weights"]
    assert two["engine: weights"] == 2 * one["engine: weights"]
    assert one["engine: cache"] <= two["engine: cache"] <= 2 * one["engine: cache"]
    assert two["libraries"] == 3 * one["libraries"]
    card = {"compute.device": "cuda", "compute.engines": 2}
    shared, apart = (parts(planned(**card, **more), "update") for more in ({}, {"compute.engines_apart": True}))
    assert shared["engine: weights"] == one["engine: weights"] and shared["libraries"] == 2 * GIB
    assert not any(name.startswith("engine") for name in apart) and apart["libraries"] == GIB
    plan = planned(**card, **{"compute.engines_apart": True})
    own = parts(plan, "engine")
    assert own.keys() == {"libraries", "engine: weights", "engine: cache", "activations"}
    assert own["engine: weights"] == shared["engine: weights"]
