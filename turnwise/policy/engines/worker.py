"""What the process of an engine does: it answers what `turnwise.policy.engines.on_processes` asks, as JSON.

    ["load", policy, digest, base]                                   -> the engine's slots
    ["begin", seed, temperature, most tokens of a reply, end tokens] -> null
    ["step", [[episode, context, most tokens], ...]]                 -> [[episode, tokens, log p, complete], ...]
    ["sleep"]                                                        -> null

An answer is ["answer", answer], or the name of an exception and its message.
"""

from __future__ import annotations

import json
import os
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turnwise.errors import TurnwiseError
from turnwise.policy.engines.contract import Engine, Sampling, Sleeps
from turnwise.policy.engines.resident import make_engine


def main(handle: int, options: dict[str, Any]) -> None:
    """Answer until there is nothing more to be asked for."""
    asks = Connection(handle)
    name = options.pop("name")
    engine = make_engine(name, **options)
    while True:
        try:
            question = asks.recv_bytes()
        except EOFError:
            break
        try:
            said: tuple[str, Any] = ("answer", answer(engine, *json.loads(question)))
        except TurnwiseError as error:
            said = (type(error).__name__, str(error))
        except Exception:  # it is raised in the process that asked
            said = ("bug", traceback.format_exc())
        asks.send_bytes(json.dumps(said).encode())
    os._exit(0)


def answer(engine: Engine, asked: str, *arguments: Any) -> Any:
    """Do what the engine is asked for; what to answer."""
    if asked == "load":
        policy, digest, base = arguments
        engine.load(Path(policy), digest, base=None if base is None else Path(base))
        return engine.slots
    if asked == "begin":
        seed, temperature, most, end_tokens = arguments
        engine.begin(seed, Sampling(temperature, most, tuple(end_tokens)))
        return None
    if asked == "step":
        for episode, context, reply_tokens in arguments[0]:
            engine.submit(episode, context, reply_tokens)
        replies = engine.step()
        return [[each.episode, each.tokens, each.log_probabilities, each.complete] for each in replies]
    assert asked == "sleep", asked
    if isinstance(engine, Sleeps):
        engine.sleep()
    return None
