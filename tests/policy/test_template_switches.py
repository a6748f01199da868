"""Switches are set in the chat template itself, and a switch that the template does not read is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_template_samples import template_of, tokenizer_of
from hypothesis import given
from hypothesis import strategies as st

from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.chat_template import set_switches, switches_of
from turnwise.policy.tokenizer import ChatFrame, load_frame

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"
MESSAGES = [{"role": "user", "content": "Where?"}]


def rendered(tokenizer: Any, **switches: Any) -> str:
    text: str = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True, **switches)
    return text


@pytest.mark.parametrize(
    ("family", "switches"),
    [
        ("qwen3", {"enable_thinking": False}),
        ("qwen3", {"enable_thinking": True}),
        ("llama3.1", {"date_string": '1 "May" 2025 \\ é 😀'}),
        ("llama3.2", {"date_string": "26 Jul 2024", "tools_in_user_message": False}),
    ],
)
def test_a_template_with_its_switches_set_renders_what_it_renders_when_it_is_given_them(
    family: str, switches: dict[str, Any]
) -> None:
    given, switched = tokenizer_of(family), tokenizer_of(family)
    set_switches(switched, switches)
    assert rendered(switched) == rendered(given, **switches)


def test_qwen3_without_thinking_begins_each_reply_with_an_empty_thought_that_is_no_part_of_it(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("qwen3")
    set_switches(tokenizer, {"enable_thinking": False})
    tokenizer.save_pretrained(tmp_path)
    frame, empty = load_frame(tmp_path), "<think>\n\n</think>\n\n"
    assert frame.decode(frame.opening(None, "o")).endswith(f"assistant\n{empty}")
    reply = frame.reply("r")
    assert frame.decode(reply) == "r"
    assert frame.decode(frame.continuation("x", reply)).endswith(f"assistant\n{empty}")


def test_a_template_that_shows_todays_date_can_be_used_with_a_fixed_one() -> None:
    tokenizer = tokenizer_of("llama3.2")
    set_switches(tokenizer, {"date_string": "26 Jul 2024"})
    frame = ChatFrame(tokenizer)
    assert "Today Date: 26 Jul 2024" in frame.decode(frame.opening(None, "o"))


def test_the_switches_of_a_template_are_what_it_reads_besides_the_conversation() -> None:
    assert switches_of(template_of("qwen2.5")) == switches_of(template_of("gemma3")) == frozenset()
    assert switches_of(template_of("qwen3")) == {"enable_thinking"}
    assert switches_of(template_of("llama3.2")) == {"custom_tools", "date_string", "tools_in_user_message"}
    assert switches_of("{% set deep = deep | default(1) %}{% generation %}{{ deep }}{% endgeneration %}") == {"deep"}


@pytest.mark.parametrize("name", ["enable_thinkin", "messages", "content", "bos_token"])
def test_a_name_that_is_no_switch_of_the_template_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}.*TW-template-switch"):
        set_switches(tokenizer_of("qwen3"), {name: True})


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_a_value_that_is_no_scalar_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="TW-template-switch"):
        set_switches(tokenizer_of("qwen3"), {"enable_thinking": value})


def test_switches_without_one_template_are_refused() -> None:
    tokenizer = tokenizer_of("qwen3")
    for template in (None, {"default": template_of("qwen3"), "tool_use": template_of("qwen3")}):
        tokenizer.chat_template = template
        with pytest.raises(ConfigurationError, match="TW-template-switch"):
            set_switches(tokenizer, {"enable_thinking": True})


@given(st.one_of(st.text(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_value_means_the_same_in_the_template_as_outside(value: Any) -> None:
    tokenizer = tokenizer_of("qwen2.5")
    tokenizer.chat_template = "{{ switch is string }} {{ switch }} {{ switch == given }}"
    set_switches(tokenizer, {"switch": value})
    assert tokenizer.apply_chat_template(MESSAGES, tokenize=False, given=value).endswith("True")


def test_a_policy_from_scratch_has_no_switches() -> None:
    with pytest.raises(ConfigurationError, match="TW-template-switch"):
        load(PARAMETERS, settings=["policy.chat_template_kwargs={enable_thinking: false}"])
