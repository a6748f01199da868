"""What the documents name exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/science/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_index_of_papers_names_files_that_there_are() -> None:
    names = re.findall(r"`([\w./]+\.py|[\w./]+/)`", (ROOT / "docs" / "papers.md").read_text())
    assert len(names) > 40
    # Next to a whole path the table names files of the same folder by their names alone.
    known = {
        path.name for top in ("turnwise", "tests", "envs", "tasks", "flows") for path in (ROOT / top).rglob("*.py")
    }
    assert [name for name in names if not (ROOT / name).exists() and name not in known] == []


def test_the_package_the_changelog_and_the_citation_tell_one_version_and_one_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == citation["version"] == project["version"]
    assert citation["license"] == project["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
