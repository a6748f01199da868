"""The options of a rule, checked by the signature of the function that takes them.

A rule is a function; its options are its keyword-only parameters, whose annotations say what they may be
(`turnwise.config.quantities`), and whose defaults are the options' defaults. Nothing else has to list them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from turnwise.config.messages import explain
from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant


def read_options(name: str, rule: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the rule called `name`, as `rule` takes them: the given ones, and the defaults of the others.

    Raises ConfigurationError for an option that the rule does not have, for a value that its annotation refuses, and
    for one without a default that is missing.
    """
    model = _options_model(rule)
    known = list(model.model_fields)
    for option in options:
        if option not in known:
            has = f"the options of {name!r} are {', '.join(known)}" if known else f"{name!r} has no options"
            raise ConfigurationError(f"{has}; found {option!r}{meant(option, known)}", "TW-unknown-option")
    try:
        values = model(**options)
    except ValidationError as error:
        raise ConfigurationError(explain(error, model)) from None
    return {option: getattr(values, option) for option in known}


@cache
def _options_model(rule: Callable[..., Any]) -> type[BaseModel]:
    """A strict model with one field for each keyword-only parameter."""
    options = {
        name: parameter
        for name, parameter in inspect.signature(rule).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    # Of the options alone: what else the rule takes may be named for the type checker only, as torch's tensors are.
    holder = SimpleNamespace(__annotations__={name: rule.__annotations__[name] for name in options})
    annotations = get_type_hints(holder, inspect.unwrap(rule).__globals__, include_extras=True)
    fields: dict[str, Any] = {
        name: (annotations[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
        for name, parameter in options.items()
    }
    return create_model("Options", __config__=ConfigDict(frozen=True, extra="forbid", strict=True), **fields)
