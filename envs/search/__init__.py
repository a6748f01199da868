"""The world `search`: questions on cities and countries, and a search engine over short passages, as in MT-GRPO.

* `words`: the normal form in which texts are searched, compared and matched.
* `facts`: GeoNames' facts on cities and countries.
* `corpus`: one passage per fact, and BM25 over them.
* `questions`: chains of one to three facts as questions, and the split that a question belongs to.
* `answers`: exact match, containment of the answer, and the closed-book guess.
* `episode`: one episode, and its baseline policies.
* `world`: the world, its parameters and its tasks.

The package also holds the world `search_corpus`, the same task on the user's own corpus and questions:

* `documents`: a corpus from a file, and BM25 over it, indexed once.
* `retriever`: a search engine reached over HTTP instead.
* `question_files`: questions in SQuAD's, TriviaQA's and NQ-open's format, and their splits.
* `squad`: exact match and F1.
* `corpus_episode`: one episode, and its baseline policies.
* `corpus_world`: the world, its parameters and its tasks.
"""

from envs.search.world import Search

__all__ = ["Search"]
