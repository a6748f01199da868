"""An episode of one part, with its rewards and metrics renamed to `PART/NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step


class PartEpisode(Environment):
    """Wraps a part's environment: only names change, and the first observation may begin with an introduction."""

    def __init__(self, part: str, environment: Environment, introduction: str) -> None:
        self._part = part
        self._environment = environment
        self._introduction = introduction

    def reset(self) -> Observation:
        """The part's first observation, after the introduction if there is one."""
        first = self._named(self._environment.reset())
        return replace(first, text=f"{self._introduction}\n{first.text}") if self._introduction else first

    def step(self, action: str) -> Step:
        """The part's step, renamed."""
        step = self._environment.step(action)
        return replace(
            step,
            observation=self._named(step.observation),
            rewards=self._prefixed(step.rewards),
            metrics=self._prefixed(step.metrics),
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Action of the part's oracle."""
        return self._environment.oracle(remaining)

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The part's random baseline policy."""
        return self._environment.random(generator, remaining)

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The part's baseline policy of this name."""
        return self._environment.decide(baseline, generator, remaining)

    def close(self) -> None:
        """Free the resources of the part's environment."""
        self._environment.close()

    def _named(self, observation: Observation) -> Observation:
        state = None if observation.state is None else f"{self._part}/{observation.state}"
        return Observation(observation.text, state)

    def _prefixed(self, values: Mapping[str, float]) -> dict[str, float]:
        return {f"{self._part}/{name}": value for name, value in values.items()}
