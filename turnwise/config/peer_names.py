"""What other systems call the settings of this one: the table behind `docs/coming-from.md` and behind answers to them.

A row is one setting of one system, as its configuration writes it, with the settings here that are the same algorithm,
and what still differs. A peer's name that is given to one of our keys is answered from here, since the name that is
spelled most alike is often another algorithm. `lab.coming_from` writes the page.

Read in verl 0.9.1, TRL 1.16.0, OpenRLHF 3c3be623, SkyRL a9564572e, AReaL cbff54d64, prime-rl 559b44772, ROLL 8eb27cc2
and verl-agent 20bd331.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ESTIMATOR, OPTIONS = "credit.estimator", "credit.options"
LOSS, AGGREGATION = "optimization.loss", "optimization.aggregation"
REFERENCE, CORRECTION = "optimization.reference", "optimization.correction"
SELECTION = "optimization.token_selection"
ANY = "x"
"""Stands for a value that the user chooses."""


@dataclass(frozen=True)
class PeerName:
    """One setting of another system."""

    system: str
    key: str
    """The other system's key."""
    value: str
    """Its value there; `ANY` for a number."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """By key of `params.yaml`, what to set here. A text that begins with `ANY` is computed from the other's value."""
    differs: str = ""
    """What is not the same, or what to know."""

    @property
    def is_choice(self) -> bool:
        """Whether the value is a name, by which a user may look for it here."""
        return not self.value.startswith(ANY)

    def settings(self) -> str:
        """What to set here, as text: `optimization.loss: clipped, optimization.aggregation: token-mean`."""
        return ", ".join(self.each_setting())

    def each_setting(self) -> list[str]:
        """What to set here, one text for each key."""
        return [f"{key}: {_as_yaml(value)}" for key, value in self.ours.items()]


PAPERS = "papers"
VERL, TRL, OPENRLHF, SKYRL, AREAL, PRIME_RL = "verl", "TRL", "OpenRLHF", "SkyRL", "AReaL", "prime-rl"
ROLL, VERL_AGENT = "ROLL", "verl-agent"
SYSTEMS = (VERL, TRL, OPENRLHF, SKYRL, AREAL, PRIME_RL, ROLL, VERL_AGENT, PAPERS)
"""The systems in the order of the page."""

_verl_estimator, _verl_loss = "algorithm.adv_estimator", "actor.policy_loss.loss_mode"
_verl_aggregation, _verl_kl = "actor.loss_agg_mode", "actor.kl_loss_type"
_openrlhf_estimator = "algo.advantage.estimator"
_skyrl_estimator, _skyrl_loss = "trainer.algorithm.advantage_estimator", "trainer.algorithm.policy_loss_type"
_skyrl_aggregation = "trainer.algorithm.loss_reduction"
_of_verl = "verl's epsilon is 1e-6; here the default is 1e-4"
_whitened = "advantages are whitened over reply tokens, as here"
_length = "the divisor is the longest reply allowed, in tokens"

PEER_NAMES: tuple[PeerName, ...] = (
    PeerName(VERL, _verl_estimator, "gae", {ESTIMATOR: "gae"}, _whitened),
    PeerName(VERL, _verl_estimator, "grpo", {ESTIMATOR: "grpo", OPTIONS: {"epsilon": 1e-6}}, _of_verl),
    PeerName(VERL, _verl_estimator, "grpo_vectorized", {ESTIMATOR: "grpo", OPTIONS: {"epsilon": 1e-6}}, _of_verl),
    PeerName(VERL, "algorithm.norm_adv_by_std_in_grpo", "False", {ESTIMATOR: "grpo", OPTIONS: {"deviation": "none"}}),
    PeerName(
        VERL,
        _verl_estimator,
        "gdpo",
        {ESTIMATOR: "gdpo", OPTIONS: {"epsilon": 1e-6}},
        "verl whitens over tokens, here over trajectories; the weights are those of rewards",
    ),
    PeerName(VERL, _verl_estimator, "grpo_passk", {ESTIMATOR: "grpo-passk"}),
    PeerName(VERL, _verl_estimator, "opo", {ESTIMATOR: "opo"}, "a group of one gets 0 here, its reward in verl"),
    PeerName(VERL, _verl_estimator, "gpg", {ESTIMATOR: "gpg", OPTIONS: {"counted": "rewarded"}}),
    PeerName(VERL, _verl_estimator, "remax", {ESTIMATOR: "remax"}),
    PeerName(
        VERL,
        _verl_estimator,
        "optimal_token_baseline",
        {ESTIMATOR: "optimal-token-baseline", OPTIONS: {"alone": "return"}},
        "a group of one gets 0 here, its reward in verl; observations are no steps here, as in verl's tir form",
    ),
    PeerName(
        VERL,
        _verl_estimator,
        "tir_optimal_token_baseline",
        {ESTIMATOR: "optimal-token-baseline", OPTIONS: {"alone": "return"}},
        "a group of one gets 0 here, its reward in verl",
    ),
    PeerName(VERL, _verl_estimator, "rloo", {ESTIMATOR: "rloo"}),
    PeerName(VERL, _verl_estimator, "rloo_vectorized", {ESTIMATOR: "rloo"}),
    PeerName(VERL, _verl_estimator, "reinforce_plus_plus", {ESTIMATOR: "reinforce++"}, _whitened),
    PeerName(VERL, _verl_estimator, "reinforce_plus_plus_baseline", {ESTIMATOR: "reinforce++-baseline"}, _whitened),
    PeerName(
        VERL,
        _verl_loss,
        "vanilla",
        {LOSS: "clipped", "optimization.dual_clip": 3.0},
        "verl's dual clip (clip_ratio_c) is 3.0 and always on; here it is off unless set",
    ),
    PeerName(VERL, _verl_loss, "gspo", {LOSS: "gspo", AGGREGATION: "sequence-mean"}, "verl's clips are PPO's, 0.2"),
    PeerName(VERL, _verl_loss, "cispo", {LOSS: "cispo"}, "verl's clips are PPO's, 0.2, on both sides"),
    PeerName(VERL, _verl_loss, "gpg", {LOSS: "reinforce"}),
    PeerName(VERL, _verl_loss, "sapo", {LOSS: "sapo", AGGREGATION: "sequence-mean"}, "tau_pos, tau_neg: loss_options"),
    PeerName(VERL, _verl_loss, "dppo_tv", {LOSS: "dppo-tv"}, "the clips are the bounds: loss_options delta_low, _high"),
    PeerName(VERL, _verl_loss, "dppo_kl", {LOSS: "dppo-kl"}, "the clips are the bounds: loss_options delta_low, _high"),
    PeerName(VERL, _verl_loss, "geo_mean", {LOSS: "gmpo", AGGREGATION: "sequence-mean"}, "verl's clips are PPO's, 0.2"),
    PeerName(VERL, _verl_loss, "dro", {LOSS: "dro"}, "dro_beta is loss_options beta; verl has no default"),
    PeerName(
        VERL,
        _verl_loss,
        "clip_cov",
        {LOSS: "clipped", SELECTION: {"rule": "clip-cov", "options": {"share": 0.0002, "low": 1.0, "high": 5.0}}},
        "chosen once per update here, in each mini-batch there: clip_cov_ratio, _lb, _ub",
    ),
    PeerName(
        VERL,
        _verl_loss,
        "kl_cov",
        {LOSS: "importance-sampling", SELECTION: {"rule": "kl-cov", "options": {"share": 0.0002, "coefficient": 1.0}}},
        "chosen once per update here, in each mini-batch there: kl_cov_ratio, ppo_kl_coef",
    ),
    PeerName(VERL, _verl_aggregation, "token-mean", {AGGREGATION: "token-mean"}),
    PeerName(VERL, _verl_aggregation, "token-sum", {AGGREGATION: "token-sum"}),
    PeerName(VERL, _verl_aggregation, "seq-mean-token-sum", {AGGREGATION: "sequence-sum"}),
    PeerName(VERL, _verl_aggregation, "seq-mean-token-mean", {AGGREGATION: "sequence-mean"}),
    PeerName(
        VERL,
        _verl_aggregation,
        "seq-mean-token-sum-norm",
        {AGGREGATION: "constant", "optimization.aggregation_constant": ANY},
        "the constant is loss_scale_factor, or the longest reply allowed",
    ),
    PeerName(VERL, "actor.clip_ratio_low", ANY, {"optimization.clip_low": ANY}),
    PeerName(VERL, "actor.clip_ratio_high", ANY, {"optimization.clip_high": ANY}),
    PeerName(VERL, "actor.clip_ratio_c", ANY, {"optimization.dual_clip": ANY}, "3.0 and on in verl, off here"),
    PeerName(
        VERL,
        _verl_kl,
        "low_var_kl",
        {REFERENCE: {"coefficient": 0.001, "estimator": "k3", "clamp": 10.0}},
        "the coefficient is kl_loss_coef; verl, SkyRL and ROLL hold k3 within 10",
    ),
    PeerName(VERL, _verl_kl, "mse", {REFERENCE: {"coefficient": 0.001, "estimator": "k2"}}),
    PeerName(
        VERL,
        _verl_kl,
        "low_var_kl+",
        {REFERENCE: {"coefficient": 0.001, "estimator": "k3+", "clamp": 10.0}},
        "or k3+: the value of k3, the gradient of k2; clamp bounds the value alone in verl, and the gradient too here",
    ),
    PeerName(
        VERL,
        "algorithm.kl_penalty",
        "kl",
        {REFERENCE: {"coefficient": 0.001, "estimator": "k1", "place": "reward"}},
        "with use_kl_in_reward; in the loss k1 has no gradient in expectation and is refused here",
    ),
    PeerName(
        VERL,
        "algorithm.kl_ctrl.type",
        "adaptive",
        {REFERENCE: {"coefficient": 0.001, "adaptive": {"target": 0.1, "horizon": 10000}}},
        "target_kl and horizon; verl's is the penalty in the reward, here the one in the loss adapts",
    ),
    PeerName(
        VERL,
        "rollout_correction.rollout_is",
        "token",
        {CORRECTION: {"kind": "truncate", "level": "token", "high": 2.0}},
        "high is rollout_is_threshold; a threshold of two numbers, 0.5_5.0, is kind: mask with low and high",
    ),
    PeerName(
        VERL,
        "rollout_correction.rollout_is",
        "sequence",
        {CORRECTION: {"kind": "truncate", "level": "sequence", "high": 2.0}},
    ),
    PeerName(
        VERL,
        "rollout_correction.rollout_rs",
        "seq_mean_k1",
        {CORRECTION: {"kind": "none", "sequence_mask": {"over": "mean", "of": "k1", "high": 2.0, "low": 0.5}}},
        "bounds are those of mu / p in verl, of p / mu here; with rollout_is kind is truncate or mask",
    ),
    PeerName(
        VERL,
        "rollout_correction.rollout_rs",
        "seq_max_k3",
        {CORRECTION: {"kind": "none", "sequence_mask": {"over": "maximum", "of": "k3", "high": 1.0}}},
        "likewise seq_sum, seq_mean and seq_max of k2 and k3",
    ),
    PeerName(
        VERL,
        "rollout_correction.rollout_is_batch_normalize",
        "True",
        {CORRECTION: {"kind": "truncate", "over_mean": True}},
    ),
    PeerName(
        VERL,
        "reward_model.overlong_buffer.enable",
        "True",
        {
            "rewards.overlong": {
                "level": "outcome",
                "weight": 1.0,
                "function": "overlong",
                "options": {"longest": 4096, "buffer": 512},
            }
        },
        "weight is penalty_factor, buffer len; each turn's reply is judged by itself",
    ),
    PeerName(TRL, "loss_type", "grpo", {LOSS: "clipped", AGGREGATION: "sequence-mean"}),
    PeerName(TRL, "loss_type", "bnpo", {LOSS: "clipped", AGGREGATION: "token-mean"}),
    PeerName(
        TRL,
        "loss_type",
        "dapo",
        {LOSS: "clipped", AGGREGATION: "token-mean"},
        "TRL's default; its token mean is over all processes, as here; epsilon_high is a setting of its own",
    ),
    PeerName(
        TRL,
        "loss_type",
        "dr_grpo",
        {LOSS: "clipped", AGGREGATION: "constant", "optimization.aggregation_constant": ANY},
        f"{_length} (max_completion_length); with scale_rewards none it is all of Dr.GRPO",
    ),
    PeerName(
        TRL,
        "loss_type",
        "cispo",
        {LOSS: "cispo", "optimization.clip_high": f"{ANY} - 1"},
        "x is epsilon_high, the largest weight itself; there is no lower clip",
    ),
    PeerName(
        TRL,
        "loss_type",
        "luspo",
        {LOSS: "gspo", AGGREGATION: "sequence-sum"},
        "with importance_sampling_level sequence; set both clips: TRL's are epsilon, 0.2",
    ),
    PeerName(
        TRL,
        "reward_funcs",
        "get_soft_overlong_punishment",
        {
            "rewards.overlong": {
                "level": "outcome",
                "weight": 1.0,
                "function": "overlong",
                "options": {"longest": 4096, "buffer": 512},
            }
        },
        "max_completion_len is longest, soft_punish_cache buffer",
    ),
    PeerName(TRL, "loss_type", "sapo", {LOSS: "sapo", AGGREGATION: "sequence-mean"}),
    PeerName(
        TRL,
        "loss_type",
        "vespo",
        {LOSS: "vespo", AGGREGATION: "token-mean"},
        "TRL multiplies the engine's correction into the weight's ratio, here it multiplies the loss",
    ),
    PeerName(
        TRL,
        "importance_sampling_level",
        "sequence",
        {LOSS: "gspo", AGGREGATION: "sequence-mean"},
        "with loss_type grpo",
    ),
    PeerName(TRL, "scale_rewards", "group", {ESTIMATOR: "grpo"}, "both epsilons are 1e-4"),
    PeerName(TRL, "scale_rewards", "none", {ESTIMATOR: "grpo", OPTIONS: {"deviation": "none"}}),
    PeerName(TRL, "scale_rewards", "batch", {ESTIMATOR: "grpo", OPTIONS: {"deviation": "batch"}}),
    PeerName(
        TRL,
        "multi_objective_aggregation",
        "normalize_then_sum",
        {ESTIMATOR: "gdpo"},
        "reward_weights are the weights of rewards",
    ),
    PeerName(
        TRL,
        "distillation_mode",
        "sampled_token",
        {ESTIMATOR: "self-distillation", LOSS: "reinforce", AGGREGATION: "sequence-mean"},
        "of SDPOTrainer; another episode's actions are shown, not its text; the teacher is the policy that sampled",
    ),
    PeerName(
        TRL,
        "teacher_model_name_or_path",
        "base-3m",
        {"optimization.distillation": {"teacher": "base-3m", "interpolation": 0.5}},
        "of GKDTrainer, whose beta is the interpolation and whose lmbda is 1 here: all is sampled by the policy",
    ),
    PeerName(
        TRL,
        "distillation_mode",
        "full_logits",
        {"optimization.distillation": {"weight": 1.0, "interpolation": 1.0}, AGGREGATION: "sequence-mean"},
        "distillation_weight and distillation_alpha; of GKD beta is the interpolation; no distillation_is_clip here",
    ),
    PeerName(TRL, "epsilon", ANY, {"optimization.clip_low": ANY}),
    PeerName(TRL, "epsilon_high", ANY, {"optimization.clip_high": ANY}, "of cispo: x - 1"),
    PeerName(TRL, "delta", ANY, {"optimization.dual_clip": ANY}),
    PeerName(
        TRL,
        "beta",
        ANY,
        {REFERENCE: {"coefficient": ANY, "estimator": "k3", "reweighted": True}},
        "with use_bias_correction_kl, which is TRL's default; its k3 is not clamped",
    ),
    PeerName(
        TRL,
        "use_bias_correction_kl",
        "False",
        {REFERENCE: {"coefficient": 0.001, "estimator": "k3"}},
        "True is reweighted: true, by the token's ratio; by the sequence's with importance_sampling_level sequence",
    ),
    PeerName(TRL, "off_policy_mask_threshold", ANY, {"optimization.off_policy_bound": ANY}),
    PeerName(
        TRL,
        "top_entropy_quantile",
        ANY,
        {SELECTION: {"rule": "top-entropy", "options": {"share": ANY}}},
        "of the whole batch, before its first step; TRL: of each step's sequences",
    ),
    PeerName(TRL, "entropy_coef", ANY, {"optimization.entropy_coefficient": ANY}, "TRL's is a mean over all tokens"),
    PeerName(
        TRL,
        "vllm_importance_sampling_mode",
        "token_truncate",
        {CORRECTION: {"kind": "truncate", "level": "token", "high": 3.0}},
        "high is vllm_importance_sampling_clip_max",
    ),
    PeerName(
        TRL,
        "vllm_importance_sampling_mode",
        "token_mask",
        {CORRECTION: {"kind": "mask", "level": "token", "low": 0.0, "high": 3.0}},
    ),
    PeerName(
        TRL,
        "vllm_importance_sampling_mode",
        "sequence_truncate",
        {CORRECTION: {"kind": "truncate", "level": "sequence", "high": 3.0}},
    ),
    PeerName(
        TRL,
        "vllm_importance_sampling_mode",
        "sequence_mask",
        {CORRECTION: {"kind": "mask", "level": "sequence", "low": 0.0, "high": 3.0}},
        "TRL's default; here a correction is off unless set",
    ),
    PeerName(OPENRLHF, _openrlhf_estimator, "gae", {ESTIMATOR: "gae"}, "OpenRLHF whitens by the population deviation"),
    PeerName(
        OPENRLHF,
        _openrlhf_estimator,
        "reinforce",
        {ESTIMATOR: "reinforce++", OPTIONS: {"rewards": "merged"}},
        "OpenRLHF whitens by the population deviation: advantages differ by the factor sqrt(n / (n - 1))",
    ),
    PeerName(OPENRLHF, _openrlhf_estimator, "rloo", {ESTIMATOR: "rloo", OPTIONS: {"rewards": "merged"}}),
    PeerName(
        OPENRLHF,
        _openrlhf_estimator,
        "reinforce_baseline",
        {ESTIMATOR: "reinforce++-baseline", OPTIONS: {"rewards": "merged"}},
        "whitened by the population deviation",
    ),
    PeerName(
        OPENRLHF,
        _openrlhf_estimator,
        "group_norm",
        {ESTIMATOR: "grpo", OPTIONS: {"rewards": "merged", "epsilon": 1e-9}},
        "OpenRLHF's epsilon is 1e-9",
    ),
    PeerName(
        OPENRLHF,
        _openrlhf_estimator,
        "dr_grpo",
        {ESTIMATOR: "grpo", OPTIONS: {"rewards": "merged", "deviation": "none"}},
    ),
    PeerName(OPENRLHF, "actor.policy_loss_type", "ppo", {LOSS: "clipped"}),
    PeerName(OPENRLHF, "actor.policy_loss_type", "gspo", {LOSS: "gspo", AGGREGATION: "sequence-mean"}),
    PeerName(
        OPENRLHF, "actor.eps_clip_low_high", f"{ANY} y", {"optimization.clip_low": ANY, "optimization.clip_high": "y"}
    ),
    PeerName(OPENRLHF, "actor.dual_clip", ANY, {"optimization.dual_clip": ANY}),
    PeerName(
        OPENRLHF,
        "algo.advantage.is_correction_type",
        "tis",
        {CORRECTION: {"kind": "truncate", "level": "token", "high": 5.0}},
        "high is the second of is_correction_threshold",
    ),
    PeerName(
        OPENRLHF,
        "algo.advantage.is_correction_type",
        "icepop",
        {CORRECTION: {"kind": "mask", "level": "token", "low": 0.5, "high": 5.0}},
    ),
    PeerName(
        OPENRLHF,
        "algo.advantage.is_correction_type",
        "seq-mask-tis",
        {CORRECTION: {"kind": "truncate", "sequence_mask": {"over": "mean", "of": "k1", "high": 5.0, "low": 0.5}}},
        "tokens are truncated, and sequences kept by their geometric mean",
    ),
    PeerName(SKYRL, _skyrl_estimator, "gae", {ESTIMATOR: "gae"}, _whitened),
    PeerName(SKYRL, _skyrl_estimator, "grpo", {ESTIMATOR: "grpo", OPTIONS: {"epsilon": 1e-6}}),
    PeerName(SKYRL, _skyrl_estimator, "rloo", {ESTIMATOR: "rloo"}),
    PeerName(SKYRL, _skyrl_estimator, "reinforce++", {ESTIMATOR: "reinforce++"}),
    PeerName(SKYRL, _skyrl_estimator, "maxrl", {ESTIMATOR: "maxrl"}, "SkyRL adds an epsilon to the mean"),
    PeerName(SKYRL, _skyrl_loss, "regular", {LOSS: "clipped"}),
    PeerName(SKYRL, _skyrl_loss, "dual_clip", {LOSS: "clipped", "optimization.dual_clip": 3.0}),
    PeerName(SKYRL, _skyrl_loss, "gspo", {LOSS: "gspo", AGGREGATION: "sequence-mean"}),
    PeerName(SKYRL, _skyrl_loss, "cispo", {LOSS: "cispo"}, "set both clips: SkyRL's are cispo_eps_clip_low and _high"),
    PeerName(SKYRL, _skyrl_loss, "sapo", {LOSS: "sapo", AGGREGATION: "sequence-mean"}),
    PeerName(SKYRL, _skyrl_loss, "dppo", {LOSS: "dppo-tv"}, "dppo_type binary_kl is dppo-kl"),
    PeerName(SKYRL, _skyrl_loss, "importance_sampling", {LOSS: "importance-sampling"}),
    PeerName(SKYRL, _skyrl_loss, "clip_cov", {LOSS: "clipped", SELECTION: {"rule": "clip-cov"}}),
    PeerName(SKYRL, _skyrl_loss, "kl_cov", {LOSS: "importance-sampling", SELECTION: {"rule": "kl-cov"}}),
    PeerName(SKYRL, _skyrl_aggregation, "token_mean", {AGGREGATION: "token-mean"}),
    PeerName(SKYRL, _skyrl_aggregation, "sequence_mean", {AGGREGATION: "sequence-mean"}),
    PeerName(
        SKYRL,
        _skyrl_aggregation,
        "seq_mean_token_sum_norm",
        {AGGREGATION: "constant", "optimization.aggregation_constant": ANY},
        "the constant is max_seq_len",
    ),
    PeerName(SKYRL, _skyrl_aggregation, "prompt_mean", {AGGREGATION: "prompt-mean"}),
    PeerName(AREAL, "actor.c_clip", ANY, {"optimization.dual_clip": ANY}),
    PeerName(AREAL, "actor.eps_clip", ANY, {"optimization.clip_low": ANY, "optimization.clip_high": ANY}),
    PeerName(PRIME_RL, "algorithm.type", "grpo", {ESTIMATOR: "grpo", OPTIONS: {"deviation": "none"}}),
    PeerName(PRIME_RL, "algorithm.type", "max_rl", {ESTIMATOR: "maxrl"}),
    PeerName(
        PRIME_RL,
        "algorithm.type",
        "opd",
        {ESTIMATOR: "self-distillation", OPTIONS: {"teacher": "base-3m"}, LOSS: "importance-sampling"},
        "prime-rl drops tokens whose probability has fallen by more than 0.2, and adds 0.001 x (log ratio)^2",
    ),
    PeerName(
        PRIME_RL,
        "trainer.loss.type",
        "default",
        {LOSS: "dppo-tv"},
        "prime-rl adds kl_tau, 0.001, x (log ratio)^2; dppo_mask_low and _high are loss_options delta_low and _high",
    ),
    PeerName(
        AREAL,
        "actor.gae_lambda",
        "vapo_length_adaptive_gae",
        {ESTIMATOR: "length-adaptive-gae"},
        "alpha is in gae_lambda_kwargs; the critic's targets have lambda 1 here",
    ),
    PeerName(
        AREAL,
        "actor.gae_timestep_unit",
        "turn",
        {ESTIMATOR: "turn-gae"},
        "a penalty for divergence in the reward is paid at its turn's end here, and stays with its token there",
    ),
    PeerName(ROLL, "adv_estimator", "gigpo", {ESTIMATOR: "gigpo"}),
    PeerName(
        ROLL,
        "adv_estimator",
        "step_reinforce",
        {ESTIMATOR: "turn-reinforce", OPTIONS: {"over": "group", "gamma": 0.95}},
        "gamma is step_reward_gamma",
    ),
    PeerName(
        ROLL,
        "adv_estimator",
        "agentic_reinforce",
        {ESTIMATOR: "turn-reinforce", OPTIONS: {"over": "none"}},
        "one return for all tokens of a turn",
    ),
    PeerName(
        VERL_AGENT,
        "algorithm.adv_estimator",
        "gigpo",
        {ESTIMATOR: "gigpo"},
        "the release counts each step in an episode's statistics",
    ),
    PeerName(
        VERL_AGENT,
        "algorithm.gigpo.enable_similarity",
        "True",
        {ESTIMATOR: "gigpo", OPTIONS: {"similarity": 0.95}},
        "similarity_thresh; the first text of a cluster is the first in the alphabet here, in the batch there",
    ),
    PeerName(
        VERL_AGENT,
        "algorithm.adv_estimator",
        "hgpo",
        {ESTIMATOR: "hgpo"},
        "history_length is history, length_weight_alpha alpha, base_group episode, mean_norm deviation none",
    ),
    PeerName(PAPERS, "PPO", "ppo", {ESTIMATOR: "gae", LOSS: "clipped"}),
    PeerName(PAPERS, "MT-PPO", "mt-ppo", {ESTIMATOR: "gae", LOSS: "clipped"}),
    PeerName(PAPERS, "GRPO", "grpo", {ESTIMATOR: "grpo", LOSS: "clipped", AGGREGATION: "sequence-mean"}),
    PeerName(
        PAPERS,
        "DAPO",
        "dapo",
        {
            ESTIMATOR: "grpo",
            LOSS: "clipped",
            "optimization.clip_high": 0.28,
            AGGREGATION: "token-mean",
            "selection.rule": "mixed",
        },
        "and no penalty for divergence",
    ),
    PeerName(
        PAPERS,
        "Dr.GRPO",
        "dr-grpo",
        {
            ESTIMATOR: "grpo",
            OPTIONS: {"deviation": "none"},
            LOSS: "clipped",
            AGGREGATION: "constant",
            "optimization.aggregation_constant": ANY,
        },
        _length,
    ),
    PeerName(
        PAPERS,
        "SDPO",
        "sdpo",
        {ESTIMATOR: "self-distillation", LOSS: "reinforce", AGGREGATION: "sequence-mean"},
        "over the whole vocabulary: optimization.distillation",
    ),
    PeerName(
        PAPERS,
        "on-policy distillation",
        "opd",
        {ESTIMATOR: "self-distillation", OPTIONS: {"teacher": "base-3m"}, LOSS: "importance-sampling"},
        "over the whole vocabulary: optimization.distillation, with its teacher",
    ),
    PeerName(PAPERS, "GSPO", "gspo", {ESTIMATOR: "grpo", LOSS: "gspo", AGGREGATION: "sequence-mean"}),
    PeerName(PAPERS, "StarPO", "starpo", {ESTIMATOR: "grpo", OPTIONS: {"rewards": "merged"}, LOSS: "clipped"}),
)
"""The rows, by system and then by key."""


def peer_answer(key: str, name: object) -> str:
    """What a name given under our `key` is called here, as the end of a message: `: in TRL (loss_type) that is ...`.

    `key` may be the end of a dotted key, such as `aggregation`. Rows that set this key come before those that set
    others. Empty for a name that no other system has.
    """
    found: dict[str, list[str]] = {}
    rows = list(_rows_named(str(name)))
    of_key = [row for row in rows if any(ours == key or ours.endswith(f".{key}") for ours in row.ours)]
    for row in of_key or rows:
        found.setdefault(row.settings(), []).append("papers" if row.system == PAPERS else f"{row.system} ({row.key})")
    if not found:
        return ""
    answers = (f"in {', '.join(systems)} that is {settings}" for settings, systems in found.items())
    return f": {'; '.join(answers)}. See docs/coming-from.md"


def _rows_named(name: str) -> Iterator[PeerName]:
    wanted = _plain(name)
    return (row for row in PEER_NAMES if row.is_choice and _plain(row.value) == wanted)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _as_yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = f"{value:.9f}".rstrip("0")
        return f"{text}0" if text.endswith(".") else text
    return str(value)
