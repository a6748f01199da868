from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.search.corpus import MAXIMUM_RESULTS, _searched, corpus
from envs.search.facts import CITY_RELATIONS, COUNTRY_RELATIONS, facts
from envs.search.words import holds, normalise


def test_the_corpus_is_large_and_its_passages_are_short() -> None:
    lengths = [len(passage.text.split()) for passage in corpus().passages]
    assert len(lengths) >= 10_000
    assert max(lengths) <= 16
    assert sum(lengths) / len(lengths) < 10


def test_a_passage_states_one_fact_whole_and_no_two_state_the_same() -> None:
    passages = corpus().passages
    assert len({(passage.fact.entity, passage.fact.relation) for passage in passages}) == len(passages)
    assert len({passage.text for passage in passages}) == len(passages)
    for passage in passages:
        assert holds(passage.normal, normalise(passage.fact.entity)), passage.text
        assert holds(passage.normal, passage.fact.aliases[0]), passage.text


def test_an_entity_is_a_city_or_a_country_and_its_name_is_its_own() -> None:
    known = facts()
    names = Counter(normalise(name) for name in known.countries + known.cities)
    assert set(names.values()) == {1}
    cities = set(known.cities)
    for fact in known.all:
        assert fact.relation in (CITY_RELATIONS if fact.entity in cities else COUNTRY_RELATIONS)


def test_facts_are_those_of_the_world() -> None:
    values = {identity: fact.value for identity, fact in facts().by_identity.items()}
    assert values["France", "capital"] == "Paris"
    assert values["Japan", "currency"] == "Yen"
    assert values["Portugal", "only_neighbour"] == "Spain"
    assert values["Brazil", "continent"] == "South America"
    assert values["Nairobi", "country"] == "Kenya"
    assert values["Nairobi", "time_zone"] == "Africa/Nairobi"
    assert ("France", "only_neighbour") not in values


def test_a_query_finds_the_fact_that_it_names() -> None:
    assert corpus().search("japan currency", 3)[0].text == "The currency of Japan is the Yen."
    assert corpus().search("nairobi time zone", 3)[0].text == "The time zone of Nairobi is Africa/Nairobi."


def test_scores_are_those_of_bm25s_to_the_bit() -> None:
    import bm25s

    index = bm25s.BM25(backend="numpy")
    index.index([_searched(passage.normal) for passage in corpus().passages], show_progress=False)
    queries = [normalise(fact.query) for fact in facts().all[::53]]
    queries += ["san pedro san pedro population", "country country", "guinea bissau currency is dollar of africa"]
    for query in queries:
        assert np.array_equal(corpus()._scores(query), index.get_scores(_searched(query))), query


def test_nothing_is_found_by_words_that_no_passage_has() -> None:
    for query in ("", "zzzzqqq", "of is in", "zzzzqqq qqqzzz"):
        assert corpus().search(query, 3) == ()


def test_fewer_passages_than_asked_are_found_when_fewer_have_a_word_of_the_query() -> None:
    found = corpus().search("vladivostok", 10)
    assert 3 <= len(found) < 10
    assert all("vladivostok" in passage.normal.split() for passage in found)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["population", "country", "france", "san", "time", "zone", "africa", "dollar", "city"]))
)
def test_results_are_in_order_of_score_and_then_of_the_corpus(words: list[str]) -> None:
    # The reference sorts all passages; queries of common words alone give thousands of equal scores.
    found = [passage.number for passage in corpus().search(" ".join(words), MAXIMUM_RESULTS)]
    scores = corpus()._scores(" ".join(words))
    order = np.lexsort((np.arange(len(scores)), -scores))[:MAXIMUM_RESULTS]
    assert found == [int(number) for number in order if scores[number] > 0]


def test_the_rank_of_a_fact_is_its_place_among_the_results_of_its_query() -> None:
    for fact in facts().all[::97]:
        found = [passage.fact for passage in corpus().search(normalise(fact.query), MAXIMUM_RESULTS)]
        rank = corpus().rank(fact)
        assert found[rank - 1] == fact if rank <= MAXIMUM_RESULTS else fact not in found


def test_the_competent_query_nearly_always_finds_its_passage() -> None:
    ranks = [corpus().rank(fact) for fact in facts().all[::7]]
    assert sum(rank <= 3 for rank in ranks) / len(ranks) > 0.99


def test_what_mentions_a_phrase_is_found_as_by_reading_everything() -> None:
    for phrase in ("san pedro", "paris", "south africa", "nowhere at all"):
        read = [passage.normal for passage in corpus().passages if holds(passage.normal, phrase)]
        assert corpus().mentioning(phrase) == read


def test_a_long_query_is_cut() -> None:
    assert corpus().search("japan currency " + "x " * 100_000, 1)[0].text == "The currency of Japan is the Yen."
    assert _searched("of is japan") == ["japan"]
