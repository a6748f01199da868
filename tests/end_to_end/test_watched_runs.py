"""Runs that are watched, through the real chain: what the monitors leave alone, what alarms and guards do, and that a
run which was killed after an alarm is the run that was not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from comparison import tiny_experiment
from project_copy import ROOT

from flows.commands.plan import recorded_signals
from flows.health import signal_at_start
from flows.plan import plan_ablation, stages_not_called
from flows.prepare import prepare_materials, prepare_policy
from flows.report import open_record
from flows.train import train
from flows.workers.sharing import SharedRuns
from lab.calibrate import show_calibration
from tasks.health.health import read_health
from tasks.update.update import UpdateParameters
from turnwise.data.outcomes import EarlyEnd
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment, load
from turnwise.project import home
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import Iteration, Prepared, Run

pytestmark = pytest.mark.chain

SMALL: dict[str, Any] = {
    "rollout.prompts": 4,
    "monitors.probe_every": 1,
    "monitors.probe_sample": 4,
    "variants": {"base": {}},
    "ablation.variants": ["base"],
    "evaluation.every": 9,
}
NO_RULES = dict.fromkeys(load(ROOT / "params.yaml").alarms.rules)
AWAY_FROM_THE_START: dict[str, Any] = {
    **SMALL,
    "optimization.iterations": 4,
    "alarms.response": "return",
    "alarms.rules": {**NO_RULES, "kl_warm_start": {"above": 1e-7}},
    "alarms.learning_rate_factor": 0.5,
    "alarms.selection": {"rule": "uncertainty", "options": {"share": 0.5}},
}
"""The warm start is healthy and every policy that has learned is not: alarms in iterations 2 and 4."""


def experiment(**settings: Any) -> Experiment:
    return tiny_experiment({**SMALL, **settings})


@pytest.fixture(scope="module")
def returned(prepared: tuple[Prepared, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that goes back twice, in a home of its own."""
    home = tmp_path_factory.mktemp("returned") / "home"
    shutil.copytree(prepared[1], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        yield train(experiment(**AWAY_FROM_THE_START), prepared[0], "base", 1)


def everything(run: Run) -> list[Reference | None]:
    made = [(each.rollout, each.policy, each.health, each.returned) for each in run.iterations]
    return [*(reference for of_iteration in made for reference in of_iteration), run.test]


def lineage(reference: Reference) -> dict[str, Any]:
    (record,) = default_store().lineage(reference).values()
    return record


def test_what_is_trained_does_not_depend_on_who_watches(
    fresh: Prepared, prepared: tuple[Prepared, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = train(experiment(), fresh, "base", 1)
    shutil.copytree(prepared[1], tmp_path / "unwatched")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "unwatched"))
    others = {"monitors.probe_every": None, "monitors.n_gram": 2, "alarms.rules": {**NO_RULES, "entropy": {"above": 0}}}
    unwatched = train(experiment(**others), fresh, "base", 1)
    assert [(each.rollout, each.policy) for each in watched.iterations] == [
        (each.rollout, each.policy) for each in unwatched.iterations
    ]
    assert [each.health for each in watched.iterations] != [each.health for each in unwatched.iterations]


def test_the_plan_finds_what_the_run_started_from(returned: Run) -> None:
    start, mine = signal_at_start(returned.experiment, returned.start), experiment(**AWAY_FROM_THE_START)
    assert recorded_signals(plan_ablation(mine)) == {start: ["base"]}
    assert recorded_signals(plan_ablation(experiment(**AWAY_FROM_THE_START, **{"evaluation.samples": 7}))) == {}


def test_the_plan_goes_the_way_of_the_run_and_knows_keys_up_to_what_is_not_recorded(returned: Run) -> None:
    (run,) = plan_ablation(experiment(**AWAY_FROM_THE_START)).runs
    assert (run.iterations, run.models, run.test) == (returned.iterations, returned.models, returned.test)
    plan = plan_ablation(experiment(**AWAY_FROM_THE_START, **{"optimization.weight_decay": 0.5}))
    found = {(each.iteration, each.stage): each for each in plan.stages if each.run == "base seed 1"}
    assert found[1, "credit"].recorded is not None and found[1, "credit"].key is not None
    assert found[1, "update"].recorded is None and found[1, "update"].key is not None, "it can be computed now"
    assert found[2, "rollout"].key is None, "its policy is not known"


def test_the_first_probe_finds_the_warm_start_where_it_is(returned: Run) -> None:
    found = [default_store().metrics(each.health) for each in returned.iterations]
    assert [values["monitor/kl_warm_start"] > 1e-7 for values in found] == [False, True, False, True]
    assert all(values["monitor/mutual_information"] <= 1.3863 for values in found)  # the logarithm of four prompts


def test_an_alarm_goes_back_to_the_healthy_policy_with_the_change_that_it_states(returned: Run) -> None:
    store, iterations = default_store(), returned.iterations
    judgements = [read_health(each.health).alarm for each in iterations]
    assert [judgement.response for judgement in judgements] == ["none", "return", "none", "return"]
    assert [judgement.healthy for judgement in judgements] == [1, 1, 3, 3]
    warm_start = Reference(kind="policy", digest=lineage(iterations[0].rollout)["inputs"]["policy"].split("/")[1])
    for place in (1, 3):
        back = iterations[place].returned
        assert back is not None
        weights = [store.folder(policy) / "model.safetensors" for policy in (back, warm_start)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        assert lineage(back)["inputs"]["health"] == str(iterations[place].health)
    assert lineage(iterations[2].rollout)["inputs"]["policy"] == str(iterations[1].returned)
    rates = [lineage(each.policy)["parameters"]["settings"]["learning_rate"] for each in iterations]
    assert rates == [0.0004, 0.0004, 0.0002, 0.0002]
    assert ["selection" in each.made for each in iterations] == [False, False, True, True]
    assert returned.policy == iterations[3].returned


def test_a_run_that_was_killed_after_an_alarm_ends_with_the_digests_of_one_that_was_not(
    returned: Run, fresh: Prepared, prefect_server: str, tmp_path: Path
) -> None:
    home, expected = tmp_path / "home", everything(returned)
    with (tmp_path / "output").open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "PREFECT_API_URL": prefect_server, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        deadline = time.monotonic() + 500
        while len(list((home / "store" / "health").glob("*/manifest.json"))) < 2:  # that of iteration 2 has been raised
            assert started.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
            time.sleep(0.005)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    assert len(list((home / "store" / "health").glob("*/manifest.json"))) < 4
    assert everything(train(experiment(**AWAY_FROM_THE_START), fresh, "base", 1)) == expected


class Interrupted(BaseException):
    """What ends a run from outside, wherever it is."""


def interrupted(run: Run, iteration: Iteration) -> None:
    """End the run in its second iteration, when the alarm has been raised and nothing has been done about it."""
    if iteration.number == 2:
        raise Interrupted


@pytest.mark.parametrize("response", ["log", "stop"])
def test_a_run_that_was_interrupted_at_an_alarm_goes_on_as_one_that_was_not(
    response: str, fresh: Prepared, prepared: tuple[Prepared, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment(**{**AWAY_FROM_THE_START, "optimization.iterations": 3, "alarms.response": response})

    def outcome() -> tuple[EarlyEnd | None, list[Reference | None]]:
        run = train(chosen, fresh, "base", 1)
        return run.ended, everything(run)

    with pytest.raises(Interrupted):
        train(chosen, fresh, "base", 1, interrupted)
    resumed = outcome()
    shutil.copytree(prepared[1], tmp_path / "undisturbed")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "undisturbed"))
    assert resumed == outcome()
    made = sorted(path.parent.name for path in (tmp_path / "home" / "store" / "health").glob("*/manifest.json"))
    assert len(made) == (3 if response == "log" else 2)
    assert (resumed[0] is not None) == (response == "stop")


def test_after_the_last_return_an_alarm_stops_the_run(returned: Run, fresh: Prepared) -> None:
    settings = {**AWAY_FROM_THE_START, "alarms.maximum_returns": 1}
    run = train(experiment(**settings), fresh, "base", 1)
    assert run.ended is not None and run.ended.reason == "the alarm on kl_warm_start"
    assert "base seed 1 was stopped at iteration 4 after 1 returns: kl_warm_start" in run.ended.message
    assert run.policy == run.iterations[3].policy


def test_an_alarm_that_stops_names_the_healthy_policy(fresh: Prepared) -> None:
    settings = {"alarms.response": "stop", "alarms.rules": {**NO_RULES, "reply_tokens": {"above": 1}}}
    ended = train(experiment(**settings), fresh, "base", 1).ended
    assert ended is not None and "reply_tokens must be at most 1, and is" in ended.message
    assert str(fresh.warm_start) in ended.message


ALIKE = {
    "rollout.temperature": 0.01,
    "rewards": {"goal": {"level": "outcome", "weight": 1.0}, "format": {"level": "outcome", "weight": 0.0}},
}
"""Every reply of a group is the same, in a world without chance."""


@pytest.mark.parametrize(
    ("name", "settings", "seen"),
    [
        (
            "zero_variance_groups",
            {**ALIKE, "guards.zero_variance_groups": 2, "guards.no_signal": None},
            "in the last 2 iterations",
        ),
        (
            "no_signal",
            {**ALIKE, "guards.no_signal": 2, "guards.zero_variance_groups": None},
            "in the last 2 iterations",
        ),
    ],
)
def test_a_guard_ends_the_run_with_advice_and_tests_the_policy_that_it_ended_with(
    name: str, settings: dict[str, Any], seen: str, fresh: Prepared
) -> None:
    chosen = experiment(**settings, **{"optimization.iterations": 4})
    run = train(chosen, fresh, "base", 1)
    assert run.ended is not None
    assert (run.ended.when, run.ended.cause, run.ended.by) == ("iteration 2 of 4", "guard", (name,))
    assert re.search(f"ended by the guard {name}: .*{seen}", run.ended.message)
    require_good(run.ended.message, fresh.warm_start)
    last, test = run.iterations[-1], run.test
    assert len(run.iterations) == 2 and last.evaluation is not None and test is not None
    for evaluation in (last.evaluation, test):
        evaluated = [record["inputs"]["policy"] for record in default_store().lineage(evaluation).values()]
        assert str(last.policy) in evaluated
    default_store().verify(last.policy)
    # Two iterations are left; the evaluation that was due after the last was made where the run ended.
    assert stages_not_called(run) == dict.fromkeys(("rollout", "probe", "credit", "update", "health"), 2)


@pytest.mark.parametrize(
    ("name", "settings", "seen"),
    [
        ("mismatch", {"optimization.maximum_mismatch": 1e-12}, "iteration 1 the learner must give"),
        ("not_finite", {}, "iteration 1 the "),
    ],
)
def test_a_fault_leaves_the_run_out_with_advice_and_the_last_good_policy_intact(
    name: str, settings: dict[str, Any], seen: str, fresh: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment(**settings)
    if name == "not_finite":  # no configuration that is accepted gets there surely
        accepted = UpdateParameters.of

        def overflowing(*section: Any, **further: Any) -> UpdateParameters:
            found = accepted(*section, **further)
            settings = found.settings.model_copy(update={"learning_rate": 1e30})
            return found.model_copy(update={"settings": settings})

        monkeypatch.setattr(UpdateParameters, "of", overflowing)
    with pytest.raises(TrainingEnded, match=f"ended by the guard {name}: .*{seen}") as caught:
        train(chosen, fresh, "base", 1)
    assert caught.value.fault == name
    require_good(caught.value.message, fresh.warm_start)


def test_a_fault_of_one_run_does_not_keep_the_others_of_an_ablation_from_theirs(fresh: Prepared) -> None:
    variants = {"ended": {"optimization": {"maximum_mismatch": 1e-12}}, "base": {}}
    chosen = experiment(**{"variants": variants, "ablation.variants": list(variants), "optimization.iterations": 1})
    outcomes = SharedRuns(chosen, fresh, open_record(chosen, fresh), None).outcomes([("ended", 1), ("base", 1)])
    assert [type(each) for each in outcomes.values()] == [TrainingEnded, Run]
    assert "in the update of ended seed 1" in str(outcomes["ended", 1])
    states = {run.data.tags["mlflow.runName"]: run.info.status for run in recorded()}
    assert (states["ended seed 1"], states["base seed 1"]) == ("FAILED", "FINISHED")


def recorded() -> list[Any]:
    """All runs in MLflow."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home() / 'mlflow.db'}")
    return [run for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]


def test_replies_that_never_end_are_guarded_against(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    settings = {"agent.maximum_reply_tokens": 2, "warm_start.enabled": False, "guards.truncated_replies": 1}
    chosen = experiment(**settings)
    unprepared = prepare_policy(chosen, prepare_materials(chosen))
    ended = train(chosen, unprepared, "base", 1).ended
    assert ended is not None and ended.by == ("truncated_replies",)
    require_good(ended.message, unprepared.warm_start)


def require_good(message: str, expected: Reference) -> None:
    """The message names a policy, which is the expected one, and which the store holds intact."""
    found = re.search(r"The last good policy is policy/([0-9a-f]{32})$", message)
    assert found is not None and found.group(1) == expected.digest
    default_store().verify(expected)


def test_a_calibration_runs_every_seed_and_writes_what_it_found(fresh: Prepared, tmp_path: Path) -> None:
    unguarded = {f"guards.{name}": None for name in ("no_signal", "zero_variance_groups", "truncated_replies")}
    chosen = experiment(**unguarded, **{"optimization.iterations": 1, "ablation.seeds": [1, 2]})
    show_calibration([chosen], {}, tmp_path / "docs")
    written = json.loads((tmp_path / "docs" / "echo-trap.json").read_text())
    assert [(run["seed"], run["half"]) for run in written["runs"]] == [(1, "choosing"), (2, "trying")]
    (said,) = re.findall(r"scored ([\d,]+) tokens", (tmp_path / "docs" / "echo-trap.md").read_text())
    assert int(said.replace(",", "")) > 0


def run_that_is_killed() -> None:
    """The run that goes back twice, in a process of its own and the home that it is given."""
    chosen = experiment(**AWAY_FROM_THE_START)
    train(chosen, prepare_policy(chosen, prepare_materials(chosen)), "base", 1)


if __name__ == "__main__":
    run_that_is_killed()
