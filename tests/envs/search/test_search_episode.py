from collections import Counter

import numpy as np
import pytest
from corpus_samples import totals_of
from hypothesis import example, given
from hypothesis import strategies as st

from envs.search import Search
from envs.search.episode import SearchEnvironment
from envs.search.facts import DATA
from envs.search.questions import FAMILY
from turnwise import seeding
from turnwise.world import Remaining, Task


def remaining(turns: int) -> Remaining:
    return Remaining(turns, 1, turns)


def begin(name: str, passages: int = 3) -> SearchEnvironment:
    world = Search(hops=[1, 2, 3], turns=8, passages=passages)
    environment = world.make(Task("search", FAMILY + name, "train", 0), 0)
    environment.reset()
    return environment


def shares(world: Search, baseline: str, count: int = 300) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for task in world.tasks("test", count):
        totals.update(totals_of(world, task, baseline))
    return {name: value / count for name, value in totals.items()}


def test_the_first_observation_is_the_question_alone() -> None:
    environment = Search().make(Task("search", f"search/1/{DATA}/Nairobi:country", "train", 0), 0)
    assert environment.reset().text == "In which country is Nairobi?"
    environment = Search().make(Task("search", f"search/1/{DATA}/Nairobi:country:currency/stated", "train", 0), 0)
    assert environment.reset().text == (
        "Nairobi is a city in the country of Kenya. The currency of Kenya is the Shilling. "
        "What is the currency of the country of Nairobi?"
    )


def test_a_search_shows_numbered_passages_and_is_rewarded_when_it_states_the_answer() -> None:
    step = begin("Nairobi:country").step("search[Nairobi country]")
    assert "Nairobi is a city in the country of Kenya." in step.observation.text
    assert [line[:3] for line in step.observation.text.splitlines()] == ["1. ", "2. ", "3. "]
    assert step.rewards == {"tool_execution": 1.0, "answer_in_results": 1.0}
    assert step.metrics == {"searches": 1.0}
    assert step.valid and step.effective and not step.terminated


def test_the_answer_in_a_passage_on_something_else_is_not_found() -> None:
    # The capital of Kenya names both Nairobi and Kenya, and does not state the country of Nairobi.
    step = begin("Nairobi:country", passages=1).step("search[capital of Kenya]")
    assert step.observation.text == "1. The capital of Kenya is Nairobi."
    assert step.rewards == {"tool_execution": 1.0}


def test_only_the_last_fact_of_a_chain_holds_the_answer_and_pays_once() -> None:
    environment = begin("Mombasa:country:currency")
    assert environment.step("search[Mombasa country]").rewards == {"tool_execution": 1.0}
    assert environment.step("search[Kenya currency]").rewards == {"tool_execution": 1.0, "answer_in_results": 1.0}
    again = environment.step("search[currency of Kenya today]")
    assert "The currency of Kenya is the Shilling." in again.observation.text
    assert again.rewards == {"tool_execution": 1.0}
    assert again.metrics == {"searches": 1.0, "needless_search": 1.0, "superfluous_search": 1.0}


@pytest.mark.parametrize("query", ["", "   ", "zzzzqqq", "of is in", "?!"])
def test_a_search_that_fails_is_no_success_of_the_tool(query: str) -> None:
    step = begin("Nairobi:country").step(f"search[{query}]")
    assert step.rewards == {}
    assert step.metrics == {"searches": 1.0, "failed_search": 1.0}
    assert step.valid and not step.effective
    assert step.observation.text in ("Nothing was found.", "The query is empty: write what to search for.")


def test_a_query_asked_before_is_counted_however_it_is_spelled_and_earns_nothing() -> None:
    environment = begin("Mombasa:country:currency", passages=1)
    environment.step("search[Kenya capital]")
    step = environment.step("search[the KENYA, capital!]")
    assert step.metrics == {"searches": 1.0, "repeated_search": 1.0, "superfluous_search": 1.0}
    assert step.rewards == {}
    assert not step.effective


def test_any_search_is_needless_when_the_answer_stands_in_the_question() -> None:
    step = begin("Nairobi:country/stated").step("search[Nairobi country]")
    assert step.metrics == {"searches": 1.0, "needless_search": 1.0, "superfluous_search": 1.0}


def test_an_answer_ends_the_episode_with_success_or_not() -> None:
    right = begin("Nairobi:country").step("answer[the kenya]")
    assert right.terminated and right.success
    assert right.rewards == {"exact_match": 1.0, "answer_present": 1.0}
    present = begin("Nairobi:country").step("answer[it is in Kenya]")
    assert present.terminated and not present.success
    assert present.rewards == {"exact_match": 0.0, "answer_present": 1.0}
    listed = begin("Nairobi:country").step("answer[Kenya, Uganda]")
    assert listed.rewards == {"exact_match": 0.0, "answer_present": 0.0}


@pytest.mark.parametrize(
    "action", ["", "search", "search[", "look[Kenya]", "answer Kenya", "[Kenya]", "search[Kenya] now", "search(Kenya)"]
)
def test_what_is_no_action_is_told_what_is_legal_and_changes_nothing(action: str) -> None:
    environment = begin("Nairobi:country")
    step = environment.step(action)
    assert not step.valid and not step.effective and not step.terminated
    assert "search[QUERY]" in step.observation.text and "answer[TEXT]" in step.observation.text
    assert environment.step("search[Nairobi country]").metrics == {"searches": 1.0}


@example("search[\ud800\x00]")
@example("answer[\ud800" + "x]" * 10_000)
@example("search[" + "[" * 5000 + "]")
@given(st.one_of(st.text(), st.text().map("search[{}]".format), st.text().map("answer[{}]".format)))
def test_any_text_is_answered(action: str) -> None:
    environment = begin("Nairobi:country")
    step = environment.step(action)
    assert step.observation.text
    assert environment.step("answer[Kenya]").terminated


@given(st.binary())
def test_any_bytes_are_answered(reply: bytes) -> None:
    text = reply.decode("utf-8", errors="surrogateescape")
    assert begin("Nairobi:country").step(f"answer[{text}]").terminated


def test_after_the_end_nothing_is_played() -> None:
    environment = begin("Nairobi:country")
    environment.step("answer[Uganda]")
    step = environment.step("answer[Kenya]")
    assert step.terminated and not step.success and not step.valid and step.rewards == {}


def test_equal_knowledge_is_an_equal_state_whatever_led_to_it() -> None:
    one, other = begin("Mombasa:country:currency"), begin("Mombasa:country:currency")
    start = one.step("search[zzzzqqq]").observation.state
    found = one.step("search[Mombasa country]").observation.state
    assert other.step("search[Mombasa population]").observation.state == found != start
    assert begin("Nairobi:country:currency").step("search[zzzzqqq]").observation.state != start


@pytest.mark.parametrize(("hops", "turns"), [([1], 2), ([2], 3), ([3], 4), ([1, 2, 3], 4)])
def test_the_oracle_answers_every_question_with_a_search_per_hop_at_most(hops: list[int], turns: int) -> None:
    world = Search(hops=hops, turns=turns)
    for task in world.tasks("test", 120):
        totals = totals_of(world, task, "oracle")
        assert totals["exact_match"] == 1.0, task.id
        # A passage on the capital may come up together with the fact that names it: then a search is saved.
        assert totals["searches"] <= (0 if task.tags["needless"] else int(task.tags["hops"])), task.id
        assert task.tags["needless"] or totals["answer_in_results"] == 1.0, task.id
        assert totals["failed_search"] == totals["repeated_search"] == totals["needless_search"] == 0.0


def test_the_oracle_takes_over_after_any_searches_of_others() -> None:
    world = Search(hops=[3], turns=8)
    for task in world.tasks("train", 40):
        environment = world.make(task, 0)
        environment.reset()
        for turn in range(4):
            baseline = "random" if turn % 2 else "oracle"
            decision = environment.decide(baseline, seeding.generator(1, "mix", task.id, turn), remaining(8 - turn))
            step = environment.step(decision.actions[0])
            if step.terminated:
                break
        left = 4
        while not step.terminated and left:
            step = environment.step(environment.oracle(remaining(left)).actions[0])
            left -= 1
            assert step.success or not step.terminated
        assert step.terminated


def test_the_oracle_states_only_what_it_was_shown() -> None:
    environment = begin("Mombasa:country:currency")
    assert environment.oracle(remaining(3)).thought == "find the country"
    assert "Shilling" not in environment.oracle(remaining(1)).thought
    assert environment.oracle(remaining(1)) == environment.closed_book()
    environment.step("search[Mombasa country]")
    assert environment.oracle(remaining(2)).actions == ("search[Kenya currency]",)
    environment.step("search[Kenya currency]")
    assert environment.oracle(remaining(1)).actions == ("answer[Shilling]",)
    assert environment.oracle(remaining(5)).thought == "passage 1 says it"


@pytest.mark.parametrize(("hops", "turns"), [([1], 2), ([1, 2, 3], 4)])
def test_without_reading_little_can_be_known(hops: list[int], turns: int) -> None:
    world = Search(hops=hops, turns=turns)
    assert shares(world, "closed-book")["exact_match"] < 0.1
    assert shares(world, "random")["exact_match"] < 0.06


def test_the_random_baseline_searches_half_the_time_and_answers_in_its_last_turn() -> None:
    environment = begin("Nairobi:country")
    verbs = Counter(
        environment.random(np.random.default_rng(seed), remaining(2)).actions[0].partition("[")[0]
        for seed in range(400)
    )
    assert 150 < verbs["search"] < 250  # 200 expected, deviation 10
    last = {environment.random(np.random.default_rng(seed), remaining(1)).actions[0][:7] for seed in range(50)}
    assert last == {"answer["}


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="baseline"):
        begin("Nairobi:country").decide("expert", np.random.default_rng(0), remaining(2))
