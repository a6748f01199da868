"""The credit benchmark: the page is what its records say, the studies can be made, and means worked by hand."""

from pathlib import Path

import pytest

from lab.credit_benchmark import (
    FOLDER,
    PLAN,
    START,
    Benchmark,
    PlannedStudy,
    StudyRecord,
    cells_of,
    draw_page,
    experiment_of,
    heat_map,
    make_studies,
    over_worlds,
    page,
    read_benchmark,
    read_records,
    worlds_of,
)
from turnwise.credit_study.gradient_noise import GradientNoise
from turnwise.credit_study.study import FEWEST_REPLAYS, TRUTH, RuleFigures, Study
from turnwise.credit_study.success import MEASURES
from turnwise.credit_study.truth import Agreement
from turnwise.errors import ConfigurationError
from turnwise.reporting.figures.drawing import Figure
from turnwise.statistics import Interval

ROOT = Path(__file__).parents[2]


def record(world: str, left_out: dict[str, str] | None = None, **closeness: float | None) -> StudyRecord:
    """A study in which each rule is as near by every measure; None: not defined."""
    figures = [RuleFigures(TRUTH, GradientNoise(1.0, 1.0, None, None), None)]
    for title, value in closeness.items():
        near = None if value is None else Interval(value, value - 0.1, value + 0.1, "tasks", 12)
        wrong = None if value is None else Interval(1 - value, 0.9 - value, 1.1 - value, "tasks", 12)
        agreement = Agreement(near, None, None, (), rank_correlation=near, sign_errors=wrong)
        figures.append(RuleFigures(title, GradientNoise(1.0, 1.0, None, near), agreement))
    about = {"world": world, "success of the episodes": "0.250", "study": "credit_study/0123456789abcdef"}
    return StudyRecord(study=Study(tuple(figures), left_out or {}, 12, 96, 200, 0.5, 0.3, 0.1), about=about)


RECORDS = {
    "one": record("lake", a=0.2, b=0.5, c=None),
    "two": record("search", {"d": "it needs a critic"}, a=0.4, b=0.3),
}
PLAN_OF_TWO = Benchmark(
    tasks=12,
    replays=6,
    critic_rollouts=4,
    studies={
        "one": PlannedStudy(policy="base-1m", overlays=("x.yaml",)),
        "two": PlannedStudy(policy="base-1m", stage="grpo", overlays=("x.yaml",), replays=3),
        "three": PlannedStudy(policy="base-1m", overlays=("x.yaml",)),
    },
)


@pytest.mark.parametrize("measure", MEASURES)
def test_rules_are_ordered_by_their_mean_over_the_worlds(measure: str) -> None:
    cells = cells_of(RECORDS, measure)
    assert list(cells) == ["b", "a", "c"]
    means = {rule: over_worlds(of_rule, worlds_of(RECORDS)) for rule, of_rule in cells.items()}
    assert means["c"] is None and means["a"] is not None and means["b"] is not None
    # Each world's bounds are 0.1 away, so that the mean's are sqrt(0.1^2 + 0.1^2) / 2 = 0.0707 away.
    assert means["a"].value == pytest.approx(0.3) and means["b"].value == pytest.approx(0.4)
    assert (means["b"].low, means["b"].high) == pytest.approx((0.3293, 0.4707), abs=1e-4)


def test_a_world_counts_once_however_many_of_its_studies_there_are() -> None:
    studies = {
        "one": Interval(0.2, 0.1, 0.3, "tasks", 12),
        "again": Interval(0.4, 0.1, 0.4, "tasks", 12),
        "other": Interval(0.9, 0.6, 1.0, "tasks", 8),
        "undefined": None,
    }
    worlds = {"one": "lake", "again": "lake", "other": "search", "undefined": "search"}
    mean = over_worlds(studies, worlds)
    assert mean is not None and mean.count == 32
    assert mean.value == pytest.approx((0.3 + 0.9) / 2)  # and not 0.5, the mean of three studies
    # The lake's bounds are (0.1 + 0.3) / 2 below and (0.1 + 0.0) / 2 above; search's 0.3 below and 0.1 above.
    assert mean.low == pytest.approx(0.6 - (0.2**2 + 0.3**2) ** 0.5 / 2)
    assert mean.high == pytest.approx(0.6 + (0.05**2 + 0.1**2) ** 0.5 / 2)
    without = over_worlds(studies | {"other": Interval(0.9, None, None, "tasks", 8)}, worlds)
    assert without is not None and (without.value, without.low, without.high) == (mean.value, None, None)
    assert over_worlds({"undefined": None}, worlds) is None


def test_a_study_has_the_numbers_of_the_benchmark_but_for_its_own() -> None:
    assert PLAN_OF_TWO.amounts("one") == (12, 6, 4)
    assert PLAN_OF_TWO.amounts("two") == (12, 3, 4)


def test_the_page_names_what_each_study_was_made_from_and_what_is_missing() -> None:
    cells = {measure: cells_of(RECORDS, measure) for measure in MEASURES}
    text = page(PLAN_OF_TWO, RECORDS, cells, heat_map(cells))
    assert "| `one` | lake | base-1m | start | 12 | 6 | 4 | 0.250 | 200 | 0.30 | 50% | `01234567` |" in text
    assert "| `two` | search | base-1m | after `grpo` | 12 | 3 | 4 |" in text
    assert "Planned and not made: three." in text
    assert "* `d`: it needs a critic." in text
    assert "| b | 0.50 (0.40 to 0.60) | 0.30 (0.20 to 0.40) |" in text


def test_the_figure_has_a_cell_for_each_rule_and_study_and_is_the_same_every_time() -> None:
    cells = {measure: cells_of(RECORDS, measure) for measure in MEASURES}
    figure = heat_map(cells)
    assert len(figure.data) == 3 * 2 and ("c", "one", None, None, None) in figure.data
    panels = figure.draw(True).axes
    assert [len(axes.texts) for axes in panels] == [4, 4, 4]
    assert figure.png() == heat_map(cells).png()


def test_the_page_is_what_its_records_say_and_nothing_is_typed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Figure, "png", lambda figure: b"")  # drawn above; this is about the text
    (tmp_path / "data").symlink_to(ROOT / FOLDER / "data")
    draw_page(read_benchmark(ROOT / PLAN), tmp_path)
    assert (tmp_path / "benchmark.md").read_text() == (ROOT / FOLDER / "benchmark.md").read_text()


def test_every_record_belongs_to_a_planned_study() -> None:
    plan = read_benchmark(ROOT / PLAN)
    recorded = {path.stem for path in (ROOT / FOLDER / "data").glob("*.json")}
    assert recorded == set(read_records(plan, ROOT / FOLDER))


def test_every_planned_study_can_be_made() -> None:
    plan = read_benchmark(ROOT / PLAN)
    for name, planned in plan.studies.items():
        experiment = experiment_of(name, planned)
        tasks, replays, _ = plan.amounts(name)
        assert 2 <= tasks <= experiment.data.validation_tasks and replays >= FEWEST_REPLAYS
        assert planned.stage in (START, *experiment.ablation.variants)


def test_a_study_that_nobody_planned_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"a study must be one of search, .*; found nowhere"):
        make_studies(["nowhere"])
