"""A saved view for MLflow's UI: the table of an ablation's runs by variant, offered under *Views*.

MLflow keeps a saved view as a tag of the experiment, in the format that its own pages write: a name, and the state of
the page as compressed (deflate) JSON. A version of MLflow that does not know a part of the state ignores it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

VIEW = "mlflow.sharedViewState."


def view_key(parent_id: str) -> str:
    """The view's key, as in the URL `#/experiments/1/runs?viewStateShareKey=...`."""
    return f"turnwise-{parent_id[:12]}"


def saved_view(name: str, created: int, parent_id: str, columns: Sequence[str]) -> str:
    """The tag's value: the child runs of a parent, grouped by variant, with the mean of these metrics over seeds.

    `columns` are metric names; `created` is in milliseconds since the epoch.
    """
    state = {
        "searchFilter": f"tags.mlflow.parentRunId = '{parent_id}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": ["params.`variant`", "params.`seed`", *(f"metrics.`{name}`" for name in columns)],
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
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode())).decode()
    return json.dumps({"name": name, "createdAt": created, "state": f"deflate;{packed}"}, separators=(",", ":"))
