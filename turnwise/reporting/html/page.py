"""The report as one offline HTML page, and its figures.

Everything is a function of the report data; what has no content has no section.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.reporting.data.tables import (
    ACCOUNT_FILE,
    COUNTS,
    CURVES_FILE,
    DATA_FILE,
    FIGURES_FOLDER,
    TABLE_FILE,
    VERDICTS_FILE,
)
from turnwise.reporting.data.verdicts import learning, pairs, standings
from turnwise.reporting.figures.comparison import answer, comparisons, profile_figure, reference_dashes, time_account
from turnwise.reporting.figures.drawing import Figure, styles
from turnwise.reporting.figures.endings import endings_figure, looks, variants_with_endings
from turnwise.reporting.figures.learning_curves import (
    cost_figures,
    curves_that_matter,
    learning_curves,
    other_curves_by_topic,
)
from turnwise.reporting.finding import report_finding
from turnwise.reporting.html.rendering import render, source
from turnwise.reporting.token_heat_map import largest_advantage
from turnwise.results.report_data import ReportData

SAMPLED_TOKENS = "sampled_tokens"
GLOSSARY: Mapping[str, str] = {
    "Variant": "One method of an ablation: the options that it changes.",
    "Seed": "The number that fixes all random draws of a training run.",
    "Turn": "One reply of the policy, and what the world answers to it.",
    "Episode": "One attempt at a task, from the first observation to the end.",
    "Warm start": "The policy after it has imitated demonstrations and before reinforcement "
    "learning; elsewhere called SFT model.",
    "Baseline policy": "A scripted policy that every table shows for comparison: random, the oracle, "
    "and, for questions, closed-book, which answers without searching.",
    "Oracle": "A scripted policy that knows the answer.",
    "Success": "The share of episodes that are solved.",
    "Sampled": "Played with the policy's own randomness, as in training.",
    "Greedy": "Played with the likeliest token each time, without randomness.",
    "Normalised": "On the scale on which the random policy is 0 and the oracle is 1.",
    "Confidence interval": "The range in which the true value plausibly lies.",
    "p value": "How often chance alone would show a difference as large as the one that was seen, if there were none.",
    "Holm's correction": "Raises the p values when several comparisons are made at once: among many, one would "
    "otherwise look like a finding by chance.",
    "Interquartile mean": "The mean without the lowest and the highest quarter: one lucky run does not decide it.",
    "Performance profile": "For each success, the share of runs that reached at least that.",
    "Credit": "How much each turn or token is taken to have contributed to the rewards of its episode.",
    "Advantage": "The result of a credit rule: how much better a turn went than was to be expected.",
    "Entropy": "How undecided the policy is about the next token, in nats.",
    "KL": "The Kullback-Leibler divergence between two policies, in nats: how far the trained policy "
    "is from the warm start.",
    "Mismatch": "The difference between the log-probabilities that the engine sampled with and those "
    "that the learner computes for the same tokens.",
    "Zero-variance group": "A group whose episodes all got the same reward.",
    "Alarm": "A bound on a monitor.",
    "Lineage": "Everything that an artifact was made from: code, parameters, inputs, platform.",
}
"""The words of a report, each in a sentence: the first of its entry in docs/glossary.md, as a test holds."""


def page(report: ReportData) -> str:
    """The report's page as HTML text."""
    variants, first = variants_with_endings(report), answer(report)
    return render(
        "report.html.jinja",
        title=report.title,
        script=source("report.js"),
        report=report,
        finding=report_finding(report),
        styles=styles(report),
        reference_dashes=reference_dashes(report),
        answer=first,
        comparisons=[figure for figure in comparisons(report) if first is None or figure.name != first.name],
        standings=lambda judgement: standings(judgement, {}, report.outcomes),
        pairs=pairs,
        learning=learning,
        glossary=GLOSSARY,
        profiles=_profiles(report),
        cost_figures=cost_figures(report),
        first_cost=_first_cost(report),
        first_curves=curves_that_matter(report),
        curves=other_curves_by_topic(report),
        seeds=len({curve.seed for curve in report.curves}),
        # A figure per variant: as many side by side as there is room for, so that text stays legible.
        endings=[endings_figure([each], f"endings-{place}") for place, each in enumerate(variants, start=1)],
        ending_looks=looks(variants).values(),
        time_account=time_account(report) if report.seconds else None,
        work_counts=COUNTS,
        work_stages=[stage for stage in report.stages if any(stage in work.seconds for work in report.work)],
        largest_advantage=largest_advantage(report.samples),
        files={
            "figures": FIGURES_FOLDER,
            "table": TABLE_FILE,
            "verdicts": VERDICTS_FILE,
            "account": ACCOUNT_FILE,
            "curves": CURVES_FILE,
            "report": DATA_FILE,
        },
    )


def all_figures(report: ReportData) -> list[Figure]:
    """Every figure of the report."""
    variants, profiles = variants_with_endings(report), _profiles(report)
    return [
        *comparisons(report),
        *([profiles] if profiles else []),
        *learning_curves(report),
        *cost_figures(report).values(),
        *([endings_figure(variants)] if variants else []),
        *([time_account(report)] if report.seconds else []),
    ]


def _first_cost(report: ReportData) -> str:
    """The axis that a page shows first: that of the budget, else sampled tokens, else the first that was measured."""
    if report.costs is None or not report.costs.at_equal:
        return ""
    axes, budget = [each.budget for each in report.costs.at_equal], report.costs.at_budget
    wanted = SAMPLED_TOKENS if budget is None else budget.axis
    return wanted if wanted in axes else axes[0]


def _profiles(report: ReportData) -> Figure | None:
    return profile_figure(report) if report.judgement is not None and report.judgement.profiles else None
