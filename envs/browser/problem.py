"""Interface of an episode's problem: where it starts, when it is solved, and its oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from playwright.async_api import BrowserContext, Page

from envs.browser.reading import PageReading
from turnwise.world import ScriptedAction


@dataclass(frozen=True)
class PageVerdict:
    """The outcome of an episode."""

    solved: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


class PageProblem(ABC):
    """One episode's problem. Its coroutines run on the browser's thread, everything else on the environment's."""

    ends_with_stop: ClassVar[bool] = True
    """Whether `stop` can solve it: a policy that never stops then fails, and one that guesses may guess an answer."""
    repeatable: ClassVar[bool] = True
    """Whether the same actions lead to the same pages, so that states can be named."""
    load_seconds: ClassVar[float | None] = None
    """Seconds after which a page that is still loading is shown as it is; None to wait as long as it takes."""

    starts: Sequence[str]
    """Addresses that are open when the episode begins, one tab each."""
    sites: Sequence[str]
    """Prefixes of the addresses of allowed pages."""
    context: Mapping[str, Any] = MappingProxyType({})
    """Options of the browser context, added to those of every episode."""
    goal: str
    """The goal in words; known once `look` has run."""

    async def prepare(self, context: BrowserContext) -> None:  # noqa: B027  (most need no preparation)
        """Prepare the context before the first page is opened."""

    async def look(self, page: Page) -> PageVerdict | None:
        """Verdict if the current page itself ends the episode, else None; called after every action."""
        return None

    @abstractmethod
    async def judge(self, page: Page, answer: str) -> PageVerdict:
        """Verdict on an episode that ends with `stop [answer]` on this page."""

    def hidden(self) -> str:
        """State that the current page does not show, such as the content of a cart."""
        return ""

    @abstractmethod
    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        """Action of a competent policy that sees this page."""

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Free what the problem holds outside the browser."""
