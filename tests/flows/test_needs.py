"""What an ablation needs of disk and memory is reported before, and one that the disk has no room for is refused."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from safetensors import safe_open

from flows.commands.plan import show_plan
from flows.runtime import disk
from flows.runtime.disk import DiskGuard, needs_of
from tests.own_view import let_see
from turnwise.config.model_settings import Adapter
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count, trained

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"


def tiny(**settings: Any) -> Experiment:
    return load(ROOT / "params.yaml", [TINY], settings)


@pytest.mark.parametrize("tied", [True, False])
def test_the_size_of_a_policy_is_known_before_it_is_made(tied: bool, tmp_path: Path) -> None:
    from turnwise.policy.architecture import create_policy

    experiment = tiny(**{"policy.tied_embeddings": tied})
    section = experiment.policy
    made = create_policy(
        tmp_path,
        vocabulary_size=section.vocabulary,
        context_length=64,
        end_token=1,
        pad_token=0,
        seed=0,
        hidden=section.hidden,
        layers=section.layers,
        heads=section.heads,
        key_value_heads=section.heads,
        feed_forward=section.feed_forward,
        tied=tied,
    )
    dimensions = dimensions_of(experiment.policy)
    assert dimensions is not None
    shapes = dimensions.shapes
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert shapes == {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert count(shapes) == made
    adapter = Adapter(rank=2, alpha=4)
    per_layer = 4 * (64 + 64) + 3 * (64 + 128)  # q, k, v, o; gate, up, down
    assert trained(shapes, adapter) == 2 * 2 * per_layer


def policies(**settings: Any) -> int:
    found = needs_of(tiny(**{"optimization.iterations": 10, "evaluation.every": 5, **settings}))
    assert found is not None
    return found.policies


def test_what_storage_keeps_is_what_the_disk_needs() -> None:
    dimensions = dimensions_of(tiny().policy)
    assert dimensions is not None
    weights, runs = 4 * count(dimensions.shapes), 2
    prepared = 2 * weights
    assert policies() == prepared + runs * (3 * weights + 3 * weights)  # the last and two evaluated; one whole
    assert policies(**{"storage.keep_evaluated": False}) == prepared + runs * (weights + 3 * weights)
    everything = {"storage.keep_last": None, "storage.keep_optimizer": None}
    assert policies(**everything) == prepared + runs * 10 * (weights + 3 * weights)
    lora = {"optimization.adapter": {"rank": 2, "alpha": 4}, "storage.keep_optimizer": None}
    alone = 4 * trained(dimensions.shapes, Adapter(rank=2, alpha=4))
    assert policies(**lora) == prepared + runs * (3 * alone + 10 * 3 * alone), (
        "an adapter is kept without what it belongs to"
    )
    lag = {"rollout.lag": 1, "optimization.correction": {"kind": "truncate"}}
    assert policies(**lag) == policies() + runs * weights, "the policy that samples the next iteration"


def test_the_greedy_episodes_of_a_rule_that_compares_with_them_take_disk() -> None:
    def episodes(estimator: str) -> int:
        needs = needs_of(tiny(**{"credit.estimator": estimator, "ablation.variants": ["own"], "variants.own": {}}))
        assert needs is not None
        return needs.episodes

    assert episodes("remax") > episodes("rloo")


def test_the_plan_tells_disk_and_memory_within_eighty_columns() -> None:
    said = io.StringIO()
    show_plan(tiny(), Console(file=said, width=80))
    assert re.search(r"Disk: [\d.]+ MB at most \(.* policies, .* episodes,\s.* records\)", said.getvalue())
    assert re.search(r"Memory of each process on the cpu, in GiB", said.getvalue())
    assert max(len(line) for line in said.getvalue().partition("Disk:")[2].splitlines()) <= 80


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def with_free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda free: let_see(monkeypatch, disk, "shutil", disk_usage=lambda path: Usage(10**9, 0, free))


def test_an_ablation_is_refused_when_the_disk_has_too_little_room(
    turnwise_home: Path, with_free: Callable[[int], None]
) -> None:
    with_free(1_000_000)
    guard = DiskGuard(5_000_000)
    with pytest.raises(ConfigurationError, match=r"5\.0 MB.*1\.0 MB.*TW-small-disk"):
        guard.started("task_set", "preparation")


def test_what_is_there_already_needs_no_room(turnwise_home: Path, with_free: Callable[[int], None]) -> None:
    (turnwise_home / "store").mkdir(parents=True)
    (turnwise_home / "store" / "made").write_bytes(bytes(4_500_000))
    with_free(1_000_000)
    DiskGuard(5_000_000).started("task_set", "preparation")


def test_an_ablation_that_fits_is_let_go_on(turnwise_home: Path, with_free: Callable[[int], None]) -> None:
    with_free(6_000_000)
    DiskGuard(5_000_000).started("task_set", "preparation")
