"""Recording of experiments in MLflow; the only package of the library that uses MLflow.

    recorder = Recorder(tracking_uri, experiment="turnwise", artifact_location=Path(".turnwise/mlflow"))
    parent = recorder.parent("credit rules", identity, parameters, tags)              one per ablation
    child = recorder.child(parent, "mt-grpo seed 1", identity, parameters, tags, datasets)    one per variant and seed
    child.log_iteration(7, {"train/success": 0.5})
    child.log_trajectories("validation/0007", trajectories, advantages, weights)
    child.finish(result_digest)

A cached stage does not run, so stages must not write here: they return their metrics, and the recorder, which is never
cached, writes them. What is already recorded is not written again. A run is found by its `identity`, a digest of its
configuration; an iteration's metric by its key and step; a trace by an id derived from the run, the label and the
episode. So a run that was killed resumes where it stopped, and a finished run stays unchanged.

Every write names its run: MLflow's global "active run" is not used, so none can be left open. Importing this package
does not import MLflow, which takes seconds; the first `Recorder` does.
"""

from turnwise.tracking.ablations import Recorder
from turnwise.tracking.library import ui_command
from turnwise.tracking.runs import Dataset, TrackedRun

__all__ = ["Dataset", "Recorder", "TrackedRun", "ui_command"]
