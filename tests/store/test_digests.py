"""Digests: one canonical text for a value, and the bytes of a file."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.store.digests import canonical_json, digest_of, sha256_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_canonical_json_loses_nothing_and_ignores_the_order_of_keys(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == text


def test_what_is_not_finite_has_no_digest() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        digest_of({"learning_rate": float("inf")})


def test_the_digest_is_half_of_the_sha256_of_the_canonical_text() -> None:
    # printf '{"a":[1,2.5,null],"b":"é"}' | sha256sum
    assert canonical_json({"b": "é", "a": [1, 2.5, None]}) == '{"a":[1,2.5,null],"b":"é"}'
    assert digest_of({"b": "é", "a": [1, 2.5, None]}) == "41a039b5a690a0e490a416507920c999"
    assert digest_of({"a": 1}) != digest_of({"a": 1.0}), "the text of a number is part of the value"


def test_what_json_has_no_form_for_has_no_digest() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        digest_of({"names": {"a", "b"}})


@given(st.binary(max_size=200))
def test_the_digest_of_a_file_is_that_of_its_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()
