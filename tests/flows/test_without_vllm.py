"""Without vLLM, an experiment that does not ask for it itself is sampled with the embedded engine, with a notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.commands import options
from flows.deployments import Changes, _load
from flows.python import experiments
from turnwise.errors import ConfigurationError

PARAMETERS = Path("params.yaml")


@pytest.fixture(autouse=True)
def _without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "find_spec", lambda name: None)


def test_the_embedded_engine_takes_the_place_of_vllm_and_the_first_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    experiment = options.load_experiment(PARAMETERS, None, ["optimization.iterations=3"])
    assert experiment.compute.engine == "embedded"
    (said,) = capsys.readouterr().out.splitlines()
    assert said == experiments.WITHOUT_VLLM and len(said) <= 80, "commands write for 80 columns"


def test_a_deployment_reads_an_experiment_as_the_command_line_does() -> None:
    read = _load("params.yaml", None, Changes(), {"optimization.iterations": 3})
    assert read.compute.engine == "embedded" and read.optimization.iterations == 3


def test_an_experiment_that_names_its_engine_is_taken_at_its_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options.load_experiment(PARAMETERS, None, ["compute.engine=embedded"]).compute.engine == "embedded"
    assert capsys.readouterr().out == ""
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("compute: { engine: vllm }\n")
    for asked in ([overlay], []), (None, ["compute.engine=vllm"]), (None, ["compute.device=cuda"]):
        with pytest.raises(ConfigurationError, match="TW-missing-package"):
            options.load_experiment(PARAMETERS, *asked)


def test_what_is_planned_for_another_machine_keeps_its_engine(capsys: pytest.CaptureFixture[str]) -> None:
    preset = [Path("experiments/paper/ragen.yaml")]
    assert options.load_experiment(PARAMETERS, preset, [], to_plan=True).compute.engine == "vllm"
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigurationError, match="TW-missing-package"):
        options.load_experiment(PARAMETERS, preset, [])
    assert options.load_experiment(PARAMETERS, None, [], to_plan=True).compute.engine == "embedded"
