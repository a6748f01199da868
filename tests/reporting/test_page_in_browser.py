"""The report in the real browser, on a screen and on a phone: nothing is cut, and the words are at hand."""

from dataclasses import replace

import pandas as pd
import pytest
from playwright.sync_api import expect, sync_playwright

import turnwise as tw
from envs.bandit.world import Bandit
from envs.browser.chromium import find_chromium
from turnwise.checking.certificate import certify
from turnwise.reporting.data.suites import SuiteReport
from turnwise.reporting.html.page import page
from turnwise.reporting.html.pages import suite_page, what_if_page, write_certificate
from turnwise.results.what_if import ChangedSetting, WhatIf, compare_rules
from turnwise.statistics import student_over_seeds
from turnwise.statistics.suite import measure_suite

pytestmark = pytest.mark.needs("chromium")

CUT = """() => [...document.querySelectorAll('main *')]
  .filter(each => !each.closest('svg') && !each.closest('pre') && getComputedStyle(each).display !== 'inline')
  .filter(each => each.scrollWidth > each.clientWidth + 1 || each.getBoundingClientRect().right > innerWidth + 1)
  .map(each => `${each.tagName} ${each.className} ${each.textContent.trim().slice(0, 40)}`)"""
"""The elements that are wider than their box or than the window."""


@pytest.fixture(scope="module")
def file(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_cut(browser, file, width):
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(file.as_uri())
    assert opened.evaluate(CUT) == []


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_cut_where_methods_have_long_names(browser, tmp_path, width):
    names = [
        "meta-llama/Llama-3.1-8B-Instruct-finetuned-with-turn-level-credit",
        "Qwen2.5 with " + "a curriculum, " * 6,
    ]
    rows = [
        (name, seed, task, float((task + seed) % 3 > place))
        for place, name in enumerate(names)
        for seed in range(3)
        for task in range(9)
    ]
    table = pd.DataFrame(rows, columns=["method", "seed", "task", "score"])
    path = tmp_path / "report.html"
    path.write_text(page(tw.judge(table).data), encoding="utf-8")
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(path.as_uri())
    assert opened.evaluate(CUT) == []


@pytest.mark.parametrize("width", [1280, 420])
def test_the_first_screen_shows_what_was_found_and_its_figure(browser, file, width):
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(file.as_uri())
    figure = opened.locator(".answer figure").bounding_box()
    assert 0 < opened.locator("h1").bounding_box()["y"] < figure["y"]
    assert figure["y"] + figure["height"] <= 900


def test_the_text_of_every_figure_can_be_read_on_a_phone(browser, file):
    opened = browser.new_page(viewport={"width": 420, "height": 900})
    opened.goto(file.as_uri())
    heights = """() => {
      document.querySelectorAll('details').forEach(each => each.open = true);
      return [...document.querySelectorAll('figure svg text')].filter(each => each.checkVisibility())
        .map(each => each.getBoundingClientRect().height) }"""
    assert min(opened.evaluate(heights)) >= 9, "in pixels"


def test_a_dark_scheme_turns_page_and_figures_round(browser, file):
    colours = """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
      getComputedStyle([...document.querySelectorAll('.answer svg text')][0]).fill]"""
    found = {}
    for scheme in ("light", "dark"):
        opened = browser.new_page(color_scheme=scheme)
        opened.goto(file.as_uri())
        found[scheme] = opened.evaluate(colours)
    assert found["light"] == ["rgb(255, 255, 255)", "rgb(34, 38, 43)", "rgb(106, 113, 120)"]
    assert found["dark"] == ["rgb(21, 24, 27)", "rgb(228, 231, 234)", "rgb(163, 171, 179)"]


def test_a_curve_is_read_by_keyboard_and_by_pointer_without_a_network(browser, file):
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    errors = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.goto(file.as_uri())
    curve = opened.locator("figure[data-values]").first
    said = curve.locator("figcaption")
    expect(said).to_have_text("")
    curve.focus()
    opened.keyboard.press("ArrowRight")
    expect(said).to_contain_text("iteration ")
    first = said.text_content()
    opened.keyboard.press("End")
    expect(said).not_to_have_text(first)
    box = curve.bounding_box()
    opened.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
    expect(said).to_have_text(first)
    assert curve.locator(".chosen").count() == 1 and errors == []


def test_the_cost_at_which_variants_are_compared_is_chosen_without_a_script(browser, file):
    opened = browser.new_context(java_script_enabled=False, viewport={"width": 420, "height": 900}).new_page()
    opened.goto(file.as_uri())
    shown = opened.locator(".choices > div:visible")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("at 300,000 sampled tokens")
    opened.get_by_role("radio", name="sampled tokens").focus()
    opened.keyboard.press("ArrowRight")
    expect(opened.get_by_role("radio", name="seconds")).to_be_checked()
    expect(shown).to_contain_text("at 151 seconds")
    opened.locator("label", has_text="sampled tokens").click()
    expect(shown).to_contain_text("at 300,000 sampled tokens")


def test_the_words_open_from_the_first_screen(browser, file):
    opened = browser.new_page()
    opened.goto(file.as_uri())
    expect(opened.locator("#words")).not_to_be_visible()
    opened.locator(".answer a").focus()
    opened.keyboard.press("Enter")
    expect(opened.locator("#words")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_where_rules_stand_side_by_side(browser, report, tmp_path, width):
    first = next(sample for sample in report.samples if sample.advantages is not None)
    names = ["recorded", "reinforce++-baseline", "optimal-token-baseline", "what if"]
    turns = {name: {0: [value * place for value in first.advantages]} for place, name in enumerate(names)}
    compared = {name: replace(first, advantages=turns[name][0]) for name in names[:-1]}
    compared["what if"] = replace(first, advantages=None, token_advantages=None)
    steps = {"recorded": {"gradient_norm": 1.0, "approximate_kl": 0.1}, "what if": None}
    data = WhatIf("What if: a", "Of 1.", compare_rules({name: turns[name] for name in names}), steps=steps)
    data = replace(data, settings=[ChangedSetting("credit.estimator", dict.fromkeys(names, '"grpo"'))])
    data = replace(
        data, steps={name: steps.get(name) for name in names}, left_out={"gae": "it needs a critic's values"}
    )
    path = tmp_path / "what_if.html"
    path.write_text(what_if_page(data, [compared], 1), encoding="utf-8")
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(path.as_uri())
    assert opened.evaluate(CUT) == []
    assert "what if: none" in opened.content() and "gae is left out: it needs" in opened.content()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_on_the_page_of_a_suite(browser, tmp_path, width):
    scores = {
        rule: {
            world: [0.1 * place + 0.2 * n for n in range(3)] for world in ("frozen_lake (small)", "search", "wordle")
        }
        for place, rule in enumerate(("grpo", "reinforce++-baseline", "optimal-token-baseline"))
    }
    worlds = list(scores["grpo"])
    cells = {rule: {world: student_over_seeds(runs) for world, runs in of.items()} for rule, of in scores.items()}
    missing = ["gae in search: no run"]
    report = SuiteReport([*scores, "gae"], [*worlds, "textcraft"], cells, measure_suite(scores), missing)
    path = tmp_path / "suite.html"
    path.write_text(suite_page(report), encoding="utf-8")
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(path.as_uri())
    assert opened.evaluate(CUT) == []
    assert "gae in search: no run" in opened.content()
    heights = "() => [...document.querySelectorAll('svg text')].map(each => each.getBoundingClientRect().height)"
    assert min(opened.evaluate(heights)) >= 9, "in pixels"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_on_the_certificate_of_a_world(browser, tmp_path, width):
    write_certificate(certify(Bandit(), tasks=4, replicas=4), tmp_path)
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto((tmp_path / "certificate.html").as_uri())
    assert opened.evaluate(CUT) == []
    assert "Certificate of the world bandit" in opened.content()
    edges = """() => [...document.querySelectorAll('td .note')]
      .map(each => [each, each.parentElement].map(box => Math.round(box.getBoundingClientRect().right)))"""
    if width == 1280:
        assert (found := opened.evaluate(edges)) and all(note == cell for note, cell in found), "under its number"
