"""The page of DVC's plots in the real browser: see flows/commands/starters/plots.html."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from envs.browser.chromium import find_chromium

pytestmark = pytest.mark.needs("chromium")

TEMPLATE = Path(__file__).parents[2] / "flows" / "commands" / "starters" / "plots.html"


def plot(name: str, rows: list[dict[str, object]]) -> str:
    """A plot as DVC writes it into the page."""
    encoding = {"x": {"field": "iteration"}, "y": {"field": "success"}} if rows else {}
    spec = {"data": {"values": rows}, "mark": {"type": "line"}, "encoding": encoding}
    return f'<div id="{name}"><script>vegaEmbed("#{name}", {json.dumps(spec)});</script></div>'


def test_a_plot_without_numbers_stands_below_the_others(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"rev": "HEAD", "iteration": at, "success": str(0.1 * at)} for at in range(3)]
    plots = plot("empty", []) + plot("curve", rows)
    page = tmp_path / "index.html"
    page.write_text(TEMPLATE.read_text().replace("{refresh_tag}", "").replace("{plot_divs}", plots))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 420, "height": 800})
        opened.goto(page.as_uri())
        tops = {name: opened.locator(f"#{name}").bounding_box() for name in ("curve", "empty")}
        assert opened.locator("#curve polyline").count() == 1
        assert "No numbers to draw." in opened.locator("#empty").inner_text()
        browser.close()
    assert tops["curve"]["y"] < tops["empty"]["y"]  # type: ignore[index]
