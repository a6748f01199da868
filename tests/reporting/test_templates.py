"""Templates escape what policies and worlds wrote, and an unknown name in them is an error."""

import subprocess
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from turnwise.reporting.html.page import page
from turnwise.reporting.html.rendering import render, templates
from turnwise.results.report_data import ReportData
from turnwise.world import Reward

ATTACK = "\"'><script>alert(1)</script>\x1b"


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def test_every_text_of_a_trajectory_is_escaped_and_its_control_characters_are_shown(report):
    sample = report.samples[0]
    turn = replace(
        sample.trajectory.turns[0],
        observation=ATTACK,
        reply=ATTACK,
        thought=ATTACK,
        actions=(ATTACK,),
        invalid=ATTACK,
        reply_tokens=(1,),
        log_probabilities=(-1.0,),
        rewards={ATTACK: 1.0},
    )
    task = replace(sample.trajectory.task, id=ATTACK, tags={ATTACK: ATTACK})
    hostile = replace(
        sample,
        label=ATTACK,
        trajectory=replace(sample.trajectory, task=task, turns=(turn,), final_observation=ATTACK),
        advantages=[1.0],
        rewards={ATTACK: Reward("", "turn", 1.0)},
        spelling=[[ATTACK]],
    )
    bare = ReportData("t", "d", report.columns[:1], [replace(report.rows[0], cells={})])
    plain, read = Tags(page(bare)), Tags(page(replace(bare, samples=[hostile])))
    assert read.tags.count("script") == 1, "the page's own"
    # label, id, tag and its value; observation, reply, thought, action, why it is invalid, token, reward; last words
    assert read.text.count(ATTACK.replace("\x1b", "\\x1b")) - plain.text.count(ATTACK) == 12
    assert "\x1b" not in read.text


def test_a_value_that_a_template_is_not_given_is_an_error(report):
    with pytest.raises(UndefinedError, match="'comparisons' is undefined"):
        render("comparison.html.jinja", report=report)


@pytest.mark.parametrize("text", ["{{ titel }}", "{{ report.titel }}", "{{ report.rows[0].titel }}"])
def test_a_name_that_nothing_has_is_an_error(report, text):
    with pytest.raises(UndefinedError, match="titel"):
        templates().from_string(text).render(report=report)


def test_every_template_is_read():
    names = [name for name in templates().list_templates() if name.endswith(".jinja")]
    assert "base.html.jinja" in names
    for name in names:
        templates().get_template(name)


def test_an_installed_package_has_every_file_that_is_no_code():
    root = Path(__file__).parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packed = {
        path
        for package, globs in patterns.items()
        for each in globs
        for path in (root / package.replace(".", "/")).glob(each)
    }
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "turnwise", "tasks", "flows", "envs"]
    files = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    data = {root / name for name in files if not name.endswith(".py")}
    assert data and data <= packed
