"""Who makes the runs of an ablation: this process, further processes of this machine, or a Ray cluster.

* `orders`: a run as a worker is asked for it, and how the worker makes it.
* `reports`: what a worker says while it makes a run, a line of JSON each; nothing is pickled.
* `following`: the run as this process knows it from the reports, recorded and shown meanwhile.
* `processes`, `ray_cluster`: the two kinds of workers, each behind a task runner of Prefect.
* `ray_head`: whether the head of a Ray cluster still answers.
* `sharing`: which run is made where, and what happens to the run of a lost worker.
"""
