"""Names as MLflow takes them: one rule for metrics, parameters, tags and scores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mlflow.utils import validation
from tracking_samples import open_child, traces, trajectory

from turnwise.tracking import Recorder
from turnwise.tracking.values import LONGEST, flatten, mlflow_name, shortened_tags

NAMES = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="aB1/._-: @=%\\\n\0é\udcff", max_size=20),
    st.text(alphabet="./a", max_size=8),
)
"""Any text, halves of characters included, and more of what MLflow and paths take for something else."""


@given(name=NAMES)
@example(name="acc=1")
@example(name="..")
@example(name="a" * 249 + "/..")
@example(name="/" * 300)
def test_mlflow_takes_every_name(name: str) -> None:
    written = mlflow_name(name)
    validation._validate_metric(written, 1.0, 0, 0)
    validation._validate_param(written, "value")
    validation._validate_tag(written, "value")
    validation._validate_trace_tag(written, "value")
    assert 0 < len(written) <= validation.MAX_ENTITY_KEY_LENGTH == LONGEST
    assert written.encode().decode() == written
    assert mlflow_name(written) == written


@given(name=NAMES)
def test_a_name_that_mlflow_takes_stays_as_it_is(name: str) -> None:
    try:
        validation._validate_tag(name, "value")
    except Exception:
        return
    assert mlflow_name(name) == name or name.endswith("\n") or not name


@given(names=st.lists(st.text(alphabet="ab=%/.\n@ é", max_size=12), max_size=20, unique=True))
def test_two_names_are_never_one(names: list[str]) -> None:
    assert len(set(map(mlflow_name, names))) == len(names)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("pass@1", "pass_at_1"),
        ("acc=1", "acc_eq_1"),
        ("50%", "50_percent_"),
        ("time (s)", "time _x28_s_x29_"),
        ("validation/größe: a-b.c", "validation/größe: a-b.c"),
        ("a//..", "a/_x_/_x2e_."),
    ],
)
def test_a_written_name_can_be_read(name: str, written: str) -> None:
    assert mlflow_name(name) == written


def test_whatever_a_user_calls_things_is_recorded(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    run = open_child(recorder)
    run.log_iteration(1, {"rollout/acc=1": 1.0, "rollout/time (s)": 0.5, "rollout/../x": 2.0, "rollout/pass@1": 0.0})
    run.log_summary({"test/sampled/acc=1": 1.0})
    run.resume(flatten({"world": {"parameters": {"a=b": 1, "c//d": {"e": 2}}}}), {"my tag=": "x"})
    run.log_trajectories("test", [trajectory()], weights={"exact match=1": 1.0})
    recorded = recorder._client.run(run.id).data
    assert recorded.metrics["rollout/acc_eq_1"] == recorded.metrics["test/sampled/acc_eq_1"] == 1.0
    assert recorded.params["world.parameters.a_eq_b"] == "1" and recorded.params["world.parameters.c/_x_/d.e"] == "2"
    assert recorded.tags["my tag_eq_"] == "x"
    assert len(traces(recorder, run)) == 1


def test_tags_and_parameters_have_names_by_the_same_rule() -> None:
    assert shortened_tags({"a=b": "c"}) == flatten({"a=b": "c"}) == {"a_eq_b": "c"}
