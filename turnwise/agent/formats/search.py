"""The format of MT-GRPO (arXiv 2505.11821) and Search-R1: a thought, then a search or the answer, each between tags.

What differs: a reply that does not match the form is unreadable and has no action; in their code it is searched for the
first tag.
"""

from __future__ import annotations

from turnwise.agent.formats.contract import ParsedReply
from turnwise.agent.formats.tags import ThinkFormat, tag_pairs
from turnwise.errors import ConfigurationError
from turnwise.world import ScriptedAction, World


class SearchFormat(ThinkFormat):
    """`<think>...</think><search>...</search>`. Actions are `search[...]` and `answer[...]`."""

    name = "search"
    tags = ("<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>")
    form = (
        "Reply with <think>a thought</think> and then either <search>a query</search> or <answer>the answer</answer>."
    )

    def write(self, decision: ScriptedAction) -> str:
        """`<think> ...</think><search> ...</search>`, from a decision with the one action `search[...]`."""
        (action,) = decision.actions
        verb, _, argument = action.partition("[")
        return f"{self.write_thought(decision.thought)}<{verb}> {argument[:-1]}</{verb}>"

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """Accepts one thought and one action; an `actions_per_turn` above 1 changes nothing."""
        pairs = tag_pairs(reply, self.tags)
        if pairs is None or [name for name, _ in pairs][:1] != ["think"] or len(pairs) != 2 or pairs[1][0] == "think":
            return ParsedReply("", (), self.form)
        (_, thought), (verb, argument) = pairs
        return ParsedReply(thought, (f"{verb}[{argument}]",))

    def require_expressible(self, world: World) -> None:
        """Raise ConfigurationError unless the world's actions are exactly `search[...]` and `answer[...]`."""
        if world.verbs != frozenset({"search", "answer"}):
            raise ConfigurationError(
                f"agent.format 'search' writes the actions search[...] and answer[...]; the world {world.name!r} has "
                f"{'the verbs ' + ', '.join(sorted(world.verbs)) if world.verbs else 'another grammar'}; "
                "set agent.format to 'think-answer'",
                "TW-format-loses-actions",
            )
