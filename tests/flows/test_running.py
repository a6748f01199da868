"""What commands print of what they have run."""

from __future__ import annotations

from flows.commands.running import evaluation_line


def test_an_evaluation_is_told_sampled_and_greedy_where_replies_can_be_greedy() -> None:
    sampled = {"sampled/success": 0.25, "sampled/turns": 2.5}
    assert (
        evaluation_line("warm start", {**sampled, "greedy/success": 0.5})
        == "warm start    success 0.250  greedy success 0.500  turns 2.50"
    )
    assert evaluation_line("oracle", sampled) == "oracle        success 0.250  greedy success   –    turns 2.50"
