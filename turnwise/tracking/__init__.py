"""The recorder: what an experiment leaves in MLflow, the only place of the library that knows MLflow.

    recorder = Recorder(tracking_uri, experiment="turnwise", artifact_location=Path(".turnwise/mlflow"))
    parent = recorder.parent("credit rules", identity, parameters, tags)              one per ablation
    child = recorder.child(parent, "mt-grpo seed 1", identity, parameters, tags, datasets)    one per variant and seed
    child.log_iteration(7, {"train/success": 0.5})
    child.log_trajectories("validation/0007", trajectories, advantages, weights)
    child.finish(result_digest)

Cached stages do not run, so nothing that is cached may write here: stages return their metrics, and the recorder, which
is never cached, writes them. What is already there is not written again. A run is found by its `identity`, a digest of
its configuration; an iteration's metric by its key and step; a trace by an id that derives from the run, the label and
the episode. So a run that was killed continues where it stood, and a run that has finished stays as it is.

Every write names its run; there is no active run, and hence no stray one. Importing this package imports no MLflow,
which takes seconds: the first `Recorder` does.
"""

from turnwise.tracking.library import ui_command
from turnwise.tracking.runs import Dataset, Recorder, TrackedRun

__all__ = ["Dataset", "Recorder", "TrackedRun", "ui_command"]
