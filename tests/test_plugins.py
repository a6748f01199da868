"""Plug-ins: found by `module:name` and by entry point, refused in words before compute, and part of the cache key."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from turnwise.checking.named_subjects import kind_of
from turnwise.errors import ConfigurationError
from turnwise.plugins import (
    CREDIT_RULE,
    KINDS,
    REWARD,
    installed,
    is_named,
    plugin,
    plugin_modules,
    require_installed,
    versions,
)
from turnwise.world import world_class


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a module, and a package that registers one of its functions."""
    (tmp_path / "some_rules.py").write_text("def rule(batch):\n    return batch\n\n\nclass Holder:\n    inner = 7\n")
    information = tmp_path / "some_rules-1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some-rules\nVersion: 1.5\n")
    (information / "entry_points.txt").write_text("[turnwise.estimators]\nsome = some_rules:rule\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def test_a_plugin_is_found_by_module_and_by_entry_point(folder: Path) -> None:
    named, registered = plugin(CREDIT_RULE, "key", "some_rules:rule"), plugin(CREDIT_RULE, "key", "some")
    assert named is registered and named.__name__ == "rule"
    assert plugin(CREDIT_RULE, "key", "some_rules:Holder.inner") == 7
    assert "some" in installed(CREDIT_RULE) and "some" not in installed(REWARD)
    assert is_named(CREDIT_RULE, "some") and not is_named(CREDIT_RULE, "grpo")
    assert plugin_modules(CREDIT_RULE, ["some", "some_rules:rule", "grpo"]) == ["some_rules", "some_rules"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sone", "credit.estimator must be one of grpo, some, or 'module:name'; found 'sone': did you mean 'some'"),
        ("no_such_module:rule", "credit.estimator must name a credit rule in a module that can be imported from here"),
        ("some_rules:rul", "gives AttributeError: module 'some_rules' has no attribute 'rul'"),
        ("some rules:rule", "must be module:name, with names of Python"),
        ("os.path:join.__globals__[x]", "must be module:name, with names of Python"),
    ],
)
def test_what_is_no_plugin_is_refused_with_what_there_is(name: str, said: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError) as found:
        plugin(CREDIT_RULE, "credit.estimator", name, ["grpo"])
    assert said in str(found.value)


def test_what_the_import_of_a_plugin_raises_is_said_with_its_place(folder: Path) -> None:
    (folder / "broken_rules.py").write_text("import os\n\nRATE = int(os.path.join('a', 'b'))\n")
    where = f"ValueError: .*{folder / 'broken_rules.py'}:3.*TW-plugin-import"
    with pytest.raises(ConfigurationError, match=where):
        plugin(CREDIT_RULE, "credit.estimator", "broken_rules:rule")
    assert kind_of("broken_rules:Anything") == "world"
    with pytest.raises(ConfigurationError, match=where):
        world_class("broken_rules:Anything")


def test_a_declared_package_that_is_missing_is_named() -> None:
    require_installed("the rule x", ["numpy"])
    assert versions(["no-such-package"]) == {"no-such-package": None}
    with pytest.raises(ConfigurationError, match=r"no-such-package.*TW-missing-package"):
        require_installed("the rule x", ["numpy", "no-such-package"])


def test_kinds_have_groups_of_their_own() -> None:
    assert len({kind.group for kind in KINDS}) == len(KINDS)
