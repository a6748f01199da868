"""The public conformance checker: does a world keep the contract of `turnwise.world`?

A world's author runs it from a terminal (`turnwise check WORLD`) or in a test:

    report = check_world(MyWorld(size=5), parameters={"size": 5})
    assert report.passed, report.lines()

`report` holds what comes back, `examination` the checks, with `answers` those of what a world answers, `subject` the
world that they look at, `episodes` how an episode is played and written down, `fuzz` the replies that no world expects,
`elsewhere` the same episodes in another process.
"""

from turnwise.checking.examination import check_world
from turnwise.checking.report import Check, CheckReport

__all__ = ["Check", "CheckReport", "check_world"]
