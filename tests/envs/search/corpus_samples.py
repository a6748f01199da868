"""A small corpus on rivers, and questions on it in every form in which questions are published."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from envs.search.documents import DocumentIndex
from turnwise.checking.playing import play
from turnwise.world import Task, World

SYLLABLES = ("ka", "lo", "mi", "ru", "te", "va", "no", "si")
RIVERS = tuple(
    f"{one}{two}{three}r".capitalize() for one in SYLLABLES for two in SYLLABLES for three in ("ba", "do", "ge")
)
SOURCES = tuple(f"Mount {river[:4]}{ending}" for river, ending in zip(RIVERS, ("eth", "und", "isk") * 64, strict=True))


def documents() -> list[dict[str, str]]:
    """One document for each of the 192 rivers, with its source."""
    return [
        {"id": str(number), "title": river, "text": f"The {river} rises on {source} and flows into the sea."}
        for number, (river, source) in enumerate(zip(RIVERS, SOURCES, strict=True))
    ]


def write_corpus(folder: Path, written: list[dict[str, str]] | None = None) -> Path:
    path = folder / "corpus.jsonl"
    lines = [json.dumps(document) for document in (documents() if written is None else written)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def totals_of(world: World, task: Task, baseline: str) -> Counter[str]:
    """The sums of all rewards and metrics over an episode of a baseline policy, whose actions are all valid."""
    steps = play(world, task, 3, baseline).steps
    assert all(step.valid for step in steps)
    return sum((Counter({**step.rewards, **step.metrics}) for step in steps), Counter())


def asked(river: str) -> str:
    return f"Where does the {river} rise?"


def write_squad(folder: Path) -> Path:
    articles = [
        {
            "title": river,
            "paragraphs": [
                {
                    "context": "...",
                    "qas": [
                        {
                            "id": f"q{number}",
                            "question": asked(river),
                            "answers": [{"text": source, "answer_start": 0}],
                        },
                        {
                            "id": f"none{number}",
                            "question": f"Who owns the {river}?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
        for number, (river, source) in enumerate(zip(RIVERS, SOURCES, strict=True))
    ]
    return _write(folder / "squad.json", json.dumps({"version": "v2.0", "data": articles}))


def write_trivia_qa(folder: Path) -> Path:
    entries = [
        {
            "QuestionId": f"tc_{number}",
            "Question": asked(river),
            "Answer": {
                "Value": source,
                "Aliases": [source, f"{source} Massif"],
                "NormalizedAliases": [source.lower()],
            },
            "EntityPages": [{"Title": river}],
        }
        for number, (river, source) in enumerate(zip(RIVERS, SOURCES, strict=True))
    ]
    return _write(folder / "trivia.json", json.dumps({"Data": entries, "Domain": "Web"}))


def write_nq_open(folder: Path) -> Path:
    lines = [
        json.dumps({"question": asked(river), "answer": [source]})
        for river, source in zip(RIVERS, SOURCES, strict=True)
    ]
    return _write(folder / "nq.jsonl", "\n".join(lines))


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def server(answer: Any) -> Iterator[tuple[str, list[Any]]]:
    """A real server on the loopback address, and what it was asked. `answer` makes status and body of a question."""
    heard: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append(question)
            status, body = answer(question)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that gave up is what some tests are about."""

    running = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/retrieve", heard
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def answer_from(index: DocumentIndex) -> Any:
    """The answers of Search-R1's retrieval server, from an index of ours."""

    def answer(question: dict[str, Any]) -> tuple[int, bytes]:
        found = [
            [
                {"document": {"id": one.id, "contents": f'"{one.title}"\n{one.text}'}, "score": 1.0}
                for one in index.search(query, question["topk"])
            ]
            for query in question["queries"]
        ]
        return 200, json.dumps({"result": found}).encode()

    return answer
