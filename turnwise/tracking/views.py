"""A saved view for MLflow's UI: an ablation's runs by variant, as a table and as charts, offered under *Views*.

MLflow keeps a saved view as a tag of the experiment, in the format that its own pages write: a name, and the state of
the page as compressed (deflate) JSON. A version of MLflow that does not know a part of the state ignores it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

VIEW = "mlflow.sharedViewState."
ENTRY = "viewStateShareKey=turnwise-"
"""By this a paragraph of an experiment's description is known as one of a view's."""
LONGEST_DESCRIPTION = 5000
"""The most characters that MLflow takes as a tag of an experiment."""


@dataclass(frozen=True)
class Chart:
    """A chart of one metric: its curve over iterations, or a bar for its last value."""

    kind: Literal["LINE", "BAR"]
    metric: str
    section: str
    """The heading that it stands under."""


def view_key(parent_id: str) -> str:
    """The view's key, as in the URL `#/experiments/1/runs?viewStateShareKey=...`."""
    return f"turnwise-{parent_id[:12]}"


def view_address(experiment_id: str, parent_id: str) -> str:
    """Where MLflow shows the view's charts, below the address of its pages."""
    return f"#/experiments/{experiment_id}/runs?viewStateShareKey={view_key(parent_id)}&compareRunsMode=CHART"


def with_entry(entry: str, key: str, description: str) -> str:
    """An experiment's description with the entry of a view first, in place of its former one (which has its key).

    Entries are paragraphs. Where they come to more than MLflow takes, the oldest are left out; other text stays.
    """
    paragraphs = [each for each in description.split("\n\n") if each and f"={key}&" not in each]
    while len("\n\n".join([entry, *paragraphs])) > LONGEST_DESCRIPTION:
        ours = [place for place, each in enumerate(paragraphs) if ENTRY in each]
        if not ours:
            return description
        del paragraphs[ours[-1]]
    return "\n\n".join([entry, *paragraphs])


def saved_view(name: str, created: int, parent_id: str, columns: Sequence[str], charts: Sequence[Chart]) -> str:
    """The tag's value: the child runs of a parent, grouped by variant, with the mean of these metrics over seeds.

    `columns` are metric names; `created` is in milliseconds since the epoch. The seed is no column: MLflow would show
    its mean. It stands in the name of each run, within the group.
    """
    state = {
        "searchFilter": f"tags.mlflow.parentRunId = '{parent_id}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": ["params.`variant`", *(f"metrics.`{name}`" for name in columns)],
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "FIRST_10_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": "variant"}]},
        "groupsExpanded": {},
        **_charts(charts),
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
    payload = base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode())).decode()
    return json.dumps({"name": name, "createdAt": created, "state": f"deflate;{payload}"}, separators=(",", ":"))


def _charts(charts: Sequence[Chart]) -> dict[str, Any]:
    """The part of the state that has the charts."""
    sections = {chart.section: f"turnwise-section-{place}" for place, chart in enumerate(charts)}
    return {
        "compareRunCharts": list(_cards(charts, sections)),
        "compareRunSections": [
            {
                "uuid": section,
                "name": name,
                "display": True,
                "isReordered": True,
                "deleted": False,
                "isGenerated": False,
                "columns": 2,
                "cardHeight": 360,
            }
            for name, section in sections.items()
        ],
        "isAccordionReordered": True,
        "autoRefreshEnabled": False,
    }


def _cards(charts: Sequence[Chart], sections: dict[str, str]) -> Iterator[dict[str, Any]]:
    for place, chart in enumerate(charts):
        card = {
            "type": chart.kind,
            "uuid": f"turnwise-chart-{place}",
            "metricKey": chart.metric,
            "metricSectionId": sections[chart.section],
            "runsCountToCompare": 100,
            "deleted": False,
            "isGenerated": False,
        }
        if chart.kind == "LINE":
            card |= {
                "selectedMetricKeys": [chart.metric],
                "scaleType": "linear",
                "xAxisKey": "step",
                "xAxisScaleType": "linear",
                "selectedXAxisMetricKey": "",
                "lineSmoothness": 0,
                "useGlobalLineSmoothing": False,
                "useGlobalXaxisKey": False,
            }
        yield card
