"""The page of episodes in the real browser: it filters, it compares, and nothing that was written in it runs."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect, sync_playwright

from envs.browser.chromium import find_chromium
from turnwise.reporting.data.episodes import ShownEpisode
from turnwise.reporting.html.pages import episodes_page

pytestmark = pytest.mark.needs("chromium")

ATTACK = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    """The page of four episodes on two tasks, one of them hostile in every text, opened from its file."""
    solved, failed = report.samples
    spelt = replace(solved, spelling=[["word"] * len(turn.reply_tokens) for turn in solved.trajectory.turns])
    trajectory = failed.trajectory
    turns = tuple(replace(turn, observation=ATTACK, thought=ATTACK, reply=ATTACK) for turn in trajectory.turns)
    hostile = replace(
        failed,
        label=ATTACK,
        trajectory=replace(trajectory, turns=turns, task=replace(trajectory.task, id=ATTACK)),
        spelling=[[ATTACK] * len(turn.reply_tokens) for turn in turns],
    )
    episodes = [
        ShownEpisode("mt-grpo seed 1", "training", 20, "sampled", spelt),
        ShownEpisode("grpo-or seed 1", "training", 20, "sampled", replace(spelt, advantages=[-0.5, -2.0])),
        ShownEpisode("grpo-or seed 1", "training", 10, "sampled", replace(spelt, advantages=[0.1, 0.1])),
        ShownEpisode(ATTACK, "training", 20, "sampled", hostile),
    ]
    path = tmp_path_factory.mktemp("page") / "episodes.html"
    path.write_text(episodes_page(f"Episodes {ATTACK}", ATTACK, episodes, {}), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        opened = browser.new_page()
        requests = []
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(path.as_uri())
        opened.requests = requests
        yield opened
        browser.close()


def shown(page):
    return [each.get_attribute("data-policy") for each in page.locator("article:visible").all()]


def test_nothing_that_a_policy_or_a_world_wrote_runs_or_loads(page):
    assert page.title() == f"Episodes {ATTACK}"
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert page.requests == [page.url]
    assert ATTACK in page.locator("article").last.inner_text()


def test_a_script_that_got_into_the_page_would_not_run_either(page):
    page.evaluate("const s = document.createElement('script'); s.text = 'document.title = 1'; document.body.append(s)")
    assert page.title() == f"Episodes {ATTACK}"
    page.evaluate("document.body.lastElementChild.remove()")


def test_the_form_shows_what_is_asked_for_and_counts_it(page):
    assert len(shown(page)) == 4
    for field, value, players in (
        ("success", "no", [ATTACK]),
        ("ending", "success", ["mt-grpo seed 1", "grpo-or seed 1", "grpo-or seed 1"]),
        ("task", ATTACK, [ATTACK]),
        ("policy", "mt-grpo seed 1", ["mt-grpo seed 1"]),
    ):
        page.select_option(f"[name={field}]", value)
        assert shown(page) == players
        assert page.locator("output").inner_text() == f"{len(players)} of 4 shown"
        page.select_option(f"[name={field}]", "")
    for field, value, players in (("high", "-1", ["grpo-or seed 1"]), ("last", "19", ["grpo-or seed 1"])):
        page.fill(f"[name={field}]", value)
        assert shown(page) == players
        page.fill(f"[name={field}]", "")


def test_two_policies_on_one_task_stand_beside_each_other(page):
    page.select_option("[name=policy]", "mt-grpo seed 1")
    page.select_option("[name=other_policy]", "grpo-or seed 1")
    page.select_option("[name=layout]", "side-by-side")
    boxes = [each.bounding_box() for each in page.locator("article:visible").all()]
    assert len(boxes) == 3
    assert len({box["y"] for box in boxes}) == 1
    assert boxes[0]["x"] < boxes[1]["x"] < boxes[2]["x"]
    page.click("button[type=reset]")
    expect(page.locator("article:visible")).to_have_count(4)


def test_a_token_is_coloured_by_its_advantage_and_tells_it(page):
    token = page.locator("article").nth(1).locator(".heat span").last
    assert token.get_attribute("title") == "advantage −2.00, log p −0.25"
    assert token.evaluate("each => getComputedStyle(each).backgroundColor") == "rgba(213, 94, 0, 0.5)"
