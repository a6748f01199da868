"""The form of a deployment on Prefect's page: what it says of each value, and what it makes of wrong and empty ones."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.utilities.schema_tools import ValidationError, validate

from flows.deployments import Changes, ablation


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return ablation.parameters.model_dump()


def test_every_field_of_the_form_says_what_it_is(schema: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": described
        for name, section in schema["definitions"].items()
        for field, described in section.get("properties", {}).items()
    }
    assert len(fields) > 200
    assert [name for name, described in fields.items() if not described.get("description")] == []


@pytest.mark.parametrize(
    ("section", "field", "value", "reason"),
    [
        ("optimization", "learning_rate", 20, "20 is greater than the maximum of 10.0"),
        ("optimization", "iterations", 0, "0 is less than the minimum of 1"),
        ("compute", "device", "gpu", "'gpu' is not one of ['cpu', 'cuda']"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_what_must_hold(
    schema: dict[str, Any], section: str, field: str, value: object, reason: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        validate({"changes": {section: {field: value}}}, schema, raise_on_error=True)
    assert f"changes.{section}.{field}" in str(refused.value) and str(refused.value).endswith(reason)


def test_a_section_that_is_opened_and_left_empty_changes_nothing(schema: dict[str, Any]) -> None:
    for name in Changes.model_fields:
        (reference, _) = schema["definitions"]["Changes"]["properties"][name]["anyOf"]
        fields = schema["definitions"][reference["$ref"].rpartition("/")[2]]["properties"]
        sent = {field: each["default"] for field, each in fields.items() if "default" in each}
        validate({"changes": {name: sent}}, schema, raise_on_error=True)
        assert Changes.model_validate({name: sent}).settings() == {}
