"""Deployments, with the real tools: `prefect server start`, a process worker, `prefect deployment run ... --watch`."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from deployed_site import START_SECONDS, Site, deployed, wait_until
from project_copy import ROOT, start

pytestmark = pytest.mark.chain


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with deployed(tmp_path_factory.mktemp("deployment")) as site:
        yield site


def is_paused(site: Site) -> bool:
    return any(pool["name"] == "turnwise" and pool["is_paused"] for pool in site.ask("work_pools"))


def flow_run(site: Site, said: str) -> dict[str, Any]:
    """The flow run that a command has created."""
    (identity,) = re.findall(r"UUID: ([0-9a-f-]{36})", said)
    (found,) = site.ask("flow_runs", flow_runs={"id": {"any_": [identity]}})
    return found


def subflow_runs(site: Site, said: str) -> list[dict[str, Any]]:
    """The flow runs within the one that a command has created."""
    return site.ask("flow_runs", flow_runs={"parent_flow_run_id": {"any_": [flow_run(site, said)["id"]]}})


def task_run_names(site: Site, flow_run: dict[str, Any]) -> list[str]:
    found = site.ask("task_runs", task_runs={"flow_run_id": {"any_": [flow_run["id"]]}}, limit=200)
    return [task_run["name"] for task_run in found]


def test_a_deployed_ablation_does_the_work_of_the_command_line(site: Site) -> None:
    said = site.run("prefect", "deployment", "run", "ablation/local", "--watch")
    assert flow_run(site, said)["state_type"] == "COMPLETED"
    digests = json.loads((site.project / "results" / "tiny" / "digests.json").read_text())
    assert set(digests["runs"]) == {"grpo-or seed 1", "mt-grpo seed 1"}
    assert (site.project / "results" / "tiny" / "report.html").is_file()
    (comparison,) = subflow_runs(site, said)
    assert comparison["name"] == "tiny" and {"ablation tiny", "world frozen_lake"} <= set(comparison["tags"])
    for variant in ("grpo-or", "mt-grpo"):
        tags, within = ["ablation tiny", f"variant {variant}", "seed 1"], {"any_": [comparison["id"]]}
        (of_run,) = site.ask("flow_runs", flow_runs={"tags": {"all_": tags}, "parent_flow_run_id": within})
        assert of_run["name"] == f"{variant} seed 1"
        assert of_run["parent_task_run_id"] is not None, "it is listed as a part of the comparison"
        names = task_run_names(site, of_run)
        for iteration in (1, 2):
            assert sum(f"{variant} seed 1 iteration {iteration}" in name for name in names) >= 3, names
        assert sum(name.endswith(": rollout") for name in names) == 2, "one in each iteration"


def answered(site: Site, said: str, approved: bool) -> str:
    """Answer the question of the run that a command has created, and return the question when the run has ended."""
    run = flow_run(site, said)
    wait_until(lambda: flow_run(site, said)["state_type"] == "PAUSED", "the run must ask before it computes")
    assert subflow_runs(site, said) == []
    with httpx.Client(trust_env=False, timeout=60, base_url=f"{site.url}/flow_runs/{run['id']}") as client:
        question = "/input/paused-approval-description"
        wait_until(lambda: client.get(question).status_code == 200, "the plan must be there")
        plan = client.get(question).json()
        answer = partial(client.post, "/resume", json={"run_input": {"approved": approved}})
        wait_until(lambda: answer().is_success, "the server must take the answer, which it refuses (503) while busy")
    ended(site, [run])
    return str(plan)


def test_a_run_that_waits_for_approval_shows_its_plan_and_computes_nothing_unless_it_is_approved(site: Site) -> None:
    settings = ("--param", 'settings={"ablation.seeds": [7]}', "--param", "approval=true")
    command = ("prefect", "deployment", "run", "ablation/local", *settings)
    said = site.run(*command)
    question = answered(site, said, approved=False)
    assert question.startswith("**tiny**, 2 runs: at most ") and "\n| rollout | 4 |\n" in question
    assert flow_run(site, said)["state_type"] == "CANCELLED" and subflow_runs(site, said) == []
    said = site.run(*command)
    answered(site, said, approved=True)
    assert flow_run(site, said)["state_type"] == "COMPLETED"
    said = site.run(*command, "--watch")
    assert flow_run(site, said)["state_type"] == "COMPLETED", "of what is recorded nobody is asked"


def test_an_unknown_parameter_is_refused_before_any_stage_and_the_automation_pauses_the_pool(site: Site) -> None:
    site.run("prefect", "automation", "create", "--from-file", "automations.yaml")
    settings = ("--param", 'settings={"credit.estimatr": "grpo"}', "--param", "variant=mt-grpo")
    command = ("prefect", "deployment", "run", "experiment/local", "--watch", *settings)
    said = site.run(*command, expected=1)
    refused = flow_run(site, said)
    assert refused["state_type"] == "FAILED"
    assert "'estimatr' is not a known name; did you mean 'estimator'?" in refused["state"]["message"]
    assert refused["name"] == "experiment params.yaml mt-grpo credit.estimatr=grpo"
    assert task_run_names(site, refused) == subflow_runs(site, said) == []
    wait_until(lambda: is_paused(site), "the event of the failure must reach the automation, which pauses the pool")
    site.run("prefect", "work-pool", "resume", "turnwise")


def test_a_wrong_value_is_refused_before_there_is_a_run(site: Site) -> None:
    runs = partial(site.ask, "flow_runs", flows={"name": {"any_": ["experiment"]}})  # those of other tests go on
    before = len(runs())
    command = ("prefect", "deployment", "run", "experiment/local", "--param")
    for wrong in ('changes={"optimization": {"iterations": 0}}', 'changes={"optimisation": {}}', "seed=-1"):
        site.run(*command, wrong, expected=1)
    assert len(runs()) == before


def test_every_flow_is_deployed_with_a_description_of_each_parameter(site: Site) -> None:
    found = {each["name"]: each["id"] for each in site.ask("flows")}
    deployments = {each["flow_id"]: each for each in site.ask("deployments")}
    for name in ("ablation", "experiment", "sweep", "prepare", "evaluate", "credit-study"):
        schema = deployments[found[name]]["parameter_openapi_schema"]
        assert all(each.get("description") for each in schema["properties"].values()), name
        options = schema["definitions"]["Optimization"]["properties"]
        assert options["iterations"]["minimum"] == 1
        assert options["learning_rate"]["description"].endswith("A number at least 1e-12, at most 10.")
        until = schema["definitions"]["Budget"]["properties"]["seconds"]["description"]
        assert until.endswith("A number above 0, at most 1e+09.")


def scheduled_runs(site: Site, schedule: str) -> list[dict[str, Any]]:
    """The runs that a schedule of the deployment has planned, and those that it has started, by when they were due."""
    runs = site.ask("flow_runs", sort="EXPECTED_START_TIME_ASC")
    return [each for each in runs if (each["created_by"] or {}).get("id") == schedule]


def new_schedule(site: Site, *command: str) -> str:
    """Run a command that gives a deployment a schedule; the schedule's id."""
    before = {schedule["id"] for each in site.ask("deployments") for schedule in each["schedules"]}
    site.run(*command)
    after = {schedule["id"] for each in site.ask("deployments") for schedule in each["schedules"]}
    (made,) = after - before
    return made


def test_the_documented_schedule_plans_a_run_for_each_night_until_it_is_paused(site: Site) -> None:
    command = "prefect deployment schedule create 'ablation/local' --cron '0 2 * * *' --timezone Europe/Zurich"
    assert command in (ROOT / "docs" / "deployments.md").read_text()
    nightly = new_schedule(site, *shlex.split(command))
    wait_until(lambda: len(scheduled_runs(site, nightly)) >= 3, "the server must plan runs ahead")
    planned = [datetime.fromisoformat(each["expected_start_time"]) for each in scheduled_runs(site, nightly)]
    there = [each.astimezone(ZoneInfo("Europe/Zurich")) for each in planned]
    assert {(each.hour, each.minute) for each in there} == {(2, 0)}
    assert {later.date() - earlier.date() for earlier, later in itertools.pairwise(there)} == {timedelta(days=1)}
    assert nightly in site.run("prefect", "deployment", "schedule", "ls", "ablation/local")
    site.run("prefect", "deployment", "schedule", "pause", "ablation/local", nightly)
    wait_until(lambda: scheduled_runs(site, nightly) == [], "what a paused schedule has planned must be gone")


def ended(site: Site, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These flow runs when all have ended, by when they began."""
    wanted = {"id": {"any_": [each["id"] for each in runs]}}

    def found() -> list[dict[str, Any]]:
        return site.ask("flow_runs", flow_runs=wanted)

    wait_until(lambda: all(each["end_time"] for each in found()), "the runs must end")
    return sorted(found(), key=lambda each: each["start_time"])


def assert_one_after_the_other(runs: list[dict[str, Any]]) -> None:
    assert [each["state_type"] for each in runs] == ["COMPLETED"] * len(runs)
    for earlier, later in itertools.pairwise(runs):
        times = datetime.fromisoformat(earlier["end_time"]), datetime.fromisoformat(later["start_time"])
        assert times[0] <= times[1], "the limit is one run at a time"


def state_names(site: Site, flow_run: dict[str, Any]) -> list[str]:
    """The states that a flow run has been in."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        asked = client.get(f"{site.url}/flow_run_states/", params={"flow_run_id": flow_run["id"]})
        return [state["name"] for state in asked.raise_for_status().json()]


def test_a_second_run_of_a_deployment_waits_for_its_slot(site: Site) -> None:
    command = ("prefect", "deployment", "run", "ablation/local")
    begun = [flow_run(site, site.run(*command)) for _ in range(2)]
    runs = ended(site, begun)
    assert_one_after_the_other(runs)
    assert "AwaitingConcurrencySlot" in state_names(site, runs[1])
    assert "AwaitingConcurrencySlot" not in state_names(site, runs[0])


def test_the_documented_limit_of_the_pool_holds_back_runs_of_whatever_deployment(site: Site) -> None:
    command = "prefect work-pool set-concurrency-limit turnwise 1"
    assert command in (ROOT / "docs" / "deployments.md").read_text()
    site.run(*shlex.split(command))
    ablation = ("prefect", "deployment", "run", "ablation/local")
    single = ("prefect", "deployment", "run", "experiment/local", "--param", "variant=mt-grpo", "--param", "seed=1")
    begun = [flow_run(site, site.run(*each)) for each in (ablation, single)]
    assert begun[0]["deployment_id"] != begun[1]["deployment_id"]
    runs = ended(site, begun)
    assert_one_after_the_other(runs)
    assert all("AwaitingConcurrencySlot" not in state_names(site, each) for each in runs), "they stay scheduled"
    site.run("prefect", "work-pool", "clear-concurrency-limit", "turnwise")


def test_the_deployments_to_containers_are_taken_by_pools_of_their_kinds(site: Site) -> None:
    file = ("--prefect-file", "prefect-containers.yaml")
    for kind in ("docker", "kubernetes"):
        site.run("prefect", "work-pool", "create", f"turnwise-{kind}", "--type", kind)
    site.run("prefect", "--no-prompt", "deploy", "--all", *file)
    schedule = ("ablation/docker", "--cron", "0 2 * * *")
    site.run("prefect", "deployment", "schedule", "create", *schedule)
    pools = {pool["name"]: pool["base_job_template"]["variables"]["properties"] for pool in site.ask("work_pools")}
    made = [each for each in site.ask("deployments") if each["name"] in ("docker", "kubernetes")]
    assert sorted(each["entrypoint"] for each in made) == 2 * ["flows/deployments.py:ablation"] + 2 * [
        "flows/deployments.py:experiment"
    ]
    assert [of["schedule"]["cron"] for each in made for of in each["schedules"]] == ["0 2 * * *"]
    assert {
        each["name"]: each["global_concurrency_limit"]["limit"] for each in made if "ablation" in each["entrypoint"]
    } == {
        "docker": 1,
        "kubernetes": 4,
    }
    for each in made:
        assert each["work_pool_name"] == f"turnwise-{each['name']}"
        assert each["job_variables"].keys() <= pools[each["work_pool_name"]].keys(), "a variable that no worker reads"
        assert each["pull_steps"] == [{"prefect.deployments.steps.set_working_directory": {"directory": "/turnwise"}}]


FAILS = """
from prefect import flow, tags

for name in ("other", "credit"):
    @flow(flow_run_name=f"a run of {name}")
    def fails():
        raise ValueError("it must fail")

    with tags(f"ablation {name}"):
        fails(return_state=True)
"""


def test_the_documented_message_is_sent_for_the_ablation_whose_tag_is_matched(site: Site) -> None:
    received: Queue[bytes] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        script = documented("messages.py").replace("127.0.0.1:8080", f"127.0.0.1:{server.server_port}")
        (site.project / "messages.py").write_text(script)
        (site.project / "fails.py").write_text(FAILS)
        (identity,) = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", site.run("messages"))
        file = site.project / "messages.yaml"
        file.write_text(documented("messages.yaml").replace("ID #", f"{identity} #"))
        site.run("prefect", "automation", "create", "--from-file", file.name)
        site.run("fails")
        assert json.loads(received.get(timeout=START_SECONDS)) == {"text": "a run of credit: Failed"}
        server.shutdown()
    assert received.empty(), "of the other ablation nothing is said"


SILENT = """
import time
from prefect import flow
@flow(flow_run_name="within the silent run")
def within():
    time.sleep(3600)
@flow(flow_run_name="a silent run")
def outer():
    within()
outer()
"""


def test_the_documented_automation_ends_a_silent_run_that_was_cancelled_and_its_subflow(site: Site) -> None:
    names = ["a silent run", "within the silent run"]
    file = site.project / "silent.yaml"
    file.write_text((ROOT / "examples" / "silent-runs.yaml").read_text().replace("within: 600", "within: 60"))
    (site.project / "silent.py").write_text(SILENT)
    site.run("prefect", "automation", "create", "--from-file", file.name)
    variables = {"PREFECT_API_URL": site.url, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "NO_PROXY": "127.0.0.1"}
    try:
        with (site.project / "silent.log").open("w") as log:
            process = start(site.project, "silent", output=log, **variables)
            try:
                wait_until(lambda: len(alive(site, names)) == 2, "both runs must give a sign of life")
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        (outer,) = runs_of(site, names[:1])
        cancelled = {"state": {"type": "CANCELLING"}}  # as `prefect flow-run cancel` does; no worker is left to end it
        with httpx.Client(trust_env=False, timeout=60) as client:
            client.post(f"{site.url}/flow_runs/{outer['id']}/set_state", json=cancelled).raise_for_status()
        ended = "the automation must end the run and its subflow"
        wait_until(lambda: [run["state_name"] for run in runs_of(site, names)] == ["Crashed"] * 2, ended)
    finally:
        site.run("prefect", "automation", "delete", "a run without a sign of life has crashed")


def runs_of(site: Site, names: list[str]) -> list[dict[str, Any]]:
    return site.ask("flow_runs", flow_runs={"name": {"any_": names}})


def alive(site: Site, names: list[str]) -> set[str]:
    """The ids of those flow runs of these names that have given a sign of life."""
    ids = {f"prefect.flow-run.{run['id']}" for run in runs_of(site, names)}
    asked = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}}}
    with httpx.Client(trust_env=False, timeout=60) as client:
        events = client.post(f"{site.url}/events/filter", json=asked).raise_for_status().json()["events"]
    return ids & {event["resource"]["prefect.resource.id"] for event in events}


def documented(name: str) -> str:
    """A file as docs/deployments.md shows it."""
    page = (ROOT / "docs" / "deployments.md").read_text()
    (found,) = re.findall(rf'```\w+ title="{re.escape(name)}"\n(.*?)```', page, flags=re.DOTALL)
    return found
