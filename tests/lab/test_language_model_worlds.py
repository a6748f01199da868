"""What the page on the real language model says of its worlds is what the recorded results say."""

from __future__ import annotations

from lab.language_model_worlds import figure, gains, table_rows
from turnwise.project import project_root


def test_the_page_opens_with_the_recorded_gains() -> None:
    page = (project_root() / "docs/science/smollm2.md").read_text(encoding="utf-8")
    rows = table_rows(gains(project_root() / "results"))
    assert len(rows) >= 6 and all(row in page for row in rows)


def test_the_figure_shows_both_policies_of_each_world() -> None:
    found = gains(project_root() / "results")
    drawn = figure(found)
    assert [row[0] for row in drawn.data[::2]] == [world.split("`")[1] for world in found]
    assert {row[1] for row in drawn.data} == {"warm start", "trained"} and drawn.png().startswith(b"\x89PNG")
