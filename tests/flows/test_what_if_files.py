"""`turnwise what-if FILE`: credit rules side by side on rollouts that another system has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_runs import record, tiny, tracking_uri

import turnwise as tw
from flows.commands import cli
from turnwise.errors import ConfigurationError
from turnwise.records.what_if import other_experiment
from turnwise.tracking.finding import find_runs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One group of three: two episodes of two turns, and one of one."""
    rows = []
    for earned, solved, turns in ((0.1, 1.0, 2), (0.0, 0.0, 2), (0.0, 1.0, 1)):
        messages = [{"role": "user", "content": "2 + 2?"}]
        for turn in range(turns):
            messages += [
                {"role": "assistant", "content": f"reply {turn}", "rewards": {"tool": earned if turn == 0 else 0.0}},
                {"role": "user", "content": f"answer {turn}"},
            ]
        rows.append({"messages": messages, "rewards": {"exact": solved}, "group": 1})
    path = tmp_path / "rollouts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_advantages_are_those_of_the_rules_by_hand(file: Path) -> None:
    found = tw.credit_rollouts(file, ["rloo", "gpg"], weights={"tool": 0.0})
    frame = found.turns()
    # Outcomes 1, 0, 1: RLOO compares each with the mean of the others, and GPG with the mean of all: 2/3 of that.
    assert frame["rloo"].tolist() == pytest.approx([0.5, 0.5, -1.0, -1.0, 0.5])
    assert found.report.rules[1].correlation == pytest.approx(1.0)
    assert found.report.steps == {} and "no policy here, and so no gradient" in found.report.notes[0]


def test_the_command_prints_tables_says_what_is_left_out_and_writes_the_page(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rules = ["grpo", "mt-grpo rule=return-to-go", "gigpo", "gae", "rloo", "gpg"]
    arguments = [part for rule in rules for part in ("--rule", rule)]
    cli.run(["what-if", str(file), *arguments, "--weight", "tool=2", "--to", str(tmp_path / "page")])
    printed = capsys.readouterr().out
    tables = printed.partition(str(tmp_path))[0]
    assert max(map(len, tables.splitlines())) <= 80
    assert "gae is left out: it needs a critic's values" in printed and "Lengths are counted in words" in printed
    data = json.loads((tmp_path / "page" / "what_if.json").read_text())
    assert [each["name"] for each in data["rules"]] == [rule for rule in rules if rule != "gae"]
    page = (tmp_path / "page" / "what_if.html").read_text()
    assert "unsolved" not in page, "no file says how an episode ended"
    assert "3 episodes in 1 group of" in page and "tool (turn, weight 2)" in page
    assert page.count("<article") == 3 and "reply 0" in page
    assert page.count(">2 words<") == 5 and "tokens<" not in page, "one for each turn"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "grpoo"], r"--rule.*TW-unknown-name"),
        (["--rule", "gae"], r"critic's.*TW-no-applicable-rule"),
        (["--weight", "speed=1"], r"--weight.*TW-unknown-reward"),
        (["--weight", "tool=fast"], r"--weight.*TW-option-format"),
        (["--iteration", "3"], r"--iteration.*TW-unread-option"),
        (["--tokenizer", "nowhere"], r"--tokenizer.*tokenizer\.json.*TW-missing-tokenizer"),
        (["--format", "verl"], r"rollouts\.jsonl.*\b1\b.*TW-rollout-field"),
    ],
)
def test_what_cannot_be_is_refused(file: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cli.run(["what-if", str(file), *arguments])


@pytest.mark.parametrize("setting", ["optimization.adapter.rank=4", "critic={trunk: policy, learning_rate: 0.1}"])
def test_a_part_of_what_says_which_policy_there_is_is_refused(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    record("adapted", {"plays": 0.5}, (1,), tiny("data.test_tasks=4", "optimization.adapter={rank: 2, alpha: 4}"))
    [run] = find_runs(tracking_uri(), "adapted")
    with pytest.raises(ConfigurationError, match=r"found (optimization\.adapter\.rank|critic).*TW-what-if-resamples"):
        other_experiment(run, 1, [setting])
