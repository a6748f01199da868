"""The embedded engine keeps the past over turns, computes any causal model, and uses a learner's weights in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import CONTEXT, END, VOCABULARY, as_sequences, contexts, sample
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
)

from turnwise.data.trajectory import TokenSequence
from turnwise.errors import NotFiniteError
from turnwise.policy.engines import attention_plan, cache_size, fused
from turnwise.policy.engines.contract import Reply, Sampling
from turnwise.policy.engines.embedded import EmbeddedEngine, engine_weights
from turnwise.policy.engines.forward import NewTokens, WholeForward
from turnwise.policy.engines.fused import FusedForward
from turnwise.policy.learner.learner import Learner

MakePolicy = Callable[..., Path]


def make(policy: Path, *, episodes: int = 16) -> EmbeddedEngine:
    engine = EmbeddedEngine(device="cpu", threads=1, context_length=CONTEXT, maximum_episodes=episodes)
    engine.load(policy, str(policy))
    return engine


@dataclass
class Player:
    """An episode whose world appends some tokens after each reply, and in some turns rewrites the context."""

    opening: list[int]
    observations: list[list[int]]
    rewritten_from: int | None = None
    """At the third turn, the context goes on from here with other tokens."""
    context: list[int] = field(default_factory=list)
    turns: list[tuple[list[int], Reply]] = field(default_factory=list)

    def next_context(self) -> list[int] | None:
        if len(self.turns) > len(self.observations):
            return None
        if not self.turns:
            self.context = list(self.opening)
        else:
            self.context += [*self.turns[-1][1].tokens, *self.observations[len(self.turns) - 1]]
            if len(self.turns) == 2 and self.rewritten_from is not None:
                self.context = [*self.context[: self.rewritten_from], 7, 8, 9, *self.context[-3:]]
        return list(self.context)


def play(engine: EmbeddedEngine, players: Sequence[Player], seed: int = 0) -> None:
    """All players at once; each goes on as soon as its reply is finished."""
    engine.begin(seed, Sampling(temperature=1.0, max_reply_tokens=5, end_tokens=(END, 11, 12)))
    for number, player in enumerate(players):
        engine.submit(number, player.next_context() or [])
    while engine.in_flight:
        for reply in engine.step():
            player = players[reply.episode]
            player.turns.append((list(player.context), reply))
            following = player.next_context()
            if following is not None:
                engine.submit(reply.episode, following)


def worst_difference(policy: Path, players: Sequence[Player]) -> float:
    """The greatest |log-probability of the engine - log-probability of the learner| of a reply token, in nats."""
    turns = [turn for player in players for turn in player.turns]
    sequences = [
        TokenSequence(
            (*context, *reply.tokens),
            (-1,) * len(context) + (0,) * len(reply.tokens),
            (0.0,) * len(context) + reply.log_probabilities,
        )
        for context, reply in turns
    ]
    rows = Learner(policy, threads=1).log_probabilities(sequences, 1.0, 1000)
    return max(
        abs(expected - found)
        for sequence, row in zip(sequences, rows, strict=True)
        for expected, found, turn in zip(row, sequence.log_probabilities, sequence.turn_of_token, strict=True)
        if turn >= 0
    )


def attend_singly_if(singly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether single new tokens attend by `single_queries`, whatever the size of the cache."""
    monkeypatch.setattr(cache_size, "SINGLY_LEAST_BYTES", 0 if singly else 2**60)


def some_players() -> list[Player]:
    return [
        Player(
            context, [[20 + index] * (1 + index % 3), [30, 31 + index], [40]], rewritten_from=(None, 2, 4)[index % 3]
        )
        for index, context in enumerate(contexts(9))
    ]


@pytest.mark.parametrize("singly", [False, True])
def test_replies_of_every_turn_have_the_log_probabilities_of_the_learner(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, singly: bool
) -> None:
    """Also after a rewritten context, and where episodes must give up their slots to others between their turns."""
    attend_singly_if(singly, monkeypatch)
    policy = make_policy(30)
    for episodes in (16, 4, 1):
        players = some_players()
        play(make(policy, episodes=episodes), players)
        assert all(len(player.turns) == 4 for player in players)
        assert worst_difference(policy, players) < 1e-5


def test_only_the_end_of_a_context_is_computed_again(make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    whole = FusedForward.next_logits

    def counted(self: FusedForward, new: NewTokens) -> torch.Tensor:
        computed.append(len(new.tokens))
        return whole(self, new)

    monkeypatch.setattr(FusedForward, "next_logits", counted)
    player = Player(list(range(20, 60)), [[3, 4, 5], [6, 7], [8]])
    play(make(make_policy(30)), [player])
    replies = sum(len(reply.tokens) for _, reply in player.turns)
    # Every token once, but for the last one sampled, which nothing follows.
    assert sum(computed) == 40 + 3 + 2 + 1 + replies - 1


def test_equal_openings_are_computed_once_and_change_nothing(make_policy: MakePolicy) -> None:
    policy = make_policy(31)
    same = [list(range(3, 40))] * 6 + [list(range(4, 12))] * 2
    replies = sample(make(policy), same, temperature=1.0)
    assert len({reply.tokens for reply in replies[:6]}) > 1, "each is sampled by itself"
    assert len({reply.log_probabilities[0] for reply in sample(make(policy), same, temperature=0.0)[:6]}) == 1
    players = [Player(context, []) for context in same]
    for player, context, reply in zip(players, same, replies, strict=True):
        player.turns.append((context, reply))
    assert worst_difference(policy, players) < 1e-5


def test_equal_openings_may_fill_the_cache_to_its_last_token(make_policy: MakePolicy) -> None:
    policy = make_policy(31)
    opening = list(range(3, 3 + 32))  # as many tokens as the cache is made for at first
    engine = make(policy)
    replies = sample(engine, [opening] * 3, temperature=0.0)
    (alone,) = sample(make(policy), [opening], temperature=0.0)
    assert [reply.tokens for reply in replies] == [alone.tokens] * 3
    assert [reply.log_probabilities for reply in replies] == [pytest.approx(alone.log_probabilities, abs=1e-5)] * 3


@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=8),
    tokens_at_once=st.sampled_from([4, 2048]),
    mask_entries=st.sampled_from([1, 2**22]),
    sparsest_range=st.sampled_from([1.0, 9.0]),
    singly=st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_sequences_of_any_lengths_together_have_the_logits_that_each_has_alone(
    make_policy: MakePolicy,
    lengths: list[tuple[int, int]],
    tokens_at_once: int,
    mask_entries: int,
    sparsest_range: float,
    singly: bool,
) -> None:
    model = AutoModelForCausalLM.from_pretrained(_policy(make_policy), dtype=torch.float32).eval()
    texts = [[3 + (5 * row + 3 * place) % 290 for place in range(sum(two))] for row, two in enumerate(lengths)]
    slots = [row + row // 3 for row in range(len(lengths))][::-1]
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "TOKENS_AT_ONCE", tokens_at_once)
        patch.setattr(attention_plan, "MASK_ENTRIES", mask_entries)
        patch.setattr(attention_plan, "SPARSEST_RANGE", sparsest_range)
        attend_singly_if(singly, patch)
        forward = FusedForward(model, model.state_dict(), CONTEXT, maximum_episodes=64)
        for part in (slice(0, 1), slice(1, 2)):
            past = [two[0] * part.start for two in lengths]
            ends = [sum(two[: part.stop]) for two in lengths]
            found = forward.next_logits(new_tokens(slots, past, texts, ends))
            for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
                expected = model(torch.tensor([text[:end]])).logits[0, -1]
                assert torch.allclose(found[row], expected, atol=2e-5)


@pytest.mark.parametrize("singly", [False, True])
def test_a_nearly_full_context_goes_with_one_that_has_more_new_tokens(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, singly: bool
) -> None:
    attend_singly_if(singly, monkeypatch)
    model = AutoModelForCausalLM.from_pretrained(_policy(make_policy), dtype=torch.float32).eval()
    texts = [[3 + (7 * place) % 290 for place in range(CONTEXT)], [3 + (5 * place) % 290 for place in range(6)]]
    with torch.inference_mode():
        forward = FusedForward(model, model.state_dict(), CONTEXT, maximum_episodes=64)
        forward.next_logits(new_tokens([0], [0], texts[:1], [CONTEXT - 4]))
        found = forward.next_logits(new_tokens([0, 1], [CONTEXT - 4, 0], texts, [CONTEXT, 6]))
        for row, text in enumerate(texts):
            assert torch.allclose(found[row], model(torch.tensor([text])).logits[0, -1], atol=2e-5)


def new_tokens(slots: list[int], past: list[int], texts: list[list[int]], ends: list[int]) -> NewTokens:
    parts = [text[begin:end] for text, begin, end in zip(texts, past, ends, strict=True)]
    arrays = (slots, past, [len(part) for part in parts], [token for part in parts for token in part])
    return NewTokens(*(torch.tensor(each).numpy() for each in arrays))


_made: dict[str, Path] = {}


def _policy(make_policy: MakePolicy) -> Path:
    """One policy for all examples."""
    if "policy" not in _made:
        _made["policy"] = make_policy(32)
    return _made["policy"]


SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
SCALED = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0}
ARCHITECTURES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(
        **SMALL,
        **HEADS,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={
            **SCALED,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": Qwen2Config(**SMALL, **HEADS, tie_word_embeddings=True),
    "mistral": MistralConfig(**SMALL, **HEADS, sliding_window=6),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT),
}


@pytest.mark.parametrize(("name", "way"), [("llama", FusedForward), ("qwen2", FusedForward), ("gpt2", WholeForward)])
def test_other_architectures_have_the_log_probabilities_of_the_learner(name: str, way: type, tmp_path: Path) -> None:
    """Those that the fused way does not know go through the model's own forward pass."""
    check_against_learner(name, way, tmp_path)


def test_a_sliding_window_goes_through_the_models_own_forward_pass(tmp_path: Path) -> None:
    check_against_learner("mistral", WholeForward, tmp_path)


def check_against_learner(name: str, way: type, folder: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(ARCHITECTURES[name])
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    for episodes in (16, 4):
        engine = make(folder, episodes=episodes)
        assert isinstance(engine._forward, way)
        players = some_players()
        play(engine, players)
        assert worst_difference(folder, players) < 1e-4


def test_tokens_are_drawn_as_often_as_they_are_probable(make_policy: MakePolicy) -> None:
    engine = make(make_policy(33), episodes=4096)
    engine.begin(1, Sampling(temperature=0.7, max_reply_tokens=1, end_tokens=(END,)))
    for episode in range(4096):
        engine.submit(episode, [5, 6, 7])
    replies = []
    while engine.in_flight:
        replies += engine.step()
    drawn = Counter(reply.tokens[0] for reply in replies)
    probability = {reply.tokens[0]: torch.tensor(reply.log_probabilities[0]).exp().item() for reply in replies}
    assert 0.9 < sum(probability.values()) <= 1.0 + 1e-5
    for token, share in probability.items():
        deviation = (4096 * share * (1 - share)) ** 0.5
        assert abs(drawn[token] - 4096 * share) < 5 * deviation + 1


def test_weights_in_memory_are_those_of_the_folder_to_the_bit(make_policy: MakePolicy, tmp_path: Path) -> None:
    learner = Learner(make_policy(34), threads=1)
    engine = make(make_policy(35))
    learner.save(tmp_path)
    engine.load(tmp_path, "from the folder")
    for count in (1, 12):  # a product with one row rounds by the place of its matrix in memory
        from_folder = sample(engine, contexts(count), temperature=1.0)
        engine.load(tmp_path, "from memory", learner.model)
        assert sample(engine, contexts(count), temperature=1.0) == from_folder
        engine.load(tmp_path, "from the folder")


def test_each_weight_of_another_precision_is_its_own(make_policy: MakePolicy, tmp_path: Path) -> None:
    """As on a card: the float32 tensor that each is made from is gone before the next one is made."""
    model = AutoModelForCausalLM.from_pretrained(str(make_policy(0)), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    weights = engine_weights(model, tmp_path, torch.device("meta"))
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in model.state_dict().items()
    }
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    tied = weights["lm_head.weight"] is weights["model.embed_tokens.weight"]
    assert tied == model.config.tie_word_embeddings
    assert len({id(tensor) for tensor in weights.values()}) == len(weights) - tied


def test_weights_that_a_learner_has_changed_since_are_read_again(make_policy: MakePolicy, tmp_path: Path) -> None:
    learner = Learner(make_policy(34), threads=1)
    learner.save(tmp_path)
    engine = make(make_policy(35))
    engine.load(tmp_path, "before", learner.model)
    before = sample(engine, contexts(), temperature=1.0)
    sequences = as_sequences(contexts(), before)
    learner.supervised_step(sequences, learning_rate=1e-2, micro_batch_tokens=500)
    engine.load(tmp_path, "before")
    assert sample(engine, contexts(), temperature=1.0) == before
    engine.load(tmp_path, "after", learner.model)
    assert sample(engine, contexts(), temperature=1.0) != before


def test_a_second_request_for_an_episode_is_refused(make_policy: MakePolicy) -> None:
    engine = make(make_policy(36))
    engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=4, end_tokens=(END,)))
    engine.submit(3, [5, 6])
    with pytest.raises(ValueError, match="episode 3"):
        engine.submit(3, [5, 6])


def test_logits_that_are_not_finite_are_refused(make_policy: MakePolicy, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(make_policy(36))
    model.model.norm.weight.data.fill_(torch.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(NotFiniteError, match="TW-not-finite"):
        sample(make(tmp_path), contexts(), temperature=1.0)


def test_slots_are_as_many_as_fit_into_the_memory_of_the_cache(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(37)
    per_token = 2 * 2 * 32 * 4  # keys and values of two layers, one head of dimension 32, in float32
    monkeypatch.setattr("turnwise.policy.engines.cache_size.EMBEDDED_MOST_BYTES", {"cpu": 3 * CONTEXT * per_token})
    engine = make(policy)
    assert len(sample(engine, contexts(), temperature=1.0)) == 12
    assert isinstance(engine._forward, FusedForward)
    assert engine._forward.cache.bytes_per_token == per_token
    assert len(engine._past) == 3
