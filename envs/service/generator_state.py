"""State of a numpy generator, so that a baseline policy that runs on the server draws what it would have drawn here."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field


class GeneratorState(BaseModel):
    """Where a numpy generator of the kind PCG64 stands: what it draws next, and nothing else, follows from this."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    state: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    """128 bits in hexadecimal digits: JSON's numbers are not that long everywhere."""
    increment: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    has_half: bool
    """Whether half of the last 64 bits is left for a draw of 32."""
    half: Annotated[int, Field(ge=0, lt=2**32)]

    @classmethod
    def of(cls, generator: np.random.Generator) -> GeneratorState:
        """The state of a generator. Raises ValueError unless it is a PCG64."""
        state = generator.bit_generator.state
        if state["bit_generator"] != "PCG64":
            raise ValueError(
                f"a remote baseline policy must draw from numpy's PCG64, as `turnwise.seeding.generator` does; found "
                f"{state['bit_generator']}"
            )
        inner = state["state"]
        return cls(
            state=f"{inner['state']:x}",
            increment=f"{inner['inc']:x}",
            has_half=bool(state["has_uint32"]),
            half=int(state["uinteger"]),
        )

    def put_into(self, generator: np.random.Generator) -> None:
        """Set a generator to this state."""
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": int(self.state, 16), "inc": int(self.increment, 16)},
            "has_uint32": int(self.has_half),
            "uinteger": self.half,
        }
