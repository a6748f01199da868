import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from turnwise.reporting.data.suites import SuiteReport
from turnwise.reporting.figures.learning_curves import curves_that_matter, other_curves_by_topic
from turnwise.reporting.finding import finding
from turnwise.reporting.html.page import GLOSSARY, page
from turnwise.reporting.html.pages import write_suite
from turnwise.reporting.html.report_files import write_report
from turnwise.results.outcomes import VariantWork
from turnwise.results.report_data import AlarmRaised, Endings, ReportData, Row

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Reader(HTMLParser):
    """Reads a page as a browser would: its tags, attributes and text, and whether elements nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open, self.headings = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)
        if self.open[-1:] in (["h2"], ["h3"]):
            self.headings.append(data)


@pytest.fixture(scope="module")
def text(report):
    return page(report)


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


@pytest.fixture(scope="module")
def undecided(report):
    """The page of a report without a judgement."""
    return page(small(report))


@pytest.fixture(scope="module")
def texts_of_one_seed(report_of_one_seed):
    return Reader(page(report_of_one_seed)).texts


def test_the_page_opens_with_what_was_found(report, text, undecided):
    (first,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert first == finding(report.judgement, report.greedy).replace("'", "&#39;")
    assert f"<h1>{report.title}</h1>" in undecided


def test_what_policies_and_worlds_wrote_is_shown_and_never_run(report, read):
    assert not {"img", "i>", "iframe", "object", "b>"} & set(read.tags)
    assert read.tags.count("script") == 1, "the page's own"
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    shown = "".join(read.texts)
    for written in (
        "<script>alert('world')</script> & <b>bold</b> \\x1b[31m",
        "<img src=x onerror=alert(1)> no tags that close",
        "answer[</pre><script>]",
        "</style><script>",
        "&amp;",
        "search/1-hop/<i>",
        "<script>last()</script>",
    ):
        assert written in shown


def test_every_text_of_the_report_is_escaped(report):
    hostile = '"><script>alert(1)</script>'
    sample = replace(report.samples[0], label=hostile)
    named = ReportData(
        title=hostile,
        description=hostile,
        columns=[replace(report.columns[0], heading=hostile, unit=hostile, description=hostile)],
        rows=[
            Row(hostile, kind, {"exact_match": row.cells["exact_match"]}, note=hostile)
            for kind, row in zip(("variant", "warm start", "baseline"), report.rows[2:5], strict=True)
        ],
        curves=[replace(report.curves[0], heading=hostile, variant=hostile, metric=hostile, unit="")],
        samples=[sample],
        lineage=[(hostile, hostile)],
        notes=[hostile],
        endings=[Endings(hostile, {hostile: [(1, 1.0)]})],
        alarms=[AlarmRaised(hostile, 1, 1, hostile, hostile)],
        work=[VariantWork(hostile, 1, 1, 1, 1, 1, 1, 1)],
    )
    read = Reader(page(named))
    assert read.tags.count("script") == 1, "the page's own"
    # title twice, description, heading, unit inside it, ...: at least once for each place that it was put in
    assert "".join(read.texts).count(hostile) >= 21


def test_the_page_loads_nothing_from_anywhere(text, read):
    assert not {"link", "iframe", "object", "embed", "base", "audio", "video"} & set(read.tags)
    loading = [
        (tag, name, value) for tag, name, value in read.attributes if name in ("src", "href", "xlink:href", "data")
    ]
    assert loading and all(value.startswith("#") for _, _, value in loading)
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?(.)", text))
    policy = next(value for _, name, value in read.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'")


def test_identifiers_are_unique(read):
    identifiers = [value for _, name, value in read.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers)) > 0


def test_the_page_shows_all_of_the_report_data(report, read):
    shown = "".join(read.texts)
    for name, value in report.lineage:
        assert name in shown and value in shown
    for row in report.rows:
        assert row.name in shown
    for note in report.notes:
        assert note in shown
    assert "7 min 02 s in all" in shown
    assert "range, not a confidence interval" in shown
    assert "+1.27" in shown and "−0.92" in shown
    assert "mean over 2 seeds, 95 % interval over seeds" in shown
    assert read.tags.count("figure") == len(report.columns) + 6 + len(report.endings) + len(["profiles", "time"]) + 2
    for heading in (
        "Verdicts",
        "Pairs of variants",
        "Performance profiles",
        "Learning curves",
        "All other curves",
        "Updates",
        "How episodes ended",
        "Alarms",
        "Time and tokens",
    ):
        assert heading in read.headings
    assert "entropy_of_start 0.08, bound 0.1" in shown and "302,118" in shown and "39 s" in shown


def test_the_verdicts_are_those_of_the_judgement(report, read):
    shown = "".join(read.texts)
    for comparison in report.judgement.pairs:
        assert f"{comparison.first} − {comparison.second}" in shown
    said = [each.verdict for each in report.judgement.comparisons]
    assert set(said) == {"lower", "higher", "not distinguishable"}
    assert all(read.texts.count(each) >= said.count(each) for each in said)
    assert "corrected together by Holm's method" in shown
    # The oracle is 1 and the random baseline policy 0: normalised is as it is.
    assert all(standing.normalised == standing.mean for standing in report.judgement.standings)
    assert "2 of 2" in shown and "iterations to 0.8" in shown and "24" in read.texts


def test_with_one_seed_nothing_is_decided(texts_of_one_seed):
    assert "one seed: not decided" in "".join(texts_of_one_seed)
    assert not {"lower", "higher", "not distinguishable"} & set(texts_of_one_seed)


def test_one_seed_is_said_and_nothing_is_invented_for_it(texts_of_one_seed):
    shown = "".join(texts_of_one_seed)
    assert "grpo-or, grpo-mr, mt-grpo: one seed: no interval." in shown
    assert "One seed: no interval, and none is drawn." in shown
    assert "Band:" not in shown


def test_a_report_of_a_table_alone_is_a_page_without_empty_sections(report):
    bare = ReportData("t", "d", report.columns[:1], [replace(report.rows[0], cells={})])
    assert Reader(page(bare)).headings == ["Comparison", "Words", "Notes"]


def small(report):
    curves = [curve for curve in report.curves if curve.metric == "reward"]
    rows = [replace(row, cells={"exact_match": row.cells["exact_match"]}) for row in report.rows]
    nothing = {"judgement": None, "costs": None}
    return replace(report, columns=report.columns[:1], rows=rows, curves=curves, endings=report.endings[:1], **nothing)


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    """The folder of a small report, in place of another run's curves."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "curves.csv").write_text("of another run")
    write_report(small(report), folder)
    return folder


def test_another_process_draws_the_same_bytes_from_the_reports_file(written, tmp_path):
    command = (
        "import pathlib, sys\n"
        "from turnwise.reporting.html.report_files import write_report\n"
        "from turnwise.results.report_data import ReportData\n"
        "write_report(ReportData.from_json(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))"
    )
    arguments = [str(written / "report.json"), str(tmp_path)]
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, env={**os.environ, "PYTHONHASHSEED": other})
    assert files(tmp_path) == files(written)


def test_the_folder_holds_each_figure_as_picture_and_data_and_nothing_of_a_former_report(report, tmp_path):
    write_report(replace(small(report), columns=report.columns[:2]), tmp_path)
    (tmp_path / "verdicts.csv").write_text("of another report")
    (tmp_path / "mine.csv").write_text("kept")
    (tmp_path / "metrics" / "former.json").write_text("of another report")
    write_report(small(report), tmp_path)
    figures = ["comparison-01-exact_match", "curve-01-reward", "endings", "time-account"]
    assert sorted(files(tmp_path)) == sorted(
        ["account.csv", "curves.csv", "mine.csv", "report.html", "report.json", "table.csv"]
        + [f"metrics/{re.sub('[^a-z-]+', '-', row.name)}.json" for row in report.rows]
        + [f"figures/{name}.{suffix}" for name in figures for suffix in ("csv", "png")]
    )


def test_a_note_of_what_was_drawn_that_a_power_failure_has_cut_has_the_report_drawn_again(report, written, tmp_path):
    drawn = tmp_path / "drawn.json"
    drawn.write_text("")
    write_report(small(report), written, record_path=drawn)
    assert set(json.loads(drawn.read_text())["files"]) == {
        name for name in files(written) if name.startswith("figures/") or name == "report.html"
    }


def test_the_curves_as_csv_are_those_of_the_report_data(report, written):
    with (written / "curves.csv").open(newline="") as file:
        rows = [
            (row["variant"], int(row["seed"]), int(row["iteration"]), float(row["value"]))
            for row in csv.DictReader(file)
        ]
    points = [(curve.variant, curve.seed, *point) for curve in small(report).curves for point in curve.points]
    assert points and rows == points


def test_the_table_as_csv_has_one_line_per_cell_with_its_interval(report, written):
    with (written / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cell = report.rows[0].cells["exact_match"]
    assert len(rows) == len(report.rows)
    assert rows[0]["row"] == "grpo-or"
    assert (float(rows[0]["value"]), float(rows[0]["low"])) == (cell.value, cell.low)
    assert (rows[0]["over"], rows[0]["count"], rows[0]["method"]) == ("seeds", "2", "Student's t")


def test_the_page_opens_with_the_figure_of_what_was_found(report, text, undecided):
    opening = text[: text.index("<h2>Learning curves</h2>")]
    (figure,) = re.findall(r"<figure>.*?</figure>", opening, flags=re.DOTALL)
    assert report.judgement.measure in figure
    assert "<figure>" not in undecided.partition("<h2>Learning curves</h2>")[0]


def test_what_matters_stands_open_and_the_rest_is_folded(report, text):
    opened = re.sub(r"<details(?! class=\"part\" open)[^>]*>.*?</details>", "", text, flags=re.DOTALL)
    assert re.findall(r"<h2>(.*?)</h2>", opened) == [
        "Learning curves",
        "Verdicts",
        "At an equal cost",
        "Comparison",
        "Alarms",
    ]
    assert "<h3>Pairs of variants</h3>" in opened and opened.count("data-values=") == 4
    quiet = page(replace(small(report), alarms=[], costs=replace(report.costs, at_budget=None)))
    assert '<details class="part">\n<summary><h2>At an equal cost</h2>' in quiet, "open only with a budget"
    assert '<details class="part">\n<summary><h2>Alarms</h2>' in quiet, "open only where one was raised"


def test_the_first_curves_are_those_on_the_validation_tasks(report):
    first = report.curves[0]
    curves = [replace(first, metric=name) for name in ("a", "policy/entropy", "b", "c", "validation/sampled")]
    reordered = replace(report, curves=curves)
    assert [figure.name for _, figure in curves_that_matter(reordered)] == [
        "curve-05-validation-sampled",
        "curve-02-policy-entropy",
        "curve-01-a",
        "curve-03-b",
    ]
    assert [figure.name for figures in other_curves_by_topic(reordered).values() for figure in figures] == [
        "curve-04-c"
    ]


def test_the_words_of_a_page_are_explained_on_it_as_in_the_glossary(read):
    entries = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    for word, meaning in GLOSSARY.items():
        (entry,) = re.findall(rf"^### {re.escape(word)}\n\n(.+?)(?=\n\n|\Z)", entries, flags=re.MULTILINE | re.DOTALL)
        assert re.sub(r"[`*]", "", " ".join(entry.split())).startswith(meaning), word
        assert word in read.texts and meaning in read.texts


def test_a_suite_without_a_common_world_leaves_no_figure_of_a_former_one(tmp_path):
    for name in ("suite.png", "suite.csv", "mine.csv"):
        (tmp_path / name).write_text("of another suite")
    write_suite(SuiteReport(["a", "b"], ["lake"], {"a": {}, "b": {}}, None, []), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "suite.html", "suite.json"]
