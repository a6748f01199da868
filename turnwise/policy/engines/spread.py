"""How the engine of a run is spread over processes and cards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.config.model_settings import Compute


@dataclass(frozen=True)
class EngineSpread:
    """How many engines there are, and where. Default: one, in the process of its caller."""

    engines: int = 1
    tensor_parallel: int = 1
    """Devices that one engine computes on together."""
    first_card: int = 0
    """The card of the first engine."""

    @classmethod
    def of(cls, compute: Compute) -> EngineSpread:
        """The spread that the section `compute` asks for."""
        return cls(compute.engines, compute.tensor_parallel, compute.first_engine_card)

    @property
    def in_processes(self) -> bool:
        """Whether engines have processes of their own."""
        return self != EngineSpread()

    def environment(self, engine: int, device: str, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The environment of the process of one engine, which sees its own cards alone."""
        if device == "cpu":
            return dict(outer)
        first = self.first_card + engine * self.tensor_parallel
        places = range(first, first + self.tensor_parallel)
        visible = [each for each in outer.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        cards = [visible[place] for place in places] if visible else [str(place) for place in places]
        return {**outer, "CUDA_VISIBLE_DEVICES": ",".join(cards)}


ALONE = EngineSpread()
"""One engine, in the process of its caller."""
