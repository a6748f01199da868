"""Offline pages of one file each: a run's episodes, other credit on a rollout, a suite, a world's certificate.

A page of episodes has filters, and shows episodes of a task side by side. Every episode is written into it once, as
escaped text. The page's own script (`templates/episodes.js`) only hides what the filters exclude and adds no text of
episodes. The page's content security policy allows only this script, by its digest, so no other script runs, whatever
an episode contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from turnwise.checking.certificate import Certificate
from turnwise.reporting.data.episodes import OCCASIONS, ShownEpisode, by_task
from turnwise.reporting.data.suites import SuiteReport, suite_tables
from turnwise.reporting.data.tables import as_csv
from turnwise.reporting.data.what_if import what_if_tables
from turnwise.reporting.figures.comparison import suite_figure
from turnwise.reporting.figures.drawing import styles_of
from turnwise.reporting.formatting import ending
from turnwise.reporting.html.rendering import render, source
from turnwise.reporting.token_heat_map import largest_advantage
from turnwise.results.report_data import Sample
from turnwise.results.what_if import WhatIf
from turnwise.store.atomic_write import write_whole


def write_episodes(
    title: str, episodes: Sequence[ShownEpisode], count: int, path: Path, instructions: Mapping[str, str]
) -> None:
    """Write the page of `episodes`, a sample of `count` episodes, to `path` with an atomic write.

    `instructions`: what policies were shown before the first observation, each text with their names.
    """
    statement = (
        f"{len(episodes):,} of {count:,} episodes. On the validation and the test task set: the first tasks, each with "
        "one greedy and one sampled episode of every policy. In training: of each batch after which the policy was "
        "evaluated, the first group whose advantages differ. `turnwise show` finds the others."
    )
    write_whole(path, episodes_page(title, statement, episodes, instructions))


def episodes_page(title: str, statement: str, episodes: Sequence[ShownEpisode], instructions: Mapping[str, str]) -> str:
    """The page as HTML text. `statement` says what the episodes are a sample of; `instructions` as `write_episodes`."""
    return render(
        "episodes.html.jinja",
        title=title,
        statement=statement,
        instructions=instructions,
        tasks=by_task(episodes),
        choices=_choices(episodes),
        largest_advantage=largest_advantage([episode.sample for episode in episodes]),
        script=source("episodes.js"),
    )


def _choices(episodes: Sequence[ShownEpisode]) -> dict[str, dict[str, str]]:
    """The options of each filter: values of the episodes, each with its text."""

    def themselves(values: Iterable[str]) -> dict[str, str]:
        return {value: value for value in values}

    occasions = {episode.occasion for episode in episodes}
    return {
        "policy": themselves(episode.policy for episode in episodes),
        "occasion": {
            name: f"{name} {'batches' if name == 'training' else 'task set'}" for name in OCCASIONS if name in occasions
        },
        "mode": themselves(episode.mode for episode in episodes),
        "ending": {episode.ending: ending(episode.ending) for episode in episodes},
        "world": themselves(episode.world for episode in episodes),
        "task": themselves(episode.task for episode in episodes),
    }


WHAT_IF_FILES = ("what_if.json", "what_if.html")
Compared = Mapping[str, Sample]
"""One trajectory, by rule: with that rule's advantages."""


def write_what_if(what_if: WhatIf, episodes: Sequence[Compared], count: int, folder: Path, unit: str = "token") -> None:
    """Write `WHAT_IF_FILES` into a folder, which is made where it is missing. `episodes`: a sample of `count`.

    `unit`: what the length of a reply counts.
    """
    texts = (what_if.to_json(), what_if_page(what_if, episodes, count, unit))
    for name, text in zip(WHAT_IF_FILES, texts, strict=True):
        write_whole(folder / name, text)


def what_if_page(what_if: WhatIf, episodes: Sequence[Compared], count: int, unit: str = "token") -> str:
    """The page as HTML text."""
    names = [rule.name for rule in what_if.rules]
    return render(
        "what_if.html.jinja",
        title=what_if.title,
        what_if=what_if,
        tables=what_if_tables(what_if, whole=True),
        tasks=_by_task(episodes),
        displayed=len(episodes),
        count=count,
        unit=unit,
        # Rules differ in scale by orders of magnitude: each has a colour scale of its own.
        scales={name: largest_advantage([each[name] for each in episodes if name in each]) for name in names},
    )


def _by_task(episodes: Sequence[Compared]) -> dict[str, list[Compared]]:
    tasks: dict[str, list[Compared]] = {}
    for episode in episodes:
        sample = next(iter(episode.values()))
        tasks.setdefault(sample.trajectory.task.id, []).append(episode)
    return tasks


CERTIFICATE_FILES = ("certificate.json", "certificate.html")


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """Write `CERTIFICATE_FILES` into a folder, which is made where it is missing."""
    page = render(
        "certificate.html.jinja",
        title=f"Certificate of the world {certificate.world}",
        certificate=certificate,
        baselines=[(score.baseline, "", score) for score in certificate.scores],
        probed=[
            (probe.name, f"{probe.does}{': earns more than random' if probe.pays else ''}", probe.score)
            for probe in certificate.probes
        ],
    )
    for name, text in zip(CERTIFICATE_FILES, (certificate.json(), page), strict=True):
        write_whole(folder / name, text)


PAGE_FILE = "suite.html"


def write_suite(report: SuiteReport, folder: Path) -> None:
    """Write the page, its data, and its figure with the figure's data into a folder, which is made if need be."""
    write_whole(folder / PAGE_FILE, suite_page(report))
    write_whole(folder / "suite.json", report.to_json())
    if report.suite is None:
        for former in ("suite.png", "suite.csv"):
            (folder / former).unlink(missing_ok=True)
    else:
        figure = suite_figure(report.suite)
        write_whole(folder / "suite.png", figure.png())
        write_whole(folder / "suite.csv", as_csv(figure.header, figure.data))


def suite_page(report: SuiteReport) -> str:
    """The page as HTML text."""
    return render(
        "suite.html.jinja",
        title=report.headline,
        report=report,
        tables=suite_tables(report),
        figure=None if report.suite is None else suite_figure(report.suite),
        styles=styles_of(report.rules),
    )
