"""Options of a rule are read by the signature of the function that takes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from turnwise.config.options import read_options
from turnwise.config.quantities import Share, because
from turnwise.errors import ConfigurationError


def rule(
    batch: list[float],
    *,
    kind: Literal["near", "far"] = "near",
    share: Share = 0.5,
    steps: Annotated[int, Field(ge=2), because("one step goes nowhere")] = 3,
    scale: float | None = None,
) -> None:
    """A rule with one positional parameter, which is no option, and four options."""


def demanding(*, start: int) -> None:
    """A rule with an option that must be given."""


def test_options_that_are_not_given_have_the_functions_defaults() -> None:
    assert read_options("rule", rule, {}) == {"kind": "near", "share": 0.5, "steps": 3, "scale": None}
    assert read_options("rule", rule, {"kind": "far", "share": 1})["share"] == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": []}, "the options of 'rule' are kind, share, steps, scale; found 'batch'"),
        ({"shar": 0.5}, "found 'shar': did you mean 'share'?"),
        ({"kind": "nearer"}, "kind must be one of near, far; found 'nearer': did you mean 'near'?"),
        ({"share": 1.5}, "share must be at most 1; found 1.5"),
        ({"share": float("nan")}, "share must be a finite number; found nan"),
        ({"share": "0.5"}, "share must be a number; found '0.5'"),
        ({"share": True}, "share must be a number; found True"),
        ({"steps": 1}, "steps must be at least 2: one step goes nowhere; found 1"),
        ({"steps": 2.5}, "steps must be a whole number: one step goes nowhere; found 2.5"),
    ],
)
def test_what_the_signature_does_not_allow_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_options("rule", rule, options)
    assert message in str(caught.value)


def test_an_option_without_a_default_must_be_given() -> None:
    with pytest.raises(ConfigurationError, match=r"start.*TW-missing-option"):
        read_options("demanding", demanding, {})
