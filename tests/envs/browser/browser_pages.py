"""Small pages written in a test, served on the loopback address and played in the real browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from playwright.async_api import Page

from envs.browser.chromium import find_chromium
from envs.browser.episode import BrowserEnvironment
from envs.browser.loopback import NOT_FOUND, Loopback, PageRequest, Response, page
from envs.browser.problem import PageProblem, PageVerdict
from envs.browser.reading import PageReading, View
from turnwise.world import Observation, ScriptedAction


class WrittenPages(PageProblem):
    """Pages with nothing to solve, but that `stop [right]` is."""

    def __init__(self, starts: Sequence[str], site: str) -> None:
        self._starts, self._site = tuple(starts), site

    @property
    def starts(self) -> Sequence[str]:
        return self._starts

    @property
    def sites(self) -> Sequence[str]:
        return (self._site,)

    @property
    def goal(self) -> str:
        return "Look around."

    async def judge(self, page: Page, answer: str) -> PageVerdict:
        return PageVerdict(answer == "right")

    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        return ScriptedAction("nothing to do", ("stop [right]",))


@contextmanager
def served(pages: Mapping[str, str]) -> Iterator[str]:
    """The address, without a slash at its end, of a server that answers these paths with these bodies of pages."""

    def site(request: PageRequest) -> Response:
        body = pages.get(request.path)
        return NOT_FOUND if body is None else page(f"<!DOCTYPE html><title>{request.path}</title>{body}")

    server = Loopback({}, default=site)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


@contextmanager
def opened(
    pages: Mapping[str, str], *starts: str, view: View = "tree", most_lines: int = 100
) -> Iterator[tuple[BrowserEnvironment, Observation]]:
    """An episode that begins at `/`, or at these paths, each in a tab; and its first observation."""
    with served(pages) as address:
        problem = WrittenPages([f"{address}{start}" for start in starts or ["/"]], address)
        environment = BrowserEnvironment(problem, find_chromium(None), {}, view, most_lines)
        try:
            yield environment, environment.reset()
        finally:
            environment.close()


def shown(text: str) -> list[str]:
    """The lines of an observation below its header: what the page shows."""
    lines = text.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith(("Page: ", "Tabs: "))]
    return lines[starts[-1] + 1 :]
