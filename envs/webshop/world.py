"""The world: goals as tasks, the shop as environment, and WebShop's reward (Yao et al. 2022, arXiv 2207.01206).

Differs from WebShop: the products are our own, a few thousand from word lists, unless its files are given; pages are
short texts; prices and limits are not redrawn in each process; a goal is left out if the oracle's search does not lead
to it within the turns; validation and test goals want no product that a training goal wants. See `reward`,
`original_files`, `pages` and `episode` for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.webshop.episode import ShopEnvironment, turns_needed
from envs.webshop.pages import PageStyle
from envs.webshop.products import Goal
from envs.webshop.shop import MAXIMUM_RESULTS, Shop, own_shop, shop_from_files
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, true_or_false, whole_number

PRODUCTS = 4000
"""Default number of products in our own shop."""


class WebShop(World):
    """Find a product that meets a wish, choose its options, and buy it.

    Parameters: `products`, how many our own shop has, or how many of a catalogue's items are read (by default 4000, or
    all); `turns`, the turn limit of an episode; `results_per_page` (1 to 50); `description`, whether a product has
    pages with its description and features; `repeat_goal`, whether every page shows the wish; `catalogue`, `goals` and
    `attributes`, files in WebShop's layout to be used instead of our own shop (see `original_files`).

    A task fixes a goal. Which goals form a task set depends on `turns` and `results_per_page`, a task's id does not.
    """

    name: ClassVar[str] = "webshop"
    version: ClassVar[str] = "1"
    verbs: ClassVar[frozenset[str] | None] = frozenset({"search", "click"})
    oracle_success: ClassVar[float] = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # A thousand products and at most nine turns of one action, as RAGEN plays WebShop.
        "ragen": {"products": 1000, "turns": 9, "results_per_page": 10, "description": True, "repeat_goal": True},
        # Pages as rich as the paper's, and the limit of its released baselines.
        "original": {"turns": 100, "results_per_page": 10, "description": True, "repeat_goal": True},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {
        "score": Reward("how well what was bought meets the wish, from 0 to 1", "outcome", 1.0),
        "solved": Reward("1 when what was bought meets the whole wish, RAGEN's reward", "outcome", 1.0),
    }
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success", description="episodes that bought what meets the whole wish"),
        Column("score", "score", description="WebShop's reward, 0 where nothing was bought"),
        Column("bought", "bought", better=None, description="episodes that bought something"),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )
    instruction = (
        "You are a customer of an online shop. Find a product that meets the wish, choose the options that it "
        "names, and buy the product. What you can click stands in [square brackets]; an option that is chosen is "
        "repeated in (round ones). You are scored by the attributes, the options and the price that were wished "
        "for, if the product is of the kind that was wished for. Buying ends the episode."
    )
    grammar = "search[QUERY] searches, on the search page; click[TEXT] clicks what is shown as [TEXT]."

    def __init__(
        self,
        *,
        products: int | None = None,
        turns: int = 10,
        results_per_page: int = 3,
        description: bool = False,
        repeat_goal: bool = False,
        catalogue: str | None = None,
        goals: str | None = None,
        attributes: str | None = None,
    ) -> None:
        self.products = None if products is None else whole_number("products", products, 10, 10_000_000)
        self.limits = Limits(turns=whole_number("turns", turns, 3, 1000))
        self.style = PageStyle(
            results_per_page=whole_number("results_per_page", results_per_page, 1, MAXIMUM_RESULTS),
            description=true_or_false("description", description),
            repeat_goal=true_or_false("repeat_goal", repeat_goal),
        )
        self._files = _files(catalogue, goals, attributes)

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` goals of a split. Raises ValueError when there are fewer.

        Tags: `department`, and `options`, the number of options wanted.
        """
        goals = self._attainable(split)
        tasks: list[Task] = []
        for number in range(count):
            goal = next(goals, None)
            if goal is None:
                raise ValueError(
                    f"count must be at most {number} for the {split} split of this shop under {self.limits.turns} "
                    f"turns and {self.style.results_per_page} results per page; found {count}: ask for fewer tasks"
                )
            tasks.append(self._task(goal, split))
        return tasks

    def make(self, task: Task, seed: int) -> ShopEnvironment:
        """Environment for a task; nothing in it is random. Raises ValueError for a task of another shop."""
        goal = self.shop.goals.get(task.id.removeprefix(self._family))
        if goal is None or not task.id.startswith(self._family):
            raise ValueError(f"a task of this shop must be named like '{self._family}B0000:0'; found {task.id!r}")
        return ShopEnvironment(self.shop, goal, self.style)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """Those of WebShop's files that are given."""
        return {name: Path(parameters[name]) for name in ("catalogue", "goals", "attributes") if parameters.get(name)}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The search engine."""
        return ("bm25s",)

    def attribution(self) -> str | None:
        """Source of the products where they are not our own; None for our own shop."""
        if self._files is None:
            return None
        return f"Products and goals from {self._files[0]} and {self._files[1]}; WebShop's own are Yao et al.'s (2022)."

    @property
    def shop(self) -> Shop:
        """The shop, built or read when it is first needed."""
        if self._files is None:
            return own_shop(self.products or PRODUCTS)
        return shop_from_files(*self._files, self.products)

    @property
    def _family(self) -> str:
        return f"{self.name}/{self.version}/{self.shop.name}/"

    def _attainable(self, split: Split) -> Iterator[Goal]:
        """The goals that the oracle meets within the turns."""
        for goal in self.shop.goals_of[split]:
            needed = turns_needed(self.shop, goal, self.style.results_per_page)
            if needed is not None and needed <= self.limits.turns:
                yield goal

    def _task(self, goal: Goal, split: Split) -> Task:
        name = f"{self._family}{goal.id}"
        tags: dict[str, str | int] = {
            "department": self.shop.products[goal.product].category[0],
            "options": len(goal.options),
        }
        return Task(self.name, name, split, seeding.derive(0, name), tags)


def _files(catalogue: str | None, goals: str | None, attributes: str | None) -> tuple[Path, Path, Path | None] | None:
    """The paths in this order, or None for our own shop.

    Raises ValueError for an incomplete or missing set of files.
    """
    if catalogue is None and goals is None and attributes is None:
        return None
    if catalogue is None or goals is None:
        missing = "catalogue" if catalogue is None else "goals"
        raise ValueError(f"catalogue and goals must be given together, as attributes only with them; {missing} is not")
    for name, path in (("catalogue", catalogue), ("goals", goals), ("attributes", attributes)):
        if path is not None and not (isinstance(path, str) and Path(path).is_file()):
            raise ValueError(f"{name} must be the path of a file; found {path!r}")
    return Path(catalogue), Path(goals), None if attributes is None else Path(attributes)
