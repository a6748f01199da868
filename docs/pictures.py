"""The pictures of README and docs that show pages: `make pictures`, after `make demo`.

report.png       the report of results/credit
mlflow-view.png  the view of the newest ablation that `turnwise ui` prints the address of

They are taken of the real pages in Chromium; MLflow's are served on a free port for as long as that takes.

    python docs/pictures.py [--to FOLDER] [NAME ...]     all pictures, or those of these names
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from envs.browser.chromium import find_chromium

DOCS = Path(__file__).parent
ROOT = DOCS.parent
START_SECONDS = 300.0
SETTLE_MILLISECONDS = 4000
"""MLflow draws its charts after their data have come."""


def report(browser: Browser) -> bytes:
    """The report's first screens."""
    page = browser.new_page(viewport={"width": 1280, "height": 1330})
    page.goto((ROOT / "results" / "credit" / "report.html").as_uri())
    return page.screenshot()


def mlflow_view(browser: Browser) -> bytes:
    """Curves and results of the newest ablation by variant, in MLflow."""
    with shown_view(browser) as page:
        return page.screenshot()


@contextlib.contextmanager
def shown_view(browser: Browser) -> Iterator[Page]:
    """The page that `turnwise ui` prints the address of, its charts drawn."""
    with _served() as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1080})
        page.goto(address)
        page.get_by_text("On the validation tasks").wait_for(timeout=START_SECONDS * 1000)
        _close_hints(page)
        page.locator(".js-plotly-plot .trace").first.wait_for(timeout=START_SECONDS * 1000)
        page.wait_for_timeout(SETTLE_MILLISECONDS)
        yield page


def _close_hints(page: Page) -> None:
    """Close what MLflow lays over its pages when they are opened for the first time."""
    for label in ("Close", "Dismiss"):
        for button in page.get_by_role("button", name=label, exact=True).all():
            if button.is_visible():
                button.click()


@contextlib.contextmanager
def _served() -> Iterator[str]:
    """The address of the newest ablation's view, on a server that ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "flows.commands.cli", "ui", "--port", str(port)]
    served = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield _address(served, port)
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait()


def _address(served: subprocess.Popen[str], port: int) -> str:
    """What `turnwise ui` prints, once the server answers."""
    assert served.stdout is not None, "the output is piped"
    said = []
    for line in served.stdout:
        said.append(line)
        if found := re.search(r"http://\S*viewStateShareKey\S*", line):
            break
    else:
        raise SystemExit(
            f"turnwise ui must print the address of a view: run make demo first. It said:\n{''.join(said)}"
        )
    began = time.monotonic()
    while time.monotonic() - began < START_SECONDS:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return found[0]
        time.sleep(0.2)
    raise SystemExit("MLflow must answer; it does not")


PICTURES: Mapping[str, Callable[[Browser], bytes]] = {
    "report": report,
    "mlflow-view": mlflow_view,
}


def main() -> None:
    """Take the pictures that the command line names."""
    parser = argparse.ArgumentParser(description="Take the pictures of README and docs that show pages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}; all if none is named")
    parser.add_argument("--to", type=Path, default=DOCS, metavar="FOLDER", help="where they go; docs by default")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(PICTURES):
        parser.error(f"a picture must be one of {', '.join(PICTURES)}; found {', '.join(sorted(unknown))}")
    chosen.to.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        for name in chosen.names or PICTURES:
            (chosen.to / f"{name}.png").write_bytes(PICTURES[name](browser))
        browser.close()


if __name__ == "__main__":
    main()
