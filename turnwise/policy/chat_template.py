"""The switches of a chat template: variables that it reads besides the conversation, such as `enable_thinking`.

A switch is set in the template itself, by a line before its first. So it is the same for all that render the template:
the policy's conversations here, transformers, and a server of the exported policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, TemplateError, meta, nodes

from turnwise.errors import ConfigurationError
from turnwise.suggestions import unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NOT_SWITCHES = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now", "namespace", "range"}
)
"""Variables of a template that are the conversation, or functions; tokens such as `bos_token` are none either."""
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Tags by which transformers marks what an assistant says; Jinja does not know them."""


def set_switches(tokenizer: PreTrainedTokenizerBase, switches: Mapping[str, Any]) -> None:
    """Set switches of the tokenizer's chat template to true, false, numbers or texts, for good.

    Raises ConfigurationError for a switch that the template does not read, and for any other value.
    """
    if not switches:
        return
    template = tokenizer.chat_template
    if not isinstance(template, str):
        raise ConfigurationError(
            "policy.chat_template_kwargs needs a policy with one chat template; found "
            f"{'several' if template else 'none'}: leave it out, or keep one template in the policy's folder",
            "TW-template-switch",
        )
    known = switches_of(template)
    for name, value in switches.items():
        if name not in known:
            raise ConfigurationError(
                f"policy.chat_template_kwargs must be switches that the policy's chat template reads; "
                f"{unknown(name, sorted(known))}",
                "TW-template-switch",
            )
        if type(value) not in (bool, int, float, str):
            raise ConfigurationError(
                f"policy.chat_template_kwargs.{name} must be true, false, a number or a text; found {value!r}",
                "TW-template-switch",
            )
    # Jinja reads the values as JSON writes them.
    lines = [f"{{% set {name} = {json.dumps(value, ensure_ascii=False)} %}}\n" for name, value in switches.items()]
    tokenizer.chat_template = "".join(lines) + template


def switches_of(template: str) -> frozenset[str]:
    """The names of the variables that a chat template reads besides the conversation.

    A variable that the template assigns is its own, unless it asks whether the variable is defined: then it assigns a
    default. Raises ConfigurationError for a text that is no template.
    """
    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    try:
        tree = environment.parse(without_generation_tags(template))
    except TemplateError as error:
        raise ConfigurationError(
            f"the chat template must be one that Jinja reads; it says: {error}", "TW-template-syntax"
        ) from error
    variables = meta.find_undeclared_variables(tree) - NOT_SWITCHES
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    checks = (*tree.find_all(nodes.Test), *tree.find_all(nodes.Filter))
    tested = [each.node for each in checks if each.name in ("defined", "undefined", "default", "d")]
    with_default = {node.name for node in tested if isinstance(node, nodes.Name)}
    return frozenset(name for name in variables - (assigned - with_default) if not name.endswith("_token"))


def without_generation_tags(template: str) -> str:
    """The template as plain Jinja: without the tags by which transformers marks what an assistant says."""
    return _GENERATION.sub("", template)
