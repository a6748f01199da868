import io
from dataclasses import replace

import pytest
from rich.console import Console

from turnwise.reporting.finding import finding
from turnwise.reporting.formatting import bounds, duration, number
from turnwise.reporting.terminal.comparison import print_report
from turnwise.results.report_data import ReportColumn, ReportData, Row
from turnwise.statistics import wilson


def printed(report, width):
    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=width, force_terminal=False))
    return buffer.getvalue()


def tables(text):
    return sum(set(line.strip()) == {"─"} for line in text.splitlines())


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_every_number_is_printed_whole_at_any_width(report, width):
    text = printed(report, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text
    words = text.replace("\n", " ").split()
    for row in report.rows:
        for column in report.columns:
            interval = row.cells[column.key]
            if interval is not None:
                assert number(interval.value, column.digits) in words
                assert (bounds(interval, column.digits) or "").replace("0.", ".") in text


def test_eight_columns_with_intervals_fit_a_hundred_and_are_split_at_eighty(report):
    assert tables(printed(report, 120)) == tables(printed(report, 100)) == 1
    assert tables(printed(report, 80)) == 2


def test_rows_stand_in_the_order_variants_warm_start_baselines(report):
    shuffled = replace(report, rows=report.rows[::-1])
    names = [line.split("  ")[0] for line in printed(shuffled, 100).splitlines()]
    order = ["mt-grpo", "grpo-mr", "grpo-or", "warm start", "closed-book", "oracle", "random"]
    assert [name for name in names if name in order] == order


def test_it_says_what_the_intervals_are_over(report, report_of_one_seed):
    text = printed(report, 120)
    assert "grpo-or, grpo-mr, mt-grpo: mean over 2 seeds, 95 % interval over seeds" in text
    assert "closed-book: mean over 100 tasks, 95 % interval over tasks" in text
    assert "grpo-or, grpo-mr, mt-grpo: one seed: no interval." in printed(report_of_one_seed, 120)


def test_the_time_account_is_complete(report):
    text = " ".join(printed(report, 80).split())
    for stage, seconds in report.seconds.items():
        assert f"{stage} {duration(seconds)}" in text
    # 21.4 + 74 + 118.2 + 9.7 + 151.3 + 34.9 + 12.6 = 422.1 s
    assert "total 7 min 02 s" in text


def test_names_are_not_read_as_the_terminals_markup():
    row = Row("[red]rule[/red]", "variant", {"a": wilson(1, 2)}, note="[bold]n[/bold]")
    text = printed(ReportData("[i]title[/i]", "d", [ReportColumn("a", "[b]a[/b]")], [row]), 100)
    for name in ("[red]rule[/red]", "[bold]n[/bold]", "[i]title[/i]", "[b]a[/b]"):
        assert name in text


def test_what_was_found_is_the_first_line(report):
    first, *_ = printed(report, 400).splitlines()
    assert first == finding(report.judgement, report.greedy)


def test_the_verdicts_stand_below_the_table(report):
    text = printed(report, 120)
    assert "grpo-or − mt-grpo: −0.3" in text and "lower than mt-grpo" in text
    # Those on the test task set, and the same at the budget.
    assert text.count("not distinguishable") == 2 * sum(
        pair.verdict == "not distinguishable" for pair in report.judgement.pairs
    )
    assert "At 200,000 sampled tokens: grpo-or − mt-grpo: −0.3" in text
