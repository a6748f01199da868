"""SQuAD's metrics of an answer (Rajpurkar et al. 2016): exact match and F1 over words, in SQuAD's normal form.

    F1 = 2 |common| / (|answer| + |alias|),    |.| counts words; common words count as often as both texts have them;

both are the maximum over all aliases. TriviaQA and NQ-open are measured the same way here, as Search-R1 does; their own
scripts differ in quotation marks and underscores. Questions without an answer (SQuAD 2.0) are not asked, so the
official script's rule for them is left out.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_normal(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, single spaces. `well-known` is one word, as in SQuAD."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(answer: str, aliases: Sequence[str]) -> float:
    """1 when the answer is one of the aliases in normal form, else 0."""
    return float(squad_normal(answer) in [squad_normal(alias) for alias in aliases])


def f1(answer: str, aliases: Sequence[str]) -> float:
    """Maximum overlap of words with an alias, from 0 to 1."""
    return max((_overlap(squad_normal(answer).split(), squad_normal(alias).split()) for alias in aliases), default=0.0)


def _overlap(answer: Sequence[str], alias: Sequence[str]) -> float:
    common = (Counter(answer) & Counter(alias)).total()
    return 2 * common / (len(answer) + len(alias)) if common else 0.0
