"""The tabs of one episode: a browser context of its own, in which WebArena's actions are played.

The context is always the same: window, language, time zone and colours are fixed, animations are off, and only the
sites of the task can be reached.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from envs.browser.actions import Action, Refused
from envs.browser.reading import Element, PageReading, View
from envs.browser.tab import ElementGone, Tab

WINDOW = (1280, 720)
"""Width and height of every tab, in pixels."""

CONTEXT: Mapping[str, Any] = {
    "viewport": {"width": WINDOW[0], "height": WINDOW[1]},
    "device_scale_factor": 1,
    "locale": "en-US",
    "timezone_id": "UTC",
    "color_scheme": "light",
    "reduced_motion": "reduce",
    "service_workers": "block",
    "accept_downloads": False,
}


class Tabs:
    """The open tabs, one of them in front. Its coroutines run on the browser's thread."""

    def __init__(
        self, context: BrowserContext, sites: Sequence[str], load_seconds: float | None, crashed: asyncio.Event
    ) -> None:
        self.context = context
        self._sites = tuple(sites)
        self._load_seconds = load_seconds
        self._crashed = crashed
        self._tabs: list[Tab] = []
        self._front = 0
        self._opened: asyncio.Queue[Page] = asyncio.Queue()
        context.on("page", self._note_page)

    @classmethod
    async def open(
        cls,
        browser: Browser,
        sites: Sequence[str],
        options: Mapping[str, Any],
        load_seconds: float | None,
        crashed: asyncio.Event,
    ) -> Tabs:
        """A new context without tabs; `begin` opens the first.

        `sites`: prefixes of the addresses of allowed pages; `load_seconds`: see `Tab`; `crashed` is set when a page
        crashes.
        """
        return cls(await browser.new_context(**{**CONTEXT, **options}), sites, load_seconds, crashed)

    async def begin(self) -> None:
        """Block every other site, and open an empty tab."""
        allowed_origins = "|".join(re.escape(site) for site in [*_origins(self._sites), "about:", "data:", "blob:"])
        await self.context.route(re.compile(f"^(?!{allowed_origins})"), lambda route: route.abort())
        await self._new()

    @property
    def front(self) -> Tab:
        """The tab in front."""
        return self._tabs[self._front]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of all tabs, in order."""
        return tuple(tab.page.url for tab in self._tabs)

    def header(self) -> str:
        """Line with the address of the front page, and one with those of all tabs if there are several."""
        if len(self._tabs) == 1:
            return f"Page: {self.front.page.url}"
        labels = [f"[{number}] {address}" for number, address in enumerate(self.addresses)]
        return "\n".join([f"Page: {self.front.page.url}", f"Tabs: {' '.join(labels)}, shown: [{self._front}]"])

    async def goto(self, address: str) -> str | None:
        """Open an address in the front tab. Returns the reason of a failure, else None."""
        failure = await self.front.goto(address)
        await self.rest()
        return failure

    async def play(self, action: Action, element: Element | None) -> str | None:
        """Play an action until the page is at rest. Returns a message for the policy, or None. Raises Refused.

        `element` is the target of a click, a hover or a typing.
        """
        message = await self._play(action, element)
        await self.rest()
        return message

    async def rest(self) -> None:
        """Wait until the front page is at rest; a window that it has opened comes to the front."""
        opener = self.front
        await opener.rest()
        while opener.windows_asked_for:
            opener.windows_asked_for -= 1
            await self._adopt()
            await self.front.rest()
        open_tabs = [tab for tab in self._tabs if not tab.page.is_closed()]
        if len(open_tabs) < len(self._tabs):
            # A page can close its own window.
            self._tabs, self._front = open_tabs, max(len(open_tabs) - 1, 0)
            if not open_tabs:
                await self._new()

    async def read(self, view: View, most_lines: int) -> PageReading:
        """What the front page shows."""
        return await self.front.read(WINDOW, view, most_lines)

    async def close(self) -> None:
        """Close every page of the episode and delete what they stored."""
        await self.context.close()

    async def _play(self, action: Action, element: Element | None) -> str | None:
        match action.verb:
            case "click" | "hover" | "type":
                assert element is not None, "an action on an element needs one"
                try:
                    await self._on_element(action, element)
                except ElementGone:
                    return f"Element {element.number} was gone already; this is the page now."
            case "press":
                await self.front.press(action.text)
            case "scroll":
                await self.front.scroll(1 if action.text == "down" else -1)
            case "goto":
                return await self._goto_allowed(action.text)
            case "go_back" | "go_forward":
                await self.front.move_in_history(-1 if action.verb == "go_back" else 1)
            case "new_tab":
                await self._new()
            case "tab_focus":
                await self._focus(action.number)
            case "close_tab":
                await self._close_front()
        return None

    async def _on_element(self, action: Action, element: Element) -> None:
        if action.verb == "click":
            await self.front.click(element)
        elif action.verb == "hover":
            await self.front.hover(element)
        else:
            await self.front.fill(element, action.text, enter=action.enter)

    async def _goto_allowed(self, address: str) -> str | None:
        # A bare prefix without a slash would also allow a longer host name.
        if not any(address == site or address.startswith(f"{site.rstrip('/')}/") for site in self._sites):
            raise Refused(f"goto may only open {' or '.join(self._sites)} and what is below it.")
        failure = await self.front.goto(address)
        return None if failure is None else f"The page could not be opened: {failure}."

    async def _new(self) -> None:
        await self.context.new_page()
        await self._adopt()

    async def _adopt(self) -> None:
        """Bring the window that was opened to the front. One that never comes was blocked by the browser."""
        try:
            page = await asyncio.wait_for(self._opened.get(), self._load_seconds)
        except TimeoutError:
            return
        self._tabs.append(await Tab.of(page, self._load_seconds))
        self._front = len(self._tabs) - 1

    def _note_page(self, page: Page) -> None:
        page.on("crash", lambda _: self._crashed.set())
        self._opened.put_nowait(page)

    async def _focus(self, number: int) -> None:
        if number >= len(self._tabs):
            raise Refused(f"There is no tab {number}; the last is {len(self._tabs) - 1}.")
        self._front = number
        await self.front.page.bring_to_front()

    async def _close_front(self) -> None:
        if len(self._tabs) == 1:
            raise Refused("The only tab cannot be closed.")
        await self._tabs.pop(self._front).page.close()
        self._front = max(self._front - 1, 0)
        await self.front.page.bring_to_front()


def _origins(sites: Sequence[str]) -> list[str]:
    """Origins of the sites without repeats, each with the slash that ends a host name."""
    matches = [re.match(r"[a-z]+://[^/]+", site) for site in sites]
    return [f"{origin}/" for origin in dict.fromkeys(match.group() for match in matches if match)]
