"""The commands of docs/neighbours.md, "With curl", run as they stand there, but for the port."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from service_samples import serving

from envs.service.offers import read_offers
from turnwise.world import make_world, with_preset

PAGE = Path(__file__).resolve().parents[3] / "docs" / "neighbours.md"
SERVED = "http://127.0.0.1:8600"


@pytest.mark.needs("curl")
def test_the_documented_commands_play_an_episode(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("## With curl")[2]
    offered = re.search(r"`turnwise serve (\S+)`", section)
    commands = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert offered and commands and SERVED in commands[1]
    with serving(*read_offers([offered[1]])) as url:
        script = "set -euo pipefail\n" + commands[1].replace(SERVED, url).replace("curl -s", "curl -s --fail -w '\\n'")
        run = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    health, seen, stepped, standing, closed = (json.loads(line) for line in run.stdout.splitlines() if line)
    assert (health["status"], closed) == ("ok", {"closed": True})
    name, _, preset = offered[1].partition("@")
    world = make_world(name, with_preset(name, preset, {}))
    environment = world.make(world.tasks("train", 1)[0], 0)
    assert seen["observation"]["text"] == environment.reset().text
    assert stepped["step"]["observation"]["text"] == environment.step("Up").observation.text
    assert standing["observation"] == stepped["step"]["observation"]
    paths = json.loads((tmp_path / "openapi.json").read_text())["paths"]
    assert {"/v2/episodes/{episode}/step", "/agentgym/{client}/{world}/{split}/reset"} <= set(paths)
    assert [path for path, told in paths.items() if not all("description" in each for each in told.values())] == []
