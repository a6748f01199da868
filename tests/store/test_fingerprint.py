"""Fingerprints: what computes counts, however far away; what does not compute does not count."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.store import fingerprint as code

BASE = {
    "our_world/__init__.py": "",
    "our_world/world.py": '''"""A world."""
from our_world import rules
from .nested.deep import depth
def play():
    """Plays."""
    import our_world.late
    return rules.score() + depth()
''',
    "our_world/rules.py": "from our_world.helper import one\n\n\ndef score():\n    return one()  # a comment\n",
    "our_world/helper.py": "def one():\n    return 1\n",
    "our_world/late.py": "value = 1\n",
    "our_world/typed.py": "value = 1\n",
    "our_world/unrelated.py": "value = 1\n",
    "our_world/nested/__init__.py": "start = 1\n",
    "our_world/nested/deep.py": "from ..starred import *\nimport json, numpy\n\n\ndef depth():\n    return 1\n",
    "our_world/starred/__init__.py": "__all__ = ['part']\n",
    "our_world/starred/part.py": "value = 1\nimport beside.inner\n",
    "beside/inner.py": "value = 1\n",
}


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """Sources are read once per process; each test is to see its own."""
    forget()
    yield
    forget()


def forget() -> None:
    code._read.cache_clear()
    code._cached_sources.cache_clear()
    code._not_yet_written.clear()
    code._closure.cache_clear()
    code.definition_digest.cache_clear()
    code._definitions.cache_clear()
    code._is_uninstalled.cache_clear()
    code._edited_files.clear()
    code._looked_at.clear()
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in BASE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def fingerprint_after(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    forget()
    return code.fingerprint(["our_world.world"])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("our_world/world.py", "+ depth()", "- depth()"),
        ("our_world/rules.py", "one()", "one() + 1"),
        ("our_world/helper.py", "return 1", "return 2"),
        ("our_world/late.py", "1", "2"),
        ("our_world/__init__.py", "", "import os"),
        ("our_world/nested/__init__.py", "1", "2"),
        ("our_world/nested/deep.py", "return 1", "return 2"),
        ("our_world/starred/part.py", "1", "2"),
        ("beside/inner.py", "1", "2"),
    ],
)
def test_a_change_in_any_module_that_is_imported_changes_the_fingerprint(
    folder: Path, name: str, old: str, new: str
) -> None:
    before = code.fingerprint(["our_world.world"])
    assert fingerprint_after(folder, name, BASE[name].replace(old, new, 1)) != before
    assert fingerprint_after(folder, name, BASE[name]) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("our_world/rules.py", BASE["our_world/rules.py"].replace("# a comment", "# another comment")),
        ("our_world/rules.py", BASE["our_world/rules.py"].replace("return one()", "return (\n        one()\n    )")),
        ("our_world/world.py", BASE["our_world/world.py"].replace("A world.", "Another text.")),
        ("our_world/world.py", BASE["our_world/world.py"].replace('    """Plays."""\n', "")),
        ("our_world/unrelated.py", "value = 2\n"),
    ],
)
def test_comments_docstrings_formatting_and_modules_not_imported_do_not_count(
    folder: Path, name: str, text: str
) -> None:
    before = code.fingerprint(["our_world.world"])
    assert fingerprint_after(folder, name, text) == before


def test_imports_for_the_type_checker_do_not_count_but_their_alternative_does(folder: Path) -> None:
    text = (
        "import typing\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import our_world.typed\n"
        "if typing.TYPE_CHECKING:\n    from our_world import typed\nelse:\n    import our_world.unrelated\n"
    )
    before = fingerprint_after(folder, "our_world/late.py", text)
    assert fingerprint_after(folder, "our_world/typed.py", "value = 2\n") == before
    assert fingerprint_after(folder, "our_world/unrelated.py", "value = 2\n") != before


def test_an_empty_package_file_is_the_same_as_none(folder: Path) -> None:
    before = fingerprint_after(folder, "our_world/nested/__init__.py", '"""Only a text."""\n')
    (folder / "our_world/nested/__init__.py").unlink()
    forget()
    assert code.fingerprint(["our_world.world"]) == before


def test_a_module_left_out_is_neither_read_nor_followed(folder: Path) -> None:
    before = code.fingerprint(["our_world.world"], without=["our_world.rules"])
    assert before != code.fingerprint(["our_world.world"])
    fingerprint_after(folder, "our_world/helper.py", "def one():\n    return 2\n")
    assert code.fingerprint(["our_world.world"], without=["our_world.rules"]) == before


def test_the_order_in_which_modules_are_named_does_not_count(folder: Path) -> None:
    names = ["our_world.world", "our_world.unrelated"]
    assert code.fingerprint(names) == code.fingerprint(names[::-1]) != code.fingerprint(names[:1])


def test_imports_in_a_circle_end(folder: Path) -> None:
    assert fingerprint_after(folder, "our_world/helper.py", "import our_world.world\n\n\ndef one():\n    return 1\n")


def test_nothing_is_imported_to_find_the_code(folder: Path) -> None:
    (folder / "our_world" / "late.py").write_text("raise SystemExit('imported')\n")
    code.fingerprint(["our_world.world"])
    assert not [name for name in sys.modules if name.startswith("our_world")]


def test_a_module_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"our_world\.absent.*TW-plugin-import"):
        code.fingerprint(["our_world.absent"])
    with pytest.raises(ConfigurationError, match=r"absent_world.*TW-plugin-import"):
        code.fingerprint(["absent_world"])


def test_an_edit_while_the_process_runs_changes_nothing_but_is_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "SECONDS_BETWEEN_LOOKS", math.inf)
    before = code.fingerprint(["our_world.world"])
    code.warn_of_edits(["our_world.world"])
    assert caplog.records == []
    (folder / "our_world" / "helper.py").write_text("def one():\n    return 22\n")
    assert code.fingerprint(["our_world.world"]) == before, "the code in memory is the old one"
    code.warn_of_edits(["our_world.world"])
    assert caplog.records == [], "it is not time to look again"
    monkeypatch.setattr(code, "SECONDS_BETWEEN_LOOKS", 0.0)
    code.warn_of_edits(["our_world.world"])
    code.warn_of_edits(["our_world.world"])
    (record,) = caplog.records
    assert "helper.py has changed" in record.message


def test_our_own_packages_are_followed_and_others_are_not() -> None:
    named = ("turnwise.config.strict_yaml", "turnwise.seeding")  # of which one imports ruamel, the other numpy
    assert code.modules_of(named) == ("turnwise.config.strict_yaml", "turnwise.errors", "turnwise.seeding")


def test_what_is_left_out_may_be_a_package(folder: Path) -> None:
    named = ["our_world.world"]
    assert {"our_world.nested", "our_world.nested.deep", "our_world.starred.part"} <= {*code.modules_of(named)}
    left = code.modules_of(named, without=["our_world.nested"])
    assert {"our_world.world", "our_world.rules"} <= {*left}
    assert not [name for name in left if name.startswith(("our_world.nested", "our_world.starred"))]


GATHERING = {
    "__init__.py": '''"""Gathers."""
from typing import TYPE_CHECKING
from gathering.inner.first import one
from .second import two as second
if TYPE_CHECKING:
    import gathering.inner.typed
__all__ = ["one", "second"]
''',
    "first.py": "one = 1\n",
    "second.py": "import gathering.inner.deeper\ntwo = 2\n",
    "third.py": "three = 3\n",
    "typed.py": "four = 4\n",
    "deeper.py": "five = 5\n",
}


@pytest.fixture
def gathering(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package within one whose gathered names are looked through."""
    monkeypatch.setattr(code, "LOOKED_THROUGH", "gathering")
    (folder / "gathering" / "inner").mkdir(parents=True)
    (folder / "gathering" / "__init__.py").write_text("")
    for name, text in GATHERING.items():
        (folder / "gathering" / "inner" / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("imports", "modules"),
    [
        ("from gathering.inner import one", {"first"}),
        ("from gathering.inner import one as uno", {"first"}),
        ("from gathering.inner import second", {"second", "deeper"}),
        ("from gathering.inner import third", {"third"}),
        ("from gathering.inner.third import three", {"third"}),
        ("from gathering.inner import unknown", {"", "first", "second", "deeper"}),
        ("import gathering.inner", {"", "first", "second", "deeper"}),
        ("from gathering.inner import *", {"", "first", "second", "third", "typed", "deeper"}),
    ],
)
def test_a_name_that_a_package_gathers_counts_as_the_module_that_defines_it(
    gathering: Path, imports: str, modules: set[str]
) -> None:
    (gathering / "user.py").write_text(f"{imports}\n")
    forget()
    expected = {f"gathering.inner.{name}".removesuffix(".") for name in modules}
    assert {*code.modules_of(["user"])} - {"user"} == expected


@pytest.mark.parametrize("more", ["TABLE = {}", "import gathering.inner.first", "def computes(): pass", "one.change()"])
def test_a_package_that_does_anything_but_gather_counts_whole(gathering: Path, more: str) -> None:
    (gathering / "gathering" / "inner" / "__init__.py").write_text(f"{GATHERING['__init__.py']}{more}\n")
    (gathering / "user.py").write_text("from gathering.inner import one\n")
    forget()
    assert {"gathering.inner", "gathering.inner.second"} <= {*code.modules_of(["user"])}


def test_packages_of_others_count_whole_since_their_imports_may_change_anything(gathering: Path) -> None:
    (gathering / "theirs").mkdir()
    (gathering / "theirs" / "__init__.py").write_text("from theirs.patches import patched\n")
    (gathering / "theirs" / "patches.py").write_text("patched = True\n")
    (gathering / "theirs" / "world.py").write_text("size = 1\n")
    forget()
    assert code.modules_of(["theirs.world"]) == ("theirs", "theirs.patches", "theirs.world")


def test_what_a_plug_in_takes_of_the_library_by_its_public_name_counts(folder: Path) -> None:
    (folder / "rule.py").write_text("import turnwise as tw\n\n\ndef rule(batch):\n    return tw.estimate(batch)\n")
    (folder / "other.py").write_text("from turnwise import estimate\n")
    forget()
    for name in ("rule", "other"):
        assert "turnwise.credit.group_relative" in code.modules_of([name])


FUNCTION = '''
from our_world.helper import one

SIZE = 1
OTHER = 2


def helper():
    return SIZE


def unused():
    return OTHER


class Parameters:
    size: int = 3


@declared(code=unused)
def stage(parameters: Parameters) -> int:
    """A text."""
    return helper() + one()
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("helper() + one()", "helper() - one()", True),
        ("SIZE = 1", "SIZE = 2", True),
        ("return SIZE", "return SIZE + 1", True),
        ("OTHER = 2", "OTHER = 3", False),
        ("return OTHER", "return 0", False),
        ("size: int = 3", "size: int = 4", False),
        ("code=unused", "code=helper", False),
        ("A text.", "Another text.", False),
        ("parameters: Parameters", "parameters: int", False),
    ],
)
def test_the_digest_of_a_function_has_what_it_uses_of_its_module(
    folder: Path, old: str, new: str, counts: bool
) -> None:
    def digest() -> str:
        forget()
        return code.definition_digest("staged", "stage", "staged")

    (folder / "staged.py").write_text(FUNCTION)
    before = digest()
    assert old in FUNCTION
    (folder / "staged.py").write_text(FUNCTION.replace(old, new))
    assert (digest() != before) == counts


def test_what_one_process_has_read_is_kept_for_the_next_and_every_edit_is_seen(
    folder: Path, turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turnwise_home.mkdir()
    for path in folder.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    before = code.fingerprint(["our_world.world"])
    assert (turnwise_home / "sources.json").is_file()
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(code, "_parse", lambda path: pytest.fail(f"{path} is read again"))
        assert code.fingerprint(["our_world.world"]) == before
    helper = folder / "our_world" / "helper.py"
    helper.write_text(helper.read_text().replace("return 1", "return 2"))
    forget()
    assert code.fingerprint(["our_world.world"]) != before
    forget()
    (turnwise_home / "sources.json").write_text("damaged")
    helper.write_text(helper.read_text().replace("return 2", "return 1"))
    assert code.fingerprint(["our_world.world"]) == before


def test_a_file_written_a_moment_ago_is_read_again_since_the_next_write_may_have_the_same_time(
    folder: Path, turnwise_home: Path
) -> None:
    turnwise_home.mkdir()
    helper = folder / "our_world" / "helper.py"
    before = code.fingerprint(["our_world.world"])
    state = helper.stat()
    helper.write_text(helper.read_text().replace("return 1", "return 2"))
    os.utime(helper, ns=(state.st_atime_ns, state.st_mtime_ns))
    forget()
    assert code.fingerprint(["our_world.world"]) != before


BESIDE = {
    "stages/__init__.py": "",
    "stages/first/stage.py": """
from our_world.helper import one
from stages import reading
from stages.second.writing import write as save
from stages.running import run


def stage():
    return run(save(reading.read(), one()))
""",
    "stages/reading.py": """
def read():
    return _rows()


def _rows():
    return 1


def other():
    return 1
""",
    "stages/second/writing.py": "from ..third import kept\n\n\ndef write(*values):\n    return kept(values)\n",
    "stages/third.py": "def kept(values):\n    return values\n",
    "stages/running.py": "def run(value):\n    return value\n",
}


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        ("stages/reading.py", "return _rows()", "return -_rows()", True),
        ("stages/reading.py", "def _rows():\n    return 1", "def _rows():\n    return 2", True),
        ("stages/reading.py", "def other():\n    return 1", "def other():\n    return 2", False),
        ("stages/second/writing.py", "return kept(values)", "return kept(values[:1])", True),
        ("stages/third.py", "return values", "return values[:1]", True),
        ("stages/running.py", "return value", "return -value", False),
        ("our_world/helper.py", "return 1", "return 2", False),
    ],
)
def test_the_digest_of_a_function_has_what_it_uses_of_all_its_package_but_what_runs_it(
    folder: Path, name: str, old: str, new: str, counts: bool
) -> None:
    def digest() -> str:
        forget()
        return code.definition_digest("stages.first.stage", "stage", "stages", ("stages.running",))

    for each, text in BESIDE.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_text(text)
    before, text = digest(), (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    assert (digest() != before) == counts
