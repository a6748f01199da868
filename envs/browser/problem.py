"""What an episode is about: where it starts, when it is solved, and how a competent player goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from playwright.async_api import BrowserContext, Page

from envs.browser.reading import PageReading
from turnwise.world import ScriptedAction


@dataclass(frozen=True)
class PageVerdict:
    """How an episode ended."""

    solved: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


class PageProblem(ABC):
    """One episode's problem. Its coroutines run on the browser's thread, everything else on the environment's."""

    ends_with_stop: ClassVar[bool] = True
    """Whether `stop` can solve it: a player who never stops then fails, and one who guesses may guess an answer."""
    repeatable: ClassVar[bool] = True
    """Whether the same actions lead to the same pages, so that a situation can be named."""
    load_seconds: ClassVar[float | None] = None
    """How long a page may take to load before the agent is shown what there is; None for as long as it takes."""

    @property
    @abstractmethod
    def starts(self) -> Sequence[str]:
        """The addresses that are open when the episode begins, each in a tab."""

    @property
    @abstractmethod
    def sites(self) -> Sequence[str]:
        """What the addresses of allowed pages begin with."""

    @property
    def context(self) -> Mapping[str, Any]:
        """Options of the browser context beyond those of every episode."""
        return {}

    @property
    @abstractmethod
    def goal(self) -> str:
        """What is to be done; known once the page has been looked at."""

    async def prepare(self, context: BrowserContext) -> None:  # noqa: B027  (most need no preparation)
        """Before the first page is opened."""

    async def look(self, page: Page) -> PageVerdict | None:
        """After every action, on the page that is shown: the verdict, where the page itself ends the episode."""
        return None

    @abstractmethod
    async def judge(self, page: Page, answer: str) -> PageVerdict:
        """The verdict on an episode that ends with `stop [answer]` on that page."""

    def hidden(self) -> str:
        """The state that no page shows at the moment, such as what lies in a cart."""
        return ""

    @abstractmethod
    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        """What a competent player does who sees this page."""

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Free what the problem holds outside the browser."""
