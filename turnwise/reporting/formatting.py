"""Formatting of numbers, intervals, durations, verdicts, turns and endings, shared by the terminal and the pages."""

from __future__ import annotations

from collections import Counter

from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.results.outcomes import EndedRun
from turnwise.results.report_data import SHARE, AtWrittenBudget, Curve, ReportColumn, ReportData, Row
from turnwise.statistics import Comparison, Interval
from turnwise.statistics.interval import SINGULAR, Unit
from turnwise.statistics.until_decided import Decision, SeedRace, SettledComparison

UNDEFINED = "–"
MINUS = "−"
PROCESSES = "processes"
"""The name in `ReportData.lineage` of the number of processes that shared the work."""
ARROWS = {"up": "↑", "down": "↓"}
SMALLEST_P = 0.001
ENDINGS = {
    "success": "solved",
    "failure": "ended, unsolved",
    "turn_limit": "cut off by the limit on turns",
    "action_limit": "cut off by the limit on actions",
    "token_budget": "cut off by the token budget",
    "invalid_limit": "given up after too many unreadable replies",
    "world_lost": "lost by the world",
}
"""How an episode ended (`turnwise.data.trajectory.Ending`), as text, in the order in which endings are shown."""
_VISIBLE_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def visible(content: str) -> str:
    r"""The content with control characters replaced by codes, `\x1b`; newlines and tabs are kept."""
    return content.translate(_VISIBLE_CONTROLS)


def number(value: float, digits: int) -> str:
    """A number with fixed digits and a true minus sign; never a negative zero."""
    text = f"{value:.{digits}f}"
    if float(text) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


def signed(value: float, digits: int) -> str:
    """A number with an explicit sign, plus or minus; zero has none."""
    text = number(value, digits)
    return text if text.startswith(MINUS) or float(text) == 0.0 else "+" + text


def bounds(interval: Interval, digits: int) -> str | None:
    """The bounds, e.g. `0.87–0.95`; None if there are none. With a minus sign, "to" replaces the dash."""
    if interval.low is None or interval.high is None:
        return None
    low, high = number(interval.low, digits), number(interval.high, digits)
    return f"{low} to {high}" if MINUS in low + high else f"{low}–{high}"


def compact(interval: Interval | None, digits: int = 2, sign: bool = False) -> str:
    """A value with its bounds as a table has them: `0.91 (0.87–0.95)`; with `sign` it has one. `UNDEFINED` for None."""
    if interval is None:
        return UNDEFINED
    within = bounds(interval, digits)
    return (signed if sign else number)(interval.value, digits) + (f" ({within})" if within else "")


def with_bounds(interval: Interval | None, digits: int, sign: bool = False) -> str:
    """A value with its bounds: `0.181 (0.171 to 0.192)`; with `sign` all have one. `UNDEFINED` for None."""
    if interval is None:
        return UNDEFINED
    format_number = signed if sign else number
    value = format_number(interval.value, digits)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({format_number(interval.low, digits)} to {format_number(interval.high, digits)})"


def probability(p: float | None) -> str:
    """A p-value with three digits, never shown as zero; `UNDEFINED` for None."""
    if p is None:
        return UNDEFINED
    return f"< {SMALLEST_P:g}" if p < SMALLEST_P else number(p, 3)


def verdict(comparison: Comparison) -> str:
    """The verdict as text that can stand alone, e.g. `higher than grpo`."""
    if comparison.verdict in ("higher", "lower"):
        return f"{comparison.verdict} than {comparison.second}"
    return comparison.verdict


def comparison_sentence(comparison: Comparison) -> str:
    """A comparison as one line: the two variants, their difference with interval, and the verdict."""
    difference = compact(comparison.difference, sign=True)
    return f"{comparison.first} − {comparison.second}: {difference}, {verdict(comparison)}"


def budget_sentences(at_budget: AtWrittenBudget) -> list[str]:
    """The verdicts at the budget that was written down, or why there are none."""
    if at_budget.judgement is None:
        return [f"No verdict at {at_budget.heading}: {at_budget.because}."]
    return [f"At {at_budget.heading}: {comparison_sentence(each)}" for each in at_budget.judgement.comparisons]


def race_sentences(race: SeedRace) -> list[str]:
    """For each comparison that seeds were added for, after how many it ended, and what would decide one left open."""
    return [f"{each.first} − {each.second}: {_how_it_ended(each, race)}." for each in race.comparisons]


def _how_it_ended(each: SettledComparison, race: SeedRace) -> str:
    after = f"after {each.seeds} of at most {race.at_most} seeds"
    if each.decision != "open":
        ruled_out = f"a difference of {race.worth:g} is ruled out"
        return f"{'decided' if each.decision == 'decided' else ruled_out} {after}"
    wanted = f"a difference of {race.worth:g}" if race.worth else "a difference as large as this"
    if each.further is None:
        return f"open {after}; a thousand seeds would not find {wanted} on these tasks: take more of them"
    runs, hours = each.further * len(each.variants), "" if each.hours is None else f", {duration(3600 * each.hours)}"
    more = f"{each.further} more {'seed' if each.further == 1 else 'seeds'} ({runs} runs{hours})"
    return f"open {after}; {more} would find {wanted} four times in five"


def race_summary(race: SeedRace) -> str:
    """In one sentence, how many comparisons were decided, ruled out or left open, and with how many seeds."""
    ended = [each.seeds for each in race.comparisons if each.decision != "open"]
    if not ended:
        return f"Nothing was decided with {race.at_most} seeds."
    counts = Counter(each.decision for each in race.comparisons)
    phrases: dict[Decision, str] = {
        "decided": "decided",
        "ruled out": f"without a difference of {race.worth:g}",
        "open": "open",
    }
    fewest, most = min(ended), max(ended)
    after = f"after {fewest if fewest == most else f'{fewest} to {most}'} of at most {race.at_most} seeds"
    if len(counts) == 1:
        return f"{'Decided' if 'decided' in counts else f'A difference of {race.worth:g} is ruled out'} {after}."
    parts = ", ".join(f"{counts[each]} {phrases[each]}" for each in phrases if counts[each])
    return f"Of {counts.total()} comparisons {parts}, {after}."


def ending(name: str) -> str:
    """How an episode ended, as text; an ending that `ENDINGS` does not have keeps its name."""
    return ENDINGS.get(name, name)


def turn_title(trajectory: Trajectory, place: int) -> str:
    """The title of turn `place`: number, kind if it does not act, attempt, and whether the context was rewritten."""
    turn = trajectory.turns[place]
    kind = "" if turn.kind is TurnKind.ACT else f" · {turn.kind.value}"
    attempt = f" · attempt {turn.attempt + 1}" if trajectory.turns[-1].attempt else ""
    rewrite_mark = " · context rewritten" if turn.opens_segment and place else ""
    return f"turn {place + 1}{kind}{attempt}{rewrite_mark}"


def reply_log_probability(turn: Turn, unit: str = "token") -> str:
    """The reply's log-probability (nats) under the behaviour policy and its length in tokens or `unit`s, as text."""
    count = len(turn.reply_tokens)
    if not count:
        return f"no {unit}s"
    length = f"{count} {unit}{'s' if count > 1 else ''}"
    # Of another system's reply they are not known.
    return f"log p {signed(sum(turn.log_probabilities), 2)} over {length}" if any(turn.log_probabilities) else length


def heading(column: ReportColumn | Curve) -> str:
    """The heading of a column or curve with its unit and, if it has one, an arrow in the better direction."""
    unit = f" ({column.unit})" if column.unit not in ("", SHARE) else ""
    # A no-break space keeps the arrow next to the last word when the heading is wrapped.
    arrow = f"\u00a0{ARROWS[column.better]}" if isinstance(column, ReportColumn) and column.better else ""
    return f"{column.heading}{unit}{arrow}"


def duration(seconds: float) -> str:
    """Seconds as readable text in one or two units, e.g. `2 min 31 s`."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def marked(report: ReportData, row: Row) -> str:
    """The name of a row, with how many of its runs were ended or left out: `grpo (2 of 5 ended)`."""
    mark = report.mark(row)
    return f"{row.name} ({mark})" if mark else row.name


def ended_line(run: EndedRun) -> str:
    """When and by what a run was ended, and what it cost, as one line."""
    line = f"{run.name}: ended after {run.when} by {run.by}"
    if run.work is None:
        return line
    seconds = [duration(sum(run.work.seconds.values()))] if run.work.seconds else []
    cost = [*seconds, f"{run.work.sampled_tokens:,} tokens sampled", f"{run.work.trained_tokens:,} trained on"]
    return f"{line}; it cost {', '.join(cost)}"


def process_note(report: ReportData) -> str:
    """` of N processes`, to append to a duration that is summed over processes; empty for one process."""
    processes = dict(report.lineage).get(PROCESSES, "1")
    return "" if processes == "1" else f" of {processes} processes"


def basis(report: ReportData) -> list[str]:
    """Sentences that say what values are averaged over and how intervals were computed, one per group of rows.

    Where some columns of these rows rest on fewer values than the others, a further sentence names the columns.
    """
    headings = {column.key: column.heading for column in report.columns}
    groups: dict[tuple[Unit, int, float], list[tuple[str, str, str]]] = {}
    for row in report.rows:
        for key, interval in row.cells.items():
            if interval is not None:
                method = interval.method or interval.absence or ""
                group = groups.setdefault((interval.over, interval.count, interval.level), [])
                group.append((row.name, headings.get(key, key), method))
    sentences = []
    named: set[str] = set()
    for (over, count, level), cells in groups.items():
        rows = dict.fromkeys(name for name, _, _ in cells)
        names = ", ".join(rows)
        if named.issuperset(rows):
            names += f" in {', '.join(dict.fromkeys(heading for _, heading, _ in cells))}"
        named.update(rows)
        methods = dict.fromkeys(method for _, _, method in cells)
        absences = [method for method in methods if method.endswith("no interval")]
        present = ", ".join(sorted(set(methods) - set(absences)))
        if count == 1 and not present:
            sentences.append(f"{names}: {absences[0]}.")
            continue
        suffix = f", {100 * level:g} % interval over {over} ({present})" if present else ""
        missing = "".join(f"; where {absence}" for absence in absences)
        sentences.append(f"{names}: mean over {count} {SINGULAR[over] if count == 1 else over}{suffix}{missing}.")
    return sentences


def readable_bytes(size: float) -> str:
    """A number of bytes as readable text, in kB, MB, GB or TB (decimal units)."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1000:,.0f} kB"


FILTERS = {
    function.__name__: function
    for function in (
        *(basis, bounds, duration, ending, heading, number, probability, process_note, race_sentences),
        *(reply_log_probability, signed, turn_title, with_bounds),
    )
}
"""What the templates of pages call these functions: by their names."""
