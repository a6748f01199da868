"""Pages of MiniWoB++ (Liu et al. 2018, arXiv 1802.08802), from the package `miniwob`, as problems.

A page makes its problem with its own seeded random generator, and reports itself whether it was solved: +1, or less for
a wrong or partial answer.

Differs from the package: no wall clock (a page would end after 10 to 30 s, and its reward would fall with time), so the
reward is the raw one; a problem counts as solved at a raw reward of 1 and not below; animations are off; the scoreboard
and the instruction are not shown on the page, since the first observation gives the goal.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from playwright.async_api import Page

from envs.browser.loopback import Folder
from envs.browser.miniwob_oracles import ORACLES
from envs.browser.problem import PageProblem, PageVerdict
from envs.browser.reading import PageReading
from turnwise.world import ScriptedAction

VERSION = "1.1.0"
"""Version of the package with these pages: part of every task's id."""
HOST = "miniwob.test"

KINDS = tuple(ORACLES)
"""The pages that have an oracle."""

# Runs after every action. If the page was loaded again, it makes the problem again, the same one.
LOOK = """seed => {
    if (typeof core === 'undefined') return null;
    if (!window.problemWasStarted) {
        window.problemWasStarted = true;
        const style = document.createElement('style');
        style.textContent = `#reward-display, #click-canvas, #sync-task-cover { display: none !important; }
            #query { visibility: hidden; } * { animation: none !important; transition: none !important; }`;
        document.head.append(style);
        if (window.jQuery) jQuery.fx.off = true;
        core.EPISODE_MAX_TIME = 1e7;
        Math.seedrandom(seed);
        core.startEpisodeReal();
    }
    return {goal: core.getUtterance(), done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL};
}"""


def require_package() -> None:
    """Raise ValueError when the installed package is not the version that the tasks' ids name."""
    installed = importlib.metadata.version("miniwob")
    if installed != VERSION:
        raise ValueError(f"pages 'miniwob' must come from miniwob {VERSION}; found {installed}: install that version")


def site() -> Folder:
    """The package's pages as a site."""
    return Folder(Path(str(importlib.resources.files("miniwob"))) / "html")


class MiniWobProblem(PageProblem):
    """One page with one seed. The page ends the episode; `stop` gives up."""

    ends_with_stop: ClassVar[bool] = False

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = kind
        self._seed = str(seed)
        self.goal = ""  # the page's own instruction
        # The page alone is allowed, since another one would be another problem.
        self.starts = self.sites = (f"http://{HOST}/miniwob/{kind}.html",)

    async def look(self, page: Page) -> PageVerdict | None:
        """Start the problem if the page is new, and return the verdict if it is over."""
        status: Mapping[str, Any] | None = await page.evaluate(LOOK, self._seed)
        if status is None:
            return None
        self.goal = self.goal or status["goal"]
        return _verdict(float(status["reward"])) if status["done"] else None

    async def judge(self, page: Page, answer: str) -> PageVerdict:
        """Verdict on giving up: not solved, with raw reward 0."""
        return _verdict(0.0)

    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        """Action of the oracle for this kind of page, from the goal and the page."""
        return ORACLES[self._kind](self.goal, reading.elements)


def _verdict(reward: float) -> PageVerdict:
    return PageVerdict(reward == 1.0, {"raw_reward": reward})
