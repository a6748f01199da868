"""What the configuration says of the learner reaches the model, and contradictions are refused before any compute."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flows.prepare import prepare_materials
from tasks.update.update import UpdateParameters
from turnwise.config.model_settings import LINEAR_LAYERS, PLAIN, Adapter, LearnerParameters, ModelSettings
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.learner.learner import forget_peak_memory, peak_memory_bytes

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"
GAE = ("credit={estimator: gae, options: {}}", "ablation.variants=[gae]", "variants={gae: {}}")


def experiment(*settings: str) -> Experiment:
    return load(PARAMETERS, [], settings)


def parameters_of_update(read: Experiment) -> UpdateParameters:
    shared = read.critic if read.critic.trunk == "policy" else None
    return UpdateParameters.of(read.optimization, read.compute, 1.0, seed=1, iteration=1, critic=shared)


def test_the_defaults_are_the_plain_model() -> None:
    assert parameters_of_update(experiment()).learner.model == PLAIN


def test_every_setting_reaches_the_model() -> None:
    read = experiment(
        "compute.precision=bfloat16",
        "compute.gradient_checkpointing=true",
        "compute.compiled=true",
        "compute.logit_chunk_tokens=64",
        "compute.counted_tokens=computed",
        "optimization.adapter={rank: 4, alpha: 8, target_modules: [q_proj, v_proj], seed: 3}",
    )
    assert parameters_of_update(read).learner.model == ModelSettings(
        precision="bfloat16",
        gradient_checkpointing=True,
        compiled=True,
        logit_chunk_tokens=64,
        counted_tokens="computed",
        adapter=Adapter(rank=4, alpha=8, target_modules=("q_proj", "v_proj"), seed=3),
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused_before_anything_is_computed(turnwise_home: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-no-cuda"):
        prepare_materials(experiment("compute.device=cuda"))
    assert not turnwise_home.exists()


@pytest.mark.skipif(importlib.util.find_spec("torchao") is not None, reason="torchao is installed")
def test_moments_in_8_bits_without_torchao_are_refused_before_anything_is_computed(turnwise_home: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-missing-package"):
        prepare_materials(experiment("compute.moments=8-bit"))
    assert not turnwise_home.exists()


def test_an_adapter_that_names_no_layers_is_on_all_of_them() -> None:
    adapter = experiment("optimization.adapter={rank: 4, alpha: 8}").optimization.adapter
    assert adapter is not None and adapter.target_modules == LINEAR_LAYERS


def test_learners_that_are_held_otherwise_are_not_taken_for_one_another() -> None:
    """They are remembered by these parameters."""
    read = experiment("optimization.adapter={rank: 4, alpha: 8}")
    plain = LearnerParameters(compute=read.compute)
    others = [
        LearnerParameters(compute=read.compute, adapter=read.optimization.adapter),
        LearnerParameters(compute=read.compute, with_critic=True),
        LearnerParameters(compute=experiment("compute.gradient_checkpointing=true").compute),
    ]
    assert len({plain, *others, LearnerParameters(compute=experiment().compute)}) == 4


def test_an_update_has_the_settings_of_a_critic_on_the_policys_trunk_and_of_no_other() -> None:
    own, shared = experiment(*GAE), experiment(*GAE, "critic.trunk=policy", "critic.coefficient=0.25")
    settings = [parameters_of_update(each).settings for each in (own, shared)]
    assert settings[0].critic is None and settings[0].advantages_alone
    assert settings[1].critic is not None and settings[1].critic.coefficient == 0.25
    assert not settings[1].advantages_alone, "every sequence teaches values"
    assert [parameters_of_update(each).learner.with_critic for each in (own, shared)] == [False, True]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("compute.precision=float16",), "must be one of float32, bfloat16"),
        (("compute.logit_chunk_tokens=0",), "compute.logit_chunk_tokens"),
        (("critic.trunk=policy",), "must be set for trunk: policy and for no other; found trunk 'policy'"),
        (("critic.coefficient=0.5",), "found trunk 'own' and coefficient 0.5"),
        (
            ("critic.trunk=policy", "critic.coefficient=0.5", "critic.initial=random"),
            "must begin with the policy's weights",
        ),
        (("optimization.adapter={rank: 0, alpha: 1}",), "optimization.adapter.rank"),
        (("optimization.adapter={rank: 4}",), "optimization.adapter.alpha must be set; found nothing"),
        (("optimization.adapter={rank: 4, alpha: 8, ranks: 2}",), "did you mean 'rank'?"),
        (("optimization.adapter={rank: 4, alpha: 8, target_modules: []}",), "must name a linear layer; found none"),
        (
            ("optimization.adapter={rank: 4, alpha: 8, target_modules: [q_prj]}",),
            "target_modules of a policy from scratch: 'q_prj' is not a known name; did you mean 'q_proj'?",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        experiment(*GAE, *settings)
    assert reason in str(caught.value)


def test_another_models_layers_are_known_when_it_is_loaded() -> None:
    read = experiment("policy.model=some/model", "optimization.adapter={rank: 4, alpha: 8, target_modules: [c_attn]}")
    assert read.optimization.adapter is not None


def test_the_peak_of_the_process_is_at_least_what_it_holds_now() -> None:
    forget_peak_memory("cpu")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert 0.9 * pages * os.sysconf("SC_PAGE_SIZE") < peak_memory_bytes("cpu") < 1e12


def test_deterministic_kernels_are_allowed_on_cuda() -> None:
    code = "import os, turnwise.policy.determinism as d\nwith d.reproducible_computing(1): "
    code += "print(os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    for given, expected in ((environment, ":4096:8"), ({**environment, "CUBLAS_WORKSPACE_CONFIG": ":16:8"}, ":16:8")):
        finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=given, timeout=500)
        assert finished.stdout.strip() == expected, finished.stderr
