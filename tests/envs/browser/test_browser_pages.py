"""What is shown of a page and what actions do to it, in the real browser, on pages written here."""

from __future__ import annotations

import re
import threading

import pytest
from browser_pages import WrittenPages, opened, served, shown

from envs.browser import chromium
from envs.browser.chromium import BrowserLost, find_chromium
from envs.browser.episode import BrowserEnvironment
from envs.browser.loopback import Loopback
from envs.browser.reading import LONGEST_NAME
from turnwise import seeding
from turnwise.world import Remaining

pytestmark = pytest.mark.needs("chromium")

FORM = """<h1>Sign in</h1><p>Members only.</p>
<form action="/done"><label>Name <input name="name"></label> Password <input type="password" name="word">
<label><input type="checkbox" name="stay"> Stay</label>
<select name="land"><option>Peru</option><option>Chad</option></select>
<button>Go</button> <button disabled>Later</button></form>
<p>Or <a href="/done">skip</a> it.</p><span onclick="document.title = 'x'">a word</span>
<p style="display: none">hidden <button>not shown</button></p><img alt="a cat" src="data:,">"""


# What is shown


def test_the_tree_shows_one_thing_a_line_and_numbers_what_can_be_acted_on() -> None:
    with opened({"/": FORM}) as (_, first):
        lines = first.text.splitlines()
    assert lines[0] == "Goal: Look around."
    assert re.fullmatch(r"Page: http://127\.0\.0\.1:[0-9]+/", lines[1])
    assert lines[2:] == [
        'heading "Sign in"',
        "Members only.",
        '[1] textbox "Name"',
        "Password",
        '[2] textbox ""',
        '[3] checkbox "Stay"',
        '[4] combobox "" = "Peru"',
        '[5] option "Peru" selected',
        '[6] option "Chad"',
        '[7] button "Go"',
        'button "Later" disabled',
        "Or",
        '[8] link "skip"',
        "it.",
        '[9] clickable "a word"',
        'image "a cat"',
    ]


def test_the_html_view_shows_the_same_with_the_same_numbers() -> None:
    with opened({"/": FORM}, view="html") as (_, first):
        lines = shown(first.text)
    assert lines == [
        "<h1>Sign in</h1>",
        "<p>Members only.</p>",
        '[1] <label>Name</label> <input name="name">',
        "<form>Password</form>",
        '[2] <input type="password" name="word">',
        '[3] <label>Stay</label> <input type="checkbox" name="stay">',
        '[4] <select name="land" value="Peru">',
        "[5] <option selected>Peru</option>",
        "[6] <option>Chad</option>",
        "[7] <button>Go</button>",
        "<button disabled>Later</button>",
        "<p>Or</p>",
        '[8] <a href="/done">skip</a>',
        "<p>it.</p>",
        "[9] <span>a word</span>",
        '<img alt="a cat">',
    ]


def test_markup_in_a_text_stays_text() -> None:
    body = "<p>1 &lt; 2 &amp; 3</p><a title='say &quot;hi&quot;' href='/x'>&lt;b&gt;</a>"
    with opened({"/": body}, view="html") as (_, first):
        lines = shown(first.text)
    assert lines == ["<p>1 &lt; 2 &amp; 3</p>", '[1] <a href="/x" title="say &quot;hi&quot;">&lt;b&gt;</a>']


def test_a_container_that_listens_for_clicks_is_not_numbered_where_its_parts_are() -> None:
    body = '<div onclick="1"><span onclick="1">one</span> and <button>two</button></div><li onclick="1">three</li>'
    with opened({"/": body}) as (_, first):
        assert shown(first.text) == [
            '[1] clickable "one"',
            "and",
            '[2] button "two"',
            '[3] clickable "three"',
        ]


def test_long_names_values_and_pages_are_cut() -> None:
    body = f"<p>{'word ' * 100}</p>" + "<button>b</button>" * 20
    with opened({"/": body}, most_lines=10) as (environment, first):
        lines = shown(first.text)
        assert len(lines) == 11 and lines[-1] == "... more follows that is not shown"
        assert lines[0].endswith("...") and len(lines[0]) == LONGEST_NAME + 3
        assert lines[9] == '[9] button "b"'
        # What is not shown cannot be acted on.
        assert not environment.step("click [10]").valid


def test_only_what_lies_in_the_window_is_shown_and_scrolling_moves_the_window() -> None:
    body = '<p>top</p><div style="height: 700px"></div><p>middle</p><div style="height: 700px"></div><p>bottom</p>'
    with opened({"/": body}) as (environment, first):
        assert shown(first.text) == ["top"]
        down = environment.step("scroll [down]")
        assert shown(down.observation.text) == ["middle"] and down.effective
        assert shown(environment.step("scroll [down]").observation.text) == ["bottom"]
        assert not environment.step("scroll [down]").effective
        environment.step("scroll [up]")
        up = environment.step("scroll [up]")
        assert (shown(up.observation.text), up.observation.state) == (["top"], first.state)


# Clicking, typing, pressing, hovering


def test_a_form_is_filled_and_sent() -> None:
    with opened({"/": FORM, "/done": "<p>Thank you.</p>"}) as (environment, _):
        environment.step("type [1] [Ann Lee] [0]")
        environment.step("click [3]")
        chosen = environment.step("click [6]").observation.text
        assert '[1] textbox "Name" = "Ann Lee"' in chosen
        assert '[3] checkbox "Stay" focused checked' in chosen
        assert '[4] combobox "" = "Chad"' in chosen and '[6] option "Chad" selected' in chosen
        sent = environment.step("click [7]").observation.text
    assert "/done?name=Ann+Lee&word=&stay=on&land=Chad" in sent and sent.endswith("Thank you.")


def test_enter_sends_a_form_unless_it_is_left_out() -> None:
    with opened({"/": FORM, "/done": "<p>Thank you.</p>"}) as (environment, _):
        assert "Thank you." not in environment.step("type [1] [Ann] [0]").observation.text
        assert "Thank you." in environment.step("type [1] [Bob]").observation.text


def test_typing_replaces_what_stands_in_the_field() -> None:
    body = '<label>A <input value="old"></label><label>B <textarea>old</textarea></label>'
    with opened({"/": body}) as (environment, _):
        environment.step("type [1] [new] [0]")
        environment.step("type [2] [two] [0]")
        lines = shown(environment.step("type [1] [] [0]").observation.text)
    assert lines == ['[1] textbox "A" focused', '[2] textbox "B" = "two"']


def test_text_that_can_be_edited_is_typed_into() -> None:
    body = '<div contenteditable role="textbox" aria-label="Note">old</div>'
    with opened({"/": body}) as (environment, _):
        assert shown(environment.step("type [1] [new] [0]").observation.text) == ['[1] textbox "Note" = "new" focused']


def test_the_parts_of_a_date_are_typed_into() -> None:
    with opened({"/": '<input type="date" value="2020-01-02">'}) as (environment, _):
        lines = shown(environment.step("type [1] [7] [0]").observation.text)
    assert lines[0] == '[1] spinbutton "Month" = "7"' and '[2] spinbutton "Day" = "2" focused' in lines


def test_keys_go_to_the_element_in_focus() -> None:
    body = '<input aria-label="A" value="abc" onkeydown="p.textContent = event.key"><p id="p">-</p>'
    with opened({"/": body}) as (environment, _):
        environment.step("click [1]")
        environment.step("press [Control+a]")
        assert shown(environment.step("press [x]").observation.text) == ['[1] textbox "A" = "x" focused', "x"]
        assert shown(environment.step("press [ArrowLeft]").observation.text)[1] == "ArrowLeft"


def test_the_mouse_hovers() -> None:
    body = '<button onmouseover="p.textContent = \'over\'">b</button><p id="p">-</p>'
    with opened({"/": body}) as (environment, _):
        assert shown(environment.step("hover [1]").observation.text) == ['[1] button "b"', "over"]


def test_an_element_under_another_is_clicked_all_the_same() -> None:
    body = """<button style="position: absolute; left: 0; top: 0" onclick="p.textContent = 'below'">below</button>
        <button style="position: absolute; left: 0; top: 0; width: 90px; height: 90px"
        onclick="p.textContent = 'above'">above</button><p id="p" style="margin-top: 200px">-</p>"""
    with opened({"/": body}) as (environment, _):
        assert shown(environment.step("click [1]").observation.text)[-1] == "below"
        assert shown(environment.step("click [2]").observation.text)[-1] == "above"


def test_a_click_on_a_label_far_below_reaches_its_box() -> None:
    body = """<div style="height: 600px"></div><label style="display: block; margin-top: 60px">
        <input type="radio" name="r"> one</label>"""
    with opened({"/": body}) as (environment, _):
        assert shown(environment.step("click [1]").observation.text) == ['[1] radio "one" focused checked']


def test_a_picture_that_is_drawn_can_be_clicked() -> None:
    body = """<svg width="50" height="50"><g onclick="p.textContent = 'hit'"><title>dot</title><circle cx="25" cy="25"
        r="20"/><text x="5" y="30">dot</text></g></svg><p id="p">-</p>"""
    with opened({"/": body}) as (environment, first):
        lines = shown(first.text)
        number = next(line for line in lines if "clickable" in line)[1]
        assert "hit" in environment.step(f"click [{number}]").observation.text


def test_what_is_gone_when_it_is_clicked_is_said_to_be_gone() -> None:
    body = """<button>stays</button><button id="b">goes</button>
        <script>setTimeout(() => b.remove(), 1500)</script>"""
    with opened({"/": body}) as (environment, _):
        threading.Event().wait(2.0)
        step = environment.step("click [2]")
        assert step.observation.text.startswith("Element 2 was gone already; this is the page now.")
        assert shown(step.observation.text) == ['[1] button "stays"']


# Pages and tabs

PAGES = {"/": '<a href="/one">one</a>', "/one": '<p>One.</p><a href="/two">two</a>', "/two": "<p>Two.</p>"}


def test_links_lead_on_and_history_leads_back_and_forth() -> None:
    with opened(PAGES) as (environment, first):
        environment.step("click [1]")
        assert "Two." in environment.step("click [1]").observation.text
        assert "One." in environment.step("go_back").observation.text
        home = environment.step("go_back")
        assert home.observation.text == first.text.removeprefix("Goal: Look around.\n")
        nothing = environment.step("go_back")
        assert not nothing.valid and nothing.observation.text.startswith("There is no earlier page.")
        assert "One." in environment.step("go_forward").observation.text


def test_a_page_that_moves_on_by_itself_is_waited_for() -> None:
    pages = {"/": "<button onclick=\"setTimeout(() => { location = '/one' }, 0)\">go</button>", "/one": "<p>One.</p>"}
    with opened(pages) as (environment, _):
        assert "One." in environment.step("click [1]").observation.text


def test_an_anchor_on_the_page_is_no_other_page() -> None:
    with opened({"/": '<a href="#below">down</a><p id="below">Below.</p>'}) as (environment, _):
        step = environment.step("click [1]")
        assert step.observation.text.splitlines()[0].endswith("/#below") and step.effective


def test_addresses_are_opened_within_the_site_only() -> None:
    with opened(PAGES) as (environment, first):
        site = first.text.split("Page: ")[1].split("/\n")[0]
        assert "Two." in environment.step(f"goto [{site}/two]").observation.text
        port = site.rpartition(":")[2]
        outside = ["http://example.test/", "file:///etc/passwd", "javascript:alert(1)", "two", "about:blank"]
        for address in [*outside, f"{site}1/", f"http://user@127.0.0.1:{port}/", "chrome://version"]:
            step = environment.step(f"goto [{address}]")
            assert not step.valid and "goto may only open" in step.observation.text and not step.effective


def test_a_link_out_of_the_site_leads_nowhere() -> None:
    with served({"/": "Outside."}) as other, opened({"/": f'<a href="{other}/">out</a>'}) as (environment, _):
        step = environment.step("click [1]")
        assert step.valid and "Outside." not in step.observation.text
        assert step.observation.text.startswith("Page: chrome-error://")
        # Back to where it can go on.
        assert '[1] link "out"' in environment.step("go_back").observation.text


def test_a_page_that_does_not_exist_is_shown_as_such() -> None:
    with opened(PAGES) as (environment, first):
        site = first.text.split("Page: ")[1].split("/\n")[0]
        assert shown(environment.step(f"goto [{site}/none]").observation.text) == ['heading "Not found"']


def test_tabs_are_opened_shown_and_closed() -> None:
    with opened(PAGES) as (environment, first):
        site = first.text.split("Page: ")[1].split("/\n")[0]
        only = environment.step("close_tab")
        assert not only.valid and only.observation.text.startswith("The only tab cannot be closed.")
        new = environment.step("new_tab").observation.text
        assert new == f"Page: about:blank\nTabs: [0] {site}/ [1] about:blank, shown: [1]"
        environment.step(f"goto [{site}/one]")
        back = environment.step("tab_focus [0]").observation.text
        assert back.startswith(f"Page: {site}/\nTabs: [0] {site}/ [1] {site}/one, shown: [0]")
        assert environment.step("tab_focus [2]").observation.text.startswith("There is no tab 2; the last is 1.")
        environment.step("tab_focus [1]")
        closed = environment.step("close_tab").observation.text
        assert "Tabs" not in closed and shown(closed) == ['[1] link "one"']


def test_a_window_that_a_page_opens_is_shown_and_one_that_it_closes_is_not() -> None:
    pages = {
        "/": '<a href="/one" target="_blank">one</a>',
        "/one": '<p>One.</p><button onclick="window.close()">shut</button>',
    }
    with opened(pages) as (environment, _):
        new = environment.step("click [1]").observation.text
        assert "shown: [1]" in new and "One." in new
        # Only windows that a script opened may be closed by a script; this one was, by its own opener.
        assert '[1] link "one"' in environment.step("close_tab").observation.text


def test_an_episode_may_begin_in_several_tabs() -> None:
    with opened(PAGES, "/one", "/two") as (_, first):
        assert "shown: [0]" in first.text and "One." in first.text


def test_a_dialog_does_not_stop_the_page() -> None:
    body = """<button onclick="p.textContent = confirm('sure?')">ask</button><p id="p">-</p>"""
    with opened({"/": body}) as (environment, _):
        assert shown(environment.step("click [1]").observation.text)[-1] == "false"


# Steps


def test_anything_else_is_told_what_is_legal_and_changes_nothing() -> None:
    with opened({"/": FORM}) as (environment, first):
        for text in ("", "jump", "click [99]", "type [7] [x]", "tab_focus [3]", "go_forward", "press [Entr]"):
            step = environment.step(text)
            assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})
            assert step.observation.state == first.state
            assert shown(step.observation.text) == shown(first.text)


def test_a_state_is_named_after_all_that_is_visible() -> None:
    body = "<input aria-label=\"A\"><button onclick=\"this.className = this.className ? '' : 'on'\">b</button>"
    with opened({"/": body}) as (environment, first):
        on, off = environment.step("click [2]"), environment.step("click [2]")
        assert on.effective and off.effective
        # The text is the same both times but for the focus; the class is not.
        assert on.observation.text == off.observation.text
        assert len({first.state, on.observation.state, off.observation.state}) == 3


def test_the_end_is_the_end() -> None:
    with opened({"/": FORM}) as (environment, _):
        last = environment.step("stop [right]")
        assert (last.terminated, last.success, dict(last.rewards)) == (True, True, {"solved": 1.0})
        assert last.observation.text == "The episode is over: the task is solved."
        after = environment.step("click [1]")
        assert (after.valid, after.terminated, after.success, dict(after.rewards)) == (False, True, True, {})
    with opened({"/": FORM}) as (environment, _):
        assert environment.step("stop").rewards == {"solved": 0.0}


def test_the_random_baseline_is_uniform_over_the_elements_and_stop() -> None:
    body = "<button>a</button><input><button>b</button>"
    with opened({"/": body}) as (environment, _):
        generator = seeding.generator(0, "player")
        played = [environment.random(generator, Remaining(1, 1, 1)).actions[0] for _ in range(2000)]
    # Four choices: 500 each, with a standard deviation of 19; the field is clicked or typed into.
    for beginning, expected in [("click [1]", 500), ("click [2]", 250), ("type [2]", 250), ("click [3]", 500)]:
        assert abs(sum(action.startswith(beginning) for action in played) - expected) < 100
    stops = {action for action in played if action.startswith("stop")}
    assert stops >= {"stop [Look]", "stop [around]"} and all(action in played for action in stops)


# What goes wrong


def test_a_page_that_never_answers_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened({"/": '<button onclick="while (true);">hang</button>'}) as (environment, _):
        monkeypatch.setattr(chromium, "CALL_SECONDS", 3.0)
        with pytest.raises(BrowserLost, match="no answer within 3 s"):
            environment.step("click [1]")
        monkeypatch.undo()


def test_an_episode_whose_pages_do_not_open_is_not_begun() -> None:
    problem = WrittenPages(["http://127.0.0.1:1/"], "http://127.0.0.1:1")
    environment = BrowserEnvironment(problem, find_chromium(None), {}, "tree", 100)
    with pytest.raises(RuntimeError, match=r"must open; found: net::ERR_"):
        environment.reset()
    environment.close()


def test_a_page_that_drops_a_connection_is_no_news_and_a_fault_of_ours_is(capsys: pytest.CaptureFixture[str]) -> None:
    server = Loopback({})
    for error in (ConnectionResetError("reset"), ValueError("broken")):
        try:
            raise error
        except (ConnectionResetError, ValueError):
            server._server.handle_error(None, ("127.0.0.1", 1))
    server.close()
    said = capsys.readouterr().err
    assert "broken" in said and "reset" not in said
