import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpus_samples import RIVERS, documents, write_corpus
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.search import documents as documents_module
from envs.search.corpus import LONGEST_QUERY
from envs.search.documents import DocumentIndex
from envs.search.retriever import Document
from envs.search.words import normalise

WRITE = """
import sys
from pathlib import Path
from envs.search.documents import DocumentIndex
print(DocumentIndex(Path(sys.argv[1]), Path(sys.argv[2])).folder)
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> DocumentIndex:
    folder = tmp_path_factory.mktemp("corpus")
    return DocumentIndex(write_corpus(folder), folder / "index")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_document_is_found_by_its_title_and_by_its_text(index: DocumentIndex) -> None:
    river = documents()[17]
    assert index.search(f"where is {river['title'].upper()}?", 3)[0] == Document("17", river["title"], river["text"])
    assert index.search(river["text"].split("on ")[1].split(" and")[0], 1)[0].id == "17"


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["rises", "mount", "sea", "flows", *RIVERS[:4]])), st.integers(1, 10))
@example([*["rises"] * (LONGEST_QUERY - 1), *RIVERS[:2]], 1)
def test_results_are_in_order_of_score_and_then_of_the_file(index: DocumentIndex, words: list[str], count: int) -> None:
    found = [int(document.id) for document in index.search(" ".join(words), count)]
    read = [normalise(word) for word in words[:LONGEST_QUERY]]
    scores = index._index.get_scores(read) if read else np.zeros(len(RIVERS))
    order = np.lexsort((np.arange(len(scores)), -scores))[:count]
    assert found == [int(number) for number in order if scores[number] > 0]


@pytest.mark.parametrize("query", ["", "the", "zzzqqq", "\ud800", "?"])
def test_nothing_is_found_by_words_that_no_document_has(index: DocumentIndex, query: str) -> None:
    assert index.search(query, 5) == ()


def test_contents_of_search_r1_are_a_title_and_a_text(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, [{"id": "9", "contents": '"Kalor"\nA river.\nIt is long.'}])
    assert DocumentIndex(path, tmp_path / "index").documents == (Document("9", "Kalor", "A river.\nIt is long."),)


# The cache


def test_a_corpus_is_indexed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_corpus(tmp_path)
    first = DocumentIndex(path, tmp_path / "index")
    before = contents(first.folder)

    def refuse(*_: object) -> None:
        raise AssertionError("the corpus was indexed again")

    monkeypatch.setattr(documents_module, "_write", refuse)
    again = DocumentIndex(path, tmp_path / "index")
    assert again.folder == first.folder and contents(again.folder) == before
    assert again.search("mount sea", 10) == first.search("mount sea", 10)


def test_another_content_has_another_index_and_another_place_has_not(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = DocumentIndex(write_corpus(tmp_path), tmp_path / "index")
    moved = DocumentIndex(write_corpus(elsewhere), tmp_path / "index")
    assert moved.folder == first.folder
    changed = DocumentIndex(write_corpus(tmp_path, documents()[1:]), tmp_path / "index")
    assert changed.folder != first.folder and changed.digest != first.digest
    assert changed.search(RIVERS[0], 1) == () and len(first.search(RIVERS[0], 1)) == 1


def test_the_cache_holds_no_draft_and_no_pickle(index: DocumentIndex) -> None:
    assert [path.name for path in index.folder.parent.iterdir()] == [index.folder.name]
    for path in index.folder.iterdir():
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        else:
            json.loads(path.read_text(encoding="utf-8"))


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OSError("no space left")

    path = write_corpus(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(documents_module, "_sync", fail)
        with pytest.raises(OSError, match="no space left"):
            DocumentIndex(path, tmp_path / "index")
    assert list((tmp_path / "index").iterdir()) == []
    assert DocumentIndex(path, tmp_path / "index").search(RIVERS[0], 1)


def test_processes_that_index_at_once_agree_whatever_their_hash_seeds(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(path), str(tmp_path / cache)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed, cache in (("1", "shared"), ("2", "shared"), ("3", "alone"))
    ]
    said = [process.communicate() for process in running]
    assert [error for _, error in said] == ["", "", ""]
    one, other, alone = (Path(folder.strip()) for folder, _ in said)
    assert one == other and list(one.parent.iterdir()) == [one]
    assert contents(one) == contents(alone)


def test_an_index_of_other_documents_is_refused(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    folder = DocumentIndex(path, tmp_path / "index").folder
    parameters = json.loads((folder / "params.index.json").read_text(encoding="utf-8"))
    (folder / "params.index.json").write_text(json.dumps({**parameters, "num_docs": 3}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"the index must be that of .*delete it"):
        DocumentIndex(path, tmp_path / "index")


# What is no corpus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a corpus must hold at least one document"),
        ("\n\n", "a corpus must hold at least one document"),
        ('{"id": 1, "title": "x", "text": "y"}\n{', "line 2 of .* is not: JSONDecodeError"),
        ('{"id": 1, "title": "x"}', "line 1 of .* is not: KeyError: 'text'"),
        ('{"title": "x", "text": "y"}', "line 1 of .* is not: KeyError: 'id'"),
        ('{"id": 1, "title": null, "text": "y"}', "line 1 of .* is not: AttributeError"),
        ("[1]", "line 1 of .* is not: TypeError"),
        ('{"id": 1, "title": "x", "text": "y"}\n{"id": "1", "title": "x", "text": "y"}', "'1' is in .* twice"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        DocumentIndex(path, tmp_path / "index")
