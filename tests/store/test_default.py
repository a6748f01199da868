"""Which store is the home's: what the section `storage` says, unless the environment says it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.store import default_store
from turnwise.store.default import CACHE_VARIABLE, URL_VARIABLE, nothing_is_stored, require_place, use_storage
from turnwise.store.shared import SharedStore

pytestmark = pytest.mark.usefixtures("turnwise_home")


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    use_storage("", None)
    yield
    use_storage("", None)


def test_without_a_word_it_is_the_local_one_and_there_is_one_object_of_it(turnwise_home: Path) -> None:
    assert default_store().place is None and default_store().root == turnwise_home / "store"
    assert default_store() is default_store()
    require_place()


def test_what_is_chosen_holds_for_this_process_and_those_that_it_starts(tmp_path: Path) -> None:
    use_storage(str(tmp_path), 0.5)
    store = default_store()
    assert isinstance(store, SharedStore) and store.place.url == str(tmp_path)
    assert (os.environ[URL_VARIABLE], os.environ[CACHE_VARIABLE]) == (str(tmp_path), "0.5")
    require_place()
    use_storage("", None)
    assert default_store().place is None and not {URL_VARIABLE, CACHE_VARIABLE} & os.environ.keys()


def test_what_the_user_has_put_into_the_environment_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(URL_VARIABLE, str(tmp_path))
    use_storage("/elsewhere", 1.0)
    assert os.environ[URL_VARIABLE] == str(tmp_path) and CACHE_VARIABLE not in os.environ


def test_a_place_that_is_not_there_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    use_storage(str(tmp_path / "not mounted"), None)
    with pytest.raises(ConfigurationError, match="TW-store-unusable"):
        require_place()


def test_a_store_is_empty_until_something_is_written(turnwise_home: Path) -> None:
    assert nothing_is_stored()
    with default_store().write("note") as draft:
        (draft.folder / "text").write_text("a text")
    assert not nothing_is_stored()
