"""Group selection: which groups of a rollout are trained on, by the spread of their raw weighted returns."""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.restoring import opened
from turnwise import seeding
from turnwise.config.schema import RewardSection, Section
from turnwise.config.schema import SelectionSection as SelectionSection
from turnwise.credit.batch import weighted_returns
from turnwise.credit.selection import RULES, SELECTION, Selection, group_deviations, read_selection, write_selection
from turnwise.credit.selection import select as choose
from turnwise.data.trajectory_files import read_arrays
from turnwise.plugins import SELECTION_RULE, plugin_modules
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients


class SelectParameters(Section):
    """The parameters of a selection."""

    rewards: dict[str, RewardSection]
    selection: SelectionSection
    wanted: int
    """The number of groups that the rule `mixed` must reach."""
    seed: int
    iteration: int


def _plugin_code(parameters: SelectParameters) -> list[str]:
    return plugin_modules(SELECTION_RULE, [parameters.selection.rule], RULES)


@task(name="select", task_run_name="{label}: select", retries=1)
@depends_on(
    kernel=("turnwise.credit.batch", "turnwise.credit.selection"),
    writes=SELECTION,
    code=_plugin_code,
    reads=lambda parameters: plugin_ingredients(_plugin_code(parameters)),
    platform_bound=False,
)
def select(parameters: SelectParameters, *, rollout: Reference, label: str = "select") -> Reference:
    """Choose the groups to keep; saves these, the deviation of every group, and as metrics what was dropped."""
    trajectories = read_arrays(opened(rollout))
    selection = choose(
        parameters.selection.rule,
        group_deviations(trajectories.group.tolist(), weighted_returns(trajectories, parameters.rewards)),
        seed=seeding.derive(parameters.seed, "selection", parameters.iteration),
        wanted=parameters.wanted,
        **parameters.selection.options,
    )
    with default_store().write("selection") as draft:
        write_selection(draft.folder, selection)
        draft.metrics.update(selection.record())
    return draft.reference


def read_choice(selection: Reference) -> Selection:
    """Which groups were kept, and how many are missing from those wanted."""
    return read_selection(default_store().folder(selection))
