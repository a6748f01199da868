"""Formatting of numbers, intervals and durations, shared by the terminal and the pages."""

from __future__ import annotations

from turnwise.reporting.data.report_data import SHARE, Curve, ReportColumn, Story
from turnwise.statistics import Interval

UNDEFINED = "–"
MINUS = "−"
PROCESSES = "processes"
"""The name in `Story.lineage` of the number of processes that shared the work."""
ARROWS = {"up": "↑", "down": "↓"}


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


def heading(named: ReportColumn | Curve) -> str:
    """The heading of a column or curve with its unit and, if it has one, an arrow in the better direction."""
    unit = f" ({named.unit})" if named.unit not in ("", SHARE) else ""
    # A no-break space keeps the arrow next to the last word when the heading is wrapped.
    arrow = f"\u00a0{ARROWS[named.better]}" if isinstance(named, ReportColumn) and named.better else ""
    return f"{named.heading}{unit}{arrow}"


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


def of_processes(story: Story) -> str:
    """` of N processes`, to append to a duration that is summed over processes; empty for one process."""
    processes = dict(story.lineage).get(PROCESSES, "1")
    return "" if processes == "1" else f" of {processes} processes"


def basis(story: Story) -> list[str]:
    """Sentences that say what values are averaged over and how intervals were computed, one per group of rows."""
    rows: dict[tuple[str, int, float], list[str]] = {}
    methods: dict[tuple[str, int, float], list[str]] = {}
    for row in story.rows:
        for interval in row.cells.values():
            if interval is None:
                continue
            kind = (interval.over, interval.count, interval.level)
            _append_new(rows.setdefault(kind, []), row.name)
            _append_new(methods.setdefault(kind, []), interval.method or interval.absence or "")
    return [f"{', '.join(names)}: {_manner(*kind, methods[kind])}." for kind, names in rows.items()]


def _manner(over: str, count: int, level: float, methods: list[str]) -> str:
    absences = [method for method in methods if method.endswith("no interval")]
    found = sorted(method for method in methods if not method.endswith("no interval"))
    if count == 1:
        return absences[0]
    parts = [f"mean over {count} {over}"]
    if found:
        parts.append(f"{100 * level:g} % interval over {over} ({', '.join(found)})")
    return "; ".join([", ".join(parts), *(f"where {absence}" for absence in absences)])


def _append_new(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def readable_bytes(size: float) -> str:
    """A number of bytes as readable text, in kB, MB, GB or TB (decimal units)."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1000:,.0f} kB"
