"""A made-up ablation, in the shape of the real one: three variants, two seeds, the baselines, and hostile texts."""

import math

import pytest

from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.results.outcomes import VariantWork
from turnwise.results.report_data import (
    AlarmRaised,
    AtWrittenBudget,
    CostCurve,
    Costs,
    Curve,
    Endings,
    ReportColumn,
    ReportData,
    Row,
    Sample,
)
from turnwise.seeding import generator
from turnwise.statistics import ReferencePoints, Results, bootstrap_over_tasks, judge, student_over_seeds, wilson
from turnwise.statistics.curves import AtEqualBudget
from turnwise.world import Reward, Task

COLUMNS = [
    ReportColumn("exact_match", "exact match", "share", "up", description="The answer equals an accepted one."),
    ReportColumn(
        "answer_in_results", "answer in results", "share", "up", description="A supporting passage was found."
    ),
    ReportColumn("tool_success", "tool success", "share", "up", description="Searches that returned passages."),
    ReportColumn("searches", "searches per episode", description="Calls of the tool."),
    ReportColumn("needless", "needless searches", "share", "down", description="The answer stood in the question."),
    ReportColumn("repeated", "repeated searches", "share", "down", description="The same query was sent before."),
    ReportColumn("format", "format", "share", "up", description="The reply could be read."),
    ReportColumn("turns", "mean turns", description="Turns per episode."),
]
# variant: values of the columns above for seed 1; seed 2 differs a little
VARIANTS = {
    "grpo-or": [0.58, 0.44, 0.61, 0.55, 0.08, 0.02, 0.99, 1.52],
    "grpo-mr": [0.84, 0.86, 0.95, 1.02, 0.12, 0.05, 0.97, 1.98],
    "mt-grpo": [0.91, 0.93, 0.98, 0.97, 0.05, 0.01, 1.00, 1.96],
}
BASELINES = {
    "random": [0.00, 0.01, 0.52, 0.49, 0.21, 0.03, 1.00, 1.47],
    "oracle": [1.00, 1.00, 1.00, 0.94, 0.00, 0.00, 1.00, 1.94],
    "closed-book": [0.17, None, None, 0.00, None, None, 1.00, 1.00],
}
WARM_START = [0.46, 0.71, 0.83, 0.93, 0.14, 0.06, 0.93, 1.91]
REWARDS = {
    "tool_execution": Reward("A search returned passages.", "turn", 0.2),
    "answer_in_results": Reward("A passage supports the answer.", "turn", 0.3),
    "exact_match": Reward("The answer is right.", "outcome", 1.0),
    "answer_present": Reward("The answer is among the words.", "outcome", 0.2),
    "format": Reward("The reply could be read.", "outcome", 0.1),
}
PASSAGES = (
    "[1] Lisbon is the capital of Portugal, a country in western Europe.\n"
    "[2] Portugal's currency is the Euro; its calling code is +351.\n"
    "[3] Setúbal is a city in Portugal with 117,110 inhabitants."
)
HOSTILE = "<script>alert('world')</script> & <b>bold</b> \x1b[31m"


def over_seeds(mean, seeds, unit):
    values = [mean - 0.02 * index * min(1.0, 4 * mean * abs(1 - mean) + 0.05) for index in range(seeds)]
    return student_over_seeds(values, within=(0.0, 1.0) if unit == "share" else (0.0, math.inf))


def of_policy(mean, column):
    if mean is None:
        return None
    if column.unit == "share":
        return wilson(round(100 * mean), 100)
    return bootstrap_over_tasks([math.floor(mean) + (index < 100 * (mean % 1)) for index in range(100)], seed=1)


def made_up_rows(seeds):
    rows = []
    for name, values in VARIANTS.items():
        cells = [over_seeds(value, seeds, column.unit) for column, value in zip(COLUMNS, values, strict=True)]
        rows.append(Row(name, "variant", {column.key: cell for column, cell in zip(COLUMNS, cells, strict=True)}))
    for name, values in {"warm start": WARM_START, **BASELINES}.items():
        cells = {column.key: of_policy(value, column) for column, value in zip(COLUMNS, values, strict=True)}
        rows.append(Row(name, "warm start" if name == "warm start" else "baseline", cells))
    return rows


def made_up_curves(seeds):
    curves = []
    metrics = [
        ("exact_match", "exact match", "share", 0, 4, "Learning"),
        ("answer_in_results", "answer in results", "share", 1, 4, "Learning"),
        ("tool_success", "tool success", "share", 2, 1, "Learning"),
        ("reward", "reward", "", 0, 1, "Rewards"),
        ("entropy", "entropy (nats per token)", "", 4, 1, "Updates"),
        ("mismatch", "mismatch (mean |Δ log p|)", "", 4, 1, "Updates"),
    ]
    for metric, heading, unit, position, every, topic in metrics:
        for variant, finals in VARIANTS.items():
            for seed in range(1, seeds + 1):
                noise = generator(seed, "made-up", metric, variant).normal(0, 0.025, size=25)
                start, final = WARM_START[position], finals[position]
                points = [
                    (step, min(1.0, start + (final - start) * (1 - math.exp(-step / 7)) + float(noise[step])))
                    for step in range(0, 25, every)
                ]
                if metric == "mismatch":
                    points = [(step, 2e-7 * (1 + abs(value))) for step, value in points]
                curves.append(Curve(metric, heading, variant, seed, points, unit, topic))
    return curves


def turn(observation, reply, thought, actions, rewards, invalid=None):
    tokens = tuple(range(len(reply.split())))
    return Turn(observation, (1, 2, 3), reply, tokens, (-0.25,) * len(tokens), thought, actions, invalid, True, rewards)


def searching_sample():
    question = "Question: What is the currency of the country in which Setúbal lies?"
    turns = (
        turn(
            question,
            "<think>I need the country of Setúbal.</think><search>Setúbal country currency</search>",
            "I need the country of Setúbal.",
            ("search[Setúbal country currency]",),
            {"tool_execution": 1.0, "answer_in_results": 1.0},
        ),
        turn(
            PASSAGES,
            "<think>The second passage names it.</think><answer>Euro</answer>",
            "The second passage names it.",
            ("answer[Euro]",),
            {"exact_match": 1.0, "answer_present": 1.0, "format": 1.0},
        ),
    )
    trajectory = Trajectory(
        Task("search", "search/2-hop/0017", "train", 17, {"hops": 2}), 3, 1, turns, Ending.SUCCESS, ""
    )
    return Sample("mt-grpo, seed 1, after 20 iterations", trajectory, [0.84, 1.27], REWARDS)


def hostile_sample():
    turns = (
        turn(
            HOSTILE,
            "<img src=x onerror=alert(1)> no tags that close",
            "",
            (),
            {"format": 0.0, "</style><script>": 0.5},
            "the reply must hold <think> and then <search> or <answer>; found neither",
        ),
        turn(
            PASSAGES,
            "<think>&amp;</think><answer>Real</answer>",
            "&amp;",
            ("answer[</pre><script>]",),
            {"exact_match": 0.0},
        ),
    )
    task = Task("search", "search/1-hop/<i>", "train", 5, {"hops": 1})
    last = "The episode is over: two turns were played. <script>last()</script>"
    return Sample(
        "grpo-or, seed 2, after 20 iterations",
        Trajectory(task, 0, 0, turns, Ending.TURN_LIMIT, last),
        [-0.92, -0.31],
        REWARDS,
    )


def made_up_endings():
    def rising(share):
        return [(step, share * step / 24) for step in range(1, 25)]

    endings = []
    for variant, finals in VARIANTS.items():
        solved = rising(finals[0])
        cut = [(step, 0.1) for step, _ in solved]
        failed = [(step, 0.9 - share) for step, share in solved]
        endings.append(Endings(variant, {"success": solved, "failure": failed, "turn_limit": cut}))
    return endings


def made_up_judgement(seeds):
    """By exact match over twenty tasks, of which each run solves so many in each of four samples."""

    def results(mean, of_seeds):
        runs = {}
        for seed in of_seeds:
            solved = generator(seed, "made-up results", str(mean)).binomial(4, mean, size=20)
            runs[seed] = {f"task {place:02d}": float(count) / 4 for place, count in enumerate(solved)}
        return Results(runs)

    curves = {
        name: [[(0.0, 0.4), (24.0, values[0] - 0.02 * seed)] for seed in range(1, seeds + 1)]
        for name, values in VARIANTS.items()
    }
    return judge(
        "exact match",
        {name: results(values[0], range(1, seeds + 1)) for name, values in VARIANTS.items()},
        frames=dict.fromkeys(VARIANTS, ReferencePoints(warm_start=results(WARM_START[0], [0]), random=0.0, oracle=1.0)),
        curves=curves,
    )


def made_up_costs(seeds, budget=True):
    """The curves of exact match against two costs, and a budget at which the judgement is the one on the test tasks."""
    per_iteration = {"sampled_tokens": 12_500.0, "seconds": 6.3}
    curves = [
        CostCurve(axis, curve.variant, curve.seed, [(at * each, value) for at, value in curve.points])
        for axis, each in per_iteration.items()
        for curve in made_up_curves(seeds)
        if curve.metric == "exact_match"
    ]
    shown = {
        name: student_over_seeds([values[0] - 0.02 * seed for seed in range(seeds)])
        for name, values in VARIANTS.items()
    }
    pairs = [(pair.first, pair.second, pair.difference) for pair in made_up_judgement(seeds).pairs]
    written = AtWrittenBudget("sampled_tokens", 2e5, "200,000 sampled tokens", made_up_judgement(seeds))
    return Costs(
        "exact match",
        "share",
        curves,
        [AtEqualBudget(axis, 24 * each, shown, pairs) for axis, each in per_iteration.items()],
        written if budget else None,
    )


def made_up_report(seeds=2):
    return ReportData(
        title="Placement of rewards on a search agent",
        description="GRPO-OR, GRPO-MR and MT-GRPO from one warm start, 24 iterations of 16 × 8 trajectories, tested on "
        "100 two-hop questions whose entities were not trained on.",
        columns=COLUMNS,
        rows=made_up_rows(seeds),
        curves=made_up_curves(seeds),
        seconds={
            "set-up": 21.4,
            "warm start": 74.0,
            "sampling": 118.2,
            "worlds": 9.7,
            "update": 151.3,
            "evaluation": 34.9,
            "everything else": 12.6,
        },
        samples=[searching_sample(), hostile_sample()],
        lineage=[
            ("commit", "8c1f0a6b6d1e4c0e9a1f2b3c4d5e6f708192a3b4 (with uncommitted changes)"),
            ("parameters", "blake2b:41d6c3f0a9e57b1284e0c6d7f3a2b190"),
            ("task set train", "blake2b:9f3ac07d61b2e8440aa1c35d7e90f126 (512 tasks)"),
            ("task set test", "blake2b:02bd77e1c9a64f5d83e1b0a7f66c2d19 (100 tasks)"),
            ("policy mt-grpo, seed 1", "blake2b:77aa10cf2e3d4b5968700a1b2c3d4e5f"),
            ("platform", "Linux x86_64, AVX-512, 1 thread, torch 2.13.0, vLLM 0.32.0"),
        ],
        judgement=made_up_judgement(seeds),
        costs=made_up_costs(seeds),
        endings=made_up_endings(),
        alarms=[AlarmRaised("grpo-or", 1, 17, "entropy_of_start 0.08, bound 0.1", "log")],
        work=[
            VariantWork(
                name, seeds, 6144, 11_980, 302_118, 611_002, 302_118, 64_400, {"sampling": 39.4, "update": 50.4}
            )
            for name in VARIANTS
        ],
        notes=["GeoNames data (geonames.org), CC BY 4.0.", "Two episodes of 2,400 were lost and left out."],
    )


@pytest.fixture(scope="session")
def report():
    return made_up_report()


@pytest.fixture(scope="session")
def report_of_one_seed():
    return made_up_report(seeds=1)
