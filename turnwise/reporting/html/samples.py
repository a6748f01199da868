"""Trajectories on a page, turn by turn: observation, thought, actions, rewards; and the report's section of samples."""

from __future__ import annotations

from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.reporting.data.report_data import Sample, Story
from turnwise.reporting.formatting import signed
from turnwise.reporting.html.markup import Markup, join, tag
from turnwise.reporting.html.token_heat_map import ABOVE, BELOW, heat_line, largest_advantage

ENDINGS = {
    "success": "solved",
    "failure": "ended, unsolved",
    "turn_limit": "cut off by the limit on turns",
    "action_limit": "cut off by the limit on actions",
    "token_budget": "cut off by the token budget",
    "invalid_limit": "given up after too many unreadable replies",
    "world_lost": "lost by the world",
}
LONGEST = 4000
"""Maximum characters shown of one passage; a world's text may be a hundred times as long."""
LEGEND = (
    "Each turn's advantage is what the credit rule made of the rewards: blue above zero, orange below, stronger where "
    "larger; in the reply, token by token, with a line under tokens that were less likely than one in two, darker from "
    "one in ten and one in a hundred. Rewards are shown as raw value × weight."
)


def samples_section(story: Story) -> Markup | None:
    """The report's section of sample trajectories; None if there are none."""
    if not story.samples:
        return None
    largest = largest_advantage(story.samples)
    articles = [article(sample, largest) for sample in story.samples]
    return join("\n", tag("section", tag("h2", "Trajectories"), tag("p", LEGEND, class_="fine"), *articles))


def article(sample: Sample, largest: float, **attributes: object) -> Markup:
    """One trajectory as an HTML element.

    `largest` is the absolute advantage at the end of the colour scale; `attributes` are those of the element.
    """
    trajectory = sample.trajectory
    ending = ENDINGS.get(trajectory.ending.value, trajectory.ending.value)
    header = tag(
        "header",
        tag("h3", sample.label),
        tag("p", _subject(trajectory), " · ", tag("strong", ending), class_="fine"),
    )
    turns = [_turn(sample, place, largest) for place in range(len(trajectory.turns))]
    last = _passage("world's last words", trajectory.final_observation, "observation")
    return tag("article", header, tag("ol", *turns, class_="turns"), last, class_="trajectory", **attributes)


def _subject(trajectory: Trajectory) -> str:
    tags = "".join(f", {name} {value}" for name, value in sorted(trajectory.task.tags.items()))
    return f"{trajectory.task.id} ({trajectory.task.split}{tags})"


def _turn(sample: Sample, place: int, largest: float) -> Markup:
    turn = sample.trajectory.turns[place]
    rail = tag(
        "div",
        tag("p", turn_name(sample.trajectory, place), class_="number"),
        _advantage(sample, place, largest),
        tag("p", log_probability(turn), class_="fine"),
        class_="rail",
    )
    told = tag(
        "div",
        _passage("observation", turn.observation, "observation"),
        _passage("thought", turn.thought, "thought"),
        *(_passage("action", action, "action") for action in turn.actions),
        _unreadable(turn),
        _heat(sample, place, largest),
        _rewards(sample, turn),
        class_="told",
    )
    return tag("li", rail, told)


def _advantage(sample: Sample, place: int, largest: float) -> Markup:
    if sample.advantages is None:
        return tag("p", "no advantage", class_="fine")
    value = sample.advantages[place]
    red, green, blue = ABOVE if value >= 0 else BELOW
    strength = 0.42 * abs(value) / largest if largest else 0.0
    colour = f"background: rgba({red}, {green}, {blue}, {strength:.3f})"
    return tag("p", tag("span", "advantage"), tag("b", signed(value, 2)), class_="advantage", style=colour)


def turn_name(trajectory: Trajectory, place: int) -> str:
    """The turn's title: its number, its kind if it does not act, its attempt, and whether it opens a new segment."""
    turn = trajectory.turns[place]
    kind = "" if turn.kind is TurnKind.ACT else f" · {turn.kind.value}"
    attempt = f" · attempt {turn.attempt + 1}" if trajectory.turns[-1].attempt else ""
    anew = " · context written anew" if turn.opens_segment and place else ""
    return f"turn {place + 1}{kind}{attempt}{anew}"


def log_probability(turn: Turn) -> str:
    """The reply's log-probability (nats) under the behaviour policy and its number of tokens, as text."""
    count = len(turn.reply_tokens)
    if not count:
        return "no tokens"
    return f"log p {signed(sum(turn.log_probabilities), 2)} over {count} token{'s' if count > 1 else ''}"


def _heat(sample: Sample, place: int, largest: float) -> Markup:
    line = heat_line(sample, place, largest)
    return tag("div", tag("span", "tokens", class_="label"), line, class_="passage") if line else line


def shortened(content: str) -> str:
    """The text, cut to `LONGEST` characters with a note of how many are left out."""
    if len(content) <= LONGEST:
        return content
    return f"{content[:LONGEST]} … ({len(content) - LONGEST:,} more characters)"


def _passage(name: str, content: str, kind: str) -> Markup:
    if not content:
        return Markup()
    return tag("div", tag("span", name, class_="label"), tag("pre", shortened(content)), class_=f"passage {kind}")


def _unreadable(turn: Turn) -> Markup:
    if turn.invalid is None:
        return Markup()
    why = tag("div", tag("span", "invalid", class_="label"), tag("p", turn.invalid), class_="passage invalid")
    return join(_passage("reply", turn.reply, "reply"), why)


def _rewards(sample: Sample, turn: Turn) -> Markup:
    if not turn.rewards:
        return Markup()
    chips = [_reward(sample, name, value) for name, value in sorted(turn.rewards.items())]
    sums = ", ".join(f"{level} {signed(sample.weighted(turn.rewards, level), 2)}" for level in ("turn", "outcome"))
    return tag(
        "div",
        tag("span", "rewards", class_="label"),
        tag("p", *chips, tag("span", f"weighted: {sums}", class_="fine"), class_="chips"),
        class_="passage",
    )


def _reward(sample: Sample, name: str, value: float) -> Markup:
    rule = sample.rewards.get(name)
    earned = f"{value:g} × {rule.weight:g}" if rule else f"{value:g}"
    level = f"{rule.level} level" if rule else "not weighted"
    state = "chip zero" if value == 0 or rule is None else "chip"
    return tag("span", tag("b", name), f" {earned} ", tag("i", level), class_=state)
