r"""Interface of a search engine, and one that is reached over HTTP in Search-R1's format (arXiv 2503.09516).

    POST url    {"queries": ["..."], "topk": k, "return_scores": true}
    answer      {"result": [[{"document": {"contents": "title\ntext"}, "score": s}, ...]]}

Differs from Search-R1's client: there is a time limit, and a server that is absent, fails or answers in another format
raises `RetrieverFault`. The agent's host treats that as a fault of the world: it retries, and then gives the episode up
as missing data. Search-R1's client would show the policy whatever came back, or nothing, as a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import httpx

LONGEST_QUERY = 1000
"""Characters of a query that are sent; the rest is cut off."""


@dataclass(frozen=True)
class Document:
    """One passage of a collection."""

    id: str
    title: str
    text: str


class Retriever(Protocol):
    """Finds documents. Equal queries must give equal results, or an episode could not be replayed."""

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        """At most `count` documents for a query, best first."""


class RetrieverFault(RuntimeError):
    """Raised when the retriever cannot be reached: a fault of the world, not of the policy."""


class HttpRetriever:
    """A retriever at an address. `seconds`: the limit for connecting, and for each part of the reply.

    Proxies named by environment variables are not used, since a retriever is a machine of one's own.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._client = httpx.Client(timeout=seconds, trust_env=False)

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        """The documents that the server finds, in its order. Raises RetrieverFault when it cannot be reached."""
        text = query.encode("utf-8", "replace").decode("utf-8")[:LONGEST_QUERY]
        question = {"queries": [text], "topk": count, "return_scores": True}
        try:
            response = self._client.post(self.url, json=question)
            response.raise_for_status()
            answer = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise RetrieverFault(
                f"the retriever at {self.url} must answer a query; {type(error).__name__}: {error}"
            ) from error
        return _documents(self.url, answer)[:count]


def document_of(name: str, contents: str) -> Document:
    """Document from a text whose first line is its title, with or without quotation marks."""
    title, _, text = contents.partition("\n")
    return Document(name, title.strip().strip('"'), text.strip())


def _documents(url: str, answer: Any) -> tuple[Document, ...]:
    try:
        (results,) = answer["result"]
        documents = [result["document"] for result in results]
        return tuple(
            document_of(str(document.get("id", document["contents"])), document["contents"]) for document in documents
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RetrieverFault(
            f"the retriever at {url} must answer with one list of results, each with a document's contents and its "
            f"score; {type(error).__name__}: {error}"
        ) from error
