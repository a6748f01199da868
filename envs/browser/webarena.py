"""WebArena's tasks (arXiv 2307.13854) on sites whose addresses the user gives.

The sites are WebArena's docker images, or any others that the task files refer to. They keep their own state: what one
episode posts the next one sees, until somebody resets them, so episodes are not repeatable and name no states.

Differs from WebArena: an episode is judged when the agent stops; one that reaches the turn limit is not solved (in
WebArena, an empty answer is judged).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from playwright.async_api import Page

from envs.browser.actions import GRAMMAR
from envs.browser.chromium import find_chromium, version_of
from envs.browser.episode import BrowserEnvironment
from envs.browser.problem import PageProblem, PageVerdict
from envs.browser.reading import VIEWS, PageReading, View
from envs.browser.webarena_checks import LOAD_SECONDS
from envs.browser.webarena_tasks import PLACEHOLDER, WebArenaTask, read_tasks
from envs.browser.world import INSTRUCTION, REWARDS
from turnwise import seeding
from turnwise.world import SPLITS, Limits, Reward, ScriptedAction, Split, Task, World, one_of, whole_number


class WebArena(World):
    """Tasks that WebArena's files describe, played and judged in a real Chromium.

    Parameters: `task_files`, a file or a folder of them; `sites`, the address for each placeholder, such as
    `{"__SHOPPING__": "http://localhost:7770"}`; `logins`, the folder of the browser states that tasks name as
    `storage_state`; `unsupported`, `refuse` to raise ValueError for a task that cannot be judged here, or `leave out`
    to continue without it (`refused` lists which and why); `splits`, `test` to make every task a test task, as intended
    by WebArena, or `templates` to assign eight templates in ten to training, so that no intent's template is in two
    splits; `view`, `turns`, `most_lines` and `executable` as for `browser`; `sites_version`, a label of your choice for
    the content of the sites. The sites cannot report it, so change the label when the content changes, or cached
    episodes of the old content are reused.
    """

    name: ClassVar[str] = "webarena"
    version: ClassVar[str] = "1"
    baselines: tuple[str, ...] = ("random",)
    names_states = False
    rewards: ClassVar[Mapping[str, Reward]] = REWARDS
    instruction = f"{INSTRUCTION} Stop with the answer, if the goal asks for one."
    grammar = GRAMMAR

    def __init__(
        self,
        *,
        task_files: str,
        sites: Mapping[str, str],
        logins: str | None = None,
        unsupported: Literal["refuse", "leave out"] = "refuse",
        splits: Literal["test", "templates"] = "test",
        view: View = "tree",
        turns: int = 30,
        most_lines: int = 200,
        executable: str | None = None,
        sites_version: str = "",
    ) -> None:
        if not isinstance(sites_version, str):
            raise ValueError(f"sites_version must be a text; found {sites_version!r}")
        self.sites = _sites(sites)
        self.view = one_of("view", view, VIEWS)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self.most_lines = whole_number("most_lines", most_lines, 10, 10_000)
        self.executable = executable
        one_of("unsupported", unsupported, ("refuse", "leave out"))
        self.splits = one_of("splits", splits, ("test", "templates"))
        tasks, self.refused = read_tasks(Path(task_files), self.sites, None if logins is None else Path(logins))
        if self.refused and unsupported == "refuse":
            reasons = "; ".join(f"task {number}: {reason}" for number, reason in self.refused.items())
            raise ValueError(
                f"every task must be one that can be judged here; found {reasons}: set unsupported: leave out"
            )
        self._tasks = {f"{self.name}/{self.version}/{task.name}": task for task in tasks}

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, by number.

        Tags: `sites` and `template`. Raises ValueError for too few tasks.
        """
        named_tasks = self._of(split)
        if len(named_tasks) < count:
            raise ValueError(
                f"count must be at most {len(named_tasks)} for the {split} split of these files with splits "
                f"{self.splits!r}; found {count}: ask for fewer tasks"
            )
        return [
            Task(self.name, name, split, task.number, {"sites": "+".join(task.sites), "template": task.template})
            for name, task in named_tasks[:count]
        ]

    def split_size(self, split: Split) -> int:
        """Number of tasks of the files that belong to a split."""
        return len(self._of(split))

    def make(self, task: Task, seed: int) -> BrowserEnvironment:
        """Environment for a task. Raises ValueError when these files do not contain it, or if there is no browser."""
        if task.id not in self._tasks:
            raise ValueError(f"a task must be one of these files; found {task.id!r}")
        problem = WebArenaProblem(self._tasks[task.id], tuple(self.sites.values()))
        return BrowserEnvironment(problem, find_chromium(self.executable), {}, self.view, self.most_lines)

    def require_programs(self) -> None:
        """Raise ValueError if there is no browser."""
        find_chromium(self.executable)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The tasks and the logins; the path of the browser does not affect results."""
        paths = {name: Path(parameters[name]) for name in ("task_files", "logins") if parameters.get(name)}
        return {**paths, **({"executable": None} if "executable" in parameters else {})}

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """The browser's version. Raises ValueError if there is no browser."""
        return {"browser": version_of(find_chromium(parameters.get("executable")))}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The browser's driver, and the pages of `browser`, which is in the same package."""
        return ("miniwob", "playwright")

    def _of(self, split: Split) -> list[tuple[str, WebArenaTask]]:
        return [(name, task) for name, task in self._tasks.items() if self._split(task) == split]

    def _split(self, task: WebArenaTask) -> Split:
        if self.splits == "test":
            return "test"
        tenth = seeding.derive(0, "webarena split", task.template) % 10
        return SPLITS[0] if tenth < 8 else SPLITS[tenth - 7]


class WebArenaProblem(PageProblem):
    """One task, judged by its checks."""

    repeatable: ClassVar[bool] = False
    load_seconds: ClassVar[float | None] = LOAD_SECONDS

    def __init__(self, task: WebArenaTask, sites: Sequence[str]) -> None:
        """`sites`: every one that has an address."""
        self._task = task
        self.starts, self.sites, self.goal = task.starts, sites, task.intent
        options: dict[str, Any] = {}
        if task.login is not None:
            options["storage_state"] = task.login
        if task.geolocation is not None:
            options |= {"geolocation": task.geolocation, "permissions": ["geolocation"]}
        self.context = options

    async def judge(self, page: Page, answer: str) -> PageVerdict:
        """Solved if every check holds."""
        for check in self._task.checks:
            if not await check.holds(page, answer):
                return PageVerdict(False)
        return PageVerdict(True)

    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        """Raises ValueError: there is no oracle, and `baselines` does not name one."""
        raise ValueError("WebArena's files hold no demonstrations, so this world has no oracle; ask for 'random'")


def _sites(value: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"sites must map placeholders such as __SHOPPING__ to addresses; found {value!r}")
    for placeholder, address in value.items():
        if not PLACEHOLDER.fullmatch(str(placeholder)) or not str(address).startswith(("http://", "https://")):
            raise ValueError(
                "sites must map placeholders such as __SHOPPING__ to addresses that begin with http:// or https://; "
                f"found {placeholder!r}: {address!r}"
            )
    return {placeholder: address.rstrip("/") for placeholder, address in value.items()}
