"""Scores: one number per token of a rollout, from a policy that did not sample it or from a critic."""

from __future__ import annotations

import numpy as np

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SCORING, asking_code, frame_of, hindsight_reads
from tasks.restoring import MODELS, opened, trajectories_of
from turnwise.agent.formats import make_format
from turnwise.agent.playing import PlayParameters, episode_config, the_world
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Section
from turnwise.credit.batch import Rescored
from turnwise.data import scores as score_files
from turnwise.data.arrays import Integers, Ragged, SequenceBatch
from turnwise.data.scores import SCORES, Scores, write_scores
from turnwise.data.trajectory_files import read_arrays
from turnwise.policy.score_norms import score_norms
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import Outside


class ReferenceParameters(Section):
    """The parameters of the reference policy's scores."""

    learner: LearnerParameters
    """How the policy in training is loaded, which with an adapter holds the reference policy, too."""
    temperature: float
    micro_batch_tokens: int


@task(name="reference", task_run_name="{label}: reference", retries=1)
@depends_on(kernel=SCORING, writes=SCORES)
def reference(
    parameters: ReferenceParameters,
    *,
    policy: Reference,
    rollout: Reference,
    adapted: Reference | None = None,
    label: str = "reference",
) -> Reference:
    """Log-probabilities of the sampled replies under the reference policy, at the sampling temperature.

    With an adapter `adapted` is the policy in training, whose adapter is turned off: its training began with `policy`.
    """
    trajectories = read_arrays(opened(rollout))
    sequences, _ = trajectories.segments(every_reply=True)
    log_p = MODELS.reference_log_probabilities(
        policy,
        parameters.learner,
        adapted or policy,
        sequences,
        parameters.temperature,
        parameters.micro_batch_tokens,
    )
    return _save_scores(Scores(trajectories.token_rows(log_p.values), np.zeros(len(trajectories))))


class RescoreParameters(Section):
    """The parameters of what a policy in training says of a rollout, for a credit rule."""

    need: Rescored
    """What the rule needs, as `turnwise.credit.batch` calls it."""
    learner: LearnerParameters
    temperature: float
    micro_batch_tokens: int
    play: PlayParameters | None = None
    """How the episodes were played, where the policy is asked for what came of them; else None."""
    teacher: Outside | None = None
    """The policy that is asked for its log-probabilities of the replies, in place of this one in hindsight."""


@task(name="rescore", task_run_name="{label}: rescore", retries=1)
@depends_on(
    kernel=(*SCORING, "turnwise.policy.score_norms"),
    writes=SCORES,
    code=lambda parameters: asking_code(parameters.play, parameters.teacher),
    reads=lambda parameters: hindsight_reads(parameters.play),
)
def rescore(
    parameters: RescoreParameters,
    *,
    policy: Reference,
    rollout: Reference,
    tokenizer: Reference | None = None,
    label: str = "rescore",
) -> Reference:
    """What a credit rule needs to know of a rollout from the policy that sampled it, `policy`.

    One row per trajectory: of each reply token the norm of its score, or what it gains in hindsight; or of each turn
    the score of the right answer. The last two need the `tokenizer`.
    """
    if parameters.need == "score_norms":
        rescored = _score_norms(parameters, policy, rollout)
    elif parameters.teacher is not None:
        assert tokenizer is not None, "a teacher must have the policy's tokens"
        rescored = _teacher_gains(parameters, parameters.teacher, rollout, tokenizer)
    else:
        assert tokenizer is not None, "what is shown in hindsight is spelled with the tokenizer"
        compute = _answer_scores if parameters.need == "answer_scores" else _hindsight_gains
        rescored = compute(parameters, policy, rollout, tokenizer)
    return _save_scores(Scores(rescored, np.zeros(len(rescored))))


def _score_norms(parameters: RescoreParameters, policy: Reference, rollout: Reference) -> Ragged:
    trajectories = read_arrays(opened(rollout))
    sequences, _ = trajectories.segments(every_reply=True)
    half_temperature = MODELS.log_probabilities(
        policy, parameters.learner, sequences, parameters.temperature / 2, parameters.micro_batch_tokens
    )
    log_probabilities = sequences.log_probabilities[sequences.mask]
    return trajectories.reply_rows(score_norms(log_probabilities, half_temperature.values[sequences.mask]))


def _answer_scores(
    parameters: RescoreParameters, policy: Reference, rollout: Reference, tokenizer: Reference
) -> Ragged:
    from turnwise.agent.hindsight import answer_scores, answered

    assert parameters.play is not None, "answers are written as the episodes were played"
    world = the_world(parameters.play.world)
    form = make_format(parameters.play.agent.format, world)
    trajectories = trajectories_of(rollout)
    sequences = answered(trajectories, world.answer, form, frame_of(tokenizer))
    log_probabilities = MODELS.log_probabilities(
        policy, parameters.learner, sequences, parameters.temperature, parameters.micro_batch_tokens
    )
    return answer_scores(sequences, log_probabilities, [len(each.turns) for each in trajectories])


def _teacher_gains(parameters: RescoreParameters, teacher: Outside, rollout: Reference, tokenizer: Reference) -> Ragged:
    trajectories = read_arrays(opened(rollout))
    sequences, _ = trajectories.segments(every_reply=True)
    log_probabilities = MODELS.teacher_policy(teacher, tokenizer, parameters.learner.compute).log_probabilities(
        sequences, parameters.temperature, parameters.micro_batch_tokens
    )
    return trajectories.reply_rows((log_probabilities.values - sequences.log_probabilities)[sequences.mask])


def _hindsight_gains(
    parameters: RescoreParameters, policy: Reference, rollout: Reference, tokenizer: Reference
) -> Ragged:
    from turnwise.agent.hindsight import shown_hindsight

    assert parameters.play is not None, "hindsight is shown as the episodes were played"
    rows, sequences = shown_hindsight(trajectories_of(rollout), episode_config(parameters.play, frame_of(tokenizer)))
    arrays = read_arrays(opened(rollout))
    gains = arrays.reply_rows(np.zeros(len(arrays.reply_tokens.values)))
    if rows:
        log_probabilities = MODELS.log_probabilities(
            policy, parameters.learner, sequences, parameters.temperature, parameters.micro_batch_tokens
        )
        differences = log_probabilities.values - sequences.log_probabilities
        gains.values[gains.places(rows)] = differences[sequences.mask]
    return gains


class ValuesParameters(Section):
    """The parameters of a critic's scores."""

    learner: LearnerParameters
    micro_batch_tokens: int
    play: PlayParameters | None = None
    """How the episodes were played, where the critic is shown the right answers; else None."""


@task(name="values", task_run_name="{label}: values", retries=1)
@depends_on(
    kernel=("turnwise.policy.critic.value_function", "turnwise.policy.scored_policy"),
    writes=SCORES,
    code=lambda parameters: asking_code(parameters.play, None),
    reads=lambda parameters: hindsight_reads(parameters.play),
)
def values(
    parameters: ValuesParameters,
    *,
    critic: Reference,
    rollout: Reference,
    tokenizer: Reference | None = None,
    label: str = "values",
) -> Reference:
    """The critic's value of the state before each reply token and after the last one.

    For a critic on the policy's trunk, `critic` is the policy's artifact. A privileged one needs the `tokenizer`.
    """
    trajectories = read_arrays(opened(rollout))
    sequences, owners = critic_sequences(parameters.play, rollout, tokenizer)
    with MODELS.consulted_critic(critic, parameters.learner) as judge:
        token_values = judge.values(sequences, parameters.micro_batch_tokens)
        ends = judge.bootstrap(sequences, parameters.micro_batch_tokens)
    scores = Scores(trajectories.reply_rows(token_values.values), np.zeros(len(trajectories)))
    scores.at_end[owners] = ends  # of several segments, the last one's
    return _save_scores(scores)


def _save_scores(scores: Scores) -> Reference:
    with default_store().write("scores") as draft:
        write_scores(draft.folder, scores)
    return draft.reference


def critic_sequences(
    play: PlayParameters | None, rollout: Reference, tokenizer: Reference | None
) -> tuple[SequenceBatch, Integers]:
    """The sequences that a critic reads of a rollout, and the trajectory of each.

    With `play` they are those of a privileged critic, spelled with the `tokenizer`: one per trajectory with a turn.
    """
    if play is None:
        return read_arrays(opened(rollout)).segments(every_reply=True)
    from turnwise.agent.hindsight import shown_answers

    assert tokenizer is not None, "what is shown to a critic is spelled with the tokenizer"
    trajectories = trajectories_of(rollout)
    sequences = shown_answers(trajectories, episode_config(play, frame_of(tokenizer)))
    return sequences, np.flatnonzero([bool(each.turns) for each in trajectories])


def read_scores(scores: Reference) -> Scores:
    """The scores of a rollout; rows are indexed by trajectory."""
    return score_files.read_scores(default_store().folder(scores))
