"""Who makes the runs of an ablation: this process, further processes of this machine, or a Ray cluster.

* `runs`: a run as any process makes it, what a worker reports meanwhile, and the run as this process follows it.
* `processes`, `ray_cluster`: the two kinds of workers, each behind a task runner of Prefect.
* `sharing`: which run is made where, and what happens to the run of a lost worker.
"""
