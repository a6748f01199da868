"""The command line: a mistake is reported in one message, before anything is computed."""

import importlib.metadata
import io
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import httpx
import pytest

from flows.commands import cli
from flows.commands.cli import COMMANDS, FAULTS_SHOWN, FirstFaults, is_not_said_at_the_end, name_of, status_of
from flows.runtime.server import free_port
from turnwise.errors import StoreUnreachable

ROOT = Path(__file__).parents[2]


def turnwise(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TURNWISE_HOME": str(home), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    command = [sys.executable, "-m", "flows.commands.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ablation", "-s", "rollout.prompt=3"), "did you mean 'prompts'?"),
        (("ablation", "no-such-file.yaml"), "a parameters file must exist"),
        (("experiment", "-s", "credit.estimator=mt-grp"), "credit.estimator must be one of"),
        (("experiment", "--variant", "mt-grop"), "did you mean 'mt-grpo'?"),
        (("check", "no-such-world"), "what is checked must be 'module:object', a world (agentgym, "),
        (("serve", "frozen_lake", "--connections", "0"), "connections must be above 0; found 0"),
    ],
)
def test_a_mistake_is_told_in_one_message_and_nothing_is_computed(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = turnwise(*arguments, home=tmp_path / "home")
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.startswith("turnwise: ")
    assert not (tmp_path / "home" / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ablatoin",), "did you mean 'ablation'?"),
        (("ablation", "--dry-run", "experiments/frozen_lak.yaml"), "did you mean 'experiments/frozen_lake.yaml'?"),
    ],
)
def test_what_is_misspelt_on_the_command_line_gets_the_nearest_name(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = turnwise(*arguments, home=tmp_path / "home")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("turnwise: ") and message in result.stderr


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    assert turnwise("--version", home=tmp_path).stdout == f"turnwise {importlib.metadata.version('turnwise')}\n"


def test_help_groups_every_command_and_loads_no_library(tmp_path: Path) -> None:
    script = (
        "import sys; from flows.commands.cli import status_of; status_of(['--help'])\n"
        "heavy = ('prefect', 'mlflow', 'torch', 'transformers', 'pandas', 'numpy', 'pydantic')\n"
        "sys.exit(' '.join(name for name in heavy if name in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert shown.stderr == "\n", "nothing is loaded"
    places = [shown.stdout.index(f" {subject} ") for subject in COMMANDS]
    assert places == sorted(places)
    assert all(f"│ {name_of(command)} " in shown.stdout for commands in COMMANDS.values() for command in commands)


@pytest.mark.parametrize("command", ["ablation", "experiment", "prepare", "evaluate", "sweep"])
def test_a_command_that_runs_an_experiment_says_so_before_any_library_is_loaded(command: str, tmp_path: Path) -> None:
    script = (
        "import sys, flows.commands.options as options\n"
        "from flows.commands.cli import status_of\n"
        "def echo(line, err):\n"
        "    heavy = ('prefect', 'mlflow', 'torch', 'transformers', 'pandas', 'numpy')\n"
        "    sys.exit(f'{line}; loaded: ' + ' '.join(name for name in heavy if name in sys.modules))\n"
        "options.typer.echo = echo\n"
        f"status_of(['{command}', 'clips.yaml'])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert said.stderr == "turnwise: reading params.yaml, clips.yaml and loading the libraries ...; loaded: \n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("turnwise ab", ["ablation"]),
        ("turnwise ablation --dr", ["--dry-run"]),
        ("turnwise play froz", ["frozen_lake"]),
        ("turnwise show --split t", ["training", "test"]),
    ],
)
def test_the_shell_completes_commands_options_worlds_and_choices(
    words: str, completed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_TURNWISE_COMPLETE", "complete_bash")
    assert turnwise(home=tmp_path).stdout.split() == completed


def test_completion_is_installed_by_the_script_that_the_shell_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TURNWISE_COMPLETE", "source_bash")
    assert "complete -o default -F _turnwise_completion turnwise" in turnwise(home=tmp_path).stdout


def test_check_says_what_was_checked_and_that_the_world_keeps_its_contract(tmp_path: Path) -> None:
    result = turnwise("check", "frozen_lake", "-s", "size=3", home=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) > 10


def status(url: str, **headers: str) -> int:
    """Of an answer to a request with these headers, which would change something if it came from one's own page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers, data=b"{}")) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_ui_serves_mlflows_pages_to_this_machine_and_its_own_pages_only(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "TURNWISE_HOME": str(tmp_path)}
    with (tmp_path / "output").open("wb") as output:
        served = subprocess.Popen(
            [sys.executable, "-m", "flows.commands.cli", "ui", "--port", str(port)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 500
            while True:
                assert served.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                        assert answer.read() == b"OK"
                        break
                except OSError:
                    time.sleep(0.5)
            search = f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search"
            typed = {"Content-Type": "application/json"}
            assert status(search, **typed) == status(search, Origin=f"http://127.0.0.1:{port}", **typed) == 200
            assert status(search, Origin="http://evil.example", **typed) == 403
            for name in ("evil.example", "10.evil.example", "192.168.evil.example"):
                assert status(search, Host=name, **typed) == 403
        finally:
            os.killpg(served.pid, signal.SIGKILL)
            served.wait()


def test_an_interrupted_command_ends_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    environment = {**os.environ, "TURNWISE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "flows.commands.cli", "play", "frozen_lake"]
    pipe = subprocess.PIPE
    # A shell has what it starts in the background ignore the signal, and children inherit that.
    interruptible = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=interruptible
    ) as playing:
        assert playing.stdout is not None and playing.stderr is not None
        while playing.stdout.read(1) != b">":  # it waits for an action
            assert playing.poll() is None
        playing.send_signal(signal.SIGINT)
        assert playing.wait() == 130
        assert b"Traceback" not in playing.stderr.read()


def test_an_interrupted_ablation_says_that_the_same_command_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "run", lambda arguments: 130)
    assert status_of(["ablation"]) == 130
    assert capsys.readouterr().err.startswith("turnwise: interrupted; what was computed is kept, and the same command")
    assert status_of(["play", "frozen_lake"]) == 130
    assert capsys.readouterr().err == ""


def test_completion_is_installed_and_completes_a_command(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "TURNWISE_HOME": str(tmp_path)}
    executable = str(Path(sys.executable).with_name("turnwise"))
    # From within a shell, since Typer installs for the one that it is called from.
    command = ["bash", "-c", f"{shlex.quote(executable)} --install-completion; exit $?"]
    installed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "bash completion installed" in installed.stdout and (tmp_path / ".bashrc").is_file()
    asked = {"_TURNWISE_COMPLETE": "complete_bash", "COMP_WORDS": "turnwise li", "COMP_CWORD": "1"}
    completed = subprocess.run([executable], env={**environment, **asked}, capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["lineage"]


def test_what_prefect_logs_of_an_error_of_ours_is_not_shown_since_the_command_says_it_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert status_of(["no-such-command"]) == 2
    assert "COMMAND must be one of" in capsys.readouterr().err
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(shown)
    for error in (StoreUnreachable("the store is away"), KeyError("a mistake of ours")):
        try:
            raise error
        except Exception:
            for logger in ("prefect.flow_runs", "prefect.task_runs"):
                logging.getLogger(logger).exception("Encountered exception: %r", error)
                logging.getLogger(logger).error("Crash detected! Execution was aborted by an interrupt signal.")
            logging.getLogger("prefect.task_runs").error("Finished in state Failed(%r)", str(error))
    assert "the store is away" not in shown.getvalue()
    assert shown.getvalue().count("KeyError: 'a mistake of ours'") == 2
    assert "Finished in state" not in shown.getvalue() and "Crash" not in shown.getvalue()


def test_handlers_of_a_process_that_runs_a_command_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    assert status_of(["no-such-command"]) == 2
    assert logging.getLogger().handlers == [handler] and handler.filters == []


def test_a_world_that_fails_in_every_episode_is_not_reported_for_each() -> None:
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    handler.addFilter(FirstFaults())
    logger = logging.Logger("turnwise.agent.host")
    logger.addHandler(handler)
    for task in range(100):
        logger.warning("task %s; trying again", task)
    *_, last = shown.getvalue().splitlines()
    assert len(shown.getvalue().splitlines()) == FAULTS_SHOWN
    assert last == "task 4; trying again (further faults of worlds are not shown)"


def test_that_events_do_not_reach_prefects_server_is_said_once_and_its_loss_at_the_end_alone() -> None:
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    for is_shown in (is_not_said_at_the_end, FirstFaults()):
        handler.addFilter(is_shown)
    for name in ("prefect.events.clients", "prefect.flow_runs"):
        logger = logging.Logger(name)
        logger.addHandler(handler)
        for _ in range(3):
            try:
                raise httpx.ConnectError("connection refused")
            except httpx.ConnectError:
                logger.warning("unable to connect", exc_info=name == "prefect.flow_runs")
    assert shown.getvalue() == "unable to connect (further faults of this kind are not shown)\n"
