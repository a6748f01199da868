"""The public conformance checker: tests whether a world keeps the contract of `turnwise.world`.

A world's author runs it from a terminal (`turnwise check WORLD`) or in a test:

    report = check_world(MyWorld(size=5), parameters={"size": 5})
    assert report.passed, report.lines()

A credit rule and a reward of one's own are checked by `turnwise check module:name`, or in a test by `check_rule` and
`check_reward`; `credit_rules`, `credit_bias` and `added_rewards` have their checks, and `named_subjects` tells which of
the three a name leads to.

Of worlds, `examination` has the checks, `subject` the world under test with its episodes, `playing` how an episode is
played and serialised, here and in another process, `baselines` the scores of the baseline policies, and `certificate`
what training in a world will meet. `report` has the result types.
"""

from turnwise.checking.examination import check_world
from turnwise.checking.report import Check, CheckReport

__all__ = ["Check", "CheckReport", "check_world"]
