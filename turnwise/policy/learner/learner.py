"""The learner: a transformers model under torch and its optimizer. It trains and scores; engines sample.

Every result is a function of the weights, the optimizer's state and the arguments: no dropout, a fixed number of
threads, a fixed order of micro-batches. A learner that is saved and restored continues exactly, to the bit.

`turnwise.policy.scored_policy` loads the model and computes log-probabilities; here is what trains it. With a critic on
the policy's trunk an update minimises both losses at once, by separate optimizers: `turnwise.policy.critic.critic`.

With `peers` several processes train the policy together (`turnwise.policy.sharding`): each calls the same methods of
its learner with the same arguments, and has the same results: those of one process up to rounding, and saved alike.

The objective that an optimizer step minimises, over the reply tokens of one micro-batch:

    sum over reply tokens t of  weight_t [ w_t m_t L_t + b_t |log r_t| + c k_t - e H_t ]

or with distillation of weight d, (1 - d) (w_t m_t L_t + b_t |log r_t|) + d D_t in place of the first two terms, D_t
being the divergence from a teacher (`turnwise.policy.learner.distillation`);

L_t: the policy loss (`turnwise.policy.learner.losses`), w_t: the importance weight of the engine's mismatch
(`turnwise.policy.learner.importance`), m_t, 0 or 1, and b_t: the selection of tokens
(`turnwise.policy.learner.token_selection`) and the bound on off-policy sequences (below), k_t: the estimate of the
divergence from a reference policy (`turnwise.policy.divergence`), H_t: the entropy of the distribution that the token
is drawn from, weight_t: the token's weight in the aggregation over the whole mini-batch
(`turnwise.policy.learner.update`); c and e: the coefficients of the penalty and of the entropy bonus. The sum over
micro-batches is the mini-batch's objective, however it is cut. A term that is not used is not computed. TRL's entropy
bonus is a mean over all tokens, whatever the aggregation; here and in verl it is weighted as the loss.

With `off_policy_bound` delta m_t is also 0 where A_t < 0 and the mean over the sequence's reply tokens of
log mu - log pi is above delta: what the policy has moved away from is not pushed further on stale evidence. mu is the
engine, pi the policy at this step (DeepSeek-V3.2, arXiv 2512.02556; TRL's `off_policy_mask_threshold`, whose advantage
is the sequence's). Bias: what is left out is bad alone, so that the policy is less of a pessimist than its rewards.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.config.schema import SupervisedOptimizer
from turnwise.data.arrays import Numbers, Ragged, SequenceBatch, Sequences, TokenSequence
from turnwise.errors import MismatchError, NotFiniteError
from turnwise.policy.adapter import base_name, restore_adapter
from turnwise.policy.critic.critic import VALUE_HEAD_FILE, Critic, value_metrics
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.divergence import LARGEST_LOG_RATIO, divergence
from turnwise.policy.learner.distillation import OutputLayer, Teacher, TeacherStates
from turnwise.policy.learner.importance import with_importance
from turnwise.policy.learner.losses import LOSSES, TokenLoss, sequence_mean
from turnwise.policy.learner.schedule import update_learning_rate
from turnwise.policy.learner.token_selection import NEEDS_ENTROPY
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings, mini_batches
from turnwise.policy.metric_sums import UpdateTally
from turnwise.policy.model import dtype_of, save_policy, trained_parameters
from turnwise.policy.muon import MuonAndAdamW
from turnwise.policy.optimizer import NamedAdamW
from turnwise.policy.scored_policy import ScoredPolicy
from turnwise.policy.scoring import MicroBatch, at_reply_tokens, pad
from turnwise.policy.sharding import Peers


def forget_peak_memory(device: str) -> None:
    """Reset the peak on a CUDA device; on the CPU this does nothing."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: str) -> int:
    """The peak in bytes of what torch has allocated on CUDA since `forget_peak_memory`.

    On the CPU it is that of the process's resident memory since it started, an engine and other stages included, and
    cannot be reset.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident if sys.platform == "darwin" else resident * 1024  # Linux counts in KiB, macOS in bytes


OPTIMIZER_FILE = "optimizer/adamw.safetensors"
"""In a subfolder, since engines load every safetensors file next to the model's as weights."""


@dataclass(frozen=True)
class ReplyTokens:
    """The inputs of the objective other than the policy's outputs, at a micro-batch's reply tokens; all [replies]."""

    engine: torch.Tensor
    """Log-probabilities of the sampled tokens in the engine, in nats."""
    behaviour: torch.Tensor
    """Log-probabilities that the ratio is taken to: the engine's, or the learner's own before its first step."""
    advantages: torch.Tensor
    weights: torch.Tensor
    """The weight of each token in the aggregation."""
    sequence: torch.Tensor
    """Index of the sequence within the micro-batch."""
    reference: torch.Tensor | None
    """Log-probabilities in the reference policy, in nats; None where the batch has none."""
    importance: torch.Tensor | None
    """Importance weights; None without a correction of the engine's mismatch."""
    factors: torch.Tensor | None = None
    """Factors of the policy loss, 0 or 1; None without a selection of tokens."""
    pulls: torch.Tensor | None = None
    """Coefficients of |log r|; None where no token has one."""

    @classmethod
    def of(cls, batch: UpdateBatch, weights: Numbers, micro_batch: MicroBatch, dtype: torch.dtype) -> ReplyTokens:
        """Collect the inputs of a micro-batch of `batch`; `weights` has one number per sequence of the batch."""

        def pick(values: Ragged | Numbers) -> torch.Tensor:
            return at_reply_tokens(values, micro_batch).to(dtype)

        engine = pick(batch.sequences.log_probabilities)
        proximal, reference, importance, factors, pulls = (
            None if rows is None else pick(rows)
            for rows in (
                batch.proximal_log_probabilities,
                batch.reference_log_probabilities,
                batch.importance_weights,
                batch.loss_factors,
                batch.ratio_pulls,
            )
        )
        sequence_weights = torch.from_numpy(weights[list(micro_batch.members)]).to(dtype)
        return cls(
            engine=engine,
            behaviour=engine if proximal is None else proximal,
            advantages=pick(batch.advantages),
            weights=sequence_weights.to(engine.device)[micro_batch.rows],
            sequence=micro_batch.rows,
            reference=reference,
            importance=importance,
            factors=factors,
            pulls=pulls,
        )


def objective(
    log_probabilities: torch.Tensor,
    entropy: torch.Tensor,
    tokens: ReplyTokens,
    settings: UpdateSettings,
    from_teacher: torch.Tensor | None = None,
) -> tuple[torch.Tensor, UpdateTally]:
    """The micro-batch's part of the objective, and the sums for its metrics.

    `log_probabilities` and `entropy` are the policy's at the reply tokens, [replies], in nats, at the sampling
    temperature; `entropy` needs a gradient only where it has a coefficient. `from_teacher`: the divergences
    D_t, [replies], for settings with distillation.
    """
    policy = LOSSES[settings.loss](
        log_probabilities, tokens.behaviour, tokens.advantages, tokens.sequence, **settings.loss_arguments
    )
    further: dict[str, float] = {}
    policy_loss = policy.loss if tokens.importance is None else policy.loss * tokens.importance
    if tokens.factors is not None:
        policy_loss = policy_loss * tokens.factors
    if settings.off_policy_bound is not None:
        dropped = off_policy(log_probabilities.detach(), tokens, settings.off_policy_bound)
        policy_loss = policy_loss.masked_fill(dropped, 0.0)
        further["off_policy_fraction"] = dropped.sum().item()
    if tokens.pulls is not None:
        policy_loss = policy_loss + tokens.pulls * (log_probabilities - tokens.behaviour).abs()
    total = policy_loss
    if settings.distillation is not None:
        assert from_teacher is not None, "a learner computes them for these settings"
        total = torch.lerp(policy_loss, from_teacher.to(policy_loss.dtype), settings.distillation.weight)
        further["teacher_divergence"] = from_teacher.sum().item()
    if settings.dual_clip is not None:
        further["dual_clip_fraction"] = policy.dual_clipped.sum().item()
    if settings.penalty_in_loss is not None:
        assert tokens.reference is not None, "require_inputs_of has seen to it"
        to_reference = divergence(log_probabilities - tokens.reference, settings.penalty_in_loss)
        if settings.penalty_in_loss.reweighted:
            log_ratio = (log_probabilities - tokens.behaviour).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
            to_reference = to_reference * log_ratio.exp()
        total = total + settings.penalty_in_loss.coefficient * to_reference
        further["kl_reference"] = to_reference.sum().item()
    if settings.entropy_coefficient:
        total = total - settings.entropy_coefficient * entropy
    weighted_loss = (total * tokens.weights).sum()
    loss_sums = UpdateTally(loss=policy_loss.sum().item(), objective=weighted_loss.item(), further=further)
    return weighted_loss, loss_sums + _policy_sums(policy, log_probabilities, entropy, tokens)


def off_policy(log_probabilities: torch.Tensor, tokens: ReplyTokens, bound: float) -> torch.Tensor:
    """Whether each token has a negative advantage in a sequence that the policy has moved away from, [replies]."""
    away = sequence_mean(tokens.engine - log_probabilities, tokens.sequence)
    return (tokens.advantages < 0) & (away > bound)


def _policy_sums(
    policy: TokenLoss, log_probabilities: torch.Tensor, entropy: torch.Tensor, tokens: ReplyTokens
) -> UpdateTally:
    """The sums for the policy's metrics, which are reported whatever terms the objective has."""
    mismatch = (log_probabilities.detach() - tokens.engine).abs()
    return UpdateTally(
        tokens=len(tokens.engine),
        ratio=policy.ratio.sum().item(),
        clipped_low=policy.clipped_low.sum().item(),
        clipped_high=policy.clipped_high.sum().item(),
        divergence=policy.divergence.sum().item(),
        entropy=entropy.sum().item(),
        mismatch=mismatch.sum().item(),
        mismatch_maximum=mismatch.max().item() if len(tokens.engine) else 0.0,
    )


class Learner(ScoredPolicy):
    """One policy in training."""

    def __init__(
        self,
        policy: Path | str,
        *,
        device: str = "cpu",
        threads: int,
        model: ModelSettings = PLAIN,
        name: str = "",
        peers: Peers | None = None,
    ) -> None:
        """Load `policy`, a folder in Hugging Face's layout or a hub id, with an empty optimizer and a new adapter.

        `name` is what a saved adapter calls the policy that it belongs to; empty: as `policy`.
        """
        super().__init__(policy, device=device, threads=threads, model=model, peers=peers)
        self._name = name or str(policy)
        self.critic: Critic | None = None
        """The critic on this policy's trunk; None unless `add_critic` was called."""
        self._optimizer = NamedAdamW(trained_parameters(self.model), model)
        self._muon = MuonAndAdamW.of(self.model)

    @classmethod
    def restore(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        threads: int,
        model: ModelSettings = PLAIN,
        base: Path | None = None,
        peers: Peers | None = None,
    ) -> Learner:
        """The learner that was saved in `folder`; with as many processes as then it continues exactly, to the bit.

        Of an adapter `folder` holds no more than that; `base` is the folder of the weights that it belongs to. A critic
        that it had is not restored here: call `add_critic` with the folder.
        """
        name = "" if base is None else base_name(folder)
        learner = cls(base or folder, device=device, threads=threads, model=model, name=name, peers=peers)
        learner._optimizer.restore(folder / OPTIMIZER_FILE)
        if model.adapter is not None:
            restore_adapter(learner.model, folder, model.adapter)
        return learner

    def add_critic(self, policy: Path) -> None:
        """Put a critic on the policy's trunk: the one that was saved in the folder `policy`, or else a new one."""
        folder = policy if (policy / VALUE_HEAD_FILE).is_file() else None
        compute_states = None if self._peers is None else self._pass.states
        self.critic = Critic.on_trunk_of(
            self.model, threads=self._threads, folder=folder, peers=self._peers, compute_states=compute_states
        )

    @property
    def steps(self) -> int:
        """Optimizer steps taken since the optimizer was new, those before a restore included."""
        return self._optimizer.steps

    def supervised_step(
        self,
        sequences: Sequences,
        *,
        learning_rate: float,
        micro_batch_tokens: int,
        maximum_gradient_norm: float = 1.0,
        weight_decay: float = 0.0,
        optimizer: SupervisedOptimizer = "adamw",
    ) -> dict[str, float]:
        """Take one step on the mean negative log-likelihood of the reply tokens. Muon's momentum is not saved.

        Returns `loss` (nats per reply token, before the step), `gradient_norm` (before clipping) and `tokens` (reply
        tokens). Raises ValueError where there is no reply token.
        """
        sequences = SequenceBatch.of(sequences)
        tokens = int(sequences.mask.sum())
        if not tokens:
            raise ValueError("a supervised step must have a reply token to train on; found none")
        loss = 0.0
        with reproducible_computing(self._threads):
            for micro_batch in self._lay_out(sequences, micro_batch_tokens):
                _, log_probabilities, _ = self._pass(micro_batch)
                part = -log_probabilities.sum() / tokens
                part.backward()
                loss += part.item()
            norm = (self._optimizer if optimizer == "adamw" else self._muon).step(
                learning_rate=learning_rate,
                maximum_gradient_norm=maximum_gradient_norm,
                betas=(0.9, 0.999),
                weight_decay=weight_decay,
            )
        if self._peers is not None:
            loss = sum(self._peers.gathered(loss))
        return {"loss": loss, "gradient_norm": norm, "tokens": float(tokens)}

    def update(
        self,
        batch: UpdateBatch,
        settings: UpdateSettings,
        sampler: Learner | None = None,
        teacher: Teacher | None = None,
    ) -> dict[str, float]:
        """Take optimizer steps on the policy-gradient objective (`objective`); return metrics.

        With `settings.critic` the critic on the policy's trunk is trained in the same steps, and all sequences have a
        backward pass. `sampler` holds the policy that sampled the batch, where that is an older one (`rollout.lag`):
        importance weights correct for its age, and the mismatch is measured with it. `teacher` is whom settings with
        distillation learn from.

        Metrics that are means over reply tokens: `loss` (the policy loss alone), `ratio`, `clip_fraction_low`,
        `clip_fraction_high`, `entropy` (nats), `approximate_kl` (nats, from the policy that the ratio is taken to).
        Others: `gradient_norm` (mean over steps, before clipping), `mismatch` and `mismatch_maximum` (|learner -
        engine|, nats, on the first mini-batch before its step; with a `sampler`, on that one's first micro-batch),
        `tokens` (reply tokens of the batch), `padding_share`, `optimizer_steps`. Where they are used: `objective` (mean
        over steps of the whole objective), `dual_clip_fraction`, `kl_reference` and `teacher_divergence` (nats, of
        `turnwise.policy.learner.distillation`), `importance_weight_mean`,
        `importance_weight_maximum` (before truncation or masking), `importance_cut_share`, `lag_kl` (nats, from the
        `sampler` to this policy before its first step), `token_selection_share` (of reply tokens: left out, or held),
        `off_policy_fraction` (of reply tokens left out by the bound), and those of `Critic.update`.

        Raises ValueError for a batch that lacks an input of the settings; MismatchError, before any step, when the
        mismatch is above the settings' bound; and NotFiniteError for a loss, a gradient or a weight that is not finite:
        this learner is unusable then, while what was saved before is intact.
        """
        batch.require_inputs_of(settings)
        if (settings.critic is None) != (self.critic is None):
            raise ValueError(
                "a critic on the policy's trunk must learn along, and no other: give its settings if, and only if, "
                "add_critic has put one there"
            )
        if (settings.distillation is None) != (teacher is None):
            raise ValueError("there must be a teacher for settings with distillation, and for no other")
        if sampler is not None and settings.correction is None:
            raise ValueError("a batch that an older policy sampled must be corrected for: give settings.correction")
        metrics: dict[str, float] = {}
        mismatch = None if sampler is None else sampler.mismatch(batch, settings)
        if mismatch is not None:
            self._check_mismatch(mismatch[0], settings.maximum_mismatch)
        selection = settings.token_selection
        own: Ragged | None = None
        entropies: Ragged | None = None
        if settings.correction is not None or (selection is not None and selection.rule in NEEDS_ENTROPY):
            own, entropies = self.scores(batch.sequences, settings.temperature, settings.micro_batch_tokens)
        if settings.correction is not None and own is not None:
            batch, metrics = with_importance(batch, own, settings.correction, lags=sampler is not None)
        if selection is not None:
            batch, selection_metrics = batch.with_selected_tokens(selection, entropies, settings.seed)
            metrics = {**metrics, **selection_metrics}
        teacher_states = None if teacher is None else self._compute_teacher_states(teacher, settings)
        tallies: list[UpdateTally] = []
        norms: list[float] = []
        value_norms: list[float] = []
        with reproducible_computing(self._threads):
            for mini_batch in mini_batches(batch, settings):
                tally = self._gradient(mini_batch, settings, teacher_states)
                if mismatch is None:
                    mismatch = tally.mismatch / tally.tokens, tally.mismatch_maximum
                    self._check_mismatch(mismatch[0], settings.maximum_mismatch)
                norms.append(self._step(settings))
                if self.critic is not None and settings.critic is not None:
                    value_norms.append(self.critic.step(settings.critic))
                tallies.append(tally)
            self._check_finite()
        total = sum(tallies[1:], tallies[0])
        assert mismatch is not None, "a batch has at least one mini-batch"
        own_objective = not settings.advantages_alone or settings.aggregation != "token-mean"
        own_rate = settings.learning_rate_warmup > 0 or settings.run_steps is not None
        return {
            **total.means(),
            "gradient_norm": sum(norms) / len(norms),
            "mismatch": mismatch[0],
            "mismatch_maximum": mismatch[1],
            "tokens": float(batch.sequences.mask.sum()),
            "padding_share": 1.0 - total.unpadded / total.padded,
            "optimizer_steps": float(len(norms)),
            **({"objective": total.objective / len(norms)} if own_objective else {}),
            **({"learning_rate": update_learning_rate(self._optimizer.steps, settings)} if own_rate else {}),
            **metrics,
            **(value_metrics(total.values, value_norms, batch.value_batch()) if value_norms else {}),
        }

    def _compute_teacher_states(self, teacher: Teacher, settings: UpdateSettings) -> TeacherStates:
        """The teacher's states before the reply tokens of its sequences."""
        if self._peers is not None:
            raise ValueError("a teacher's whole distribution is learned from by one process; found several")
        by = self if teacher.policy is None else teacher.policy
        states = by.states(teacher.sequences, settings.micro_batch_tokens)
        output_layer = OutputLayer.of(by.model, settings.temperature)
        return TeacherStates(states, output_layer.frozen() if by is self else output_layer)

    def _from_teacher(
        self,
        teacher_states: TeacherStates,
        states: torch.Tensor,
        micro_batch: MicroBatch,
        batch: UpdateBatch,
        settings: UpdateSettings,
    ) -> torch.Tensor:
        """The divergences of a micro-batch's reply tokens, [replies]."""
        assert settings.distillation is not None and batch.teacher_rows is not None, "they come with a teacher"
        rows = torch.from_numpy(batch.teacher_rows.values[micro_batch.places]).to(states.device, torch.int64)
        return teacher_states.divergences(
            states,
            OutputLayer.of(self.model, settings.temperature),
            rows,
            settings.distillation,
            chunk_tokens=self._model_settings.logit_chunk_tokens,
            dtype=dtype_of(self._model_settings),
        )

    def mismatch(self, batch: UpdateBatch, settings: UpdateSettings) -> tuple[float, float]:
        """The mean and the maximum of |this policy's - engine's| log-probabilities, in nats, on one micro-batch."""
        first = next(mini_batches(batch, settings)).sequences
        sample = first.select(list(self._lay_out(first, settings.micro_batch_tokens, dealt=False)[0].members))
        own = self.log_probabilities(sample, settings.temperature, settings.micro_batch_tokens)
        differences = np.abs(own.values - sample.log_probabilities)[sample.mask]
        return float(differences.mean()), float(differences.max())

    def save(self, folder: Path) -> None:
        """Write the weights, or an adapter alone, and the state needed to continue, in Hugging Face's layout.

        All tensors are safetensors, written in place: the owner of the folder must make its appearance atomic.
        """
        writes = self._peers is None or self._peers.writes
        save_policy(self.model, folder, self._model_settings, self._name, writes=writes)
        self._optimizer.save(folder / OPTIMIZER_FILE, writes=writes)
        if self.critic is not None:
            self.critic.save(folder)

    def forget_peak_memory(self) -> None:
        """Reset the peak of its device's memory: see `forget_peak_memory`."""
        forget_peak_memory(self.model.device.type)

    def peak_memory_bytes(self) -> int:
        """The peak of its device's memory: see `peak_memory_bytes`."""
        return peak_memory_bytes(self.model.device.type)

    def _gradient(
        self, batch: UpdateBatch, settings: UpdateSettings, teacher_states: TeacherStates | None = None
    ) -> UpdateTally:
        """Accumulate the gradient of a mini-batch's objective; return the sums for its metrics.

        Where advantages are the only source of gradient, sequences whose advantages are all 0 (those of zero-variance
        groups) have a gradient of exactly zero: they count in the aggregation and in the metrics, but skip the backward
        pass, which is most of the work.
        """
        weights = batch.token_weights(settings)
        value_weight = 0.0
        if settings.critic is not None:
            value_weight = (settings.critic.coefficient or 0.0) / int(batch.sequences.mask.sum())
        everything = [(True, list(range(len(batch.sequences))))]
        tally = UpdateTally()
        for has_signal, indices in batch.by_signal() if settings.advantages_alone else everything:
            part, part_weights = batch.select(indices), weights[indices]
            with torch.set_grad_enabled(has_signal):
                for micro_batch in self._lay_out(part.sequences, settings.micro_batch_tokens):
                    loss, sums = self._objective(
                        micro_batch, part, part_weights, value_weight, settings, teacher_states
                    )
                    if has_signal:
                        loss.backward()
                    tally += sums
        if self._peers is not None:
            tallies = [UpdateTally.from_values(each) for each in self._peers.gathered(asdict(tally))]
            tally = sum(tallies[1:], tallies[0])
        return tally + UpdateTally(unpadded=len(batch.sequences.tokens))

    def _objective(
        self,
        micro_batch: MicroBatch,
        batch: UpdateBatch,
        weights: Numbers,
        value_weight: float,
        settings: UpdateSettings,
        teacher_states: TeacherStates | None,
    ) -> tuple[torch.Tensor, UpdateTally]:
        """A micro-batch's part of the objective, the value loss included, and the sums for its metrics."""
        states, log_probabilities, entropy = self._pass(
            micro_batch, settings.temperature, entropy_gradient=settings.entropy_coefficient > 0
        )
        tokens = ReplyTokens.of(batch, weights, micro_batch, log_probabilities.dtype)
        from_teacher = (
            None if teacher_states is None else self._from_teacher(teacher_states, states, micro_batch, batch, settings)
        )
        loss, sums = objective(log_probabilities, entropy, tokens, settings, from_teacher)
        if settings.critic is not None:
            assert self.critic is not None and batch.values is not None and batch.returns is not None
            values, returns = (at_reply_tokens(rows, micro_batch) for rows in (batch.values, batch.returns))
            value_loss, value_sums = self.critic.loss(states, values, returns, settings.critic.clip)
            loss = loss + value_weight * value_loss
            sums += UpdateTally(objective=value_weight * value_sums.loss, values=value_sums)
        return loss, sums + UpdateTally(padded=micro_batch.padded_tokens)

    def _check_mismatch(self, mean: float, bound: float) -> None:
        """Raise MismatchError where log-probabilities are too far from the engine's; `mean` is in nats."""
        if mean <= bound:
            return
        self.model.zero_grad()
        if self.critic is not None:
            self.critic.head.zero_grad()
        raise MismatchError(
            "the learner must give the sampled tokens the log-probabilities that the engine sampled them with; the "
            f"mean difference is {mean:.3g} nats per token, the bound {bound:g}: the engine held other weights "
            "than the learner, or sampled at another temperature. Load the learner's policy into the engine before "
            "the rollout; for an engine of low precision raise maximum_mismatch",
            "TW-engine-mismatch",
        )

    def _check_finite(self) -> None:
        """Raise NotFiniteError where the last step made weights whose logits, and so their entropies, are not finite.

        The loss would show it only one batch later, when a policy that cannot be sampled from has been saved.
        """
        begun = SequenceBatch.of([TokenSequence((1, 2, 3, 4, 1), (-1, 0, 0, 0, 0), (0.0,) * 5)])
        with torch.no_grad():
            entropies = self._pass(pad(begun, [0], self._pad_token, self.model.device))[2]
        if not bool(torch.isfinite(entropies).all()):
            raise NotFiniteError("the policy's logits must be finite after an update; they are not", "TW-not-finite")

    def _step(self, settings: UpdateSettings) -> float:
        """Take one optimizer step with the accumulated gradient; return its norm before clipping."""
        return self._optimizer.step(
            learning_rate=update_learning_rate(self._optimizer.steps + 1, settings),
            maximum_gradient_norm=settings.maximum_gradient_norm,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
