"""A format of one's own that answers what the contract does not allow is refused in a sentence that says what."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from agent_samples import Hill, answer, rules_for

from turnwise.agent.formats import Format, ParsedReply, ThinkAnswerFormat, make_format
from turnwise.agent.loop import make_episodes
from turnwise.errors import ContractError
from turnwise.world import ScriptedAction

REPLY = "<think> up </think><answer> up </answer>"
CALLS: dict[str, Callable[[Format], object]] = {
    "form": lambda form: form.form,
    "functions": lambda form: form.functions,
    "write": lambda form: form.demonstrate(ScriptedAction("why", ("up",))),
    "read": lambda form: form.read(REPLY, 1),
    "write_thought": lambda form: form.write_thought("why"),
    "read_thought": lambda form: form.read_thought("<think> why </think>"),
    "action_begins": lambda form: form.action_begins(REPLY),
    "escape": lambda form: form.escape("text"),
    "instruction": lambda form: form.instruction(Hill()),
    "opening": lambda form: form.opening("text"),
    "observation": lambda form: form.observation("text"),
    "said": lambda form: form.said("text"),
}


_numbers = itertools.count(1)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Format]:
    """What `agent.format: own_formats_1:Own` makes of a format with these attributes."""

    def make(**attributes: object) -> Format:
        name = f"own_formats_{next(_numbers)}"  # a plug-in that was found once is remembered by its name
        module = ModuleType(name)
        module.Own = type("Own", (ThinkAnswerFormat,), {"__module__": name, **attributes})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
        return make_format(f"{name}:Own", Hill())

    return make


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [7.5, b"bytes", ["up"]], ids=repr)
def test_whatever_a_format_answers_of_another_kind_is_refused(
    name: str, wrong: object, own: Callable[..., Format]
) -> None:
    is_property = name in ("form", "functions")
    form = own(**{name: property(lambda self: wrong) if is_property else lambda self, *_: wrong})
    with pytest.raises(ContractError, match=rf"{name}.*agent\.format.*TW-answer-type"):
        CALLS[name](form)


@pytest.mark.parametrize(
    ("parsed", "said"),
    [
        (("why", ("up",)), "read of agent.format OWN must return a ParsedReply; found ('why', ('up',))"),
        (None, "must return a ParsedReply; found None"),
        (ParsedReply(None, ("up",)), "the thought that read of agent.format OWN returns must be a text"),  # type: ignore[arg-type]
        (ParsedReply("why", "up"), "must be a tuple of texts; found 'up'"),  # type: ignore[arg-type]
        (ParsedReply("why", (7,)), "must be a tuple of texts; found (7,)"),  # type: ignore[arg-type]
        (ParsedReply("why", (), False), "the reason in invalid that read"),  # type: ignore[arg-type]
    ],
)
def test_a_reply_that_is_parsed_as_something_else_stops_the_episode_in_a_sentence(
    parsed: Any, said: str, own: Callable[..., Format]
) -> None:
    world = Hill()
    form = own(read=lambda self, *_: parsed)
    (episode,) = make_episodes(rules_for(world, format=form), world.tasks("train", 1), 1, seed=0)
    episode.open()
    with pytest.raises(ContractError) as refused:
        answer(episode, REPLY)
    assert said in re.sub(r"own_formats_\d+:Own", "OWN", str(refused.value))


@pytest.mark.parametrize("border", [-1, len(REPLY) + 1])
def test_an_action_begins_within_its_reply(border: int, own: Callable[..., Format]) -> None:
    with pytest.raises(ContractError, match="TW-answer-type"):
        own(action_begins=lambda self, reply: border).action_begins(REPLY)


@pytest.mark.parametrize("attribute", ["name", "thought_form", "tags"])
def test_what_a_format_says_of_itself_is_text(attribute: str, own: Callable[..., Format]) -> None:
    with pytest.raises(ContractError, match=rf"{attribute}.*TW-answer-type"):
        own(**{attribute: 7})


def test_a_format_of_ones_own_that_keeps_the_contract_is_read_as_it_is(own: Callable[..., Format]) -> None:
    form, ours = own(), ThinkAnswerFormat()
    assert {name: call(form) for name, call in CALLS.items()} == {name: call(ours) for name, call in CALLS.items()}
    assert (form.name, form.tags, form.thought_form, form.verbs) == (
        ours.name,
        ours.tags,
        ours.thought_form,
        ours.verbs,
    )


def test_more_actions_than_a_turn_has_are_refused(own: Callable[..., Format]) -> None:
    form = own(read=lambda self, reply, actions_per_turn: ParsedReply("", ("up",) * 3))
    assert form.read(REPLY, 3).actions == ("up",) * 3
    with pytest.raises(ContractError, match=r"at most 2; found 3.*TW-answer-type"):
        form.read(REPLY, 2)
