"""The default engine: vLLM, in the process of its caller.

vLLM's loop is driven one step at a time, token-in, token-out, without its tokenizer. Its settings, and why:

* in process (no engine process), since the weights are handed over in memory and torch's generator is seeded here;
* `processed_logprobs`: log-probabilities of the distribution that is sampled from, temperature included;
* uncompiled: otherwise the log-probabilities alone would compile C++ at the first batch. On a card it decodes by CUDA
  graphs, which need no compiler (`vllm_model.CUDA_GRAPHS`); vLLM takes new weights into the tensors that these read;
* no seed per request: on a CPU that fails when a context is prefilled in chunks. One seed per rollout is enough, since
  the order of submissions is fixed;
* no asynchronous scheduling, so that the step at which a reply finishes is a function of the submissions;
* with tensor parallelism its workers are processes, which are told what to do: `turnwise.policy.engines.vllm_model`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.config.model_settings import Precision
from turnwise.errors import ConfigurationError
from turnwise.policy.determinism import computing_threads
from turnwise.policy.engines.cache_size import VLLM_MOST_BYTES
from turnwise.policy.engines.contract import Reply, Sampling, reply_limit, require_idle
from turnwise.policy.engines.vllm_model import (
    WORKERS_ENVIRONMENT,
    architecture,
    arguments_of_device,
    engine_memory,
    load_in_worker,
    named_tensors,
    seed_worker,
)
from turnwise.policy.engines.vllm_start import (
    import_vllm,
    quiet,
    restricted_to_torchs_kernels,
    starting_uncompiled,
    threads_unpatched,
    uncompiled,
    unreadable_modules_out_of_sight,
)
from turnwise.policy.freed_memory import return_freed_memory
from turnwise.policy.model import merged_weights


class VllmEngine:
    """The engine on vLLM; its interface is `turnwise.policy.engines.contract.Engine`.

    vLLM is imported and started when the first policy is loaded.
    """

    def __init__(
        self,
        *,
        device: str,
        threads: int,
        context_length: int,
        maximum_episodes: int,
        precision: Precision = "float32",
        sleep_level: int = 0,
        tensor_parallel: int = 1,
    ) -> None:
        """Store the arguments, those of `turnwise.policy.engines.resident.make_engine`, without starting vLLM.

        Raises ConfigurationError for an unknown device, and where vLLM is not installed.
        """
        if device not in VLLM_MOST_BYTES:
            raise ConfigurationError(
                f"the engine's device must be one of cpu, cuda; found {device!r}", "TW-unknown-device"
            )
        if importlib.util.find_spec("vllm") is None:
            raise ConfigurationError(
                "the engine vllm needs vLLM; it is not installed: set the engine to embedded", "TW-missing-package"
            )
        self.context_length = context_length
        self.tokens_generated = 0
        self.slots: int | None = None  # vLLM caches blocks of tokens, whatever episode they belong to
        self._device, self._threads, self._maximum_episodes = device, threads, maximum_episodes
        self._precision: Precision = precision
        self._sleep_level, self._asleep = sleep_level, False
        self._tensor_parallel = tensor_parallel
        self._engine: Any = None
        self._architecture: dict[str, Any] | None = None
        self._digest: str | None = None
        self._episodes: dict[str, int] = {}
        self._submissions = 0
        self._sampling: Sampling | None = None
        self._parameters_by_limit: dict[int, Any] = {}

    @property
    def in_flight(self) -> int:
        """The number of submitted contexts whose replies are not finished."""
        return len(self._episodes)

    def load(self, policy: Path, digest: str, model: PreTrainedModel | None = None, base: Path | None = None) -> None:
        """Load the weights in `policy`; see `Engine.load`. A policy of another architecture restarts vLLM."""
        if digest == self._digest:
            self._wake()
            return
        require_idle(self, "load a policy")
        self._digest = None
        needed = architecture(policy)
        with computing_threads(self._threads), uncompiled():
            starts = needed != self._architecture
            if starts:
                self.close()
                self._start(policy, without_weights=base is not None)
                self._architecture = needed
            self._wake("weights")
            if not starts or base is not None:
                self._hand_over(policy, model, base)
            self._wake("kv_cache")
        return_freed_memory()
        self._digest = digest

    def begin(self, seed: int, sampling: Sampling) -> None:
        """Start a rollout; see `Engine.begin`."""
        if self._digest is None:
            raise RuntimeError("a policy must be loaded before a rollout begins; none is: call load first")
        require_idle(self, "begin a rollout")
        self._sampling = sampling
        self._parameters_by_limit.clear()
        self._submissions = 0
        self._empty_cache()
        if self._tensor_parallel == 1:
            torch.manual_seed(seed)
        else:
            self._engine.collective_rpc(seed_worker, args=(seed,))

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """Request a reply; see `Engine.submit`."""
        limit = reply_limit(context, self.context_length, self._sampling, reply_tokens)
        # vLLM orders requests by arrival, and names must be unique: the number of the submission serves for both.
        name = str(self._submissions)
        self._submissions += 1
        self._episodes[name] = episode
        self._engine.add_request(name, {"prompt_token_ids": list(context)}, self._parameters(limit), arrival_time=0.0)

    def step(self) -> list[Reply]:
        """Run one engine step; see `Engine.step`."""
        if not self._episodes:
            raise RuntimeError("a step needs something in flight; found nothing: submit a context first")
        with computing_threads(self._threads), uncompiled(), restricted_to_torchs_kernels():
            outputs = self._engine.step()
        replies = [self._reply(output) for output in outputs if output.finished]
        return sorted(replies, key=lambda reply: reply.episode)

    def sleep(self) -> None:
        """Give back what vLLM holds on the card; see `Sleeps.sleep`."""
        if self._sleep_level and self._engine is not None and not self._asleep:
            require_idle(self, "sleep")
            self._engine.sleep(self._sleep_level)
            self._asleep = True
            if self._sleep_level == 2:
                self._digest = None  # the weights are gone

    def _wake(self, *parts: str) -> None:
        """Take memory on the card again: for `weights`, for the `kv_cache`, or by default for both."""
        if self._asleep:
            torch.cuda.empty_cache()  # torch's allocator keeps what the learner has freed
            self._asleep = not self._engine.wake_up(list(parts) or None)

    def close(self) -> None:
        """Free vLLM's memory."""
        if self._engine is not None:
            core, self._engine = self._engine.engine_core, None
            core.shutdown()  # it frees weights and cache, and collects the garbage itself
        self._architecture = self._digest = None
        self._asleep = False
        self._episodes.clear()

    def _start(self, policy: Path, *, without_weights: bool) -> None:
        """Start vLLM for a policy's architecture, with its weights or with any, which are to be overwritten."""
        arguments = self._arguments(policy) | ({"load_format": "dummy"} if without_weights else {})
        if self._tensor_parallel > 1:
            os.environ.update(WORKERS_ENVIRONMENT, OMP_NUM_THREADS=str(self._threads))
        with (
            quiet(),
            starting_uncompiled(),
            threads_unpatched(),
            restricted_to_torchs_kernels(),
            unreadable_modules_out_of_sight(),
        ):
            self._engine = import_vllm()(**arguments).llm_engine

    def _arguments(self, policy: Path) -> dict[str, Any]:
        parts, most = self._tensor_parallel, self._maximum_episodes
        memory = engine_memory(policy, self._device, self._precision, self.context_length, most, parts)
        spread = {"tensor_parallel_size": parts, "distributed_executor_backend": "mp"}
        return {
            "model": str(policy),
            "dtype": memory.precision,
            "skip_tokenizer_init": True,
            "max_model_len": self.context_length,
            "max_num_seqs": self._maximum_episodes,
            "kv_cache_memory_bytes": memory.cache,
            **arguments_of_device(memory),
            "logprobs_mode": "processed_logprobs",
            "async_scheduling": False,
            "generation_config": "vllm",
            "disable_log_stats": True,
            **({"enable_sleep_mode": True} if self._sleep_level else {}),
            **(spread if parts > 1 else {}),
            "use_tqdm_on_load": False,
        }

    def _hand_over(self, policy: Path, model: PreTrainedModel | None, base: Path | None) -> None:
        """Overwrite the weights in place, and empty the KV cache, which is stale then."""
        if self._tensor_parallel > 1:
            self._engine.collective_rpc(load_in_worker, args=(policy, base))
        else:
            tensors = named_tensors(policy, base) if model is None else merged_weights(model)
            with restricted_to_torchs_kernels():
                self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(tensors)})
        self._empty_cache()

    def _empty_cache(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise RuntimeError(
                "vLLM must empty its prefix cache between rollouts; it did not: requests are still running"
            )

    def _parameters(self, limit: int) -> Any:
        """The sampling parameters of replies of at most `limit` tokens; cached by `limit`, being slow to make."""
        assert self._sampling is not None
        if limit not in self._parameters_by_limit:
            from vllm import SamplingParams
            from vllm.sampling_params import RequestOutputKind

            self._parameters_by_limit[limit] = SamplingParams(
                temperature=self._sampling.temperature,
                max_tokens=limit,
                stop_token_ids=list(self._sampling.end_tokens),
                ignore_eos=True,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                skip_clone=True,
            )
        return self._parameters_by_limit[limit]

    def _reply(self, output: Any) -> Reply:
        completion = output.outputs[0]
        tokens = tuple(completion.token_ids)
        if tuple(completion.logprobs.token_ids) != tokens:
            raise RuntimeError(
                "vLLM must report the log-probability of each sampled token, and of no other; it did not"
            )
        self.tokens_generated += len(tokens)
        return Reply(
            episode=self._episodes.pop(output.request_id),
            tokens=tokens,
            log_probabilities=tuple(completion.logprobs.logprobs),
            complete=completion.finish_reason == "stop",
        )
