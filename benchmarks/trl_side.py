"""TRL's side of `benchmarks.against_trl`: GRPOTrainer with a rollout function, as a process of its own.

It imports torch, transformers, trl and datasets, and nothing of Turnwise, so that any environment with TRL runs it. It
takes one JSON object on its first line of input (what `benchmarks.against_trl.Shared` holds), then one line per step. A
line is `{}`, or the episodes to train on in place of sampled ones. Each step is answered with one line: the processor
seconds of sampling and of all else, and for given episodes the gradient's file.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Side:
    """The rollout function and the callbacks, which share the clock."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.sampled_at = self.began = 0.0
        self.gradient: str | None = None

    def rollout(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        """Wait for the next line, then sample, or take the given episodes."""
        line = json.loads(sys.stdin.readline())
        self.gradient = line.get("gradient")
        self.began = time.process_time()
        batch: dict[str, list[Any]] = line["episodes"] if "episodes" in line else self.sample(trainer)
        self.sampled_at = time.process_time()
        return batch

    def sample(self, trainer: Any) -> dict[str, list[Any]]:
        """Play all turns of all episodes. Every turn reads the whole history again, as TRL's own examples do."""
        task = self.task
        model = trainer.accelerator.unwrap_model(trainer.model)
        config = GenerationConfig(
            max_new_tokens=task["reply_tokens"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            eos_token_id=task["end"],
            pad_token_id=task["pad"],
            return_dict_in_generate=True,
            output_logits=True,
        )
        prompts = [opening for opening in task["openings"] for _ in range(task["replicas"])]
        contexts = [list(prompt) for prompt in prompts]
        completions: list[list[int]] = [[] for _ in prompts]
        log_probabilities: list[list[float]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        rewards = [0.0] * len(prompts)
        for turn in range(task["turns"]):
            longest = max(map(len, contexts))
            inputs = torch.tensor([[task["pad"]] * (longest - len(each)) + each for each in contexts])
            attended = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in contexts])
            with torch.no_grad(), trainer.accelerator.autocast():
                output = model.generate(input_ids=inputs, attention_mask=attended, generation_config=config)
                replies = output.sequences[:, longest:]
                scored = torch.stack(output.logits, dim=1).float().log_softmax(-1).gather(2, replies[..., None])[..., 0]
            for row, (tokens, scores) in enumerate(zip(replies.tolist(), scored.tolist(), strict=True)):
                count = tokens.index(task["end"]) + 1 if task["end"] in tokens else len(tokens)
                reply = tokens[:count]
                rewards[row] += sum(token % 2 for token in reply) / count
                observation = task["observations"][turn] if turn + 1 < task["turns"] else []
                completions[row] += reply + observation
                log_probabilities[row] += scores[:count] + [0.0] * len(observation)
                masks[row] += [1] * count + [0] * len(observation)
                contexts[row] += reply + observation
        return {
            "prompt_ids": prompts,
            "completion_ids": completions,
            "logprobs": log_probabilities,
            "env_mask": masks,
            "given": rewards,
        }


class Clock(TrainerCallback):
    """Keeps the gradient of the given episodes, and answers each step."""

    def __init__(self, side: Side, answers: Any) -> None:
        self.side, self.answers = side, answers

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Keep the gradient where it is asked for."""
        if self.side.gradient is not None:
            gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
            save_file(gradients, self.side.gradient)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Answer the step's line."""
        now, side = time.process_time(), self.side
        answer = {"sampling": side.sampled_at - side.began, "update": now - side.sampled_at}
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


def main() -> None:
    """Train as long as lines come."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    task = json.loads(sys.stdin.readline())
    side = Side(task)
    words = Tokenizer(WordLevel({f"t{index}": index for index in range(task["vocabulary"])}, unk_token="t0"))
    count = len(task["openings"]) * task["replicas"]
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(task["policy"], dtype=torch.float32),
            reward_funcs=lambda given, **others: given,
            args=GRPOConfig(
                output_dir=folder,
                loss_type="dapo",
                scale_rewards="none",
                beta=0.0,
                temperature=1.0,
                learning_rate=task["learning_rate"],
                lr_scheduler_type="constant",
                max_completion_length=4096,
                per_device_train_batch_size=task["micro_batch"],
                gradient_accumulation_steps=count // task["micro_batch"],
                num_generations=task["replicas"],
                steps_per_generation=count // task["micro_batch"],
                shuffle_dataset=False,
                gradient_checkpointing=False,
                bf16=task["precision"] == "bfloat16",
                use_cpu=True,
                max_steps=task["steps"],
                max_grad_norm=0.0,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": ["t0"] * len(task["openings"])}),
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=words, unk_token="t0", eos_token=f"t{task['end']}", pad_token=f"t{task['pad']}"
            ),
            rollout_func=side.rollout,
        )
        trainer.add_callback(Clock(side, answers))
        trainer.train()


if __name__ == "__main__":
    main()
