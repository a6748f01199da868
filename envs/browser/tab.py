"""One page of the browser: the actions on it, and how to tell when it has come to rest.

An action returns when its consequences are over: the page has drawn two frames, and no navigation that it requested is
under way. Chromium's protocol reports a request for a navigation before it answers any later command, so nothing
depends on how long the action took.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from playwright.async_api import CDPSession, Error, Page
from playwright.async_api import TimeoutError as LoadTimeout

from envs.browser.actions import Refused
from envs.browser.reading import Element, PageReading, View, read_page

TWO_FRAMES = """new Promise(resolve => {
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve, 0)));
    setTimeout(resolve, 5000);
})"""
"""The timer is for a page that another has covered meanwhile: it may draw no frames."""

# A click goes to the middle of the element, as a person's would. If something else covers that point, or the element is
# an option, which no mouse reaches in a closed list, the click is sent to the element itself and this returns null.
CLICK_POINT = """function() {
    if (!this.isConnected) throw new Error('gone');
    if (this.tagName === 'OPTION') {
        this.selected = true;
        for (const name of ['input', 'change']) {
            this.closest('select').dispatchEvent(new Event(name, {bubbles: true}));
        }
        return null;
    }
    this.scrollIntoViewIfNeeded();
    const box = this.getClientRects()[0];
    if (box) {
        const point = {x: box.left + box.width / 2, y: box.top + box.height / 2};
        const hit = document.elementFromPoint(point.x, point.y);
        if (hit && (this.contains(hit) || hit.closest('label')?.control === this)) return point;
    }
    this.focus?.();
    this.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true, composed: true, view: window}));
    return null;
}"""

HOVER_POINT = """function() {
    if (!this.isConnected) throw new Error('gone');
    this.scrollIntoViewIfNeeded();
    const box = this.getClientRects()[0];
    return box ? {x: box.left + box.width / 2, y: box.top + box.height / 2} : null;
}"""

# Whether text can be pasted here: not where the browser itself reads keys, as in the parts of a date.
SELECT_CONTENT = """function() {
    if (!this.isConnected) throw new Error('gone');
    this.scrollIntoViewIfNeeded();
    this.focus();
    if (this.select) this.select();
    else if (this.isContentEditable) getSelection().selectAllChildren(this);
    return Boolean(this.select) || this.isContentEditable;
}"""


class ElementGone(Exception):
    """Raised when the page has changed by itself since it was read, and the element is no longer part of it."""


class Tab:
    """A page with a session of Chromium's own protocol. Its coroutines run on the browser's thread.

    `load_seconds`: seconds after which a page that is still loading is shown as it is. With None the agent waits as
    long as a call may take, after which the episode is lost, so that no clock decides what an agent sees.
    """

    def __init__(self, page: Page, protocol: CDPSession, frame: str, load_seconds: float | None) -> None:
        self.page = page
        self._protocol = protocol
        self._frame = frame
        self._load_seconds = load_seconds
        self._asked_for_navigation = False
        self._loading = False
        self._changed = asyncio.Event()
        self.windows_asked_for = 0
        """Number of new windows that the page has requested and that have not been opened yet."""
        for event in ("frameRequestedNavigation", "frameScheduledNavigation"):
            protocol.on(f"Page.{event}", lambda parameters: self._note(parameters, requested=True))
        for event in ("frameClearedScheduledNavigation", "navigatedWithinDocument"):
            protocol.on(f"Page.{event}", lambda parameters: self._note(parameters, requested=False))
        protocol.on(
            "Page.frameStartedLoading", lambda parameters: self._note(parameters, requested=False, loading=True)
        )
        protocol.on(
            "Page.frameStoppedLoading", lambda parameters: self._note(parameters, requested=False, loading=False)
        )
        protocol.on("Page.windowOpen", self._note_window)

    @classmethod
    async def of(cls, page: Page, load_seconds: float | None) -> Tab:
        """The tab of a page that was just opened."""
        protocol = await page.context.new_cdp_session(page)
        response = await protocol.send("Page.getFrameTree")
        tab = cls(page, protocol, response["frameTree"]["frame"]["id"], load_seconds)
        await protocol.send("Page.enable")
        # Wait for whatever began to load before the listeners were added.
        with suppress(LoadTimeout):
            await page.wait_for_load_state("load", timeout=tab._limit)
        return tab

    async def goto(self, address: str) -> str | None:
        """Open an address. Returns the reason of a failure, else None."""
        try:
            await self.page.goto(address, wait_until="load", timeout=self._limit)
        except Error as error:
            self._require_alive(error)
            if isinstance(error, LoadTimeout):
                return f"it did not load within {self._load_seconds:g} s"
            match = re.search(r"net::[A-Z_]+", str(error))
            return match.group() if match else "the browser cannot go there"
        return None

    async def click(self, element: Element) -> None:
        """Click in the middle of the element, or send the click to it where the mouse does not reach it."""
        point = await self._call(element, CLICK_POINT)
        if point is not None:
            await self.page.mouse.click(point["x"], point["y"])

    async def hover(self, element: Element) -> None:
        """Move the mouse over the middle of the element."""
        point = await self._call(element, HOVER_POINT)
        if point is not None:
            await self.page.mouse.move(point["x"], point["y"])

    async def fill(self, element: Element, text: str, *, enter: bool) -> None:
        """Replace the content of the field by the text, as if pasted; then press Enter, if asked for."""
        can_paste = await self._call(element, SELECT_CONTENT)
        if not text:
            await self.page.keyboard.press("Delete")
        elif can_paste:
            await self.page.keyboard.insert_text(text)
        else:
            await self.page.keyboard.type(text)
        if enter:
            await self.page.keyboard.press("Enter")

    async def press(self, keys: str) -> None:
        """Press a key, or a combination such as `Control+a`."""
        await self.page.keyboard.press(keys)

    async def scroll(self, windows: int) -> None:
        """Scroll by this many window heights at once: down, or up where negative."""
        await self.page.evaluate("count => scrollBy({top: count * innerHeight, behavior: 'instant'})", windows)

    async def move_in_history(self, by: int) -> None:
        """Go one page back (-1) or forward (1). Raises Refused if there is none."""
        history = await self._protocol.send("Page.getNavigationHistory")
        entries, place = history["entries"], history["currentIndex"] + by
        if not 0 <= place < len(entries) or entries[place]["url"] == "about:blank":
            raise Refused(f"There is no {'earlier' if by < 0 else 'later'} page.")
        self._asked_for_navigation = True
        await self._protocol.send("Page.navigateToHistoryEntry", {"entryId": entries[place]["id"]})

    async def rest(self) -> None:
        """Wait until two frames are drawn and nothing is loading, for at most `load_seconds`."""
        try:
            await asyncio.wait_for(self._rest(), self._load_seconds)
        except TimeoutError:
            return

    async def read(self, window: tuple[int, int], view: View, most_lines: int) -> PageReading:
        """What the page shows now."""
        tree = await self._protocol.send("Accessibility.getFullAXTree")
        options = {"computedStyles": [], "includePaintOrder": False}
        snapshot = await self._protocol.send("DOMSnapshot.captureSnapshot", options)
        return read_page(tree["nodes"], snapshot, window, view, most_lines)

    async def _rest(self) -> None:
        await self._draw()
        while (self._asked_for_navigation or self._loading) and not self.page.is_closed():
            self._changed.clear()
            await self._changed.wait()
            await self._draw()

    async def _draw(self) -> None:
        try:
            await self._protocol.send("Runtime.evaluate", {"expression": TWO_FRAMES, "awaitPromise": True})
        except Error as error:
            # A page that navigates meanwhile drops the command; `rest` then waits for the page that follows.
            self._require_alive(error)

    async def _call(self, element: Element, function: str) -> Any:
        """Result of a JavaScript function with `this` set to the element. Raises ElementGone."""
        try:
            response = await self._protocol.send("DOM.resolveNode", {"backendNodeId": element.node})
            parameters = {"functionDeclaration": function, "objectId": response["object"]["objectId"]}
            answer = await self._protocol.send("Runtime.callFunctionOn", {**parameters, "returnByValue": True})
        except Error as error:
            self._require_alive(error)
            raise ElementGone(element.number) from error
        if "exceptionDetails" in answer:
            raise ElementGone(element.number)
        return answer["result"].get("value")

    def _require_alive(self, error: Error) -> None:
        browser = self.page.context.browser
        if browser is None or not browser.is_connected():
            raise error

    @property
    def _limit(self) -> float:
        """The load limit in milliseconds; Playwright takes 0 for no limit."""
        return (self._load_seconds or 0) * 1000

    def _note(self, parameters: Mapping[str, Any], *, requested: bool, loading: bool | None = None) -> None:
        if parameters["frameId"] == self._frame:
            self._asked_for_navigation = requested
            self._loading = self._loading if loading is None else loading
            self._changed.set()

    def _note_window(self, _: Mapping[str, Any]) -> None:
        self.windows_asked_for += 1
