"""WebArena's checks (arXiv 2307.13854): of the answer, of the final address, and of the content of pages.

An episode is solved when every check of its task holds. With c(x) = x without the quotes around it, in lower case:

    exact_match:   c(answer) = c(reference)
    must_include:  c(reference) is part of c(answer), for every reference; where a single reference is one character
                   long, it must be a word of the answer
    url_match:     the address without its query contains a reference's; for every field of the references' queries the
                   address has one of their values
    program_html:  the text that a locator, or none, finds on a page equals, or includes, what is required

Differs from WebArena's own: `fuzzy_match` asks a language model, and `func:` calls Python functions that use the sites'
own interfaces; both are refused when the file is read, instead of being answered with a guess. Words are split by a
regular expression instead of NLTK. A page other than the last is opened in a tab of its own, and read when it is at
rest instead of after three seconds. A locator that finds nothing gives the empty text (in WebArena: "None").
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Error, Page

from envs.browser.tab import Tab

OR = " |OR| "
LOAD_SECONDS = 15.0
"""Time limit, in seconds, for loading a page that is needed to judge an episode; what it shows then is judged."""


class Unsupported(Exception):
    """Raised for a task with a check that cannot be made here; the message says which and why."""


class PageCheck(ABC):
    """A condition on the final page and the answer when the agent stops."""

    @abstractmethod
    async def holds(self, page: Page, answer: str) -> bool:
        """Whether the condition holds for the final page and this answer."""


@dataclass(frozen=True)
class AnswerIs(PageCheck):
    """The answer equals the reference."""

    reference: str

    async def holds(self, page: Page, answer: str) -> bool:
        """Whether they are equal except for case and quotes."""
        return cleaned(answer) == cleaned(self.reference)


@dataclass(frozen=True)
class AnswerIncludes(PageCheck):
    """The answer includes every reference."""

    references: tuple[str, ...]

    async def holds(self, page: Page, answer: str) -> bool:
        """Whether each is a substring; a single reference of one character must be a word."""
        text = cleaned(answer)
        references = [cleaned(reference) for reference in self.references]
        if len(references) == 1 and len(references[0]) == 1:
            return references[0] in words(text)
        return all(reference in text for reference in references)


@dataclass(frozen=True)
class AddressIs(PageCheck):
    """The final page has one of these addresses."""

    references: tuple[str, ...]

    async def holds(self, page: Page, answer: str) -> bool:
        """Whether the address matches: see `address_matches`."""
        return address_matches(page.url, self.references)


@dataclass(frozen=True)
class PageSays(PageCheck):
    """A page contains a text. `address` is None for the final page; `locator` may be empty."""

    address: str | None
    locator: str
    exact: str | None
    includes: tuple[str, ...]

    async def holds(self, page: Page, answer: str) -> bool:
        """Whether the located text equals `exact` or, if that is None, includes an alternative of each `includes`."""
        text = cleaned(unescape(await self._located_text(page)))
        if self.exact is not None:
            return text == cleaned(self.exact)
        return all(any(cleaned(one) in text for one in alternatives.split(OR)) for alternatives in self.includes)

    async def _located_text(self, page: Page) -> str:
        if self.address is None:
            return await _located(page, self.locator)
        other = await page.context.new_page()
        try:
            tab = await Tab.of(other, LOAD_SECONDS)
            if await tab.goto(self.address) is not None:
                return ""
            await tab.rest()
            return await _located(other, self.locator)
        finally:
            await other.close()


async def _located(page: Page, locator: str) -> str:
    """Text that the task file's JavaScript finds on the page; empty where it fails, as on a wrong page."""
    if not locator:
        return await page.content()
    try:
        value = await page.evaluate(f"() => {locator}")
    except Error:
        if page.is_closed():
            raise
        return ""
    return "" if value is None else str(value)


def cleaned(text: str) -> str:
    """Lower-case text without surrounding white space and then one pair of quotes."""
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        stripped = stripped[1:-1]
    return stripped.lower()


def words(text: str) -> list[str]:
    """Tokens of a text: numbers with their decimals, words, and single signs."""
    return re.findall(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]", text)


def address_matches(address: str, references: Sequence[str]) -> bool:
    """WebArena's rule `GOLD in PRED`.

    Host and path contain those of a reference, and every field of the references' queries has one of their values.
    """
    place, fields = _parts(address)
    reference_parts = [_parts(reference) for reference in references]
    values: dict[str, set[str]] = {}
    for _, query in reference_parts:
        for name, alternatives in query.items():
            values.setdefault(name, set()).update(alternatives)
    return any(reference in place for reference, _ in reference_parts) and all(
        not alternatives.isdisjoint(fields.get(name, ())) for name, alternatives in values.items()
    )


def _parts(address: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(address.rstrip("/"))
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)


def read_checks(evaluation: Mapping[str, Any]) -> tuple[PageCheck, ...]:
    """The checks of a task's `eval`. Raises Unsupported for one that cannot be made here."""
    readers = {"string_match": _answers, "url_match": _addresses, "program_html": _pages}
    checks: list[PageCheck] = []
    for name in evaluation["eval_types"]:
        if name not in readers:
            raise Unsupported(f"eval type {name!r} is not one of {', '.join(readers)}")
        checks += readers[name](evaluation)
    if not checks:
        raise Unsupported("it has no check, so every answer would be right")
    return tuple(checks)


def _answers(evaluation: Mapping[str, Any]) -> list[PageCheck]:
    checks: list[PageCheck] = []
    for name, reference in (evaluation.get("reference_answers") or {}).items():
        if name == "exact_match" and isinstance(reference, str):
            checks.append(AnswerIs(reference))
        elif name == "must_include" and isinstance(reference, list) and reference:
            checks.append(AnswerIncludes(tuple(reference)))
        elif name == "fuzzy_match":
            raise Unsupported("fuzzy_match needs a language model as its judge")
        else:
            raise Unsupported(f"reference answer {name!r} is not exact_match with a text or must_include with texts")
    return checks


def _addresses(evaluation: Mapping[str, Any]) -> list[PageCheck]:
    if evaluation.get("url_note", "GOLD in PRED") != "GOLD in PRED":
        raise Unsupported(f"url_note {evaluation['url_note']!r} is not 'GOLD in PRED'")
    if not (references := evaluation["reference_url"].strip()):
        raise Unsupported("its reference_url is empty, so every page would be right")
    return [AddressIs(tuple(references.split(OR)))]


def _pages(evaluation: Mapping[str, Any]) -> list[PageCheck]:
    return [_page(target) for target in evaluation["program_html"]]


def _page(target: Mapping[str, Any]) -> PageCheck:
    address, locator, required = target["url"], target["locator"].strip(), target["required_contents"]
    if address.startswith("func") or locator.startswith("func"):
        raise Unsupported("func: calls WebArena's own Python functions")
    if "prep_actions" in target:
        raise Unsupported("prep_actions are not played")
    if locator and not locator.startswith(("document.", "[...document.")):
        raise Unsupported(f"locator {locator!r} does not begin with 'document.' or '[...document.'")
    exact = required.get("exact_match") if isinstance(required, Mapping) else None
    includes = required.get("must_include", []) if isinstance(required, Mapping) else []
    if (exact is None) == (not includes):
        raise Unsupported("required_contents must have exact_match or must_include")
    return PageSays(None if address == "last" else address, locator, exact, tuple(includes))
