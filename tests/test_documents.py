"""What the documents name exists, and the site's navigation has every page."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from flows.commands.cli import app
from turnwise.credit import ESTIMATORS
from turnwise.policy.learner.losses import LOSSES

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *PAGES]
GENERATED = {"coming-from.md", "reference/commands.md", "reference/parameters.md"}
"""Pages to look something up that a command or the site writes whole."""
BUILDER = shutil.which("mkdocs", path=f"{ROOT / '.venv-docs' / 'bin'}:{os.environ['PATH']}")


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@cache
def prose(document: Path) -> str:
    """A document without its blocks and spans of code, in which brackets are no links and # begins no heading."""
    blocks = re.sub(r"^( *)(`{3,}).*?^\1\2", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = (line for line in blocks.splitlines() if not line.startswith("    ") or line.lstrip().startswith("|"))
    return "\n".join(lines)


@cache
def anchors(document: Path) -> frozenset[str]:
    """The anchors of a document's headings, by GitHub's rule, which mkdocs.yml sets for the site too."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose(document), flags=re.MULTILINE):
        text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(document: Path) -> None:
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(document))):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def test_a_link_to_a_missing_heading_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What `a b` is, and (how)\n\n```\n# no heading\n```\n\n## Twice\n\n## Twice\n")
    assert anchors(page) == {"what-a-b-is-and-how", "twice", "twice-1"}


def commands_of(document: Path) -> list[str]:
    """What a document has its reader type: the lines of its blocks of code, and each span of code in one line."""
    text = document.read_text()
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    lines = [*"\n".join(blocks).splitlines(), *indented, *(" ".join(span.split()) for span in spans)]
    return [re.sub(r"\s+#.*$", "", line.strip().removeprefix(".venv/bin/")) for line in lines]


def exists(line: str) -> bool:
    """Whether a line names a command of `turnwise` with options of it, a target of make, a benchmark, or none."""
    program, *words = line.split() or [""]
    if program == "make" and words:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return words[0] in targets or "=" in words[0]
    if line.startswith("python -m benchmarks."):
        return (ROOT / f"{words[1].replace('.', '/')}.py").exists()
    if program == "turnwise" and words and re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):
        command = typer.main.get_command(app).commands.get(words[0])  # type: ignore[attr-defined]
        known = (
            {option for each in command.params for option in (*each.opts, *each.secondary_opts)} if command else set()
        )
        named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        return command is not None and named <= known | {"--help"}
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_command_that_a_document_names_exists_with_its_options(document: Path) -> None:
    assert [line for line in commands_of(document) if not exists(line)] == []


def test_a_command_or_an_option_that_there_is_not_would_be_noticed() -> None:
    assert exists("turnwise ablation x.yaml --dry-run") and exists("make demo WORLD=sokoban") and exists("dvc repro")
    lines = ("turnwise ablate x.yaml", "turnwise ablation --dryrun", "make everything", "python -m benchmarks.nothing")
    assert not any(map(exists, lines))


class Navigation(yaml.SafeLoader):
    """Reads mkdocs.yml without making the objects that it names."""


Navigation.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def leaves(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(each)


def test_the_sites_navigation_has_every_page_once() -> None:
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text(), Navigation)  # a SafeLoader: no object is made
    assert sorted(leaves(configuration["nav"])) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


def test_the_documentation_is_short_enough_to_be_read() -> None:
    """Reports of measurements (the navigation's part Science) and pages that a command or the site writes whole are not
    counted; words are what stands between white space, commands and tables included."""
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text(), Navigation)  # a SafeLoader: no object is made
    parts = {name: list(leaves(pages)) for part in configuration["nav"] for name, pages in part.items()}
    assert list(parts) == ["Begin", "Do", "Look up", "Understand", "Science"]
    written = {page for name, pages in parts.items() if name != "Science" for page in pages}
    assert len(written) <= 24
    words = {page: len((ROOT / "docs" / page).read_text().split()) for page in written - GENERATED}
    assert sum(words.values()) <= 25_000, dict(sorted(words.items(), key=lambda each: -each[1]))
    assert len((ROOT / "README.md").read_text().split()) <= 1_200


def test_the_glossary_has_one_line_for_each_word() -> None:
    entries = re.split(r"^### .+$", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) > 60
    assert [entry for entry in entries if len(entry.partition("\n## ")[0].split("\n\n")[1].splitlines()) != 1] == []


def test_the_reference_is_made_from_modules_that_there_are() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    named = re.findall(r"^::: ([\w.]+)$", pages, flags=re.MULTILINE)
    paths = [ROOT / name.replace(".", "/") for name in named]
    assert len(paths) > 20
    assert [
        path for path in paths if not path.with_suffix(".py").exists() and not (path / "__init__.py").exists()
    ] == []


@pytest.mark.skipif(BUILDER is None, reason="mkdocs is not installed: `make docs` installs it")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    assert BUILDER is not None
    built = subprocess.run(
        [BUILDER, "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    commands, python, beside, worlds = (
        (tmp_path / page).read_text()
        for page in ("reference/commands.html", "python.html", "beside-others.html", "worlds.html")
    )
    assert 'id="turnwise-ablation"' in commands and "--dry-run" in commands
    assert 'id="turnwise.credit.group_relative.grpo"' in python
    assert '<abbr title="Group relative policy optimization' in beside
    assert 'href="source/envs/search/documents.py.html"' in worlds


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_module_that_a_document_names_exists(document: Path) -> None:
    named = re.findall(r"`((?:turnwise|flows|tasks|envs|lab|tests|benchmarks)/[\w/]+\.py)`", document.read_text())
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_index_of_papers_names_files_that_there_are() -> None:
    names = re.findall(r"`([\w./]+\.py|[\w./]+/)`", (ROOT / "docs" / "credit.md").read_text())
    assert len(names) > 40
    # Next to a whole path the table names files of the same folder by their names alone.
    known = {
        path.name
        for top in ("turnwise", "tests", "envs", "tasks", "flows", "lab")
        for path in (ROOT / top).rglob("*.py")
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


def test_the_readme_counts_the_rules_and_the_losses_and_those_that_are_compared_with_others_code() -> None:
    compared = "".join(path.read_text() for path in (ROOT / "tests" / "parity").glob("test_*.py"))
    rules, losses = ([name for name in known if f'"{name}"' in compared] for known in (ESTIMATORS, LOSSES))
    told = f"Tests hold {len(rules)} of the {len(ESTIMATORS)} rules and {len(losses)} of the {len(LOSSES)} losses"
    assert told in (ROOT / "README.md").read_text()


def test_the_metrics_that_dvc_is_shown_to_print_are_those_of_the_default_experiment() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text()
    printed = re.findall(r"^(results/credit/metrics/\S+\.json) +([\d.]+) +([\d.]+)$", page, re.MULTILINE)
    assert len(printed) == 2
    for path, sampled, greedy in printed:
        metrics = json.loads((ROOT / path).read_text())
        assert (float(sampled), float(greedy)) == pytest.approx((metrics["exact match"], metrics["greedy"]))


def test_the_finding_in_the_readme_is_that_of_the_default_experiment() -> None:
    finding = r"^> (\S+) beats (\S+) by ([\d.]+) \(([\d.]+) to ([\d.]+)\) in exact match, .* apart from (\S+)$"
    printed = re.search(finding, (ROOT / "README.md").read_text(), re.MULTILINE)
    assert printed is not None
    best, beaten, *bounds, level = printed.groups()
    with (ROOT / "results" / "credit" / "verdicts.csv").open() as file:
        rows = {(row["measure"], row["first"], row["second"]): row for row in csv.DictReader(file)}
    row = rows["exact match", beaten, best]
    assert row["verdict"] == "lower"
    assert bounds == [f"{-float(row[each]):.2f}" for each in ("difference", "high", "low")]
    assert rows["exact match", level, best]["verdict"] == "not distinguishable"
