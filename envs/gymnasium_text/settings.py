"""What a Gymnasium environment needs to be played in text, with values for Gymnasium's own environments.

Gymnasium does not say what its numbers mean: which action is which, what an observation shows, when a task counts as
solved. These settings do. For the identifiers in `KNOWN` each has a value already, and any of them can be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.world import one_of, whole_number

ACTIONS = ("named", "text")
VIEWS = ("template", "ansi", "text")
STARTS = ("apart", "shared")


@dataclass(frozen=True)
class Settings:
    """How an environment is played in text: the parameters of `GymnasiumText`, whose docstring explains each."""

    instruction: str
    action_values: Mapping[str, int] | None = None
    action: str = "named"
    grammar: str | None = None
    offers: str | None = None
    solution: str | None = None
    success_reward: float | None = None
    success_info: str | None = None
    view: str = "template"
    template: str | None = None
    fields: Sequence[Mapping[str, Any]] = ()
    starts: str = "shared"
    turns: int = 20

    def __post_init__(self) -> None:
        if not isinstance(self.instruction, str) or not self.instruction.strip():
            raise ValueError(f"instruction must be a text; found {self.instruction!r}")
        if self.action == "text":
            self._require_text()
        else:
            self._require_names()
        if (self.success_reward is None) == (self.success_info is None):
            raise ValueError(
                "success_reward or success_info must say when an episode succeeds, and not both; "
                f"found {self.success_reward!r} and {self.success_info!r}"
            )
        one_of("view", self.view, VIEWS)
        one_of("starts", self.starts, STARTS)
        whole_number("turns", self.turns, 1, 10_000)

    def _require_names(self) -> None:
        if not isinstance(self.action_values, Mapping) or not self.action_values:
            raise ValueError(f"action_values must name the actions, such as {{Left: 0}}; found {self.action_values!r}")
        names = [str(name).strip().casefold() for name in self.action_values]
        if not all(names) or len(set(names)) < len(names):
            raise ValueError(f"action_values must be named apart, not only by case; found {[*self.action_values]}")
        if text_settings := [name for name in ("grammar", "offers", "solution") if getattr(self, name) is not None]:
            raise ValueError(
                f"{' and '.join(text_settings)} must be left out where actions are named; set action to 'text'"
            )

    def _require_text(self) -> None:
        if self.action_values is not None:
            raise ValueError(f"action_values must be left out where action is 'text'; found {self.action_values!r}")
        if not isinstance(self.grammar, str) or not self.grammar.strip():
            raise ValueError(f"grammar must say in words what an action looks like; found {self.grammar!r}")


def settings_of(identifier: str, values: Mapping[str, Any]) -> Settings:
    """Settings of an environment: the given values, completed from `KNOWN`.

    Raises ValueError if incomplete or invalid.
    """
    if not isinstance(identifier, str):
        raise ValueError(f"id must be a text such as 'Taxi-v4'; found {identifier!r}")
    overrides = {name: value for name, value in values.items() if value is not None}
    defaults = asdict(KNOWN[identifier]) if identifier in KNOWN else {}
    if {"success_reward", "success_info"} & overrides.keys():
        defaults.update(success_reward=None, success_info=None)
    complete = {**defaults, **overrides}
    one_of("action", complete.get("action", "named"), ACTIONS)
    needed = ("instruction", "grammar" if complete.get("action") == "text" else "action_values")
    if missing := [name for name in needed if complete.get(name) is None]:
        raise ValueError(f"{' and '.join(missing)} must be given for {identifier!r}: known are only {', '.join(KNOWN)}")
    return Settings(**complete)


TEXTWORLD = "envs.gymnasium_text.textworld_games:TextWorld-v0"
TEXTARENA = "envs.gymnasium_text.textarena_games:TextArena-v0"

KNOWN: dict[str, Settings] = {
    TEXTWORLD: Settings(
        instruction="Play the text adventure. Its first text says what you are to do.",
        action="text",
        grammar=(
            "A short command in English, such as look, inventory, go east, open door, take key, put key on table, "
            "unlock door with key."
        ),
        offers="admissible_commands",
        solution="policy_commands",
        success_info="won",
        view="text",
        turns=30,
    ),
    TEXTARENA: Settings(
        instruction="Play the game that the first text explains.",
        action="text",
        grammar="What the first text says, between square brackets where it says so.",
        success_info="won",
        view="text",
        turns=30,
    ),
    "Taxi-v4": Settings(
        instruction=(
            "Drive the taxi to the passenger, pick up, drive to the goal, drop off. Places are a row, counted from 0 "
            "downwards, and a column, counted from 0 to the right, in a square of 5 by 5: red is 0 0, green 0 4, "
            "yellow 4 0, blue 4 3. Walls: in rows 0 and 1 between columns 1 and 2, in rows 3 and 4 between columns 0 "
            "and 1 and between columns 2 and 3."
        ),
        action_values={"South": 0, "North": 1, "East": 2, "West": 3, "Pickup": 4, "Dropoff": 5},
        success_reward=20,
        template="taxi {row} {column}, passenger {passenger}, goal {goal}",
        fields=(
            {"row": 5},
            {"column": 5},
            {"passenger": ["red", "green", "yellow", "blue", "in the taxi"]},
            {"goal": ["red", "green", "yellow", "blue"]},
        ),
        starts="apart",
    ),
    "CliffWalking-v1": Settings(
        instruction=(
            "Walk to T without stepping on the cliff. x you, o free, C cliff, T goal. "
            "Who steps on the cliff begins again at the left."
        ),
        action_values={"Up": 0, "Right": 1, "Down": 2, "Left": 3},
        success_reward=-1,
        view="ansi",
    ),
    "FrozenLake-v1": Settings(
        instruction=(
            "Walk over the ice to the goal without falling into a hole. S start, F ice, H hole, G goal; you are where "
            "< and > are. The ice is slippery: two of three moves go to a side."
        ),
        action_values={"Left": 0, "Down": 1, "Right": 2, "Up": 3},
        success_reward=1,
        view="ansi",
        turns=100,
    ),
    "Blackjack-v1": Settings(
        instruction=(
            "Come closer to 21 than the dealer, and not above. You see the sum of your cards and one card of the "
            "dealer, who draws up to 17 when you stick. An ace, shown as 1, is usable if it counts 11 in your sum."
        ),
        action_values={"Stick": 0, "Hit": 1},
        success_reward=1,
        template="sum {sum}, dealer {dealer}, {ace}",
        fields=({"sum": None}, {"dealer": None}, {"ace": ["no usable ace", "usable ace"]}),
    ),
}
