"""The losses: golden numbers by hand, an independent loop in float64, and what must not change them."""

import inspect
import math
from collections.abc import Callable, Sequence

import pytest
import torch

from turnwise.policy.learner.losses import (
    LOSSES,
    TokenLoss,
    binary_divergence_loss,
    clipped_policy_loss,
    clipped_weight_loss,
    direct_reward_loss,
    gamma_weight_loss,
    geometric_mean_loss,
    importance_sampling_loss,
    reinforce_loss,
    sequence_ratio_loss,
    soft_gate_loss,
    tapered_loss,
    total_variation_loss,
)

EACH = torch.arange(6)
"""Each token is a sequence of its own."""
OPTIONS: dict[str, dict[str, float]] = {
    "clipped": {"clip_low": 0.2, "clip_high": 0.3, "dual_clip": 1.4},
    "gspo": {"clip_low": 0.05, "clip_high": 0.1},
    "cispo": {"clip_low": 0.3, "clip_high": 0.2},
    "reinforce": {},
    "importance-sampling": {},
    "sapo": {"temperature_positive": 0.8, "temperature_negative": 1.4},
    "gmpo": {"clip_low": 0.3, "clip_high": 0.2},
    "dppo-tv": {"delta_low": 0.1, "delta_high": 0.15, "largest_ratio": 1.2},
    "dppo-kl": {"delta_low": 0.05, "delta_high": 0.05, "largest_ratio": 1.2},
    "topr": {},
    "vespo": {"power_positive": 1.5, "decay_positive": 2.0, "power_negative": 0.5, "decay_negative": 1.0},
    "dro": {"beta": 0.7},
}


def test_the_clipped_loss_is_that_of_the_equation() -> None:
    # Behaviour log-probabilities are log 0.5; the policy's are log of 0.5 x ratio. Clips: low 0.2, high 0.3.
    ratios = [1.1, 1.5, 0.9, 0.5, 1.5, 0.5]
    advantages = [2.0, 2.0, -1.0, -1.0, -1.0, 2.0]
    # 1.1 x 2 = 2.2 (inside)            -> -2.2
    # min(1.5 x 2, 1.3 x 2) = 2.6       -> -2.6, clipped above
    # 0.9 x -1 (inside)                 ->  0.9
    # min(0.5 x -1, 0.8 x -1) = -0.8    ->  0.8, clipped below
    # min(1.5 x -1, 1.3 x -1) = -1.5    ->  1.5: a worse action made likelier is never clipped
    # min(0.5 x 2, 0.8 x 2) = 1.0       -> -1.0: a better action made rarer is never clipped
    log_probabilities = torch.tensor([math.log(0.5 * ratio) for ratio in ratios], requires_grad=True)
    result = clipped_policy_loss(
        log_probabilities,
        torch.full((6,), math.log(0.5)),
        torch.tensor(advantages),
        EACH,
        clip_low=0.2,
        clip_high=0.3,
    )
    assert result.loss.tolist() == pytest.approx([-2.2, -2.6, 0.9, 0.8, 1.5, -1.0], rel=1e-6)
    assert result.clipped_low.tolist() == [False, False, False, True, False, False]
    assert result.clipped_high.tolist() == [False, True, False, False, False, False]
    # KL estimate r - 1 - log r at r = 1.5: 0.5 - 0.405465 = 0.094535
    assert result.divergence[1].item() == pytest.approx(0.094535, abs=1e-5)
    result.loss.sum().backward()
    # d(-r A)/d(log pi) = -r A where nothing is clipped, else 0.
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == pytest.approx([-2.2, 0.0, 0.9, 0.0, 1.5, -1.0], rel=1e-6)


def test_the_dual_clip_bounds_what_a_bad_token_can_cost() -> None:
    # A = -1 and r = 1.5, 2.5, 4; clip 0.2, dual clip 3: -max(min(r A, clip(r) A), 3 A)
    #   r 1.5: min(-1.5, -1.2) = -1.5 -> 1.5      r 2.5 -> 2.5      r 4: max(-4, -3) = -3 -> 3, without gradient
    # A = +1 and r = 4: the upper clip, 1.2, and not the dual one.
    log_probabilities = torch.tensor([1.5, 2.5, 4.0, 4.0]).log().requires_grad_()
    result = clipped_policy_loss(
        log_probabilities, torch.zeros(4), torch.tensor([-1.0, -1.0, -1.0, 1.0]), EACH[:4], dual_clip=3.0
    )
    result.loss.sum().backward()
    assert result.loss.tolist() == pytest.approx([1.5, 2.5, 3.0, -1.2], rel=1e-6)
    assert result.dual_clipped.tolist() == [False, False, True, False]
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == pytest.approx([1.5, 2.5, 0.0, 0.0], rel=1e-6)


def test_a_token_counts_as_clipped_only_where_a_clip_has_taken_something() -> None:
    # Without an advantage nothing is lost to a clip; a better action made rarer, and a worse one made likelier, is
    # never clipped by PPO or GSPO, and a better one never by the dual clip.
    ratios, advantages = torch.tensor([0.1, 9.0, 0.1, 9.0, 9.0]), torch.tensor([0.0, 0.0, 0.5, -0.5, 0.5])
    tokens = (ratios.log(), torch.zeros(5), advantages, EACH[:5])
    ppo = clipped_policy_loss(*tokens, dual_clip=3.0)
    gspo = sequence_ratio_loss(*tokens)
    cispo = clipped_weight_loss(*tokens, clip_low=0.5)
    for each in (ppo, gspo):
        assert not each.clipped_low.any()
        assert each.clipped_high.tolist() == [False, False, False, False, True]
    assert ppo.dual_clipped.tolist() == [False, False, False, True, False]
    assert not gspo.dual_clipped.any()
    assert cispo.clipped_low.tolist() == [False, False, True, False, False]
    assert cispo.clipped_high.tolist() == [False, False, False, True, True]


def test_the_clips_of_gspo_and_cispo_are_the_papers() -> None:
    # GSPO: 3e-4 below and 4e-4 above. CISPO: no lower clip, and ScaleRL's largest weight, 5.
    nothing = torch.zeros(4, dtype=torch.float64)
    ratios = torch.tensor([1 - 3.1e-4, 1 - 2.9e-4, 1 + 3.9e-4, 1 + 4.1e-4], dtype=torch.float64)
    advantages = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    gspo = sequence_ratio_loss(ratios.log(), nothing, advantages, torch.arange(4))
    assert gspo.clipped_low.tolist() == [True, False, False, False]
    assert gspo.clipped_high.tolist() == [False, False, False, True]
    cispo = clipped_weight_loss(
        torch.tensor([1e-6, 1.0, 4.9, 5.1], dtype=torch.float64).log(), nothing, advantages, EACH[:4]
    )
    assert not cispo.clipped_low.any()
    assert cispo.clipped_high.tolist() == [False, False, False, True]


def test_gspo_by_hand() -> None:
    # Two sequences of two reply tokens.
    # Sequence 0: r = 1.2, 0.9: s = sqrt(1.2 x 0.9) = sqrt(1.08) = 1.039230; A = 2, -1.
    #   clips 0.05 and 0.05: s is inside: L = -2.078461 and 1.039230
    # Sequence 1: r = 1.5, 1.5: s = 1.5; A = 1, -1: min(1.5, 1.05) = 1.05 -> -1.05, clipped; min(-1.5, -1.05) -> 1.5
    log_probabilities = torch.tensor([1.2, 0.9, 1.5, 1.5], dtype=torch.float64).log().requires_grad_()
    result = sequence_ratio_loss(
        log_probabilities,
        torch.zeros(4, dtype=torch.float64),
        torch.tensor([2.0, -1.0, 1.0, -1.0], dtype=torch.float64),
        torch.tensor([0, 0, 1, 1]),
        clip_low=0.05,
        clip_high=0.05,
    )
    result.loss.sum().backward()
    s = math.sqrt(1.08)
    assert s == pytest.approx(1.039230, abs=1e-6)
    assert result.loss.tolist() == pytest.approx([-2 * s, s, -1.05, 1.5])
    assert result.ratio.tolist() == pytest.approx([s, s, 1.5, 1.5])
    assert result.clipped_high.tolist() == [False, False, True, False]
    # Each token's gradient is -s A, of its own advantage; what is clipped has none.
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == pytest.approx([-2 * s, s, 0.0, 1.5])


def test_cispo_clips_the_weight_and_drops_no_token() -> None:
    # pi = 0.5 x ratio; clips 0.5 and 0.2: weights 1.1, 1.2, 0.5, 0.8. L = -weight A log pi, its gradient -weight A.
    ratios, advantages = [1.1, 1.8, 0.2, 0.8], [1.0, 1.0, -2.0, -2.0]
    log_probabilities = torch.tensor([math.log(0.5 * ratio) for ratio in ratios]).requires_grad_()
    result = clipped_weight_loss(
        log_probabilities,
        torch.full((4,), math.log(0.5)),
        torch.tensor(advantages),
        EACH[:4],
        clip_low=0.5,
        clip_high=0.2,
    )
    result.loss.sum().backward()
    # log 0.55 = -0.597837, log 0.9 = -0.105361, log 0.1 = -2.302585, log 0.4 = -0.916291
    assert result.loss.tolist() == pytest.approx([0.657621, 0.126433, -2.302585, -1.466065], abs=1e-5)
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == pytest.approx([-1.1, -1.2, 1.0, 1.6], rel=1e-6)
    assert result.clipped_low.tolist() == [False, False, True, False]
    assert result.clipped_high.tolist() == [False, True, False, False]


def test_reinforce_is_the_score_times_the_advantage_whatever_sampled() -> None:
    log_probabilities = torch.tensor([-0.5, -2.0], requires_grad=True)
    result = reinforce_loss(log_probabilities, torch.tensor([-0.5, -3.0]), torch.tensor([2.0, -1.0]), EACH[:2])
    result.loss.sum().backward()
    assert result.loss.tolist() == [1.0, -2.0]
    assert result.ratio.tolist() == pytest.approx([1.0, math.e], rel=1e-6)
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == [-2.0, 1.0]


def gradient_of(result: TokenLoss, log_probabilities: torch.Tensor) -> list[float]:
    (gradient,) = torch.autograd.grad(result.loss.sum(), log_probabilities)
    values: list[float] = gradient.tolist()
    return values


def of_ratios(ratios: list[float], mu: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """log pi and log mu of tokens that mu samples with one probability, and pi with that times each ratio."""
    log_pi = torch.tensor([math.log(mu * ratio) for ratio in ratios], dtype=torch.float64, requires_grad=True)
    return log_pi, torch.full((len(ratios),), math.log(mu), dtype=torch.float64)


def advantages_of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_importance_sampling_is_the_ratio_times_the_advantage() -> None:
    log_pi, log_mu = of_ratios([1.5, 0.4])
    result = importance_sampling_loss(log_pi, log_mu, advantages_of(2.0, -1.0), EACH[:2])
    assert result.loss.tolist() == pytest.approx([-3.0, 0.4])
    assert gradient_of(result, log_pi) == pytest.approx([-3.0, 0.4])


def test_sapo_gates_each_token_softly_and_harder_where_it_is_pushed_down() -> None:
    # r 1.5, A 2, tau 1:     4 sigma(0.5) = 4 x 0.622459 = 2.489837; x 2 = 4.979674
    # r 1.5, A -1, tau 1.05: 4 / 1.05 x sigma(0.525) = 3.809524 x 0.628318 = 2.393592
    # Slopes: 4 sigma (1 - sigma) r = 4 x 0.235004 x 1.5 = 1.410022 and 4 x 0.233535 x 1.5 = 1.401208
    log_pi, log_mu = of_ratios([1.5, 1.5])
    result = soft_gate_loss(log_pi, log_mu, advantages_of(2.0, -1.0), EACH[:2])
    assert result.loss.tolist() == pytest.approx([-4.979674, 2.393592], abs=1e-5)
    assert gradient_of(result, log_pi) == pytest.approx([-2 * 1.410022, 1.401208], abs=1e-5)


def test_gmpo_weighs_a_sequence_by_the_geometric_mean_of_ratios_that_are_clipped_one_by_one() -> None:
    # One sequence, A = 1, ratios e^0.2, e^0.9, e^-0.9; bounds 0.4: logs 0.2, 0.4, -0.9 (a better action made rarer is
    # not clipped): g = exp(-0.1) = 0.904837. The clipped token has no gradient.
    log_pi, log_mu = of_ratios([math.exp(0.2), math.exp(0.9), math.exp(-0.9)], mu=0.3)
    sequence = torch.zeros(3, dtype=torch.long)
    result = geometric_mean_loss(log_pi, log_mu, advantages_of(1.0, 1.0, 1.0), sequence)
    assert result.loss.tolist() == pytest.approx([-0.904837] * 3, abs=1e-6)
    assert gradient_of(result, log_pi) == pytest.approx([-0.904837, 0.0, -0.904837], abs=1e-6)
    assert result.clipped_high.tolist() == [False, True, False]
    # A = -1: logs 0.2, 0.9, -0.4, mean 0.7 / 3: g = 1.262802
    result = geometric_mean_loss(log_pi, log_mu, advantages_of(-1.0, -1.0, -1.0), sequence)
    assert result.loss.tolist() == pytest.approx([1.262802] * 3, abs=1e-6)
    assert result.clipped_low.tolist() == [False, False, True]


def test_dppo_leaves_out_the_tokens_that_have_moved_too_far_the_way_they_are_pushed() -> None:
    # mu = 0.5; pi = 0.75, 0.75, 0.25, 0.25: by 0.25 and by KL 0.5 log(0.5 / 0.75) + 0.5 log(0.5 / 0.25) = 0.143841 each
    log_pi, log_mu = of_ratios([1.5, 1.5, 0.5, 0.5])
    tokens = (log_pi, log_mu, advantages_of(1.0, -1.0, 1.0, -1.0), EACH[:4])
    for inside, outside, loss in ((0.26, 0.24, total_variation_loss), (0.15, 0.14, binary_divergence_loss)):
        result = loss(*tokens, delta_low=inside, delta_high=inside)
        assert gradient_of(result, log_pi) == pytest.approx([-1.5, 1.5, -0.5, 0.5])
        assert result.loss[0].item() == pytest.approx(-1.5 * math.log(0.75))
        result = loss(*tokens, delta_low=outside, delta_high=outside)
        assert gradient_of(result, log_pi) == pytest.approx([0.0, 1.5, -0.5, 0.0])
        assert result.clipped_high.tolist() == [True, False, False, False]
        assert result.clipped_low.tolist() == [False, False, False, True]
        result = loss(*tokens, delta_low=inside, delta_high=inside, largest_ratio=1.2)
        assert gradient_of(result, log_pi) == pytest.approx([-1.2, 1.2, -0.5, 0.5])


def test_dppo_lets_a_rare_token_go_further_than_a_ratio_does() -> None:
    # mu = 0.001 and pi = 0.01: a ratio of 10 and a difference of 0.009.
    log_pi, log_mu = of_ratios([10.0], mu=0.001)
    result = total_variation_loss(log_pi, log_mu, advantages_of(1.0), EACH[:1])
    assert gradient_of(result, log_pi) == pytest.approx([-10.0])
    assert clipped_policy_loss(log_pi, log_mu, advantages_of(1.0), EACH[:1]).clipped_high.all()


def test_topr_imitates_what_was_good_and_tapers_what_was_bad() -> None:
    log_pi, log_mu = of_ratios([1.5, 0.5, 1.5, 0.5])
    result = tapered_loss(log_pi, log_mu, advantages_of(2.0, 2.0, -1.0, -1.0), EACH[:4])
    assert gradient_of(result, log_pi) == pytest.approx([-2.0, -2.0, 1.0, 0.5])
    assert result.loss.tolist() == pytest.approx(
        [-2 * math.log(0.75), -2 * math.log(0.25), math.log(0.75), 0.5 * math.log(0.25)]
    )
    assert result.clipped_high.tolist() == [False, False, True, False]


def test_vespo_weighs_a_sequence_by_a_gamma_curve_of_its_whole_ratio() -> None:
    # Ratios 1.5 and 0.8: W = 1.2. A > 0, k 2, lambda 3: 1.44 x exp(-0.6) = 0.790289.
    # A < 0, k 3, lambda 2: 1.728 x exp(-0.4) = 1.158313
    log_pi, log_mu = of_ratios([1.5, 0.8])
    result = gamma_weight_loss(log_pi, log_mu, advantages_of(1.0, -1.0), torch.zeros(2, dtype=torch.long))
    assert gradient_of(result, log_pi) == pytest.approx([-0.790289, 1.158313], abs=1e-6)
    assert result.ratio.tolist() == pytest.approx([1.2, 1.2])


def test_dro_holds_the_log_ratio_at_the_advantage_over_beta() -> None:
    # beta 2, A = 1, log r = 0.25: -(log pi - 0.0625), slope -(1 - 2 x 0.25) = -0.5; at log r = 0.5 the slope is 0.
    log_pi, log_mu = of_ratios([math.exp(0.25), math.exp(0.5)])
    result = direct_reward_loss(log_pi, log_mu, advantages_of(1.0, 1.0), EACH[:2], beta=2.0)
    assert result.loss[0].item() == pytest.approx(-(math.log(0.5) + 0.25 - 0.0625))
    assert gradient_of(result, log_pi) == pytest.approx([-0.5, 0.0], abs=1e-12)


Weight = Callable[[Sequence[float], Sequence[float], range, int, float, dict[str, float]], float]


def held_log(log_ratio: float, advantage: float, options: dict[str, float]) -> float:
    """GMPO's log ratio: held from above where the advantage is positive, from below where it is negative."""
    if advantage == 0:
        return 0.0
    return min(log_ratio, options["clip_high"]) if advantage > 0 else max(log_ratio, -options["clip_low"])


def of_cispo(
    pi: Sequence[float], mu: Sequence[float], places: range, at: int, advantage: float, options: dict[str, float]
) -> float:
    return min(max(math.exp(pi[at] - mu[at]), 1 - options["clip_low"]), 1 + options["clip_high"])


def of_trust_region(
    pi: Sequence[float], mu: Sequence[float], places: range, at: int, advantage: float, options: dict[str, float]
) -> float:
    p, m = math.exp(pi[at]), math.exp(mu[at])
    moved = p - m
    if "kl" in options:
        moved = math.copysign(m * math.log(m / p) + (1 - m) * math.log((1 - m) / (1 - p)), moved)
    if (advantage > 0 and moved > options["delta_high"]) or (advantage <= 0 and -moved > options["delta_low"]):
        return 0.0
    return min(p / m, options["largest_ratio"])


def of_vespo(
    pi: Sequence[float], mu: Sequence[float], places: range, at: int, advantage: float, options: dict[str, float]
) -> float:
    weight = math.exp(sum(pi[place] - mu[place] for place in places))
    sign = "positive" if advantage >= 0 else "negative"
    return float(weight ** options[f"power_{sign}"] * math.exp(options[f"decay_{sign}"] * (1 - weight)))


WEIGHTS: dict[str, Weight] = {
    "reinforce": lambda *_: 1.0,
    "cispo": of_cispo,
    "dppo-tv": of_trust_region,
    "dppo-kl": lambda *arguments: of_trust_region(*arguments[:5], {**arguments[5], "kl": 1.0}),
    "topr": lambda pi, mu, places, at, advantage, _: 1.0 if advantage > 0 else min(1.0, math.exp(pi[at] - mu[at])),
    "vespo": of_vespo,
}
"""The constant weight of -w A log pi, of the losses that have one."""


def surrogate(
    name: str, frozen: Sequence[float], log_pi: Sequence[float], log_mu: Sequence[float], advantages: Sequence[float]
) -> float:
    """A loss as a plain loop over two sequences of three reply tokens; a stopped gradient is a value kept `frozen`."""
    options, total = OPTIONS[name], 0.0
    low, high = 1.0 - options.get("clip_low", 1.0), 1.0 + options.get("clip_high", 1e9)
    for begin in (0, 3):
        places = range(begin, begin + 3)
        sequence_ratio = math.exp(sum(frozen[place] - log_mu[place] for place in places) / 3)
        for place in places:
            advantage = advantages[place]
            if name in WEIGHTS:
                total += -WEIGHTS[name](frozen, log_mu, places, place, advantage, options) * advantage * log_pi[place]
                continue
            ratio = math.exp(log_pi[place] - log_mu[place])
            if name == "importance-sampling":
                total += -ratio * advantage
                continue
            if name == "dro":
                total += -(advantage * log_pi[place] - options["beta"] / 2 * (log_pi[place] - log_mu[place]) ** 2)
                continue
            if name == "sapo":
                tau = options["temperature_positive" if advantage > 0 else "temperature_negative"]
                total += -4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage
                continue
            if name == "gmpo":
                held = [held_log(frozen[each] - log_mu[each], advantages[each], options) for each in places]
                own = held_log(log_pi[place] - log_mu[place], advantage, options)
                now = held_log(frozen[place] - log_mu[place], advantage, options)
                total += -math.exp(sum(held) / 3 + own - now) * advantage
                continue
            if name == "gspo":
                ratio = sequence_ratio * math.exp(log_pi[place] - frozen[place])
            value = min(ratio * advantage, min(max(ratio, low), high) * advantage)
            if advantage < 0 and "dual_clip" in options:
                value = max(value, options["dual_clip"] * advantage)
            total += -value
    return total


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_an_independent_loop(name: str) -> None:
    """Off-policy, every branch of every clip among the tokens; the gradient by central differences in float64."""
    log_mu = [-1.0, -0.7, -1.9, -0.4, -1.1, -2.0]
    log_pi = [-0.6, -0.71, -2.6, -1.0, -1.05, -1.6]
    advantages = [1.0, -0.5, -2.0, 2.0, 0.0, -1.5]
    tensors = [torch.tensor(values, dtype=torch.float64) for values in (log_pi, log_mu, advantages)]
    tensors[0].requires_grad_()
    found = LOSSES[name](*tensors, torch.tensor([0, 0, 0, 1, 1, 1]), **OPTIONS[name])
    found.loss.sum().backward()
    assert found.loss.sum().item() == pytest.approx(surrogate(name, log_pi, log_pi, log_mu, advantages), rel=1e-12)
    step = 1e-6
    for place in range(6):
        above, below = list(log_pi), list(log_pi)
        above[place] += step
        below[place] -= step
        slope = surrogate(name, log_pi, above, log_mu, advantages) - surrogate(name, log_pi, below, log_mu, advantages)
        assert tensors[0].grad is not None
        assert tensors[0].grad[place].item() == pytest.approx(slope / (2 * step), abs=1e-8), place


@pytest.mark.parametrize("name", ["clipped", "reinforce", "importance-sampling", "sapo", "dro"])
def test_losses_without_a_stopped_gradient_pass_gradcheck(name: str) -> None:
    behaviour = torch.tensor([-1.0, -0.7, -1.9, -0.4, -1.1, -2.0], dtype=torch.float64)
    log_pi = (behaviour + torch.tensor([0.4, -0.1, -0.7, -0.6, 0.05, 0.4])).detach().requires_grad_()
    advantages = torch.tensor([1.0, -0.5, -2.0, 2.0, 0.3, -1.5], dtype=torch.float64)

    def loss(log_probabilities: torch.Tensor) -> torch.Tensor:
        result: TokenLoss = LOSSES[name](log_probabilities, behaviour, advantages, EACH, **OPTIONS[name])
        return result.loss

    assert torch.autograd.gradcheck(loss, (log_pi,))


def test_gspo_is_the_papers_sequence_objective_where_a_sequence_has_one_advantage() -> None:
    """-min(s A, clip(s) A), the mean over sequences, s differentiated as it stands."""
    lengths, advantages = [3, 1, 4], [1.5, -1.0, -0.5]
    sequence = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    behaviour = -torch.linspace(0.3, 2.0, 8, dtype=torch.float64)
    shift = torch.tensor([0.02, -0.03, 0.04, 0.5, 0.01, -0.02, 0.03, 0.01], dtype=torch.float64)
    gradients = []
    for form in ("paper", "token"):
        log_pi = (behaviour + shift).requires_grad_()
        if form == "paper":
            log_ratios = (log_pi - behaviour).split(lengths)
            ratios = torch.stack([log_ratio.mean().exp() for log_ratio in log_ratios])
            signs = torch.tensor(advantages, dtype=torch.float64)
            loss = -torch.minimum(ratios * signs, ratios.clamp(0.98, 1.02) * signs).mean()
        else:
            of_token = torch.tensor(advantages, dtype=torch.float64)[sequence]
            per_token = sequence_ratio_loss(log_pi, behaviour, of_token, sequence, clip_low=0.02, clip_high=0.02).loss
            loss = (per_token / torch.tensor(lengths)[sequence] / 3).sum()
        loss.backward()
        gradients.append((loss.item(), log_pi.grad))
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-12)
    assert torch.allclose(gradients[0][1], gradients[1][1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_every_loss_has_the_gradient_of_reinforce(name: str) -> None:
    log_pi = torch.tensor([-1.0, -0.5, -2.0, -0.1], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, -0.5, -2.0, 0.0], dtype=torch.float64)
    result = LOSSES[name](log_pi, log_pi.detach(), advantages, torch.tensor([0, 0, 1, 1]))
    result.loss.sum().backward()
    assert log_pi.grad is not None
    assert torch.allclose(log_pi.grad, -advantages, rtol=1e-12)
    assert not (result.clipped_low | result.clipped_high | result.dual_clipped).any()


def test_all_losses_take_the_same_tensors() -> None:
    for name, loss in LOSSES.items():
        parameters = inspect.signature(loss).parameters.values()
        tensors = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
        assert tensors == ["log_pi", "log_mu", "advantages", "sequence"], name


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [20.0, -20.0, 50.0, -50.0, 90.0, -90.0])
@pytest.mark.parametrize("name", LOSSES)
def test_a_log_ratio_far_beyond_float32_gives_finite_numbers(name: str, log_ratio: float, advantage: float) -> None:
    """Values are those of a log ratio of 20; beyond it the ratio has no gradient. exp(90) is infinite in float32."""
    below = min(0.0, log_ratio)
    log_pi = torch.tensor([below], dtype=torch.float32, requires_grad=True)
    found = LOSSES[name](log_pi, torch.tensor([below - log_ratio]), torch.tensor([advantage]), torch.tensor([0]))
    (gradient,) = torch.autograd.grad(found.loss.sum(), log_pi)
    at = math.exp(math.copysign(20.0, log_ratio))
    if name not in ("gmpo", "vespo"):  # theirs is what they made of it
        assert found.ratio.item() == pytest.approx(at, rel=1e-5)
    assert found.divergence.item() == pytest.approx(at - 1.0 - math.copysign(20.0, log_ratio), rel=1e-5)
    assert torch.isfinite(found.loss).all() and torch.isfinite(gradient).all()
    assert (found.loss.item(), gradient.item()) == pytest.approx(
        far_off(name, log_ratio, advantage, log_pi.item()), rel=1e-4, abs=1e-30
    )


def far_off(name: str, log_ratio: float, advantage: float, log_pi: float) -> tuple[float, float]:
    """By hand: the loss of one token, and its gradient, for log ratios of 20 and more, or -20 and less."""
    ratio, beyond = math.exp(math.copysign(20.0, log_ratio)), abs(log_ratio) > 20.0
    if name in ("reinforce", "cispo", "topr", "vespo", "dppo-tv", "dppo-kl"):
        p, m = math.exp(log_pi), math.exp(log_pi - log_ratio)
        too_far = abs(p - m) > 0.2 and (advantage > 0) == (p > m)
        weight = {
            "reinforce": 1.0,
            "cispo": min(ratio, 5.0),
            "topr": 1.0 if advantage > 0 else min(ratio, 1.0),
            "vespo": 0.0 if log_ratio > 0 else (1e-16 * math.e**3 if advantage > 0 else 1e-24 * math.e**2),
        }.get(name, 0.0 if too_far else min(ratio, 20.0))
        return -weight * advantage * log_pi, -weight * advantage
    if name == "sapo":
        tau = 1.0 if advantage > 0 else 1.05
        gate = 1 / (1 + math.exp(-tau * (ratio - 1))) if log_ratio < 0 else 1.0
        return -4 / tau * gate * advantage, 0.0 if beyond else -4 * gate * (1 - gate) * ratio * advantage
    if name == "dro":
        at = math.copysign(20.0, log_ratio)
        return -(advantage * log_pi - at**2 / 2), -advantage + (0.0 if beyond else at)
    if name == "gmpo":
        held = 0.4 if log_ratio > 0 and advantage > 0 else -0.4 if log_ratio < 0 and advantage < 0 else None
        if held is not None:
            return -math.exp(held) * advantage, 0.0
    if name in ("gmpo", "importance-sampling"):
        return -ratio * advantage, 0.0 if beyond else -ratio * advantage
    low, high = (0.8, 1.2) if name == "clipped" else (1 - 3e-4, 1 + 4e-4)
    if advantage > 0 and log_ratio > 0:
        return -high, 0.0
    if advantage < 0 and log_ratio < 0:
        return low, 0.0
    return -ratio * advantage, 0.0 if beyond else -ratio * advantage


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"dro"}))
def test_a_smaller_advantage_weighs_less_and_is_on_the_same_side(name: str) -> None:
    log_mu = torch.full((6,), math.log(0.3))
    log_pi = torch.log(0.3 * torch.tensor([0.2, 0.2, 0.9, 1.1, 3.0, 3.0]))
    whole = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    of_whole, of_half, of_none = (
        LOSSES[name](log_pi, log_mu, share * whole, EACH, **OPTIONS[name]) for share in (1.0, 0.5, 0.0)
    )
    assert of_half.loss.tolist() == pytest.approx((0.5 * of_whole.loss).tolist(), rel=1e-6)
    for flags in ("clipped_low", "clipped_high", "dual_clipped"):
        assert getattr(of_half, flags).tolist() == getattr(of_whole, flags).tolist()
        assert not getattr(of_none, flags).any(), "what has no advantage is not clipped"


DEFAULTS: dict[str, dict[str, float | None]] = {
    "clipped": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
    "reinforce": {},
    "importance-sampling": {},
    "sapo": {"temperature_positive": 1.0, "temperature_negative": 1.05},
    "gmpo": {"clip_low": 0.4, "clip_high": 0.4},
    "dppo-tv": {"delta_low": 0.2, "delta_high": 0.2, "largest_ratio": 20.0},
    "dppo-kl": {"delta_low": 0.2, "delta_high": 0.2, "largest_ratio": 20.0},
    "topr": {},
    "vespo": {"power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0},
    "dro": {"beta": 1.0},
}


def test_a_loss_whose_options_are_not_set_is_that_of_its_source() -> None:
    own = {
        name: {
            each.name: each.default
            for each in inspect.signature(loss).parameters.values()
            if each.kind is each.KEYWORD_ONLY
        }
        for name, loss in LOSSES.items()
    }
    assert own == DEFAULTS
