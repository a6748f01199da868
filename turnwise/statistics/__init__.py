"""Statistics of results: estimates with confidence intervals, and comparisons of variants.

Three questions are kept apart. *How would this policy do on other tasks of the kind?* is answered over tasks, in
`tasks.py`. *How would this method do if it were run again?* is answered over seeds, in `seeds.py`: the training run is
the unit, however many tasks each run was tested on. *Is this method better than that one?* is answered over both, in
`pairs.py`, and decided in `verdict.py`. The coverage of each interval is measured: see `docs/science/coverage.md`.

scipy.stats takes a second to import, for which whoever looks at a table would wait: the few lines that a table needs of
it are written here, and the tests hold them against it. scipy.special is imported where something is computed.
"""

from turnwise.statistics.interval import Interval
from turnwise.statistics.pass_at_k import mean_pass_at_k, pass_at_k
from turnwise.statistics.results import ReferencePoints, Results
from turnwise.statistics.seeds import interquartile_mean_over_seeds, student_over_seeds
from turnwise.statistics.tasks import bootstrap_over_tasks, over_tasks, wilson
from turnwise.statistics.verdict import Comparison, Judgement, VariantResult, judge

__all__ = [
    "Comparison",
    "Interval",
    "Judgement",
    "ReferencePoints",
    "Results",
    "VariantResult",
    "bootstrap_over_tasks",
    "interquartile_mean_over_seeds",
    "judge",
    "mean_pass_at_k",
    "over_tasks",
    "pass_at_k",
    "student_over_seeds",
    "wilson",
]
