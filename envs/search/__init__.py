"""The world `search`: questions on cities and countries, and a search engine over short passages, as in MT-GRPO.

* `words`: the one normal form in which texts are searched, compared and matched.
* `facts`: what GeoNames says of cities and countries.
* `corpus`: one passage per fact, and BM25 over them.
* `questions`: chains of one to three facts as questions, and the split that a question belongs to.
* `answers`: when an answer is right, when it only holds the answer, and what is guessed without looking.
* `episode`: one episode, and its scripted players.
* `world`: the world, its parameters and its tasks.
"""

from envs.search.world import Search

__all__ = ["Search"]
