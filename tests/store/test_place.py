"""A shared place waits for a server that is busy or keeps half, and says in one sentence when it gives up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.own_view import let_see
from turnwise.errors import ConfigurationError, StoreUnreachable
from turnwise.store import place
from turnwise.store.place import MARKER, SharedPlace


class Unsteady(SharedPlace):
    """A place in memory that raises what it is told to, and keeps the first half of as many files as it is told to."""

    def __init__(self, *errors: Exception, halves: int = 0) -> None:
        super().__init__("memory")
        self.errors, self.halves, self.files = list(errors), halves, dict[str, bytes]()

    def _sizes(self, beginning: str) -> dict[str, int]:
        if self.errors:
            raise self.errors.pop(0)
        return {name: len(content) for name, content in self.files.items() if name.startswith(beginning)}

    def _read(self, names: list[str]) -> dict[str, bytes]:
        return {name: self.files[name] for name in names if name in self.files}

    def _download(self, name: str, to: Path) -> bool:
        to.write_bytes(self.files[name])
        return True

    def _write(self, name: str, content: bytes) -> None:
        self.files[name] = content[: len(content) // 2] if self.halves > 0 else content
        self.halves -= 1

    def _upload(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._write(name, path.read_bytes())

    def _remove(self, names: Collection[str]) -> None:
        self.files = {name: content for name, content in self.files.items() if name not in names}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made, none of which takes time."""
    made: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        made.append(seconds)
        clock[0] += seconds

    let_see(monkeypatch, place, "time", sleep=sleep, monotonic=lambda: clock[0])
    return made


def test_a_busy_place_is_asked_again_after_growing_pauses(pauses: list[float]) -> None:
    unsteady = Unsteady(OSError("503"), TimeoutError(), ConnectionResetError())
    assert unsteady.sizes("") == {}
    assert pauses == [0.2, 0.4, 0.8]


def test_a_place_that_stays_away_is_given_up_in_one_sentence(pauses: list[float]) -> None:
    unsteady = Unsteady(*(OSError("slow down\nand more") for _ in range(99)))
    with pytest.raises(StoreUnreachable) as refused:
        unsteady.sizes("")
    assert refused.value.message == (
        "the shared store memory must answer within 120 s; it does not (slow down): when it does, give the same "
        "command again, which goes on where this one stopped"
    )
    assert sum(pauses) <= place.PATIENCE_SECONDS and max(pauses) == place.LONGEST_PAUSE_SECONDS


def test_what_was_kept_by_half_is_sent_again(tmp_path: Path) -> None:
    unsteady = Unsteady(halves=2)
    unsteady.write("note", b"whole")
    (tmp_path / "file").write_bytes(b"1234")
    unsteady.halves = 2
    unsteady.upload("", {"one": tmp_path / "file", "two": tmp_path / "file"})
    assert unsteady.files == {"note": b"whole", "one": b"1234", "two": b"1234"}


def test_a_refusal_is_not_waited_for(pauses: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="TW-store-unusable"):
        Unsteady(PermissionError("denied")).sizes("")
    assert pauses == []


def test_a_mistake_of_ours_is_not_waited_for(pauses: list[float]) -> None:
    with pytest.raises(ZeroDivisionError):
        Unsteady(ZeroDivisionError()).sizes("")
    assert pauses == []


def test_a_place_is_shown_to_be_writable_by_writing() -> None:
    unsteady = Unsteady()
    unsteady.require_writable()
    assert unsteady.files == {MARKER: b'{"layout": 1}\n'}
