import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from corpus_samples import RIVERS, answer_from, server, write_corpus, write_squad

from envs.search.corpus_world import SearchCorpus
from envs.search.documents import DocumentIndex
from envs.search.retriever import LONGEST_QUERY, Document, HttpRetriever, RetrieverFault, document_of
from turnwise.agent.host import Host, RetryPolicy
from turnwise.errors import WorldLost


def body(result: Any) -> Any:
    return lambda question: (200, json.dumps({"result": result}).encode())


def test_a_query_is_asked_in_search_r1s_form_and_its_documents_come_back() -> None:
    found = [
        {"document": {"id": "4", "contents": '"Kalor"\nA river.'}, "score": 3.2},
        {"document": {"contents": "Milo\nA town.\nIt is old."}, "score": 1.1},
    ]
    with server(body([found])) as (url, heard):
        documents = HttpRetriever(url, 5.0).search("long river", 3)
    assert heard == [{"queries": ["long river"], "topk": 3, "return_scores": True}]
    assert documents == (
        Document("4", "Kalor", "A river."),
        Document("Milo\nA town.\nIt is old.", "Milo", "A town.\nIt is old."),
    )


def test_more_documents_than_asked_for_are_cut() -> None:
    found = [{"document": {"contents": f"{number}\n"}, "score": 0} for number in range(9)]
    with server(body([found])) as (url, _):
        assert [document.title for document in HttpRetriever(url, 5.0).search("x", 2)] == ["0", "1"]


def test_any_query_can_be_sent() -> None:
    with server(body([[]])) as (url, heard):
        client = HttpRetriever(url, 5.0)
        for query in ("\ud800", "\x00", "é" * 10_000, ""):
            assert client.search(query, 1) == ()
    assert [question["queries"][0] for question in heard] == ["?", "\x00", "é" * LONGEST_QUERY, ""]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with server(body([[]])) as (url, _):
        assert HttpRetriever(url, 5.0).search("x", 1) == ()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, b"out of memory"), "HTTPStatusError.*500"),
        ((404, b""), "HTTPStatusError.*404"),
        ((200, b"<html>"), "JSONDecodeError"),
        ((200, b"\xff\xfe"), "must answer"),
        ((200, b"[]"), "TypeError"),
        ((200, b"{}"), "KeyError: 'result'"),
        ((200, b'{"result": []}'), "ValueError"),
        ((200, b'{"result": [[], []]}'), "ValueError"),
        ((200, b'{"result": [[{"score": 1}]]}'), "KeyError: 'document'"),
        ((200, b'{"result": [[{"document": {"text": "x"}}]]}'), "KeyError: 'contents'"),
        ((200, b'{"result": [[{"document": {"contents": null}}]]}'), "AttributeError"),
        ((200, b'{"result": [["x"]]}'), "TypeError"),
    ],
)
def test_an_answer_of_another_form_is_a_fault(answer: tuple[int, bytes], message: str) -> None:
    with server(lambda question: answer) as (url, _), pytest.raises(RetrieverFault, match=message):
        HttpRetriever(url, 5.0).search("x", 1)


def test_a_server_that_is_not_there_is_a_fault() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/retrieve"
        with pytest.raises(RetrieverFault, match="ConnectError"):
            HttpRetriever(url, 5.0).search("x", 1)


def test_a_server_that_takes_too_long_is_a_fault() -> None:
    def slow(question: Any) -> tuple[int, bytes]:
        time.sleep(0.3)
        return 200, b'{"result": [[]]}'

    with server(slow) as (url, _), pytest.raises(RetrieverFault, match="ReadTimeout"):
        HttpRetriever(url, 0.05).search("x", 1)


def test_a_first_line_is_a_title() -> None:
    assert document_of("1", " \"A 'b'\" \n text \n more ") == Document("1", "A 'b'", "text \n more")
    assert document_of("1", "only a title") == Document("1", "only a title", "")


# A fault is the world's, not the policy's


def test_a_fault_that_passes_is_not_noticed_and_one_that_stays_loses_the_episode(tmp_path: Path) -> None:
    index = DocumentIndex(write_corpus(tmp_path), tmp_path / "index")
    faults: list[bool] = []
    good = answer_from(index)

    def failing(question: Any) -> tuple[int, bytes]:
        return (503, b"busy") if faults and faults.pop() else good(question)

    with server(failing) as (url, _):
        world = SearchCorpus(questions=str(write_squad(tmp_path)), retriever=url)
        task = world.tasks("train", 1)[0]
        host = Host(world, task, 0, RetryPolicy(seconds=60, retries=1))
        question = host.reset().text
        faults[:] = [True]
        host.start((f"search[{question}]",))
        (step,) = host.finish()
        assert step.rewards["tool_execution"] == step.rewards["answer_in_results"] == 1.0 and not faults
        faults[:] = [True] * 10
        host.start((f"search[{RIVERS[0]}]",))
        with pytest.raises(WorldLost, match=r"RetrieverFault.*503"):
            host.finish()
        host.close()
