"""Ray workers: each run is a task of Prefect that prefect-ray's task runner hands to a Ray cluster.

    this process                              a Ray worker, with the cores, cards and memory of one run
    Prefect's RayTaskRunner.submit    ->      Prefect's task "run" of the same flow run
                                              a flow run of its own, within that of the ablation, whose stages are
                                              cached as those of any process
    a queue of Ray's                  <-      reports, as lines of JSON
        a lost worker: Ray runs the task again, on whichever machine has room

This process makes no runs then: it records and shows what it is told. Workers write artifacts into the home, which all
machines of the cluster must see at one path.
"""

from __future__ import annotations

import contextvars
import logging
import os
import pickle
import socket
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext, TagsContext
from prefect.flows import Flow

from flows.runtime.housekeeping import computing_for_another
from flows.runtime.process_settings import OFFLINE, PRODUCTS, QUIET, THREADS
from flows.runtime.server import CLIENT_SETTINGS
from flows.workers.runs import FollowedRun, run_recorded, run_reporter
from turnwise.config.runner import Runner
from turnwise.errors import ConfigurationError, TrainingEnded, TurnwiseError, first_line
from turnwise.own_process import REPRODUCIBLE
from turnwise.policy.memory_plan import GIB
from turnwise.project import home, one_project, start_folder
from turnwise.store.default import CACHE_VARIABLE, URL_VARIABLE
from turnwise.training_runs.display import Display

SECONDS_WITHOUT_HEAD = 20.0
"""For how long the head may not answer. After 60 Ray would end this process, without a word of ours."""
SECONDS_BETWEEN_LOOKS_AT_HEAD = 1.0


class RayHead:
    """Looks whether the head answers."""

    def __init__(self, address: str) -> None:
        """`address` is HOST:PORT of the head's control service (GCS)."""
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._last_answer = time.monotonic()

    def loss(self) -> str:
        """Why the head counts as lost; empty as long as it answers, or has answered a moment ago."""
        silent = time.monotonic() - self._last_answer
        if silent < SECONDS_BETWEEN_LOOKS_AT_HEAD:
            return ""
        try:
            socket.create_connection(self._address, timeout=SECONDS_WITHOUT_HEAD / 2).close()
        except OSError as error:
            return f"its head has not answered for {silent:.0f} s ({error})" if silent > SECONDS_WITHOUT_HEAD else ""
        self._last_answer = time.monotonic()
        return ""


def token_mode() -> dict[str, str]:
    """The variable by which Ray shows its token, where there is one.

    `ray start` has a cluster ask for it, and a process that joins by `ray.init` does not show it by itself. Ray reads
    the variable when it is imported.
    """
    has_token = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return {"RAY_AUTH_MODE": "token"} if has_token or (Path.home() / ".ray" / "auth_token").exists() else {}


LOSSES_OF_A_RUN = 3
"""How often Ray begins a run again whose worker was lost."""
SECONDS_BETWEEN_LOOKS = 0.5
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""No usage reports; and in a cluster of this machine alone, workers as nice as this process: with Ray's 15 they hardly
get on next to anything else. The environment takes precedence."""
SHARED_SETTINGS = (
    *("PREFECT_API_URL", "PREFECT_HOME", *CLIENT_SETTINGS),
    *(URL_VARIABLE, CACHE_VARIABLE, *OFFLINE, *QUIET, *THREADS, *PRODUCTS, *REPRODUCIBLE),
)
"""The environment variables that workers take over from this process."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Has a cluster of this machine alone listen on the loopback address, and not on all: Ray does so where it makes no
clusters of several machines, as on macOS. It is read when Ray is imported."""
LOCAL_STORE_BYTES = 100 * 2**20
"""Memory for Ray's own objects in a cluster of this machine alone. Artifacts do not travel through it."""


class RayWorkers:
    """The Ray workers of an ablation. The cluster is joined when the first run is submitted."""

    def __init__(self, runner: Runner, display: Display) -> None:
        self.seconds = 0.0
        """Wall time of the runs in seconds, added up."""
        self.number = 0
        """How many runs were made at the same time, at most."""
        self._runner, self._display = runner, display
        self._open = ExitStack()
        self._followed: dict[str, FollowedRun] = {}
        self._futures: dict[str, Any] = {}
        self._began: dict[str, float] = {}
        self._queue: Any = None
        self._pending_request: Any = None
        """The question to the queue that is not answered yet."""
        self._head: RayHead | None = None
        """None where only Ray's client server is reached (ray://)."""
        self._task_runner: Any = None

    def submit(self, followed: FollowedRun) -> None:
        """Hand a run to the cluster. Raises ConfigurationError where the cluster cannot be joined."""
        if self._task_runner is None:
            self._join()
        from prefect_ray.context import remote_options

        name, runner = followed.order.name, self._runner
        memory = {} if runner.memory_gib is None else {"memory": int(runner.memory_gib * GIB)}
        parameters = {
            "title": name,
            "order": pickle.dumps(followed.order),  # read once the worker imports from the folder
            "queue": self._queue,
            "folder": str(start_folder()),
        }
        with (
            TagsContext(current_tags=set()),  # a tag costs a question to the server
            _plain_flow(),
            remote_options(num_cpus=runner.cores, num_gpus=runner.cards, max_retries=LOSSES_OF_A_RUN, **memory),
        ):
            self._futures[name] = self._task_runner.submit(_TASK, parameters=parameters)
        self._followed[name] = followed

    def take_back(self, followed: FollowedRun) -> bool:
        """False: this process makes no run that the cluster has."""
        return False

    def wait(self, followed: FollowedRun) -> None:
        """Follow all runs until this one is made.

        Raises TurnwiseError where it is lost for good, or the head is, and what the worker has raised on purpose.
        """
        while followed.outcome is None:
            done = self._is_done(followed.order.name)  # asked first: what it said before it ended is in the queue
            heard = self._hear(followed)
            if done and not heard and followed.outcome is None:
                error = self._futures[followed.order.name].result(raise_on_failure=False)
                if isinstance(error, TurnwiseError):  # it would be refused anywhere: no fault of the cluster
                    raise error
                raise self._loss_error(followed, f"it has ended with: {first_line(error)}")
            if self._head is not None and (loss := self._head.loss()):
                raise self._loss_error(followed, loss)

    def _loss_error(self, followed: FollowedRun, how: str) -> TurnwiseError:
        return TurnwiseError(
            f"the Ray cluster at {self._runner.address} must make the run {followed.order.name}; {how}. What was "
            "computed is kept: start the ablation again to go on from there, when the cluster answers",
            "TW-worker-lost",
        )

    def finish(self) -> None:
        """Leave the cluster; one that was started for this ablation ends."""
        self._open.close()

    kill = finish

    def _join(self) -> None:
        address = self._runner.address
        assert address is not None, "the configuration requires it for kind ray"
        settings = {**RAY_SETTINGS, **(LOOPBACK if address == "local" else token_mode())}
        os.environ.update({name: os.environ.get(name, value) for name, value in settings.items()})
        try:
            import ray
            from prefect_ray import RayTaskRunner
            from ray.util.queue import Queue
        except ImportError as error:
            raise ConfigurationError(
                f"compute.runner.kind: ray needs Ray, which is not installed ({error}): pip install --no-deps -r "
                "requirements/ray.lock",
                "TW-missing-package",
            ) from error
        own = {"include_dashboard": False, "object_store_memory": LOCAL_STORE_BYTES} if address == "local" else {}
        environment = {name: os.environ[name] for name in SHARED_SETTINGS if name in os.environ}
        try:
            ray.init(
                address=address,
                namespace="turnwise",
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"env_vars": {**environment, "TURNWISE_HOME": str(home())}},
                **own,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigurationError(
                f"compute.runner.address must name a Ray cluster that answers; {address}: {error}: start one with ray "
                "start --head, or set it to local",
                "TW-ray-unreachable",
            ) from error
        self._open.callback(ray.shutdown)
        if not address.startswith("ray://"):
            self._head = RayHead(ray.get_runtime_context().gcs_address)
        require_room(self._runner, ray.cluster_resources())
        machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        require_server_for(machines, os.environ["PREFECT_API_URL"])
        self._queue = Queue(actor_options={"num_cpus": 0})
        self._task_runner = self._open.enter_context(RayTaskRunner())  # it uses the cluster that was joined

    def _is_done(self, name: str) -> bool:
        import ray

        done, _ = ray.wait([self._futures[name].wrapped_future], timeout=0)
        return bool(done)

    def _hear(self, awaited_run: FollowedRun) -> bool:
        """Take what workers have said, or wait for it for a moment. Returns whether there was anything.

        Raises TurnwiseError where the queue is lost, with the machine that it was on.
        """
        import ray
        from ray.util.queue import Empty

        # Not the queue's own `get`, which waits for ever where it and the head are lost together.
        self._pending_request = self._pending_request or self._queue.actor.get.remote(SECONDS_BETWEEN_LOOKS)
        ready, _ = ray.wait([self._pending_request], timeout=2 * SECONDS_BETWEEN_LOOKS)
        if not ready:
            return False
        request, self._pending_request = self._pending_request, None
        try:
            name, report = ray.get(request)
        except Empty:
            return False
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise self._loss_error(awaited_run, f"what workers say is lost: {first_line(error)}") from error
        followed, view = self._followed[name], self._display.worker(name)
        if name not in self._began:
            self._began[name] = time.monotonic()
            self.number = max(self.number, len(self._began))
        followed.heard(pickle.loads(report), view)
        if followed.outcome is not None:
            self.seconds += time.monotonic() - self._began.pop(name)
            view.rest()
        return True


def require_server_for(machines: Collection[str], server: str) -> None:
    """Raise ConfigurationError where Prefect's server answers to its own machine and the cluster has others."""
    if len(machines) > 1 and urlsplit(server).hostname in ("127.0.0.1", "localhost", "::1"):
        raise ConfigurationError(
            f"PREFECT_API_URL must be an address that all {len(machines)} machines of the Ray cluster reach; found "
            f"{server}: start prefect server start --host ADDRESS, and set PREFECT_API_URL to it",
            "TW-prefect-address-local",
        )


def require_room(runner: Runner, offered: Mapping[str, float]) -> None:
    """Raise ConfigurationError where no worker of the cluster could ever make a run."""
    needed = {"CPU": runner.cores, "GPU": runner.cards, "memory": (runner.memory_gib or 0.0) * GIB}
    for name, amount in needed.items():
        if amount > offered.get(name, 0.0):
            unit = " bytes" if name == "memory" else ""
            raise ConfigurationError(
                f"compute.runner must ask for what the Ray cluster has; a run takes {amount:g} {name}{unit}, and the "
                f"cluster has {offered.get(name, 0.0):g}: lower compute.runner.cores, cards or memory_gib, or add "
                "machines",
                "TW-small-cluster",
            )


_worker_context = contextvars.Context()
"""The context of the flow runs of a Ray worker's process. Within the task "run" itself, Prefect would write the records
of all stages when that task ends, and not as each of them does: a lost worker would lose its whole run."""


def run_by_ray(title: str, order: bytes, queue: Any, folder: str) -> None:
    """In a Ray worker: make the run of a pickled order, and put its reports into the queue.

    `folder` is that in which the ablation was started: a user's own world and parts are imported from there. Ray itself
    tells its workers of the folder in which it was joined, to which a world may have gone, and over `ray://` of none.
    """
    os.chdir(folder)
    if folder not in sys.path:
        sys.path.append(folder)
    with one_project():
        _worker_context.run(_make, title, order, queue)


def _make(title: str, order: bytes, queue: Any) -> None:
    with (
        computing_for_another(),
        _Sender(queue, title) as sender,
        run_reporter(lambda report: sender.send(pickle.dumps(report))) as reporter,  # now: a run goes on
        suppress(TrainingEnded),  # it is reported as the outcome of the run
    ):
        run_recorded(pickle.loads(order), reporter)


class _Sender:
    """Puts a run's reports into the queue, in order, from a thread of its own.

    Ray takes a task that waits in its main thread for another, as each put does, for one that needs no core meanwhile,
    and begins further runs on them: four at once were seen where there was room for one.
    """

    def __init__(self, queue: Any, title: str) -> None:
        self._queue, self._title = queue, title
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reports")
        self._pending: deque[Future[None]] = deque()
        """What has been sent and not been asked yet whether it has arrived, in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self._raise_failure()

    def send(self, report: bytes) -> None:
        """Send a report soon. Raises what Ray raised where any earlier one was lost."""
        self._raise_failure()
        self._pending.append(self._thread.submit(self._queue.put, (self._title, report)))

    def _raise_failure(self) -> None:
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()


_TASK: Task[..., None] = Task(
    run_by_ray, name="run", task_run_name="{title}", persist_result=False, cache_policy=NO_CACHE
)


def _nothing() -> None:
    """Stands for the function of the flow run in what travels to Ray workers."""


def _plain_flow() -> Any:
    """The current flow run without its function and parameters, which prefect-ray would pickle with every task."""
    context = FlowRunContext.get()
    assert context is not None, "runs are submitted within a flow run"
    plain = Flow(_nothing, name=context.flow.name if context.flow else "run", persist_result=False)
    return context.model_copy(update={"flow": plain, "parameters": {}})
