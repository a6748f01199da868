"""What the process of an engine does: it answers what `turnwise.policy.engines.processes` requests.

"load", policy, digest, base                            -> the engine's slots
"begin", seed, sampling                                 -> None
"step", [(episode, context, most tokens of a reply)]    -> replies
"sleep"                                                 -> None
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from turnwise.child_process import ParentProcess
from turnwise.policy.engines.contract import Engine, Sleeps
from turnwise.policy.engines.resident import make_engine


def main(parent: ParentProcess, options: dict[str, Any]) -> None:
    """Answer with an engine of these options, until there are no more requests."""
    parent.answer(partial(answer, make_engine(**options)))
    os._exit(0)


def answer(engine: Engine, request: tuple[Any, ...]) -> Any:
    """Do what is requested; what to answer."""
    match request:
        case "load", policy, digest, base:
            engine.load(policy, digest, base=base)
            return engine.slots
        case "begin", seed, sampling:
            engine.begin(seed, sampling)
        case "step", submissions:
            for submission in submissions:
                engine.submit(*submission)
            return engine.step()
        case ("sleep",) if isinstance(engine, Sleeps):
            engine.sleep()
    return None
