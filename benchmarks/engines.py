"""How fast the two engines decode the same replies of the same policy, measured in turns in one process."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from turnwise.policy.architecture import create_policy
from turnwise.policy.engines.contract import Engine, Sampling
from turnwise.policy.engines.resident import make_engine

EPISODES, CONTEXT, REPLY, ROUNDS = 128, 60, 32, 3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy"
        create_policy(policy, vocabulary_size=1024, context_length=320, end_token=1, pad_token=2, seed=0, layers=2)
        engines = {
            name: make_engine(name, threads=1, context_length=320, maximum_episodes=EPISODES)
            for name in ("vllm", "embedded")
        }
        for name, engine in engines.items():
            engine.load(policy, name)
            _tokens_per_second(engine)
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(ROUNDS):
            for name, engine in engines.items():
                speeds[name].append(_tokens_per_second(engine))
        best = {name: max(rates) for name, rates in speeds.items()}
    sys.stdout.write(
        f"{EPISODES} replies of at most {REPLY} tokens after {CONTEXT}, best of {ROUNDS}: "
        + ", ".join(f"{name} {speed:,.0f} tokens/s" for name, speed in best.items())
        + f"; ratio {best['embedded'] / best['vllm']:.2f}\n"
    )


def _tokens_per_second(engine: Engine) -> float:
    engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=REPLY, end_tokens=(1,)))
    before, began = engine.tokens_generated, time.perf_counter()
    for episode in range(EPISODES):
        engine.submit(episode, [3 + (episode * 7 + place) % 1000 for place in range(CONTEXT)])
    while engine.in_flight:
        engine.step()
    return (engine.tokens_generated - before) / (time.perf_counter() - began)
