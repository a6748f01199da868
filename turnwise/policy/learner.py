"""The learner: a transformers model under torch, its optimizer, and nothing that samples.

Everything here is a function of the weights, the optimizer's state and the arguments: no dropout, a fixed number of
threads, a fixed order of micro-batches. A learner that is saved and restored goes on to the bit.

The output layer, whose rows are the whole vocabulary, is computed only where the next token belongs to a reply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.errors import ArtifactError, ConfigurationError, MismatchError
from turnwise.policy.aggregation import token_weights
from turnwise.policy.importance import ImportanceCorrection, importance_weights
from turnwise.policy.objective import ReplyTokens, objective
from turnwise.policy.packing import MicroBatch, lay_out
from turnwise.policy.tally import UpdateTally
from turnwise.policy.threads import computing_threads
from turnwise.policy.update import UpdateBatch, UpdateSettings, mini_batches
from turnwise.trajectory import TokenSequence

OPTIMIZER_FILE = "optimizer/adamw.safetensors"
"""In a folder of its own: engines take every safetensors file beside the model's for weights."""


class Learner:
    """One policy in training."""

    def __init__(self, policy: Path | str, *, device: str = "cpu", threads: int, dtype: str = "float32") -> None:
        """Load `policy`, a folder in Hugging Face's layout or a hub id. The optimizer starts empty."""
        self._device = torch.device(device)
        self._threads = threads
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            str(policy), dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )
        self.model = model.to(self._device).eval()
        self._parameters: dict[str, torch.nn.Parameter] = dict(model.named_parameters())
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=0.0, weight_decay=0.0, fused=True)
        self._pad_token = model.config.pad_token_id or 0
        self._check_output_layer()

    @property
    def steps(self) -> int:
        """Optimizer steps taken since the optimizer was empty."""
        state = next(iter(self._optimizer.state.values()), None)
        return 0 if state is None else int(state["step"].item())

    def log_probabilities(
        self, sequences: Sequence[TokenSequence], temperature: float, micro_batch_tokens: int
    ) -> list[list[float]]:
        """Per sequence and token, in nats: of reply tokens at this temperature, and 0.0 at observation tokens."""
        return self._score(sequences, temperature, micro_batch_tokens)[0]

    def entropies(
        self, sequences: Sequence[TokenSequence], temperature: float, micro_batch_tokens: int
    ) -> list[list[float]]:
        """Per sequence and token, in nats: of the distribution a reply token is drawn from; 0.0 at observations."""
        return self._score(sequences, temperature, micro_batch_tokens)[1]

    def supervised_step(
        self,
        sequences: Sequence[TokenSequence],
        *,
        learning_rate: float,
        micro_batch_tokens: int,
        maximum_gradient_norm: float = 1.0,
        weight_decay: float = 0.0,
    ) -> dict[str, float]:
        """One AdamW step on the mean negative log-likelihood of the reply tokens of all sequences.

        Returns `loss` (nats per reply token, before the step), `gradient_norm` and `tokens` (reply tokens).
        """
        tokens = sum(sum(sequence.mask) for sequence in sequences)
        if not tokens:
            raise ValueError("a supervised step must have a reply token to train on; found none")
        loss = 0.0
        with self._computing():
            for micro_batch in lay_out(sequences, micro_batch_tokens, self._pad_token, self._device):
                logits = self._reply_logits(micro_batch)
                part = torch.nn.functional.cross_entropy(logits, micro_batch.targets, reduction="sum") / tokens
                part.backward()
                loss += part.item()
            norm = self._step(learning_rate, maximum_gradient_norm, (0.9, 0.999), weight_decay)
        return {"loss": loss, "gradient_norm": norm, "tokens": float(tokens)}

    def update(self, batch: UpdateBatch, settings: UpdateSettings) -> dict[str, float]:
        """Optimizer steps on the policy-gradient objective; see `turnwise.policy.objective`.

        Returned metrics are means over reply tokens: `loss` (that of the policy alone), `ratio`, `clip_fraction_low`,
        `clip_fraction_high`, `entropy` (nats), `approximate_kl` (nats, from the policy that the ratio is taken to), and
        `gradient_norm` (mean over steps, before clipping), `mismatch` and `mismatch_maximum` (|learner - engine|, nats,
        on the first mini-batch before its step), `tokens` (reply tokens of the batch), `padding_share`,
        `optimizer_steps`. Where they are used: `objective` (mean over steps of all that is descended),
        `dual_clip_fraction`, `kl_reference` (nats), `importance_weight_mean`, `importance_weight_maximum` (before it is
        cut), `importance_cut_share`.

        Raises ValueError for a batch that lacks what the settings read, and MismatchError, before any step, when the
        mismatch is above the settings' bound.
        """
        batch.require_inputs_of(settings)
        corrected: dict[str, float] = {}
        if settings.correction is not None:
            batch, corrected = self._corrected(batch, settings, settings.correction)
        tallies: list[UpdateTally] = []
        norms: list[float] = []
        with self._computing():
            for mini_batch in mini_batches(batch, settings):
                tally = self._policy_gradient(mini_batch, settings)
                if not tallies:
                    self._check_mismatch(tally, settings.maximum_mismatch)
                norms.append(
                    self._step(
                        settings.learning_rate, settings.maximum_gradient_norm, settings.betas, settings.weight_decay
                    )
                )
                tallies.append(tally)
        total = sum(tallies[1:], tallies[0])
        own_objective = not settings.advantages_alone or settings.aggregation != "token-mean"
        return {
            **total.means(),
            "gradient_norm": sum(norms) / len(norms),
            "mismatch": tallies[0].mismatch / tallies[0].tokens,
            "mismatch_maximum": tallies[0].mismatch_maximum,
            "tokens": float(sum(batch.reply_tokens)),
            "padding_share": 1.0 - total.unpadded / total.padded,
            "optimizer_steps": float(len(norms)),
            **({"objective": total.objective / len(norms)} if own_objective else {}),
            **corrected,
        }

    def save(self, folder: Path) -> None:
        """Write the weights in Hugging Face's layout and the optimizer's state, all as safetensors, into `folder`.

        The files are written in place: whoever owns the folder makes its appearance atomic.
        """
        (folder / OPTIMIZER_FILE).parent.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder, max_shard_size="1000GB")
        states = {
            f"{moment}.{name}": self._optimizer.state[parameter][moment].detach().cpu().contiguous()
            for name, parameter in self._parameters.items()
            if parameter in self._optimizer.state
            for moment in ("exp_avg", "exp_avg_sq", "step")
        }
        save_file(states, folder / OPTIMIZER_FILE)

    @classmethod
    def restore(cls, folder: Path, *, device: str = "cpu", threads: int, dtype: str = "float32") -> Learner:
        """The learner that was saved in `folder`: it goes on to the bit where that one stopped."""
        path = folder / OPTIMIZER_FILE
        if not path.exists():
            raise ArtifactError(
                f"a learner's folder must hold {OPTIMIZER_FILE}; {folder} does not: start from its weights alone with "
                "Learner(folder), or compute it again"
            )
        learner = cls(folder, device=device, threads=threads, dtype=dtype)
        states = load_file(path)
        for name, parameter in learner._parameters.items() if states else ():
            learner._optimizer.state[parameter] = {
                moment: states[f"{moment}.{name}"].to(learner._device) for moment in ("exp_avg", "exp_avg_sq", "step")
            }
        return learner

    def reset_optimizer(self) -> None:
        """Forget the optimizer's moments, as when another objective begins."""
        self._optimizer.state.clear()

    def _corrected(
        self, batch: UpdateBatch, settings: UpdateSettings, correction: ImportanceCorrection
    ) -> tuple[UpdateBatch, dict[str, float]]:
        """The batch with what corrects it for the engine's mismatch, and what is reported of that."""
        own = self.log_probabilities(batch.sequences, settings.temperature, settings.micro_batch_tokens)
        weights = importance_weights(batch.sequences, own, correction)
        proximal = tuple(tuple(row) for row in own)
        return replace(batch, proximal_log_probabilities=proximal, importance_weights=weights.of_token), {
            "importance_weight_mean": weights.mean,
            "importance_weight_maximum": weights.maximum,
            "importance_cut_share": weights.cut_share,
        }

    def _policy_gradient(self, batch: UpdateBatch, settings: UpdateSettings) -> UpdateTally:
        """Add the gradient of a mini-batch's objective; return the sums of what is reported.

        Where nothing but advantages has a gradient, sequences without any (those of groups that all did alike) have a
        gradient of exactly zero: they count in the aggregation and are reported, but are not propagated backward, which
        is most of the work.
        """
        weights = token_weights(
            settings.aggregation, batch.reply_tokens, groups=batch.groups, constant=settings.aggregation_constant
        )
        everything = [(True, list(range(len(batch.sequences))))]
        tally = UpdateTally(unpadded=sum(len(sequence.tokens) for sequence in batch.sequences))
        for has_signal, chosen in batch.by_signal() if settings.advantages_alone else everything:
            part, of_part = batch.select(chosen), [weights[index] for index in chosen]
            with torch.set_grad_enabled(has_signal):
                for micro_batch in lay_out(part.sequences, settings.micro_batch_tokens, self._pad_token, self._device):
                    loss, reported = self._objective(micro_batch, part, of_part, settings)
                    if has_signal:
                        loss.backward()
                    tally += reported
        return tally

    def _objective(
        self, micro_batch: MicroBatch, batch: UpdateBatch, weights: Sequence[float], settings: UpdateSettings
    ) -> tuple[torch.Tensor, UpdateTally]:
        """The part of the objective of a micro-batch's reply tokens, and what is reported of them."""
        logits = self._reply_logits(micro_batch) / settings.temperature
        chosen, entropy = _chosen_and_entropy(
            logits, micro_batch.targets, entropy_gradient=settings.entropy_coefficient > 0
        )
        tokens = ReplyTokens.of(batch, weights, micro_batch, logits.dtype)
        loss, reported = objective(chosen, entropy, tokens, settings)
        return loss, reported + UpdateTally(padded=micro_batch.padded_tokens)

    def _check_mismatch(self, tally: UpdateTally, bound: float) -> None:
        mean = tally.mismatch / tally.tokens
        if not mean <= bound:
            self._optimizer.zero_grad()
            raise MismatchError(
                "the learner must give the sampled tokens the log-probabilities that the engine sampled them with; the "
                f"mean difference is {mean:.3g} nats per token, the bound {bound:g}: the engine held other weights "
                "than the learner, or sampled at another temperature. Load the learner's policy into the engine before "
                "the rollout; for an engine of low precision raise maximum_mismatch"
            )

    def _step(
        self, learning_rate: float, maximum_gradient_norm: float, betas: tuple[float, float], weight_decay: float
    ) -> float:
        """One AdamW step with the gradient that has been added up, clipped; returns its norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), maximum_gradient_norm))
        if not math.isfinite(norm):
            self._optimizer.zero_grad()
            raise FloatingPointError(f"the gradient must be finite; its norm is {norm}: lower the learning rate")
        for group in self._optimizer.param_groups:
            group.update(lr=learning_rate, betas=betas, weight_decay=weight_decay)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def _score(
        self, sequences: Sequence[TokenSequence], temperature: float, micro_batch_tokens: int
    ) -> tuple[list[list[float]], list[list[float]]]:
        chosen_by_token = [[0.0] * len(sequence.tokens) for sequence in sequences]
        entropy_by_token = [[0.0] * len(sequence.tokens) for sequence in sequences]
        with self._computing(), torch.no_grad():
            for micro_batch in lay_out(sequences, micro_batch_tokens, self._pad_token, self._device):
                logits = self._reply_logits(micro_batch) / temperature
                chosen, entropy = _chosen_and_entropy(logits, micro_batch.targets)
                places = zip(micro_batch.rows.tolist(), micro_batch.columns.tolist(), strict=True)
                for (row, column), value, spread in zip(places, chosen.tolist(), entropy.tolist(), strict=True):
                    chosen_by_token[micro_batch.members[row]][column + 1] = value
                    entropy_by_token[micro_batch.members[row]][column + 1] = spread
        return chosen_by_token, entropy_by_token

    def _reply_logits(self, micro_batch: MicroBatch) -> torch.Tensor:
        """Logits where a reply token is predicted, in float32 or better: [replies, vocabulary]."""
        hidden = self.model.base_model(input_ids=micro_batch.inputs, use_cache=False).last_hidden_state
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden[micro_batch.rows, micro_batch.columns])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _check_output_layer(self) -> None:
        """Refuse a model whose logits are not its output layer's (some cap or scale them): its loss would be wrong."""
        with self._computing(), torch.no_grad():
            tokens = torch.arange(1, 5, device=self._device).unsqueeze(0)
            hidden = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
            if not torch.allclose(
                self.model.get_output_embeddings()(hidden), self.model(input_ids=tokens, use_cache=False).logits
            ):
                raise ConfigurationError(
                    f"a policy's logits must be its output layer applied to its last hidden state; those of "
                    f"{type(self.model).__name__} are not (it caps or scales them): choose another architecture"
                )

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Fixed threads and deterministic kernels inside; as it was outside, since the engine shares the process."""
        deterministic = torch.are_deterministic_algorithms_enabled()
        settings: Any = torch.utils.deterministic
        filling = settings.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        settings.fill_uninitialized_memory = False
        try:
            with computing_threads(self._threads):
                yield
        finally:
            torch.use_deterministic_algorithms(deterministic)
            settings.fill_uninitialized_memory = filling


def _chosen_and_entropy(
    logits: torch.Tensor, targets: torch.Tensor, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of `targets`, with gradient, and the entropy of each row, without unless it is asked for."""
    log_distribution = logits.log_softmax(dim=-1)
    chosen = log_distribution.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    of_entropy = log_distribution if entropy_gradient else log_distribution.detach()
    return chosen, -(of_entropy.exp() * of_entropy).sum(dim=-1)
