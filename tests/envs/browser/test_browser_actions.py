import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.browser.actions import LONGEST_TEXT, VERBS, Action, Refused, read_action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [12]", Action("click", 12)),
        ("click[12]", Action("click", 12)),
        ("  hover [3]\n", Action("hover", 3)),
        ("type [4] [hello world]", Action("type", 4, "hello world", enter=True)),
        ("type [4] [hello] [1]", Action("type", 4, "hello", enter=True)),
        ("type [4] [hello] [0]", Action("type", 4, "hello", enter=False)),
        ("type [4] [hello] [press_enter_after=0]", Action("type", 4, "hello", enter=False)),
        ("type [4] [a [b] c] [0]", Action("type", 4, "a [b] c", enter=False)),
        ("type [4] [] [0]", Action("type", 4, "", enter=False)),
        ("press [Enter]", Action("press", text="Enter")),
        ("press [ctrl+a]", Action("press", text="Control+a")),
        ("press [Control+Shift+arrowleft]", Action("press", text="Control+Shift+ArrowLeft")),
        ("press [+]", Action("press", text="+")),
        ("press [Control++]", Action("press", text="Control++")),
        ("press [Control+]", Action("press", text="Control++")),
        ("press [a]", Action("press", text="a")),
        ("scroll [down]", Action("scroll", text="down")),
        ("scroll [direction=up]", Action("scroll", text="up")),
        ("new_tab", Action("new_tab")),
        ("tab_focus [0]", Action("tab_focus", 0)),
        ("close_tab", Action("close_tab")),
        ("goto [http://shop.test/search?q=a+b]", Action("goto", text="http://shop.test/search?q=a+b")),
        ("go_back", Action("go_back")),
        ("go_forward", Action("go_forward")),
        ("stop", Action("stop")),
        ("stop []", Action("stop")),
        ("stop [$12.40]", Action("stop", text="$12.40")),
        ("stop [two\nlines [and] brackets]", Action("stop", text="two\nlines [and] brackets")),
    ],
)
def test_actions_are_written_as_in_webarena(text: str, action: Action) -> None:
    assert read_action(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "click",
        "click []",
        "click [x]",
        "click [-1]",
        "click [٣]",
        "click [1234567]",
        "click [1]click [1]",
        "click [1] now",
        "I click [1]",
        "Click [1]",
        "type [1]",
        "type [hello]",
        "press []",
        "scroll [left]",
        "new_tab [1]",
        "tab_focus",
        "goto",
        "goto []",
        "stop right here",
        "\ufeffclick [1]",
        "click [1]\x00",
    ],
)
def test_anything_around_an_action_or_missing_from_it_makes_it_none(text: str) -> None:
    with pytest.raises(Refused, match=r"Not an action. Legal: click \[ID\]"):
        read_action(text)


@pytest.mark.parametrize("keys", ["Entr", "Meta+a", "Control+Entr", "Enter+Control", "F5", "\x07"])
def test_unknown_keys_are_refused_by_name_before_anything_is_pressed(keys: str) -> None:
    with pytest.raises(Refused, match=r"press needs one character or a key, .* Control, Shift, Alt, Enter"):
        read_action(f"press [{keys}]")


def test_a_text_has_a_longest_length() -> None:
    assert len(read_action(f"type [1] [{'x' * LONGEST_TEXT}]").text) == LONGEST_TEXT
    with pytest.raises(Refused, match="at most 1,000 characters; it has 1,001"):
        read_action(f"type [1] [{'x' * (LONGEST_TEXT + 1)}]")


@given(text=st.text(max_size=60) | st.sampled_from(VERBS).flatmap(lambda verb: st.text().map(lambda rest: verb + rest)))
@settings(max_examples=500)
def test_any_text_is_an_action_or_is_refused(text: str) -> None:
    try:
        action = read_action(text)
    except Refused:
        return
    assert text.strip().startswith(action.verb)


@given(
    number=st.integers(0, 999_999), text=st.text(alphabet=st.characters(exclude_characters="[]")), enter=st.booleans()
)
@settings(max_examples=200)
def test_a_typed_text_is_read_as_it_was_written(number: int, text: str, enter: bool) -> None:
    assert read_action(f"type [{number}] [{text}] [{int(enter)}]") == Action("type", number, text, enter)


@pytest.mark.parametrize("key", ["é", "Control+ß", "字"])
def test_a_key_that_no_keyboard_of_the_browser_has_is_refused(key: str) -> None:
    with pytest.raises(Refused, match="press needs one character or a key"):
        read_action(f"press [{key}]")
