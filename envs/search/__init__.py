"""The world `search`: questions on cities and countries, and a search engine over short passages, as in MT-GRPO.

* `words`: the one normal form in which texts are searched, compared and matched.
* `facts`: what GeoNames says of cities and countries.
* `corpus`: one passage per fact, and BM25 over them.
* `questions`: chains of one to three facts as questions, and the split that a question belongs to.
* `answers`: when an answer is right, when it only holds the answer, and what is guessed without looking.
* `episode`: one episode, and its scripted players.
* `world`: the world, its parameters and its tasks.

Beside it the world `search_corpus`, the same on a corpus and questions of the user's:

* `documents`: a corpus from a file, and BM25 over it, indexed once.
* `retriever`: a search engine that is reached over HTTP instead.
* `question_files`: questions in SQuAD's, TriviaQA's and NQ-open's form, and their splits.
* `squad`: exact match and F1.
* `corpus_episode`: one episode, and its scripted players.
* `corpus_world`: the world, its parameters and its tasks.
"""

from envs.search.world import Search

__all__ = ["Search"]
