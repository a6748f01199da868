"""The page `docs/coming-from.md`, from the table of other systems' names.

`python -m lab.coming_from > docs/coming-from.md` writes it.
"""

from __future__ import annotations

from turnwise.config.peer_names import PAPERS, SYSTEMS, peer_names
from turnwise.reporting.markdown import render


def page() -> str:
    """The page as Markdown."""
    return render("lab", "coming-from.md.jinja", systems=SYSTEMS, papers=PAPERS, rows=peer_names())


if __name__ == "__main__":
    print(page(), end="")
