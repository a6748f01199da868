"""The pictures of the documentation, and MLflow's page in them, in the real browser on a real ablation."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison import Computed
from playwright.sync_api import expect, sync_playwright
from project_copy import copy_home

from docs.pictures import PICTURES, shown_view
from envs.browser.chromium import find_chromium

pytestmark = [pytest.mark.chain, pytest.mark.needs("chromium")]


def test_mlflow_opens_on_curves_of_the_validation_tasks_and_results_by_variant(
    tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_home(tiny_ablation.home, tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(None), args=["--no-sandbox"])
        with shown_view(browser) as page:
            for chart in ("validation/sampled/success", "validation/greedy/success", "test/sampled/success"):
                expect(page.get_by_text(chart, exact=True)).to_be_visible()
            assert page.get_by_text("alarm/").count() == 0
            for variant in ("grpo-or", "mt-grpo"):
                expect(page.get_by_text(f"Group: {variant}")).to_be_visible()
            assert page.locator(".js-plotly-plot .trace").count() >= 2
        browser.close()


def test_each_picture_is_one_of_the_documentation() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert all((docs / f"{name}.png").is_file() for name in PICTURES)
