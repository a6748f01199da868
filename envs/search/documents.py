r"""Documents from a file in JSON Lines, and BM25 over them (Lucene's variant, by bm25s), indexed once.

A line is `{"id": ..., "title": ..., "text": ...}`, or `{"id": ..., "contents": "title\ntext"}` as in Search-R1.

    CACHE/<digest of the file, the normal form and bm25s>/    the index, as bm25s writes it: numpy arrays and JSON

The index is written to a draft in the same folder and renamed, so that a reader finds all of it or nothing; of two
processes that index the same file at once the second uses what the first has written. Documents of equal score are in
the order of the file, and one that shares no word with the query is no result. Titles and texts are held in memory: for
a collection that does not fit, use a retriever over HTTP.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from envs.search.corpus import LONGEST_QUERY
from envs.search.retriever import Document, document_of
from envs.search.words import normalise

NORMAL_FORM = "1"
"""Version of the normal form. Raise it when `words.normalise` changes, so that older indexes are not used."""


class DocumentIndex:
    """The documents of a file, and the index over their titles and texts. `digest` identifies the file's content."""

    def __init__(self, path: Path, cache: Path) -> None:
        import bm25s  # imported here: it takes seconds where numba is installed, and only searches need it

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets it to DEBUG
        content = path.read_bytes()
        self.documents = tuple(_read(path, content))
        self.digest = hashlib.sha256(content).hexdigest()[:12]
        key_parts = [NORMAL_FORM, bm25s.__version__, hashlib.sha256(content).hexdigest()]
        self.folder = cache / hashlib.sha256(" ".join(key_parts).encode()).hexdigest()[:32]
        if not self.folder.is_dir():
            _write(self.documents, self.folder)
        self._index = bm25s.BM25.load(self.folder, mmap=True)
        if self._index.scores["num_docs"] != len(self.documents):
            raise ValueError(f"the index must be that of {path}; that in {self.folder} is not: delete it")

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        """The `count` best documents for a query, best first; fewer if fewer share a word with it."""
        terms = normalise(query).split()[:LONGEST_QUERY]
        if not terms:
            return ()
        scores = self._index.get_scores(terms)
        results: list[Document] = []
        while len(results) < count and scores[best := int(scores.argmax())] > 0:  # on ties argmax takes the first
            results.append(self.documents[best])
            scores[best] = 0
        return tuple(results)


_building = threading.Lock()


def document_index(path: Path, cache: Path) -> DocumentIndex:
    """The index of a file, made or read once per process, also when the threads of many episodes ask at once."""
    with _building:
        return _document_index(path, cache)


@functools.cache
def _document_index(path: Path, cache: Path) -> DocumentIndex:
    return DocumentIndex(path, cache)


def _read(path: Path, content: bytes) -> list[Document]:
    documents: dict[str, Document] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "contents" in row:
                document = document_of(str(row["id"]), row["contents"])
            else:
                document = Document(str(row["id"]), row["title"].strip(), row["text"].strip())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"every line of a corpus must be an object with id, title and text; line {number} of {path} is not: "
                f"{type(error).__name__}: {error}"
            ) from error
        if document.id in documents:
            raise ValueError(f"the ids of documents must be different; {document.id!r} is in {path} twice")
        documents[document.id] = document
    if not documents:
        raise ValueError(f"a corpus must hold at least one document; {path} holds none")
    return list(documents.values())


def _write(documents: Sequence[Document], folder: Path) -> None:
    """Build the index and put it in place atomically."""
    import bm25s

    words = [normalise(f"{document.title} {document.text}").split() for document in documents]
    # Numbered by first occurrence, so that the files are the same in every process.
    numbers = {word: number for number, word in enumerate(dict.fromkeys(word for text in words for word in text))}
    index = bm25s.BM25(backend="numpy")
    tokens = ([[numbers[word] for word in text] for text in words], numbers)
    index.index(tokens, create_empty_token=False, show_progress=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.parent / f".draft-{uuid.uuid4().hex}"
    try:
        index.save(draft, show_progress=False)
        for path in (*draft.iterdir(), draft):
            _sync(path)
        _rename(draft, folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _rename(draft: Path, folder: Path) -> None:
    """Rename a draft to its final folder, unless another process did so first."""
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
