"""The world: tasks on pages of MiniWoB++ and of a small shop, in a real browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from envs.browser import miniwob, shop, shop_problems
from envs.browser.actions import GRAMMAR
from envs.browser.chromium import find_chromium, version_of
from envs.browser.episode import BrowserEnvironment
from envs.browser.loopback import Loopback
from envs.browser.miniwob import MiniWobProblem
from envs.browser.problem import PageProblem
from envs.browser.reading import VIEWS, View
from envs.browser.shop_problems import ShopProblem
from turnwise import seeding
from turnwise.world import Limits, Reward, Split, Task, World, one_of, whole_number

PAGES: Mapping[str, tuple[str, ...]] = {
    f"shop-{shop.VERSION}": shop_problems.KINDS,
    f"miniwob-{miniwob.VERSION}": miniwob.KINDS,
}
"""Kinds of problems in each page set; task ids use these names."""

REWARDS: Mapping[str, Reward] = {"solved": Reward("1 when the task is solved at the end, else 0", "outcome", 1.0)}

INSTRUCTION = (
    "Do what the goal says in a web browser. You are shown the page's address and what is on it, one thing a line. "
    "What can be acted on has a number in brackets, which may change after every action."
)


class Browser(World):
    """Do what a goal says on web pages in a real Chromium.

    Parameters: `pages`, from which tasks are drawn in turn: `shop`, `miniwob`, or one kind of either such as
    `miniwob/click-button`; `view`, `tree` for the accessibility tree or `html` for pruned HTML; `turns`, the turn limit
    of an episode; `most_lines`, the maximum number of lines of a page in an observation; `executable`, the browser, by
    default the one that the environment variable TURNWISE_CHROMIUM names, or Debian's.

    A task's problem is a function of its id. Ids, and so seeds, of the splits are disjoint; the shop's splits also have
    no product in common. What a MiniWoB page can ask is not under our control: kinds with few goals ask the same in
    training and in test.

    The browser is looked for when an episode is made; a world that is only described needs none.
    """

    name: ClassVar[str] = "browser"
    version: ClassVar[str] = "1"
    rewards: ClassVar[Mapping[str, Reward]] = REWARDS
    oracle_success: ClassVar[float] = 0.98
    instruction = INSTRUCTION
    grammar = GRAMMAR

    def __init__(
        self,
        *,
        pages: Sequence[str] = ("shop", "miniwob"),
        view: View = "tree",
        turns: int = 15,
        most_lines: int = 120,
        executable: str | None = None,
    ) -> None:
        self.kinds = _kinds(pages)
        self.view = one_of("view", view, VIEWS)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self.most_lines = whole_number("most_lines", most_lines, 10, 10_000)
        self.executable = executable
        if any(page_set.startswith("miniwob") for page_set, _ in self.kinds):
            miniwob.require_package()

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, which is unbounded, of each kind in turn. Tags: `pages` and `kind`."""
        return [self._task(split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> BrowserEnvironment:
        """Environment for a task; nothing in it is random.

        Raises ValueError for a task of another world, or if there is no browser.
        """
        problem, executable = self._problem(task), find_chromium(self.executable)
        return BrowserEnvironment(problem, executable, _server().hosts, self.view, self.most_lines)

    def require_programs(self) -> None:
        """Raise ValueError if there is no browser."""
        find_chromium(self.executable)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The path of the browser, which does not affect results; its version does (see `state`)."""
        return {"executable": None} if "executable" in parameters else {}

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """The browser's version. Raises ValueError if there is no browser."""
        return {"browser": version_of(find_chromium(parameters.get("executable")))}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The package with the pages, and the browser's driver."""
        return ("miniwob", "playwright")

    def attribution(self) -> str | None:
        """MiniWoB++ and its licence, if its pages are used."""
        if any(page_set.startswith("miniwob") for page_set, _ in self.kinds):
            return "Pages of MiniWoB++ (Farama Foundation, MIT licence), from the package miniwob."
        return None

    def _task(self, split: Split, number: int) -> Task:
        page_set, kind = self.kinds[number % len(self.kinds)]
        name = f"{self.name}/{self.version}/{page_set}/{kind}/{split}/{number // len(self.kinds)}"
        tags = {"pages": page_set.partition("-")[0], "kind": kind}
        return Task(self.name, name, split, seeding.derive(0, name), tags)

    def _problem(self, task: Task) -> PageProblem:
        parts = task.id.split("/")
        if len(parts) != 6 or parts[:2] != [self.name, self.version] or parts[3] not in PAGES.get(parts[2], ()):
            raise ValueError(
                f"a task must begin with {self.name}/{self.version}/ and name one of {', '.join(PAGES)} and a kind; "
                f"found {task.id!r}"
            )
        if parts[2].startswith("shop"):
            return ShopProblem(_shops(), parts[3], task.seed, task.split)
        return MiniWobProblem(parts[3], task.seed)


def _kinds(value: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(page set, kind) pairs in the order in which tasks are drawn. Raises ValueError."""
    every = {page_set.partition("-")[0]: (page_set, kinds) for page_set, kinds in PAGES.items()}
    known = {name: [(page_set, kind) for kind in kinds] for name, (page_set, kinds) in every.items()}
    known |= {f"{name}/{kind}": [(page_set, kind)] for name, (page_set, kinds) in every.items() for kind in kinds}
    if not isinstance(value, list | tuple) or not value or not all(name in known for name in value):
        raise ValueError(f"pages must be a list of some of {', '.join(known)}; found {value!r}")
    pairs = [pair for name in value for pair in known[name]]
    if len(set(pairs)) != len(pairs):
        raise ValueError(f"pages must name every kind once; found {value!r}")
    return tuple(pairs)


@cache
def _shops() -> shop.ShopSite:
    return shop.ShopSite()


@cache
def _server() -> Loopback:
    """The server of this process for both page sets, since the browser learns its port only once, when it starts."""
    return Loopback({shop.HOST: _shops(), miniwob.HOST: miniwob.site()})
