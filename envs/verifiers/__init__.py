"""Environments of the `verifiers` library as a world, each with its library in a Python environment of its own.

`flows.runtime.verifiers_service` sets that Python environment up and starts a service in it, which is played as the
world `remote`. These modules run there, and need no package of Turnwise's locked set but those of the service:

* `world`: the world; `episode`: one rollout, turned inside out into `reset` and `step`.
* `library`: what the library is asked, in its two forms, 0.1 and 0.4.
* `endpoint`: the model that the library believes to ask.
* `harness`: the program that plays a seat of version 0.4: it asks once.
"""
