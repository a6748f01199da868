"""Episodes to look at: which are wanted, how many fit, what a terminal shows of them, how tokens are coloured."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from turnwise.reporting.data.episodes import ShownEpisode, Wanted, by_task, whole_tasks
from turnwise.reporting.html.pages import episodes_page
from turnwise.reporting.terminal.episodes import print_episodes, print_instructions
from turnwise.reporting.token_heat_map import rarity, step


@pytest.fixture(scope="module")
def episodes(report):
    """A solved one with advantages 0.84 and 1.27, a failed one with -0.92 and -0.31, and a scripted baseline's."""
    solved, failed = report.samples
    return [
        ShownEpisode("mt-grpo seed 1", "training", 20, "sampled", solved),
        ShownEpisode("grpo-or seed 2", "training", 10, "sampled", failed),
        ShownEpisode("oracle", "test", None, "sampled", replace(solved, advantages=None)),
    ]


@pytest.mark.parametrize(
    ("wanted", "baselines"),
    [
        (Wanted(), ["mt-grpo seed 1", "grpo-or seed 2", "oracle"]),
        (Wanted(success=False), ["grpo-or seed 2"]),
        (Wanted(ending="turn_limit"), ["grpo-or seed 2"]),
        (Wanted(world="sokoban"), []),
        (Wanted(task="search/2-hop/0017"), ["mt-grpo seed 1", "oracle"]),
        (Wanted(occasion="test"), ["oracle"]),
        (Wanted(mode="greedy"), []),
        (Wanted(iterations=(11, 20)), ["mt-grpo seed 1", "oracle"]),
        (Wanted(advantage=(1.0, 2.0)), ["mt-grpo seed 1"]),
        (Wanted(advantage=(-0.5, 0.0)), ["grpo-or seed 2"]),
        (Wanted(advantage=(-0.5, 0.0), success=True), []),
    ],
)
def test_every_part_of_what_is_wanted_must_agree(episodes, wanted, baselines):
    assert [episode.policy for episode in episodes if wanted.includes(episode)] == baselines


def test_tasks_are_shown_whole_and_as_many_as_fit(report):
    first = report.samples[0]

    def of_task(place, count):
        task = replace(first.trajectory.task, id=f"task {place}")
        sample = replace(first, trajectory=replace(first.trajectory, task=task))
        return [ShownEpisode("run", "test", number, "sampled", sample) for number in range(count)]

    @given(counts=st.lists(st.integers(1, 6), max_size=8), limit=st.integers(1, 20))
    def holds(counts, limit):
        episodes = [episode for place, count in enumerate(counts) for episode in of_task(place, count)]
        chosen = whole_tasks(episodes, limit)
        assert chosen == episodes[: len(chosen)]
        sizes = [len(together) for together in by_task(chosen).values()]
        if counts and counts[0] > limit:
            assert sizes == [limit]
        else:
            assert sizes == [count for place, count in enumerate(counts) if sum(counts[: place + 1]) <= limit]

    holds()


def test_an_advantages_colour_is_its_share_of_the_largest_and_never_nothing():
    assert [step(value, 2.0) for value in (2.0, 1.0, 0.01, 0.0, -0.01, -1.0, -2.0)] == [8, 4, 1, 0, -1, -4, -8]
    assert step(1.0, 0.0) == 0
    # p = 0.51, 0.49, 0.09, 0.009
    assert [rarity(value) for value in (-0.67, -0.71, -2.41, -4.71)] == [0, 1, 2, 3]


def printed(episodes, width, in_columns=False):
    buffer = io.StringIO()
    print_episodes(episodes, Console(file=buffer, width=width, force_terminal=False), in_columns)
    return buffer.getvalue()


def test_an_instruction_is_shown_whole_and_as_text(episodes):
    buffer = io.StringIO()
    text = "<|im_start|>system\nPush.\x1b[2J\n" + "a rule\n" * 30
    print_instructions({text: "one, two"}, Console(file=buffer, width=60, force_terminal=False))
    assert buffer.getvalue().startswith("before the first observation · one, two")
    assert buffer.getvalue().count("a rule") == 30 and "\x1b" not in buffer.getvalue()
    page = episodes_page("", "", episodes, {"<|im_start|>system\nPush.": "one"})
    assert "what one is shown before the first observation" in page
    assert "<pre>&lt;|im_start|&gt;system\nPush.</pre>" in page


def test_the_terminal_shows_every_turn_and_no_control_character(episodes):
    text = printed(episodes, 100)
    for shown in (
        "mt-grpo seed 1 · training batch 20",
        "turn 2 · advantage +1.27 · log p −1.25 over 5 tokens",
        "The second passage names it.",
        "search[Setúbal country currency]",
        "exact_match 1 × 1 (outcome)",
        "cut off by the limit on turns",
        "<script>alert('world')</script> & <b>bold</b> \\x1b[31m",
        "oracle · test task set, sampled",
    ):
        assert shown in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_heat_line_of_the_terminal_is_blue_for_gain_orange_for_loss_and_underlines_what_was_unlikely(episodes):
    solved = episodes[0].sample
    turn = replace(solved.trajectory.turns[0], reply_tokens=(0, 1, 2), log_probabilities=(-0.1, -5.0, -0.1))
    sample = replace(
        solved,
        trajectory=replace(solved.trajectory, turns=(turn,)),
        advantages=[1.0],
        token_advantages=[[2.0, -1.0, 0.0]],
        spelling=[["gain ", "loss ", "none"]],
    )
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="truecolor")
    print_episodes([replace(episodes[0], sample=sample)], console)
    # The largest advantage has the whole colour; half of it is step 4 of 8, (0.35 + 0.65 / 2) (213, 94, 0).
    line = "\x1b[48;2;0;114;178mgain \x1b[0m\x1b[4;48;2;144;63;0mloss \x1b[0mnone"
    assert line in console.file.getvalue()


def test_two_policies_stand_beside_each_other_on_the_same_task(episodes):
    lines = printed([episodes[0], episodes[2]], 120, in_columns=True).splitlines()
    (heading,) = [line for line in lines if "mt-grpo seed 1" in line]
    assert "oracle · test task set, sampled" in heading
    assert max(map(len, lines)) <= 120


def test_a_very_long_observation_is_cut_and_says_so(episodes):
    trajectory = replace(episodes[0].sample.trajectory, final_observation="word " * 20_000)
    long = replace(episodes[0], sample=replace(episodes[0].sample, trajectory=trajectory))
    text = printed([long], 100)
    assert "(97,999 more characters)" in " ".join(text.split())
