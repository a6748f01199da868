"""The world `browser`: its tasks, its baselines, many episodes at once, and what happens when a browser dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browser_pages import shown

from envs.browser import Browser, chromium
from envs.browser.chromium import DEBIAN_BROWSERS, NAMED_BY, BrowserLost, find_chromium, running
from envs.browser.episode import BrowserEnvironment
from envs.browser.shop import HOST
from envs.browser.world import PAGES, _server, _shops
from tests.process_tree import command_line, descendants, is_running, parent
from turnwise.agent.host import Host, RetryPolicy
from turnwise.checking.playing import play
from turnwise.world import SPLITS, Observation, Remaining, Task

KINDS = [f"{page_set.partition('-')[0]}/{kind}" for page_set, kinds in PAGES.items() for kind in kinds]


@contextmanager
def opened(kind: str, number: int = 0, **parameters: Any) -> Iterator[tuple[BrowserEnvironment, Observation]]:
    """An episode of the test task with that number of a kind of page, and its first observation."""
    world = Browser(pages=[kind], **parameters)
    environment = world.make(world.tasks("test", number + 1)[number], 0)
    try:
        yield environment, environment.reset()
    finally:
        environment.close()


def oracles_action(environment: BrowserEnvironment) -> str:
    (action,) = environment.oracle(Remaining(1, 1, 1)).actions
    return action


# Parameters and tasks


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pages": []}, "pages must be a list of some of shop, miniwob, shop/price"),
        ({"pages": "shop"}, "pages must be a list"),
        ({"pages": ["shop", "forum"]}, "pages must be a list of some of"),
        ({"pages": ["shop", "shop/cart"]}, "pages must name every kind once"),
        ({"view": "picture"}, "view must be one of tree, html; found 'picture'"),
        ({"turns": 0}, "turns must be a whole number"),
        ({"most_lines": 5}, "most_lines must be a whole number from 10 to 10000; found 5"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Browser(**parameters)


def test_a_missing_browser_is_missed_by_who_plays_and_not_by_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMED_BY, "/nowhere/chromium")
    for world in (Browser(), Browser(executable="/nowhere/chromium")):
        (task,) = world.tasks("test", 1)
        for ask in (world.require_programs, partial(world.make, task, 0)):
            with pytest.raises(ValueError, match="executable must be the path of a Chromium; found nothing that runs"):
                ask()


def test_the_build_without_windows_is_taken_before_the_other_and_a_named_one_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAMED_BY, raising=False)
    shell, full, named = (tmp_path / name for name in ("chromium-headless-shell", "chromium", "elsewhere"))
    monkeypatch.setattr(chromium, "DEBIAN_BROWSERS", (str(shell), str(full)))
    with pytest.raises(ValueError, match=f"{shell} or {full}: install one"):
        find_chromium(None)
    for program in (full, shell):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert find_chromium(None) == str(program)
    monkeypatch.setenv(NAMED_BY, str(named))
    with pytest.raises(ValueError, match=f"nothing that runs at {named}"):
        find_chromium(None)
    assert find_chromium(str(full)) == str(full)


@pytest.mark.needs("chromium", "both builds of chromium")
def test_an_episode_is_the_same_in_both_builds() -> None:
    played = []
    for build in DEBIAN_BROWSERS:
        world = Browser(pages=["shop"], executable=build)
        kinds = world.tasks("test", 2)
        played.append([play(world, task, 0, baseline).as_json() for task in kinds for baseline in world.baselines])
        if build != find_chromium(None):  # the tests below need one browser
            running(build, _server().hosts).close()
    assert played[0] == played[1]


@pytest.mark.needs("chromium")
def test_tasks_are_named_for_ever_and_drawn_from_each_kind_in_turn() -> None:
    world = Browser(pages=["shop/price", "miniwob/click-button"])
    tasks = world.tasks("train", 4)
    assert [task.id for task in tasks] == [
        "browser/1/shop-1/price/train/0",
        "browser/1/miniwob-1.1.0/click-button/train/0",
        "browser/1/shop-1/price/train/1",
        "browser/1/miniwob-1.1.0/click-button/train/1",
    ]
    assert tasks[0].tags == {"pages": "shop", "kind": "price"}
    assert len(Browser().tasks("test", len(KINDS))) == len({task.id for task in Browser().tasks("test", len(KINDS))})


@pytest.mark.needs("chromium")
def test_no_seed_is_in_two_splits() -> None:
    world = Browser()
    seeds = [task.seed for split in SPLITS for task in world.tasks(split, 300)]
    assert len(set(seeds)) == 900


@pytest.mark.needs("chromium")
@pytest.mark.parametrize(
    "name", ["search/1/x/price/test/0", "browser/1/shop-0/price/test/0", "browser/1/shop-1/x/test/0"]
)
def test_a_task_of_other_pages_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"a task must begin with browser/1/ and name one of shop-1, miniwob-1\.1\.0"):
        Browser().make(Task("browser", name, "test", 0), 0)


@pytest.mark.needs("chromium")
def test_the_licence_of_the_pages_is_told_where_they_are_played() -> None:
    assert "MIT" in str(Browser().attribution())
    assert Browser(pages=["shop"]).attribution() is None


# The baseline policies


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_solves_every_kind(kind: str) -> None:
    world = Browser(pages=[kind])
    (task,) = world.tasks("validation", 1)
    episode = play(world, task, 0, "oracle")
    assert episode.success
    assert episode.steps[-1].rewards == {"solved": 1.0}
    assert all(step.valid and step.effective for step in episode.steps)


@pytest.mark.needs("chromium")
def test_the_oracle_plays_the_html_view_as_well() -> None:
    world = Browser(pages=["shop/comment"], view="html")
    episode = play(world, world.tasks("test", 1)[0], 0, "oracle")
    assert episode.success and '<label>Search</label> <input name="q">' in episode.first.text


@pytest.mark.needs("chromium")
def test_the_oracle_puts_right_what_another_put_into_the_cart() -> None:
    with opened("shop/cart") as (environment, _):
        problem = environment._problem
        wrong = next(product for product in problem.shop.products if product != problem.order.product)
        environment.step(f"goto [http://{HOST}/product?number={wrong.number}]")
        environment.step("click [6]")
        assert problem.shop.cart == {wrong.number: 1}
        for _ in range(10):
            step = environment.step(oracles_action(environment))
            if step.terminated:
                break
        assert step.success


# MiniWoB++


@pytest.mark.needs("chromium")
def test_a_partial_answer_has_a_raw_reward_and_is_no_success() -> None:
    # Task 0 asks for three of five boxes; none is ticked, so two of five are right: (2 - 3) / 5.
    with opened("miniwob/click-checkboxes") as (environment, first):
        assert "Goal: Select oxg, e4dfWWC, SSAykjR and click Submit." in first.text
        step = environment.step("click [6]")
        assert step.terminated and not step.success
        assert step.rewards == {"solved": 0.0}
        assert step.metrics == {"raw_reward": pytest.approx(-0.2)}


@pytest.mark.needs("chromium")
def test_no_clock_ends_a_page_or_lowers_its_reward() -> None:
    with opened("miniwob/click-button") as (environment, _):
        tabs, chromium = environment._tabs, environment._chromium
        assert tabs is not None and chromium is not None
        milliseconds = chromium.run(tabs.front.page.evaluate("core.EPISODE_MAX_TIME"))
        assert milliseconds == 1e7  # nearly three hours; the page's own limit is 10 s
        time.sleep(0.5)  # after which the page's own reward would be below 0.96
        assert environment.step(oracles_action(environment)).metrics == {"raw_reward": 1.0}


@pytest.mark.needs("chromium")
def test_a_page_that_is_opened_again_has_the_same_problem() -> None:
    with opened("miniwob/login-user") as (environment, first):
        address = first.text.splitlines()[1].removeprefix("Page: ")
        typed = environment.step("type [1] [someone] [0]")
        assert typed.observation.state != first.state
        again = environment.step(f"goto [{address}]")
        assert again.observation.state == first.state
        assert first.text.endswith(again.observation.text)


@pytest.mark.needs("chromium")
def test_another_page_of_the_set_cannot_be_opened() -> None:
    with opened("miniwob/click-button") as (environment, _):
        step = environment.step("goto [http://miniwob.test/miniwob/click-test.html]")
        assert (
            not step.valid
            and "goto may only open http://miniwob.test/miniwob/click-button.html" in step.observation.text
        )


@pytest.mark.needs("chromium")
def test_giving_up_ends_a_page_unsolved() -> None:
    with opened("miniwob/click-button") as (environment, _):
        step = environment.step("stop [N/A]")
        assert (step.terminated, step.success, dict(step.metrics)) == (True, False, {"raw_reward": 0.0})


# Episodes


@pytest.mark.needs("chromium")
def test_the_cart_is_part_of_the_state_where_no_page_shows_it() -> None:
    with opened("shop/comment") as (environment, first):
        environment.step(f"goto [http://{HOST}/product?number=1]")
        environment.step("type [7] [hello] [0]")
        environment.step("click [8]")
        home = environment.step(f"goto [http://{HOST}/]")
        assert shown(home.observation.text) == shown(first.text)
        assert home.observation.state != first.state


@pytest.mark.needs("chromium")
def test_closing_frees_the_shop_and_the_context() -> None:
    with opened("shop/price") as (environment, _):
        chromium = environment._chromium
        assert chromium is not None
        shops, contexts = len(_shops()), len(chromium.browser.contexts)
    assert (len(_shops()), len(chromium.browser.contexts)) == (shops - 1, contexts - 1)
    Browser().make(Browser().tasks("test", 1)[0], 0).close()  # one that was never opened


@pytest.mark.needs("chromium")
def test_many_episodes_at_once_go_as_they_go_alone() -> None:
    world = Browser(pages=["shop/cart", "miniwob/click-tab-2"])
    tasks = world.tasks("train", 2)
    alone = [play(world, task, 0, "oracle") for task in tasks]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda task: play(world, task, 0, "oracle"), tasks * 3))
    assert [episode.as_json() for episode in together] == [episode.as_json() for episode in alone * 3]
    assert all(episode.success for episode in alone)


# Death


def own_browsers() -> list[int]:
    """The main processes of this process's browsers for this world's pages."""
    lines = {process: command_line(process) for process in descendants(os.getpid())}
    return [process for process, line in lines.items() if f"MAP {HOST}" in line and "--type=" not in line]


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("victim", ["browser", "driver"])
def test_a_browser_that_dies_takes_its_own_episodes_and_no_other(victim: str) -> None:
    with opened("shop/price") as (environment, first):
        (process,) = own_browsers()
        os.kill(process if victim == "browser" else parent(process), signal.SIGKILL)
        with pytest.raises(BrowserLost):
            environment.step("click [1]")
        with opened("shop/price") as (_, again):
            assert again == first
        with pytest.raises(BrowserLost, match="the browser of this episode has died"):
            environment.step("click [1]")
    assert len([process for process in own_browsers() if is_running(process)]) == 1


@pytest.mark.needs("chromium")
def test_a_page_that_crashes_takes_its_own_episode_and_no_other() -> None:
    with opened("shop/price") as (environment, first):
        (process,) = own_browsers()
        for child in descendants(process):
            if "--type=renderer" in command_line(child):
                os.kill(child, signal.SIGKILL)
        with pytest.raises(BrowserLost, match="crashed"):
            environment.step("click [1]")
        with opened("shop/price") as (_, again):
            assert again == first
        assert own_browsers() == [process]


@pytest.mark.needs("chromium")
def test_an_episode_goes_on_in_another_browser_as_if_nothing_had_happened() -> None:
    world = Browser(pages=["shop/cart"])
    task = world.tasks("test", 1)[0]
    undisturbed = play(world, task, 0, "oracle")
    host = Host(world, task, 0, RetryPolicy(seconds=120.0, retries=1))
    try:
        assert host.reset() == undisturbed.first
        for place, action in enumerate(undisturbed.actions):
            if place == 2:
                for process in own_browsers():
                    os.kill(process, signal.SIGKILL)
            host.start([action])
            assert host.finish() == [undisturbed.steps[place]]
    finally:
        host.close()


PLAY = """
import sys
from envs.browser import Browser
world = Browser(pages=["shop/price"])
environment = world.make(world.tasks("test", 1)[0], 0)
environment.reset()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_nothing_outlives_the_process(end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PLAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin is not None and run.stdout is not None
        assert run.stdout.readline() == "open\n"
        started = descendants(run.pid)
        assert any("--type=renderer" in command_line(process) for process in started)
        if end == "exit":
            run.stdin.close()
            assert run.wait() == 0
        else:
            run.send_signal(getattr(signal, end))
            run.wait()
        while any(map(is_running, started)):
            time.sleep(0.1)
