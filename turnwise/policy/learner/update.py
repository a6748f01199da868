"""The batch of an update, its mini-batches, and the weight of each reply token's loss in the objective.

Over the S samples of a mini-batch, n_i reply tokens in sample i, P prompts (groups), m_p reply tokens in prompt p. A
sample is a trajectory, however many segments it has, or a turn (`optimization.sample`).

    token-mean       1 / (sum of n)      equal weight per token; long replies weigh more              DAPO
    sequence-mean    1 / (S n_i)         equal weight per sample; tokens of long replies weigh less   GRPO
    constant         1 / (S c)           sum over tokens divided by a constant, whatever the length   Dr.GRPO
    prompt-mean      1 / (P m_p)         equal weight per prompt, and per token of one prompt         ScaleRL
    token-sum        1                   the sum over tokens: the step grows with the batch           verl
    sequence-sum     1 / S               the sum over a sample's tokens: `constant` with c = 1        verl, ROLL

Papers: DAPO (arXiv 2503.14476), whose formula is a prompt-mean and whose code a token-mean; GRPO (DeepSeekMath, arXiv
2402.03300); Dr.GRPO (arXiv 2503.20783), whose c is the longest reply allowed; ScaleRL (arXiv 2510.13786).

What differs from most systems: the weights are computed over the whole mini-batch before it is cut into micro-batches,
so that the cut cannot change the objective. A prompt whose trajectories are dealt into several mini-batches is averaged
within each.

The settings are in `turnwise.policy.learner.settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnwise.config.optimization import Aggregation, TokenSelection
from turnwise.data.arrays import Advantages, Integers, Numbers, Ragged, Rows, SequenceBatch, Sequences, TrajectoryArrays
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.learner.settings import UpdateSettings
from turnwise.policy.learner.token_selection import RULES as SELECTIONS
from turnwise.policy.learner.token_selection import ReplyTokenInputs
from turnwise.seeding import generator

__all__ = ["UpdateBatch", "UpdateSettings", "mini_batches", "token_weights", "update_batch"]


@dataclass(frozen=True)
class UpdateBatch:
    """The training data of an update: sequences with one advantage per token.

    Numbers per token are in one row per sequence; those at observation tokens are never read. Advantages are 0.0 there,
    since these tokens are never trained on. Raises ValueError when the fields do not match, and where there is no reply
    token.
    """

    sequences: SequenceBatch
    advantages: Ragged
    groups: tuple[int, ...] | None = None
    """The prompt of each sequence; required by the aggregation `prompt-mean`."""
    samples: tuple[int, ...] | None = None
    """The sample that each sequence belongs to. The segments of a trajectory are one sample: they go into the same
    mini-batch, and count as one in an aggregation. None: each sequence is a sample."""
    reference_log_probabilities: Ragged | None = None
    """The reference policy's, in nats, at the sampling temperature; required by a penalty in the loss."""
    proximal_log_probabilities: Ragged | None = None
    """The learner's own before its first step, in nats, which the ratio is then taken to. The learner fills them in
    where the engine's mismatch is corrected for."""
    importance_weights: Ragged | None = None
    """Factors of the policy loss. The learner fills them in where the engine's mismatch is corrected for."""
    loss_factors: Ragged | None = None
    """Factors of the policy loss, 0 or 1. The learner fills them in where it selects tokens."""
    ratio_pulls: Ragged | None = None
    """Coefficients of |log r|, which is added to the policy loss. The learner fills them in for the rule `kl-cov`."""
    teacher_rows: Ragged | None = None
    """The number of each reply token among those of a teacher's sequences, -1: it is not among them; required by
    distillation."""
    values: Ragged | None = None
    """Values that the returns were computed with, by a critic on the policy's trunk; required where it is trained."""
    returns: Ragged | None = None
    """The targets of that critic."""

    def __post_init__(self) -> None:
        if not np.array_equal(self.advantages.offsets, self.sequences.offsets):
            raise ValueError(
                "an update batch must have one advantage per token of every sequence: spread those of turns or of "
                "reply tokens with from_turns or from_reply_tokens"
            )
        for name, rows in vars(self).items():
            if isinstance(rows, Ragged) and not np.array_equal(rows.offsets, self.sequences.offsets):
                raise ValueError(f"{name} must have one number per token of every sequence of an update batch")
        for name in ("groups", "samples"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != len(self.sequences):
                raise ValueError(
                    f"{name} must have one number per sequence of an update batch; found {len(numbers)} for "
                    f"{len(self.sequences)}"
                )
        if not self.sequences.mask.any():
            raise ValueError("an update batch must have a reply token to train on; found none")

    @classmethod
    def from_turns(
        cls,
        sequences: Sequences,
        advantages: Rows,
        *,
        groups: Sequence[int] | Integers | None = None,
        samples: Sequence[int] | Integers | None = None,
        reference_log_probabilities: Rows | None = None,
    ) -> UpdateBatch:
        """A batch from advantages per turn: `advantages[i][k]` goes to every reply token of turn k of sequence i.

        Where a sequence is a segment, turns are numbered through its whole trajectory.
        """
        sequences, turn_advantages = SequenceBatch.of(sequences), Ragged.of(advantages)
        if (sequences.turn_of_token >= np.repeat(turn_advantages.lengths, sequences.lengths)).any():
            raise ValueError("there must be one advantage per turn of every sequence; found a turn that has none")
        turns = np.repeat(turn_advantages.offsets[:-1], sequences.lengths) + sequences.turn_of_token
        return cls.from_reply_tokens(
            sequences,
            Ragged.with_lengths(turn_advantages.values[turns[sequences.mask]], sequences.reply_counts),
            groups=groups,
            samples=samples,
            reference_log_probabilities=reference_log_probabilities,
        )

    @classmethod
    def from_reply_tokens(
        cls,
        sequences: Sequences,
        advantages: Rows,
        *,
        groups: Sequence[int] | Integers | None = None,
        samples: Sequence[int] | Integers | None = None,
        reference_log_probabilities: Rows | None = None,
    ) -> UpdateBatch:
        """A batch from advantages per token: `advantages[i]` has one number per reply token of sequence i, in order."""
        sequences, token_advantages = SequenceBatch.of(sequences), Ragged.of(advantages)
        if not np.array_equal(token_advantages.lengths, sequences.reply_counts):
            raise ValueError(
                f"there must be one advantage per reply token; found {len(token_advantages.values)} advantages for "
                f"{sequences.mask.sum()} reply tokens"
            )
        return cls(
            sequences=sequences,
            advantages=sequences.at_replies(token_advantages.values),
            groups=None if groups is None else tuple(map(int, groups)),
            samples=None if samples is None else tuple(map(int, samples)),
            reference_log_probabilities=(
                None if reference_log_probabilities is None else Ragged.of(reference_log_probabilities)
            ),
        )

    def with_values(self, values: Rows, returns: Rows) -> UpdateBatch:
        """The batch with the training data of a critic on the policy's trunk.

        `values` and `returns` have one row per sequence, with one number per reply token. Raises ValueError as
        `ValueBatch` does.
        """
        token_values, token_returns = ValueBatch.of(self.sequences, values, returns).per_token()
        return replace(self, values=token_values, returns=token_returns)

    def with_selected_tokens(
        self, selection: TokenSelection, entropies: Ragged | None, seed: int
    ) -> tuple[UpdateBatch, dict[str, float]]:
        """The batch with what becomes of the loss of each token, and the share of reply tokens that were chosen.

        `entropies` has one number per token, for the rules of `turnwise.policy.learner.token_selection.NEEDS_ENTROPY`.
        """
        mask, proximal = self.sequences.mask, self.proximal_log_probabilities
        log_probabilities = self.sequences.log_probabilities if proximal is None else proximal.values
        tokens = ReplyTokenInputs(
            self.advantages.values[mask],
            log_probabilities[mask],
            None if entropies is None else entropies.values[mask],
        )
        selected = SELECTIONS[selection.rule](tokens, seed, **selection.options)
        pulls = None if selected.pulls is None else self.sequences.at_replies(selected.pulls)
        is_selected = (selected.factors == 0) if selected.pulls is None else (selected.pulls > 0)
        batch = replace(self, loss_factors=self.sequences.at_replies(selected.factors), ratio_pulls=pulls)
        return batch, {"token_selection_share": float(is_selected.mean())}

    def value_batch(self) -> ValueBatch:
        """The training data of a critic on the policy's trunk, with one number per reply token."""
        assert self.values is not None and self.returns is not None, "require_inputs_of has seen to it"
        values, returns = (
            self.sequences.reply_rows(each.values[self.sequences.mask]) for each in (self.values, self.returns)
        )
        return ValueBatch(self.sequences, values, returns)

    @property
    def sequences_of_samples(self) -> dict[int, list[int]]:
        """By sample, the indices of its sequences that have a reply token; samples without any are left out."""
        members: dict[int, list[int]] = {}
        for index in np.flatnonzero(self.sequences.reply_counts).tolist():
            members.setdefault(index if self.samples is None else self.samples[index], []).append(index)
        return members

    def token_weights(self, settings: UpdateSettings) -> Numbers:
        """The weight in the loss of a reply token of each sequence: `token_weights` over the samples."""
        lengths, members = self.sequences.reply_counts.tolist(), self.sequences_of_samples.values()
        sample_weights = token_weights(
            settings.aggregation,
            [sum(lengths[index] for index in indices) for indices in members],
            groups=None if self.groups is None else [self.groups[indices[0]] for indices in members],
            constant=settings.aggregation_constant,
        )
        weights = np.zeros(len(self.sequences))
        for weight, indices in zip(sample_weights, members, strict=True):
            weights[indices] = weight
        return weights

    def require_inputs_of(self, settings: UpdateSettings) -> None:
        """Raise ValueError unless the batch has every field that an update with these settings reads."""
        if settings.aggregation == "prompt-mean" and self.groups is None:
            raise ValueError("the aggregation 'prompt-mean' must know the prompt of every sequence: give groups")
        if settings.penalty_in_loss is not None and self.reference_log_probabilities is None:
            raise ValueError(
                "a reference penalty in the loss must have the reference policy's log-probabilities: score the "
                "sequences with it, and give reference_log_probabilities"
            )
        if settings.distillation is not None and self.teacher_rows is None:
            raise ValueError(
                "distillation must know which token of its teacher's sequences each reply token is: give teacher_rows"
            )
        if settings.critic is not None and (self.values is None or self.returns is None):
            raise ValueError(
                "a critic that learns along must have the values of the reply tokens and their returns: give them with "
                "with_values"
            )

    def select(self, indices: Sequence[int] | Integers) -> UpdateBatch:
        """The batch of these sequences, in this order."""
        selected: dict[str, Any] = {}
        for name, values in vars(self).items():
            if isinstance(values, Ragged | SequenceBatch):
                selected[name] = values.select(indices)
            else:
                selected[name] = None if values is None else tuple(values[index] for index in indices)
        return UpdateBatch(**selected)

    def turn_by_turn(self) -> UpdateBatch:
        """The batch with each turn as a separate sequence and sample: the turn's reply after the context before it.

        Earlier replies count as observations there. This is the comparison in RAGEN (arXiv 2504.20073): the same tokens
        with the same advantages, at the cost of recomputing every context. With the aggregation `token-mean` the
        gradient is that of whole trajectories.
        """
        owners: list[int] = []
        turns: list[int] = []
        ends: list[int] = []
        for index, token_turns in enumerate(self.sequences.rows(self.sequences.turn_of_token)):
            numbers, from_the_end = np.unique(token_turns[::-1], return_index=True)
            for turn, back in zip(numbers[numbers >= 0].tolist(), from_the_end[numbers >= 0].tolist(), strict=True):
                owners.append(index)
                turns.append(turn)
                ends.append(len(token_turns) - back)
        whole = self.select(owners)
        begins = whole.sequences.offsets[:-1]
        by_turn = Ragged.with_lengths(np.empty(sum(ends)), ends)
        places = np.arange(sum(ends)) + np.repeat(begins - by_turn.offsets[:-1], ends)
        turn_of_token = whole.sequences.turn_of_token[places]
        here = turn_of_token == np.repeat(turns, ends)
        sequences = SequenceBatch(
            whole.sequences.tokens[places],
            np.where(here, turn_of_token, -1),
            np.where(here, whole.sequences.log_probabilities[places], 0.0),
            by_turn.offsets,
        )
        per_token: dict[str, Any] = {
            name: Ragged(rows.values[places], by_turn.offsets)
            for name, rows in vars(whole).items()
            if isinstance(rows, Ragged)
        }
        return replace(whole, sequences=sequences, samples=None, **per_token)

    def by_signal(self) -> Iterator[tuple[bool, list[int]]]:
        """Split the sequences by signal: (True, indices of those with an advantage other than 0 at a reply token), then
        (False, indices of the others). A part without sequences is left out.
        """
        signals = (self.advantages.values != 0) & self.sequences.mask
        sequence_of_token = np.repeat(np.arange(len(self.sequences)), self.sequences.lengths)
        counts = np.bincount(sequence_of_token[signals], minlength=len(self.sequences))
        for has_signal in (True, False):
            indices = np.flatnonzero((counts > 0) == has_signal).tolist()
            if indices:
                yield has_signal, indices


def mini_batches(batch: UpdateBatch, settings: UpdateSettings) -> Iterator[UpdateBatch]:
    """The mini-batches of all epochs, one per optimizer step; the sequences of a sample stay together."""
    members = batch.sequences_of_samples
    samples = list(members)
    for epoch in range(settings.epochs):
        order = np.array(samples)
        if settings.mini_batches > 1:
            order = generator(settings.seed, "mini-batches", epoch).permutation(samples)
        for part in np.array_split(order, min(settings.mini_batches, len(samples))):
            yield batch.select([index for sample in part.tolist() for index in members[sample]])


def token_weights(
    aggregation: Aggregation,
    reply_tokens: Sequence[int],
    *,
    groups: Sequence[int] | None = None,
    constant: float | None = None,
) -> list[float]:
    """The weight of a reply token in the loss: one number per sample, shared by all of the sample's reply tokens.

    `reply_tokens`: the number of reply tokens of each sample, at least 1. `groups`: the prompt of each sample, for
    `prompt-mean`. `constant`: the divisor c, in tokens, for `constant`. Raises ValueError where one is missing.
    """
    if not all(reply_tokens):
        raise ValueError("every sample of a mini-batch must have a reply token; leave out those that have none")
    samples = len(reply_tokens)
    match aggregation:
        case "token-mean":
            return [1.0 / sum(reply_tokens)] * samples
        case "sequence-mean":
            return [1.0 / (samples * tokens) for tokens in reply_tokens]
        case "constant":
            if constant is None:
                raise ValueError("the aggregation 'constant' must be given its constant, in tokens; found none")
            return [1.0 / (samples * constant)] * samples
        case "token-sum":
            return [1.0] * samples
        case "sequence-sum":
            return [1.0 / samples] * samples
        case "prompt-mean":
            if groups is None:
                raise ValueError("the aggregation 'prompt-mean' must know the group of every sample; found none")
            return _prompt_mean(reply_tokens, groups)


def _prompt_mean(reply_tokens: Sequence[int], groups: Sequence[int]) -> list[float]:
    prompt_tokens: dict[int, int] = {}
    for group, tokens in zip(groups, reply_tokens, strict=True):
        prompt_tokens[group] = prompt_tokens.get(group, 0) + tokens
    return [1.0 / (len(prompt_tokens) * prompt_tokens[group]) for group in groups]


def update_batch(
    rollout: TrajectoryArrays,
    credited: Advantages,
    reference: Ragged | None = None,
    values: Ragged | None = None,
    teacher_rows: Ragged | None = None,
) -> UpdateBatch:
    """The batch of an update: one sequence per segment. All segments of a trajectory form one sample.

    `reference` has the reference policy's log-probabilities, one number per token of each trajectory of the rollout;
    `values` those of a critic on the policy's trunk, one per reply token; `teacher_rows` as in `UpdateBatch`, one per
    reply token.
    """
    trajectories = rollout.select(credited.trajectories)
    sequences, samples = trajectories.segments()
    references = None
    if reference is not None:
        references = sequences.rows(reference.select(credited.trajectories).values)

    def select_trained(rows: Ragged) -> Ragged:
        return sequences.reply_rows(rows.values[trajectories.trained_replies])

    on_sequences, advantages = (
        (UpdateBatch.from_turns, credited.turns.select(samples))
        if credited.tokens is None
        else (UpdateBatch.from_reply_tokens, select_trained(credited.tokens))
    )
    batch = on_sequences(
        sequences,
        advantages,
        groups=trajectories.group[samples],
        samples=samples,
        reference_log_probabilities=references,
    )
    if teacher_rows is not None:
        rows = select_trained(teacher_rows.select(credited.trajectories)).values
        batch = replace(batch, teacher_rows=sequences.at_replies(rows))
    if values is None or credited.value_targets is None:
        return batch
    return batch.with_values(
        select_trained(values.select(credited.trajectories)), select_trained(credited.value_targets)
    )
