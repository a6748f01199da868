from typing import Any

import pytest

from turnwise.store import Reference
from turnwise.tracking.finding import RunArtifacts
from turnwise.tracking.reproduction import UNEXPLAINED, differing_ingredients, first_difference, steps, why_different


def reference(kind: str, digit: str) -> Reference:
    return Reference(kind=kind, digest=digit * 32)


def run(*rollouts: str, tokenizer: str = "b") -> RunArtifacts:
    """A run whose rollouts have these digests."""
    return RunArtifacts(
        variant="mt-grpo",
        seed=1,
        experiment={},
        prepared={"tokenizer": reference("tokenizer", tokenizer), "train_task_set": reference("task_set", "a")},
        start=reference("evaluation", "c"),
        iterations=[{"rollout": reference("rollout", digit), "policy": reference("policy", "d")} for digit in rollouts],
        test=reference("evaluation", "e"),
    )


def test_steps_stand_in_the_order_of_making() -> None:
    names = [step.name for step in steps(run("1"), run("1"))]
    expected = ["train_task_set", "tokenizer", "start: evaluation", "iteration 1: rollout", "iteration 1: policy"]
    assert names == [*expected, "test: evaluation"]
    assert first_difference(steps(run("1"), run("1"))) is None


def test_the_first_difference_is_the_earliest() -> None:
    different = first_difference(steps(run("1", "2"), run("1", "3")))
    assert different is not None and different.name == "iteration 2: rollout"
    different = first_difference(steps(run("1", "2"), run("9", "3", tokenizer="f")))
    assert different is not None and different.name == "tokenizer"


def test_a_run_that_ended_earlier_differs_where_the_other_goes_on() -> None:
    different = first_difference(steps(run("1", "2"), run("1")))
    assert different is not None and (different.name, different.again) == ("iteration 2: rollout", None)


def test_what_a_step_was_made_from_is_compared_down_to_the_key() -> None:
    one = {"code": "x", "parameters": {"seed": 1}, "platform": {"packages": {"torch": "2.12", "numpy": "2.3"}}}
    other = {"code": "x", "parameters": {"seed": 1}, "platform": {"packages": {"torch": "2.13", "numpy": "2.3"}}}
    assert differing_ingredients(one, other) == ["platform.packages.torch"]
    assert differing_ingredients(one, one) == []


AVX2, AVX512 = ["avx", "avx2", "fma"], ["avx", "avx2", "avx512bw", "avx512f", "fma"]


def made(flags: list[str], vendor: str = "AuthenticAMD", code: str = "c0de", **platform: Any) -> dict[str, Any]:
    described = {"packages": {"torch": "2.13.0"}, "variables": {}, **platform}
    return {"parameters": "p", "code": code, "platform": {"processor": {"vendor": vendor, "flags": flags}, **described}}


@pytest.mark.parametrize(
    ("former", "now", "sentence"),
    [
        (
            made(AVX512),
            made(AVX2),
            "made on a processor with avx512f; this one has none: figures may differ in the second decimal",
        ),
        (
            made(AVX2, vendor="GenuineIntel"),
            made(AVX512),
            "made on a processor without avx512f; this one has it; made on a processor of GenuineIntel; this one is of "
            "AuthenticAMD: figures may differ in the second decimal",
        ),
        (
            made(AVX2, packages={"torch": "2.12.0"}, variables={"MKL_CBWR": "AVX2"}),
            made(AVX2),
            "made with packages.torch 2.12.0; here it is 2.13.0; made with variables.MKL_CBWR AVX2; here it is absent: "
            "figures may differ in the second decimal",
        ),
        (made(AVX2, code="edited"), made(AVX2), "made by other code"),
        (
            made(AVX512, code="edited"),
            made(AVX2),
            "made by other code; made on a processor with avx512f; this one has none",
        ),
        (
            {},
            made(AVX2),
            "made with parameters, code, platform unknown; on another platform "
            "figures may differ in the second decimal",
        ),
        (made(AVX2), made(AVX2), UNEXPLAINED),
    ],
)
def test_why_a_repeat_differs_is_one_sentence(former: dict[str, Any], now: dict[str, Any], sentence: str) -> None:
    assert why_different(former, now) == sentence
