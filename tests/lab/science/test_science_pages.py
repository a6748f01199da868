"""The pages of docs/science are written from the records next to them, and the claims can be run."""

import json
from pathlib import Path

import pytest

from lab.science.claims import CLAIMS, COMPARING, known_claims, read_claims
from lab.science.science_page import PAGES, draw_page, experiment_of, records
from lab.science.tuning import best_rates, tried_rates
from turnwise.config.overlays import read_yaml
from turnwise.errors import ConfigurationError
from turnwise.reporting.figures.drawing import Figure
from turnwise.results.history import AT_LIMIT, LIMIT
from turnwise.results.report_data import Curve, ReportData
from turnwise.training_runs.iteration_stages import plotted_measures

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (ROOT / CLAIMS).glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_its_records_say_and_nothing_is_typed_in(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Figure, "png", lambda figure: b"")  # test_claim_figures draws; this is about the text
    written = ROOT / PAGES / f"{name}.md"
    claims = known_claims(name)
    if not records(claims, ROOT / PAGES):
        assert not written.exists(), "a page without records cannot have been written from them"
        pytest.skip(f"nothing of {name} has been run")
    (tmp_path / "data").symlink_to(ROOT / PAGES / "data")
    draw_page(name, claims, tmp_path)
    assert (tmp_path / f"{name}.md").read_text() == written.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_relation_names_variants_that_its_ablation_has(name: str) -> None:
    claims = known_claims(name)
    for ablation, planned in claims.ablations.items():
        experiment = experiment_of(planned)
        assert experiment.ablation.name == ablation
        named = {
            variant
            for claim in claims.claims
            for each in claim.relations
            for place, variant in ((each.ablation, each.variant), (each.other or each.ablation, each.than))
            if place == ablation and variant is not None
        }
        assert named <= set(experiment.ablation.variants)


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_that_a_page_names_is_one_that_reports_have(name: str) -> None:
    measures = (*plotted_measures(), LIMIT, AT_LIMIT)
    known = {"validation/sampled", "validation/greedy", *(f"{each.artifact}/{each.metric}" for each in measures)}
    claims = known_claims(name)
    named = {measure for claim in claims.claims for each in claim.relations for measure in each.measures}
    of_curves = {measure for measure in named if "/" in measure} | set(claims.curves)
    assert {each for each in of_curves if not each.startswith("rollout/reward/")} <= known


@pytest.mark.parametrize("name", NAMES)
def test_the_core_is_small(name: str) -> None:
    for planned in known_claims(name).ablations.values():
        if planned.core:
            ablation = experiment_of(planned).ablation
            assert len(ablation.variants) <= 6 and 5 <= len(ablation.seeds) <= 10


@pytest.mark.parametrize("name", NAMES)
def test_the_learning_rates_compared_are_those_that_the_tuning_chose(name: str) -> None:
    claims = known_claims(name)
    found = records(claims, ROOT / PAGES)
    for tuning, planned in claims.ablations.items():
        if planned.tunes is not None and tuning in found:
            compared = experiment_of(claims.ablations[planned.tunes])
            used = {
                variant: compared.variant(variant).optimization.learning_rate for variant in compared.ablation.variants
            }
            assert used == best_rates(tried_rates(found[tuning].report))
            assert not set(compared.ablation.seeds) & set(experiment_of(planned).ablation.seeds)


def test_the_best_rate_is_chosen_and_of_equal_ones_the_smaller() -> None:
    ends = {"a-0.1": (0.2, 0.4), "a-0.2": (0.5, 0.3), "b-0.1": (0.6, 0.6), "b-0.2": (0.6, 0.6), "b-0.05": (0.1, 0.3)}
    curves = [
        Curve("validation/sampled", "", variant, seed, [(0, 0.9), (8, end)])
        for variant, of_seeds in ends.items()
        for seed, end in enumerate(of_seeds)
    ]
    tried = tried_rates(ReportData("tuning", "", [], [], curves))
    assert tried["b"] == {0.05: pytest.approx(0.2), 0.1: 0.6, 0.2: 0.6}
    assert best_rates(tried) == {"a": 0.2, "b": 0.1}


def test_a_variant_of_a_tuning_that_tells_no_rate_is_refused() -> None:
    unnamed = ReportData("tuning", "", [], [], [Curve("validation/sampled", "", "mt-grpo", 1, [(0, 0.9)])])
    with pytest.raises(ValueError, match=r"must be named <variant>-<learning rate>.*found 'mt-grpo'"):
        tried_rates(unnamed)


def test_dvc_knows_every_ablation_of_every_page() -> None:
    stages = read_yaml(ROOT / PAGES / "dvc.yaml")["stages"]
    assert {page: stage["foreach"] for page, stage in stages.items()} == {
        page: list(known_claims(page).ablations) for page in NAMES
    }


def test_an_unknown_page_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=rf"{', '.join(NAMES)}.*TW-unknown-page"):
        known_claims("mt-grpo")


def test_a_relation_to_nothing_is_refused(tmp_path: Path) -> None:
    page = json.loads(json.dumps({**PAGE}))
    page["claims"][0]["relations"][0].pop("than")
    (tmp_path / "page.yaml").write_text(json.dumps(page))
    with pytest.raises(ConfigurationError, match=rf"{', '.join(COMPARING)}.*TW-option-value"):
        read_claims(tmp_path / "page.yaml")


@pytest.mark.parametrize("key", ["ablation", "other"])
def test_a_relation_to_an_ablation_that_the_page_does_not_have_is_refused(key: str, tmp_path: Path) -> None:
    page = json.loads(json.dumps(PAGE))
    page["claims"][0]["relations"][0][key] = "another"
    (tmp_path / "page.yaml").write_text(json.dumps(page))
    with pytest.raises(ConfigurationError, match=r"'another'.*TW-option-value"):
        read_claims(tmp_path / "page.yaml")


PAGE = {
    "title": "A page",
    "paper": "a paper",
    "introduction": "What it is about.",
    "ablations": {"runs": {"overlays": [], "core": True, "about": "All."}},
    "claims": [
        {
            "claim": "a is better than b",
            "source": "table 1",
            "relations": [{"ablation": "runs", "variant": "a", "relation": "above", "than": "b", "measure": "success"}],
        }
    ],
}
