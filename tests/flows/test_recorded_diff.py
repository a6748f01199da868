"""Of the code's uncommitted changes MLflow is sent what others may read."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import tiny, tracking_uri
from test_lineage_command import made

from flows.report import open_record
from tasks.prepare.materials import task_set
from turnwise.store import run_environment
from turnwise.tracking.finding import UNCOMMITTED_FILE, read_text
from turnwise.training_runs.state import Prepared, task_set_parameters
from turnwise.world import SPLITS

DIFF = """diff --git a/code.py b/code.py
--- a/code.py
+++ b/code.py
@@ -1,2 +1,2 @@
-group_size = 8
+group_size = 4
+PASSWORD = "open-sesame"
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+new = 1
diff --git a/secrets.yaml b/secrets.yaml
new file mode 100644
--- /dev/null
+++ b/secrets.yaml
@@ -0,0 +1 @@
+service: open-sesame
"""


@pytest.mark.parametrize("new_files", [False, True])
def test_a_parent_and_its_children_record_no_secret_and_new_files_when_asked_for(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch, new_files: bool
) -> None:
    monkeypatch.setattr(run_environment, "uncommitted_diff", lambda *_: DIFF)
    monkeypatch.setattr(run_environment, "code_state", lambda: {"commit": "c0de", "uncommitted": "d1ff"})
    experiment = tiny(f"tracking.new_files={str(new_files).lower()}")
    task_sets = [task_set.fn(task_set_parameters(experiment, split)) for split in SPLITS]
    record = open_record(experiment, Prepared(*task_sets, made("demonstrations"), made("tokenizer"), made("policy")))
    record.open("grpo-or seed 1", "grpo-or", 1, experiment.variant("grpo-or"))
    for run in (record.tracked.parent, record.tracked.children["grpo-or seed 1"]):
        recorded = read_text(tracking_uri(), run.id, UNCOMMITTED_FILE)
        assert recorded is not None and "+group_size = 4" in recorded and "sesame" not in recorded
        assert ("+new = 1" in recorded) == new_files
