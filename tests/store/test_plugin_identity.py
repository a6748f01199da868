"""What a cache key has of plug-ins besides their code: versions of packages, and contents of files."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from turnwise.plugins import versions
from turnwise.store.plugin_identity import plugin_ingredients


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "identified_rule.py").write_text("import json\n\nimport numpy as np\n\nimport identified_part\n")
    (tmp_path / "identified_part.py").write_text("import scipy\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return "identified_rule"


def test_packages_that_the_code_imports_count_by_version_also_those_of_its_own_files(module: str) -> None:
    found = plugin_ingredients([module], ["pydantic"])["packages"]
    assert found == versions(["numpy", "pydantic", "scipy"])


def test_files_count_by_content_under_a_name_without_their_place(module: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("a")
    other.write_text("a")
    of_one, of_other = (plugin_ingredients([module], files={"prompt": path}) for path in (one, other))
    assert of_one == of_other
    other.write_text("b, longer")
    assert plugin_ingredients([module], files={"prompt": other}) != of_one


def test_without_plugins_nothing_is_added() -> None:
    assert plugin_ingredients([], ["numpy"]) == {}
