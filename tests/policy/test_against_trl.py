"""The learner's gradients against those of TRL's GRPOTrainer: the same policy, the same trajectories.

TRL receives the trajectories from its rollout function; its own code computes advantages from the rewards, pads, and
differentiates. TRL belongs to the development extra and is imported in this file alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from gradient_samples import gradients_of_first_step, precise_learner, relative_difference
from policy_samples import END, PAD, VOCABULARY, two_turn_sequences
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from turnwise.credit import CreditBatch, estimate
from turnwise.data.trajectory import TokenSequence
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

# Not imported to see that it is there: every test process imports this file.
pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed")

MakePolicy = Callable[..., Path]
Gradients = dict[str, torch.Tensor]
LONGEST_COMPLETION = 40
"""What Dr.GRPO divides by; none of the completions is as long."""
GROUPS = (0, 0, 0, 1, 1, 1)
REWARDS = (1.0, 0.0, 0.25, 0.0, 2.0, 0.5)
SECOND_REWARDS = (0.5, 0.5, 0.0, 3.0, -1.0, 0.0)
"""Of a second reward, which has a weight of 0 unless a test gives it another."""
SETTINGS = UpdateSettings(
    learning_rate=1e-3, temperature=0.9, micro_batch_tokens=60, maximum_mismatch=10.0, maximum_gradient_norm=1e9
)


@pytest.fixture(scope="module", autouse=True)
def _without_vllm() -> Iterator[None]:
    """TRL imports vLLM where it is installed, which takes seconds, and samples nothing with it here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm", None)
        yield


def trl_trainer(policy: Path, folder: Path, sequences: list[TokenSequence], dtype: torch.dtype, **options: Any) -> Any:
    """A GRPOTrainer whose rollouts are `sequences`: the first observation is the prompt, the rest the completion."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def rollout(prompts: list[str], trainer: object) -> dict[str, list[Any]]:
        assert prompts == [f"t{group}" for group in GROUPS], "TRL repeats each prompt for its group, in order"
        begins = [sequence.turn_of_token.index(0) for sequence in sequences]
        pairs = list(zip(sequences, begins, strict=True))
        return {
            "prompt_ids": [list(sequence.tokens[:begin]) for sequence, begin in pairs],
            "completion_ids": [list(sequence.tokens[begin:]) for sequence, begin in pairs],
            "logprobs": [list(sequence.log_probabilities[begin:]) for sequence, begin in pairs],
            "env_mask": [list(sequence.mask[begin:]) for sequence, begin in pairs],
            "given": list(REWARDS),
        }

    words = Tokenizer(WordLevel({f"t{index}": index for index in range(VOCABULARY)}, unk_token="t0"))
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(str(policy), dtype=dtype),
        reward_funcs=[lambda given, **others: given, lambda given, **others: list(SECOND_REWARDS)],
        args=GRPOConfig(
            output_dir=str(folder),
            beta=0.0,
            temperature=SETTINGS.temperature,
            max_completion_length=LONGEST_COMPLETION,
            per_device_train_batch_size=len(GROUPS),
            num_generations=3,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            max_steps=1,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **{"scale_rewards": "none", "reward_weights": [1.0, 0.0], **options},
        ),
        train_dataset=Dataset.from_dict({"prompt": ["t0", "t1"]}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, unk_token="t0", eos_token=f"t{END}", pad_token=f"t{PAD}"
        ),
        rollout_func=rollout,
    )


class KeepGradients(TrainerCallback):
    """The gradients as they are before TRL's first optimizer step."""

    def __init__(self) -> None:
        self.gradients: Gradients = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def trl_first_step(trainer: Any) -> Gradients:
    """The gradient of TRL's own first training step."""
    kept = KeepGradients()
    trainer.add_callback(kept)
    trainer.train()
    return kept.gradients


def trl_off_policy(trainer: Any, sequences: list[TokenSequence]) -> Gradients:
    """The gradient of TRL's loss when the ratio is taken to the log-probabilities that the sequences carry."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions([{"prompt": f"t{group}"} for group in GROUPS])
    old = torch.zeros(inputs["completion_ids"].shape, dtype=torch.float64)
    for row, sequence in enumerate(sequences):
        completion = torch.tensor(sequence.log_probabilities[sequence.turn_of_token.index(0) :], dtype=torch.float64)
        old[row, : len(completion)] = completion
    inputs["old_per_token_logps"] = old.to(trainer.model.dtype)
    trainer.compute_loss(trainer.model, inputs).backward()
    return {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}


def our_gradients(policy: Path, sequences: list[TokenSequence], settings: UpdateSettings, dtype: str) -> Gradients:
    """That of the learner's first step, from AdamW's first moment, which is then 0.1 x the gradient."""
    credit = CreditBatch(group=GROUPS, turn_rewards=[[0.0, 0.0]] * len(GROUPS), outcome=REWARDS)
    advantages = estimate("grpo", credit, rewards="outcome", deviation="none")
    learner = precise_learner(policy) if dtype == "float64" else Learner(policy, threads=1)
    learner.update(UpdateBatch.from_turns(sequences, advantages), settings)
    return gradients_of_first_step(learner._optimizer)


def on_policy(policy: Path) -> list[TokenSequence]:
    """The sequences with the log-probabilities that the policy itself gives them, so that every ratio is 1."""
    rows = precise_learner(policy).log_probabilities(two_turn_sequences(), SETTINGS.temperature, 60)
    return [
        replace(sequence, log_probabilities=tuple(row))
        for sequence, row in zip(two_turn_sequences(), rows, strict=True)
    ]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("float64", 1e-6)])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": "dr_grpo"}, {"aggregation": "constant", "aggregation_constant": float(LONGEST_COMPLETION)}),
        ({"loss_type": "grpo"}, {"aggregation": "sequence-mean"}),
        ({"loss_type": "bnpo"}, {"aggregation": "token-mean"}),
        ({"loss_type": "bnpo", "entropy_coef": 0.3}, {"aggregation": "token-mean", "entropy_coefficient": 0.3}),
    ],
)
def test_the_gradient_of_the_first_step_is_that_of_trl(
    make_policy: MakePolicy, tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any], dtype: str, bound: float
) -> None:
    policy = make_policy(0)
    sequences = on_policy(policy)
    expected = trl_first_step(trl_trainer(policy, tmp_path, sequences, getattr(torch, dtype), **theirs))
    found = our_gradients(policy, sequences, SETTINGS.model_copy(update=ours), dtype)
    assert relative_difference(found, expected) < bound


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": "bnpo", "epsilon": 0.1, "epsilon_high": 0.3}, {"clip_low": 0.1, "clip_high": 0.3}),
        (
            {"loss_type": "bnpo", "epsilon": 0.1, "epsilon_high": 0.1, "delta": 1.3},
            {"clip_low": 0.1, "clip_high": 0.1, "dual_clip": 1.3},
        ),
        (
            {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02, "epsilon_high": 0.03},
            {"loss": "gspo", "clip_low": 0.02, "clip_high": 0.03, "aggregation": "sequence-mean"},
        ),
        (
            {"loss_type": "cispo", "epsilon_high": 1.2},
            {"loss": "cispo", "clip_high": 0.2, "aggregation": "token-mean"},
        ),
    ],
)
def test_the_gradient_away_from_the_policy_that_sampled_is_that_of_trl(
    make_policy: MakePolicy, tmp_path: Path, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """Every other reply token is likelier or rarer than when it was sampled, some by more than the clips allow."""
    policy = make_policy(0)
    sequences = [
        replace(
            sequence,
            log_probabilities=tuple(
                value + mask * (0.15, -0.25, 0.05, -0.4, 0.0)[(place + row) % 5]
                for place, (value, mask) in enumerate(zip(sequence.log_probabilities, sequence.mask, strict=True))
            ),
        )
        for row, sequence in enumerate(on_policy(policy))
    ]
    expected = trl_off_policy(trl_trainer(policy, tmp_path, sequences, torch.float64, **theirs), sequences)
    assert (
        relative_difference(our_gradients(policy, sequences, SETTINGS.model_copy(update=ours), "float64"), expected)
        < 1e-6
    )


@pytest.mark.parametrize(
    ("theirs", "rule", "options"),
    [
        ({"scale_rewards": "batch", "reward_weights": [1.0, 0.0]}, "grpo", {"deviation": "batch"}),
        ({"scale_rewards": "group", "reward_weights": [1.0, 0.0]}, "grpo", {}),
        ({"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, -0.5]}, "gdpo", {}),
    ],
)
def test_advantages_are_those_of_trl(
    make_policy: MakePolicy, tmp_path: Path, theirs: dict[str, Any], rule: str, options: dict[str, Any]
) -> None:
    policy = make_policy(0)
    trainer = trl_trainer(policy, tmp_path, on_policy(policy), torch.float64, **theirs)
    trainer.model.train()
    expected = trainer._generate_and_score_completions([{"prompt": f"t{group}"} for group in GROUPS])["advantages"]
    credit = CreditBatch(
        group=GROUPS,
        turn_rewards=[[0.0]] * len(GROUPS),
        outcome=REWARDS,
        named_rewards=[list(pair) for pair in zip(REWARDS, SECOND_REWARDS, strict=True)],
        reward_weights=[theirs["reward_weights"]] * len(GROUPS),
    )
    found = estimate(rule, credit, **options)
    assert found.values.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
