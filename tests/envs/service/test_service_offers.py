"""What a server is started with is read strictly, and a client can name nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_samples import BRITTLE

from envs.frozen_lake import FrozenLake
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer, read_offers, served
from envs.service.processes import ProcessHome
from envs.service.threads import ThreadHome


def test_a_world_is_named_with_or_without_parameters(tmp_path: Path) -> None:
    (tmp_path / "lake.yaml").write_text("size: 5\nsuccess_rate: 0.8\n")
    texts = ["frozen_lake", 'search={"hops": [1, 2]}', "search={turns: 3}", f"frozen_lake={tmp_path}/lake.yaml"]
    assert read_offers(texts) == [
        Offer("frozen_lake", {}),
        Offer("search", {"hops": [1, 2]}),
        Offer("search", {"turns": 3}),
        Offer("frozen_lake", {"size": 5, "success_rate": 0.8}),
    ]


def test_a_preset_is_written_out_and_parameters_are_laid_over_it() -> None:
    slippery = {**FrozenLake.presets["ragen-v2"], "turns": 3}
    assert read_offers(["frozen_lake@ragen-v2={turns: 3}", "frozen_lake@ragen-v2"]) == [
        Offer("frozen_lake", slippery),
        Offer("frozen_lake", FrozenLake.presets["ragen-v2"]),
    ]
    with pytest.raises(ValueError, match="the world 'frozen_lake' has no preset 'ragen-v3': did you mean"):
        read_offers(["frozen_lake@ragen-v3"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search={hops: [1}", "the parameters of 'search' must be YAML or JSON"),
        ("search={1: 2}", "must be names with values"),
        ("search={on: 2026-01-01}", "must be YAML or JSON"),
        ("search=", "found no file"),
        ("search=nowhere.yaml", "found no file 'nowhere.yaml'"),
        ("search={a: !!python/object/apply:os.getcwd []}", "must be YAML or JSON"),
    ],
)
def test_what_cannot_be_parameters_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_offers([text])


def test_no_world_an_unknown_world_an_unknown_parameter_and_a_world_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one world"):
        read_offers([])
    with pytest.raises(ValueError, match="world must be one of"):
        served([Offer("nowhere")])
    with pytest.raises(ValueError, match=r"'frozen_lake'.*colour"):
        served([Offer("frozen_lake", {"colour": "red"})])
    with pytest.raises(ValueError, match=r"offered once; 'frozen_lake' with {'size': 5} is not"):
        served([Offer("frozen_lake", {"size": 5}), Offer("frozen_lake"), Offer("frozen_lake", {"size": 5})])


def test_heavy_worlds_live_in_processes_and_others_where_it_is_said() -> None:
    def processes(world: str, given: dict[str, int]) -> int:
        (offer,) = read_offers([world], given)
        return offer.processes

    assert (processes("sciworld", {}), processes("browser", {}), processes("frozen_lake", {})) == (1, 1, 0)
    assert (processes("sciworld", {"sciworld": 0}), processes("frozen_lake", {"frozen_lake": 3})) == (0, 3)
    with pytest.raises(ValueError, match="processes must be of worlds that are served; found 'search'"):
        read_offers(["frozen_lake"], {"search": 1})
    with pytest.raises(ValueError, match="processes of 'frozen_lake' must be a whole number from 0 to 64; found 'two'"):
        read_offers(["frozen_lake"], {"frozen_lake": "two"})  # type: ignore[dict-item]
    homes = [each.home for each in served([Offer(BRITTLE), Offer(BRITTLE, {"instruction": "x"}, processes=1)])]
    assert [type(home) for home in homes] == [ThreadHome, ProcessHome]


@pytest.mark.parametrize("name", vars(ServiceLimits()))
def test_limits_are_above_zero(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        ServiceLimits(**{name: 0})  # type: ignore[arg-type]
