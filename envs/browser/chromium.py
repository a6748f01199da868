"""One headless Chromium for the whole process, and the thread that owns it.

Every environment runs on its own thread, but an object of Playwright belongs to the event loop that made it. So one
thread holds the loop, Playwright's driver and the browser; environments submit coroutines to it and wait for their
results. Many episodes run at once, each in its own browser context, which shares neither cookies nor storage.

A browser that dies takes only its own episodes with it: their calls raise `BrowserLost`, and the next call of `running`
starts another. Nothing outlives the process: an orderly exit closes the browser, and when the process is killed the
driver sees its pipe close and ends the browser.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import threading
from collections.abc import Coroutine, Mapping
from functools import cache
from typing import Any, TypeVar

from playwright.async_api import Browser, Error, Playwright, async_playwright

Result = TypeVar("Result")

CALL_SECONDS = 60.0
"""Seconds after which a call is given up: a page whose script never ends does not answer."""
START_SECONDS = 60.0
NEWS_SECONDS = 1.0
"""Seconds to wait, after a failed call, for the report of a crash."""

DEBIAN_BROWSERS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium")
"""Two builds of the same Chromium.

The first draws no windows, so an episode takes half as long. Its script in /usr/bin
only starts it, and would receive signals in its place.
"""

NAMED_BY = "TURNWISE_CHROMIUM"
"""The environment variable with the path of another Chromium, for a machine that has it elsewhere."""

ARGUMENTS = ("--disable-gpu", "--font-render-hinting=none", "--hide-scrollbars", "--mute-audio")
"""No graphics card, and fonts and widths that do not depend on the machine's settings."""


class BrowserLost(RuntimeError):
    """Raised when the browser, or a page of the episode, dies or does not answer: the episode is missing data."""


def find_chromium(executable: str | None) -> str:
    """Path of the browser; for None, the one that the environment names, else the first of Debian's that exists.

    Raises ValueError if there is none.
    """
    named = os.environ.get(NAMED_BY) if executable is None else executable
    candidates = DEBIAN_BROWSERS if named is None else (named,)
    path = next(filter(None, map(shutil.which, candidates)), None)
    if path is None:
        raise ValueError(
            f"executable must be the path of a Chromium; found nothing that runs at {' or '.join(candidates)}: install "
            "one (Debian: apt-get install --no-install-recommends chromium-headless-shell), or name another in "
            f"{NAMED_BY}"
        )
    return path


@cache
def version_of(executable: str) -> str:
    """The browser's version text, such as `Chromium 140.0.7339.16`. Raises ValueError if it reports none."""
    process = subprocess.run(
        [executable, "--version"], capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    if process.returncode != 0 or not process.stdout.strip():
        raise ValueError(
            f"executable must be a Chromium that tells its --version; {executable} said {process.stderr!r}"
        )
    return process.stdout.strip()


class Chromium:
    """A running browser. `hosts` maps the host names of the pages to ports of the loopback address."""

    def __init__(self, executable: str, hosts: Mapping[str, int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="chromium")
        self._thread.start()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._died = asyncio.Event()
        self._process = os.getpid()
        rules = ",".join(f"MAP {host}:80 127.0.0.1:{port}" for host, port in hosts.items())
        starting = asyncio.run_coroutine_threadsafe(self._start(executable, rules), self._loop)
        try:
            starting.result(START_SECONDS)
        except (Error, TimeoutError) as error:
            self.close()
            raise BrowserLost(f"{executable} did not start: {error}") from error

    @property
    def browser(self) -> Browser:
        """Playwright's browser, for use in coroutines passed to `run`."""
        assert self._browser is not None, "the browser has not been started"
        return self._browser

    @property
    def alive(self) -> bool:
        """Whether the browser is running and belongs to this process, not to the one that it was forked from."""
        return self._process == os.getpid() and self._loop.is_running() and not self._died.is_set()

    def run(self, coroutine: Coroutine[Any, Any, Result], crashed: asyncio.Event | None = None) -> Result:
        """Result of the coroutine; exceptions pass through.

        Raises BrowserLost when the browser dies, when `crashed` is set because a page of the episode crashed, and when
        there is no result within `CALL_SECONDS`.
        """
        if not self.alive:
            coroutine.close()
            raise BrowserLost("the browser of this episode has died")
        guarded = self._unless_lost(coroutine, crashed or asyncio.Event())
        return asyncio.run_coroutine_threadsafe(guarded, self._loop).result()

    def close(self) -> None:
        """End the browser, the driver and the thread. Harmless if the browser has died."""
        if self._process != os.getpid() or not self._loop.is_running():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self, executable: str, rules: str) -> None:
        self._playwright = await async_playwright().start()
        arguments = [*ARGUMENTS, f"--host-resolver-rules={rules}"]
        self._browser = await self._playwright.chromium.launch(
            executable_path=executable, args=arguments, headless=True, chromium_sandbox=False
        )
        self._browser.on("disconnected", lambda _: self._died.set())

    async def _stop(self) -> None:
        self._died.set()
        try:
            if self._browser is not None:
                await asyncio.wait_for(self._browser.close(), START_SECONDS)
            if self._playwright is not None:
                await asyncio.wait_for(self._playwright.stop(), START_SECONDS)
        except (Error, TimeoutError):
            pass  # a driver that died took its browser along; one that hangs does so when this process ends

    async def _unless_lost(self, coroutine: Coroutine[Any, Any, Result], crashed: asyncio.Event) -> Result:
        work = asyncio.ensure_future(coroutine)
        death, crash = asyncio.ensure_future(self._died.wait()), asyncio.ensure_future(crashed.wait())
        try:
            await asyncio.wait({work, death, crash}, timeout=CALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not isinstance(work.exception(), Error):
                return work.result()
            if death.done() or (work.done() and not await self._answers()):
                self._died.set()
                raise BrowserLost("the browser died during a call")
            # The report of a crash may come after the failure of the running call.
            await asyncio.wait({crash}, timeout=NEWS_SECONDS)
            if crash.done():
                raise BrowserLost("a page of this episode has crashed")
            if not work.done():
                raise BrowserLost(f"the page gave no answer within {CALL_SECONDS:g} s")
            return work.result()
        finally:
            for task in (work, death, crash):
                task.cancel()

    async def _answers(self) -> bool:
        """Whether browser and driver respond, since the death of the driver is not reported."""
        try:
            session = await self.browser.new_browser_cdp_session()
            await session.detach()
        except Error:
            return False
        return True


_lock = threading.Lock()
_running: dict[tuple[str, tuple[tuple[str, int], ...]], Chromium] = {}


def running(executable: str, hosts: Mapping[str, int]) -> Chromium:
    """The browser of this process for these hosts: the running one, or a new one if there is none or it died."""
    key = (executable, tuple(sorted(hosts.items())))
    with _lock:
        browser = _running.get(key)
        if browser is None or not browser.alive:
            if browser is not None:
                browser.close()
            _running[key] = browser = Chromium(executable, hosts)
        return browser


@atexit.register
def _close_all() -> None:
    for chromium in _running.values():
        chromium.close()
