"""What a Ray cluster must have for an ablation, asked before a run waits for it for ever."""

from __future__ import annotations

import pytest

from flows.workers.ray_cluster import require_room, require_server_for
from turnwise.config.runner import Runner
from turnwise.errors import ConfigurationError

TWO_CORES = {"CPU": 2.0, "memory": 4.0 * 2**30}


def runner(**asked: float) -> Runner:
    return Runner(kind="ray", address="auto", **asked)  # type: ignore[arg-type]


def test_a_run_that_fits_is_not_refused() -> None:
    require_room(runner(cores=2.0, memory_gib=4.0), TWO_CORES)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cores": 3.0}, "takes 3 CPU, and the cluster has 2"),
        ({"cards": 1.0}, "takes 1 GPU, and the cluster has 0"),
        ({"memory_gib": 8.0}, "bytes, and the cluster has"),
    ],
)
def test_what_no_machine_has_is_refused(asked: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{said}.*TW-small-cluster"):
        require_room(runner(**asked), TWO_CORES)


def test_machines_that_cannot_reach_the_server_are_refused() -> None:
    one, two = ["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]
    require_server_for(one, "http://127.0.0.1:4200/api")
    require_server_for(two, "http://10.0.0.1:4200/api")
    with pytest.raises(ConfigurationError, match=r"\b2\b.*TW-prefect-address-local"):
        require_server_for(two, "http://127.0.0.1:4200/api")
