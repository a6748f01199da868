"""Every bad configuration is refused in one message that names what is wrong and where, before any compute."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.config.bad_configurations import (
    BY_SETTING,
    MODELS,
    NAMES,
    NOT_FINITE,
    OUT_OF_BOUNDS,
    PRESETS,
    TRACKING,
    WORLD_FILES,
    WORLDS,
    YAML_TEXT,
    File,
    Settings,
    Value,
)
from turnwise.config.overlays import REPLACED_WHOLE
from turnwise.errors import ConfigurationError
from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
PARAMETERS = ROOT / "tests" / "parameters.yaml"
VALUES = (*NAMES, *NOT_FINITE, *OUT_OF_BOUNDS, *MODELS, *TRACKING, *WORLDS, *PRESETS)
CASES = (*YAML_TEXT, *BY_SETTING, *VALUES, *WORLD_FILES)
LONGEST = 1200
"""Characters of a message that can still be read."""


def refusal(overlays: tuple[Path, ...] = (), settings: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(PARAMETERS, overlays, settings)
    message = str(caught.value)
    assert len(message) <= LONGEST and "Traceback" not in message
    return message


def only(variants: str) -> tuple[str, ...]:
    """Where a case is about variants, the ablation has no others."""
    names = re.match(r"\{('[^']*'|[^:]+):", variants)
    return (f"ablation.variants=[{names[1] if names else ''}]",)


def test_there_are_as_many_as_were_tried() -> None:
    assert len(set(CASES)) == len(CASES) >= 238


@pytest.mark.parametrize("case", [*YAML_TEXT, *WORLD_FILES], ids=lambda case: case.name)
def test_a_bad_file_is_refused_with_its_line_and_column(case: File, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(case.content)
    message = refusal((path,))
    assert case.says in message
    assert str(path) in message
    assert re.search(rf"bad\.yaml:{case.place}\b" if case.place else r"bad\.yaml", message)


@pytest.mark.parametrize("case", BY_SETTING, ids=lambda case: ascii(case.settings[-1])[:40])
def test_a_bad_setting_is_refused(case: Settings) -> None:
    assert case.says in refusal(settings=case.settings)


@pytest.mark.parametrize("case", VALUES, ids=lambda case: ascii(f"{case.key}={case.value}")[:60])
def test_a_bad_value_is_refused_with_its_key(case: Value) -> None:
    alone = only(case.value) if case.key == "variants" else ()
    assert (case.says or case.key) in refusal(settings=(f"{case.key}={case.value}", *alone))


@pytest.mark.parametrize(
    "case",
    [case for case in VALUES if case.key.partition(".")[0] not in REPLACED_WHOLE],
    ids=lambda case: ascii(f"{case.key}={case.value}")[:60],
)
def test_a_bad_value_in_a_file_is_refused_with_its_line_and_column(case: Value, tmp_path: Path) -> None:
    path, parts = tmp_path / "bad.yaml", case.key.split(".")
    lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(parts)]
    path.write_text("# a comment\n" + "\n".join(lines) + f" {case.value}\n", encoding="utf-8")
    message = refusal((path,))
    assert (case.says or case.key) in message
    found = re.search(r"bad\.yaml:(\d+):(\d+): ", message)
    assert found is not None and int(found[1]) in range(2, len(parts) + 2), message
