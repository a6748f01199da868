"""`turnwise worlds` and `turnwise play`, on real worlds."""

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envs.frozen_lake.lake import LakeEnvironment
from flows.commands.cli import app
from flows.commands.worlds import WIDTH, named_world, show_worlds
from lab.baselines import record_baselines
from turnwise.agent.play_by_hand import IN_LINES, play
from turnwise.checking.baselines import recorded_baselines
from turnwise.errors import ConfigurationError
from turnwise.world import Remaining, ScriptedAction, installed_worlds

LAKE = ("frozen_lake", "ragen-v2-no-slip", [])


def played(typed: str, world: tuple[str, str, list[str]] = LAKE, form: str = "plain", number: int = 0) -> str:
    made, _ = named_world(*world)
    output = io.StringIO()
    play(made, "train", number, form, 0, io.StringIO(typed), output)
    return output.getvalue()


# worlds


def test_every_installed_world_is_listed_within_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_worlds(Path("nowhere"))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= WIDTH
    first_words = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]
    assert [word for word in first_words if word in installed_worlds()] == list(installed_worlds())
    told = " ".join(text.split())
    assert "Left, Down, Right or Up." in told
    assert "ragen-v1" in told
    assert "it needs the parameters server, address" in told
    assert "questions must be the" in told


def test_the_list_tells_recorded_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_baselines(["bandit"], tmp_path, 50)
    capsys.readouterr()
    show_worlds(tmp_path)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("bandit"))
    random = recorded_baselines(tmp_path)[0].score.success.value
    assert f"random {random:.2f}" in row and "no end" in row and "1 turn" in row


# play


def test_a_person_sees_what_the_policy_sees_and_plays_to_the_end() -> None:
    # On the first training board the goal is one up and one right of where you stand.
    text = played("Up\nRight\n")
    made, _ = named_world(*LAKE)
    assert f"{made.instruction}\n{made.grammar}\n" in text
    assert "_ _ O _\n_ _ _ _\n_ G _ _\nP _ _ _\n\n> _ _ O _\n_ _ _ _\nP G _ _\n_ _ _ _\n\n> " in text
    assert text.endswith("The episode is over: success, 2 turns; rewards: goal 1.\n")


def test_the_oracle_can_be_asked_and_changes_nothing() -> None:
    asked = played(":oracle\n:oracle\nUp\nRight\n")
    (first, second, *_) = (line for line in asked.splitlines() if line.startswith("> ") and "||" in line)
    assert first == second
    assert asked.replace(f"{first.removeprefix('> ')}\n\n> ", "", 2) == played("Up\nRight\n")


@pytest.mark.parametrize(
    ("world", "form"),
    [
        *((LAKE, form) for form in ("plain", "think-answer", "react", "line", "tool-json", "native-tools")),
        *((("search", "", []), form) for form in ("plain", "search", "tool-json")),
    ],
)
def test_following_the_oracle_solves_the_task_in_every_form(world: tuple[str, str, list[str]], form: str) -> None:
    typed = ""
    for _ in range(6):
        told = played(typed + ":oracle\n", world, form)
        if "The episode is over" in told:
            break
        # What the oracle would reply stands between the last two prompts.
        typed += told.split("\n> ")[-2] + ("\n" if form in IN_LINES else "")
    assert "The episode is over: success" in told, told


def test_a_reply_of_several_lines_ends_with_an_empty_one_or_the_input() -> None:
    replies = ["Thought: the goal is above\nAction: Up\n", "Thought: now beside\nAction: Right\n"]
    whole = played("\n".join(replies), form="react")
    assert "An empty line ends a reply." in whole
    assert "Observation: _ _ O _\n_ _ _ _\nP G _ _" in whole
    assert whole.endswith("The episode is over: success, 2 turns; rewards: goal 1.\n")
    assert played("\n".join([*replies[:1], ":quit\n"]), form="react").endswith("You left the episode.\n")


def test_an_unreadable_reply_is_answered_as_the_policy_is() -> None:
    text = played("Left\nnonsense || \n", form="think-answer")
    assert text.count("Reply with <think>a thought</think><answer>an action</answer>") == 3
    assert "Not an action. Legal: Left, Down, Right or Up." in played("jump\n")
    assert "At most 2 actions a turn; the reply has 3." in played("Up || Up || Up\n")


def test_a_person_is_shown_the_functions_that_a_chat_template_would_show() -> None:
    text = played(":quit\n", ("search", "", []), "native-tools")
    assert '"name": "answer"' in text and '{"name": "answer", "arguments": {"text": " up"}}' in text


@pytest.mark.parametrize("typed", ["", ":quit\n", " :quit \n", "Left\n:quit\nRight\n"])
def test_a_person_can_leave(typed: str) -> None:
    text = played(typed)
    assert text.endswith("You left the episode.\n")


def test_a_world_without_an_oracle_says_so() -> None:
    text = played(":oracle\nStick\n", ("gymnasium", "blackjack", []))
    assert "The world 'gymnasium' has no oracle." in text
    assert "The episode is over: " in text


def test_an_oracle_that_raises_ends_the_episode_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(environment: LakeEnvironment, remaining: Remaining) -> ScriptedAction:
        raise RuntimeError("no path to the goal")

    monkeypatch.setattr(LakeEnvironment, "oracle", no_answer)
    text = played("Up\n:oracle\nRight\n")
    last = text.splitlines()[-1]
    assert last.startswith("The episode was lost: the world 'frozen_lake' lost task 'frozen_lake/")
    assert last.endswith("after 1 attempts; the last error was RuntimeError: no path to the goal")


def test_parameters_are_laid_over_the_preset() -> None:
    made, parameters = named_world("frozen_lake", "ragen-v2", ["turns=2", "size=5"])
    assert (parameters["turns"], parameters["size"], parameters["frozen"]) == (2, 5, 0.9)
    assert made.limits.turns == 2


@pytest.mark.parametrize(
    ("world", "split", "number", "form", "message"),
    [
        (LAKE, "training", 0, "plain", "--split must be one of train, validation, test"),
        (LAKE, "train", -1, "plain", "--task a number from 0; found 'train' and -1"),
        (
            LAKE,
            "train",
            0,
            "tags",
            "--format must be one of line, native-tools, react, search, think-answer, tool-json, plain; found 'tags'",
        ),
        (LAKE, "train", 0, "search", "agent.format 'search' writes the actions search[...] and answer[...]"),
        (("webshop", "", []), "test", 100_000, "plain", "--task 100000: count must be at most"),
        (("frozen_lake", "ragen", []), "train", 0, "plain", "has no preset 'ragen'"),
        (("frozen_lake", "", ["sise=5"]), "train", 0, "plain", "did you mean 'size'"),
        (("frozen_lake", "", ["size"]), "train", 0, "plain", "a setting must be KEY=VALUE"),
        (("no_such_module:World", "", []), "train", 0, "plain", "No module named 'no_such_module'"),
    ],
)
def test_a_mistake_is_refused(
    world: tuple[str, str, list[str]], split: str, number: int, form: str, message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        play(named_world(*world)[0], split, number, form, 0, io.StringIO(""), io.StringIO())
    assert message in str(caught.value)


def test_a_check_writes_the_certificate_of_a_world(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "bandit", "--certificate", str(tmp_path / "made")])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"wrote {tmp_path / 'made' / 'certificate.html'}"
    assert "Certificate of the world bandit" in (tmp_path / "made" / "certificate.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check", "grpo", "--certificate", "x"], "--certificate belongs to worlds; 'grpo' is a rule"),
        (["check", "bandit", "--tokenizer", "x"], "give --certificate FOLDER, too"),
    ],
)
def test_what_belongs_to_a_certificate_is_refused_elsewhere(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigurationError) and reason in str(result.exception)
