"""The commands on worlds: list, check, play and serve them. Each imports what it needs only when it runs.

`check` takes credit rules and rewards, too.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.commands.options import (
    LARGEST_SEED,
    MOST,
    CheckedName,
    CheckedSettings,
    Port,
    Preset,
    WorldName,
    WorldSettings,
    installed_world_names,
)
from flows.commands.progress_line import showing_progress
from turnwise.errors import ConfigurationError, TurnwiseError

if TYPE_CHECKING:
    from turnwise.checking import CheckReport
    from turnwise.checking.baselines import BaselineRow
    from turnwise.world import Limits, World

DOCS = Path(__file__).parents[2] / "docs"
"""The folder with the baselines record that belongs to this version of the code."""
WIDTH = 100
"""Most columns of the terminal that the table uses."""
NO_END = "no end"
MOST_WORKERS = 1024
"""Most worker processes of one world in a service; they share its episodes."""


def worlds() -> None:
    """List the installed worlds, and the success of their baseline policies."""
    show_worlds(DOCS)


def show_worlds(folder: Path) -> None:
    """Print the table, with the baselines that are recorded in a folder."""
    from turnwise.checking.baselines import recorded_baselines

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    lines = {line.key: line for line in recorded_baselines(folder)}
    with showing_progress("loading the worlds"):
        table = _table(installed(), lines)
    console.print(table, width=min(console.width, WIDTH))
    console.print("Tasks: of train, validation and test. Success: on the test tasks, as `turnwise baselines` found it.")


@dataclass(frozen=True)
class Installed:
    """An installed world, made with its defaults, or the reason why it cannot be made here."""

    name: str
    instance: World | str

    @property
    def lacks(self) -> str | None:
        """Why it cannot be played here: it cannot be made, or a program is missing. None: it can."""
        if isinstance(self.instance, str):
            return f"cannot be made here: {self.instance}"
        try:
            self.instance.require_programs()
        except ValueError as error:
            return f"cannot be played here: {error}"
        return None


def installed(names: Sequence[str] = ()) -> list[Installed]:
    """These worlds, or all that are installed, in order. Raises ConfigurationError for an unknown name."""
    from turnwise.world import installed_worlds, world_class

    for name in names:
        try:
            world_class(name)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(str(error), "TW-plugin-import") from error
    return [Installed(name, _make_or_explain(name)) for name in names or installed_worlds()]


def _make_or_explain(name: str) -> World | str:
    """The world with its defaults, or why it cannot be made: a missing package or parameter."""
    from turnwise.world import make_world, world_class

    try:
        parameters = inspect.signature(world_class(name)).parameters
        if needed := [each for each, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]:
            return f"it needs the parameters {', '.join(needed)}"
        return make_world(name, {})
    except (ImportError, TypeError, ValueError) as error:
        return str(error)


def _table(worlds: Sequence[Installed], lines: Mapping[tuple[str, str, str], BaselineRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("world", "tasks", "limits", "success"):
        table.add_column(heading, no_wrap=True)
    table.add_column("actions, and settings")
    for world in worlds:
        lacks = Text(world.lacks or "", style="dim")
        if isinstance(world.instance, str):
            table.add_row(Text(world.name), "", "", "", lacks)
        else:
            *cells, actions = map(Text, _row(world.name, world.instance, lines))
            table.add_row(*cells, Text("\n").join([actions, lacks]) if lacks else actions)
        table.add_section()
    return table


def _row(name: str, world: World, lines: Mapping[tuple[str, str, str], BaselineRow]) -> Sequence[str]:
    from turnwise.world import SPLITS

    sizes = [(split, world.split_size(split)) for split in SPLITS]
    tasks = [f"{split} {NO_END if size is None else f'{size:,}'}" for split, size in sizes]
    endless = all(size is None for _, size in sizes)
    scores = [f"{baseline} {_success(lines.get((name, '', baseline)))}" for baseline in world.baselines]
    presets = f"\npresets: {', '.join(world.presets)}" if world.presets else ""
    actions = world.grammar + presets
    return name, NO_END if endless else "\n".join(tasks), _limits(world.limits), "\n".join(scores), actions


def _success(line: BaselineRow | None) -> str:
    from turnwise.reporting.formatting import UNDEFINED, number

    return UNDEFINED if line is None else number(line.score.success.value, 2)


def _limits(limits: Limits) -> str:
    lines = [_count(limits.turns, "turn")]
    if limits.actions_per_turn > 1:
        lines.append(f"{limits.actions_per_turn} actions each")
    if limits.actions is not None:
        lines.append(f"{_count(limits.actions, 'action')} in all")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def named_world(name: str, preset: str, settings: Iterable[str]) -> tuple[World, dict[str, Any]]:
    """A world to be played, by name, preset and `key=value` settings, with all its parameters.

    Raises ConfigurationError, also where a program that plays it is missing.
    """
    from flows.runtime.verifiers_service import is_verifiers, served_world
    from turnwise.config.overlays import parse_setting
    from turnwise.world import make_world, with_preset

    if is_verifiers(name):
        return served_world(name, dict(map(parse_setting, settings)))
    try:
        parameters = with_preset(name, preset, dict(map(parse_setting, settings)))
        world = make_world(name, parameters)
        world.require_programs()
        return world, parameters
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigurationError(str(error), "TW-plugin-import") from error


def check(
    name: CheckedName,
    preset: Preset = "",
    settings: CheckedSettings = None,
    kind: Annotated[
        Literal["world", "rule", "reward"] | None,
        typer.Option("--as", help="What it is to be checked as.", show_default="what the name leads to"),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Of a world: also measure what training will meet, and write it here as a page and JSON.",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Count the certificate's lengths in its tokens.")
    ] = None,
) -> None:
    """Check that a world, a credit rule or a reward keeps its contract."""
    from turnwise.checking import check_world
    from turnwise.checking.added_rewards import check_reward
    from turnwise.checking.credit_rules import check_rule
    from turnwise.checking.named_subjects import kind_of
    from turnwise.config.overlays import parse_setting

    kind = kind or kind_of(name)
    if certificate is not None and kind != "world":
        raise ConfigurationError(
            f"--certificate belongs to worlds; {name!r} is a {kind}: leave it out", "TW-unread-option"
        )
    if tokenizer is not None and certificate is None:
        raise ConfigurationError(
            "--tokenizer counts the lengths in a certificate: give --certificate FOLDER, too", "TW-missing-option"
        )
    if kind == "world":
        with showing_progress():
            world, parameters = named_world(name, preset, settings or [])
        with showing_progress():
            report = check_world(world, parameters=parameters)
    else:
        if preset:
            raise ConfigurationError(
                f"--preset belongs to worlds; {name!r} is a {kind}: leave it out", "TW-unread-option"
            )
        check_function = check_rule if kind == "rule" else check_reward
        report = check_function(name, dict(map(parse_setting, settings or [])))
    columns = Console().width if sys.stdout.isatty() else None
    sys.stdout.write("\n".join(report.lines(columns)) + "\n")
    if certificate is not None:
        _certify(world, parameters, report, certificate, tokenizer)
    if not report.passed:
        raise TurnwiseError(f"the {report.what} {name!r} does not keep its contract", "TW-contract-broken")


def _certify(
    world: World, parameters: Mapping[str, Any], contract: CheckReport, folder: Path, tokenizer: Path | None
) -> None:
    """Measure a world's certificate, write it into a folder, and print what to know before training.

    `tokenizer` is a folder in Hugging Face's layout. Raises ConfigurationError where it cannot be read.
    """
    from turnwise.checking.certificate import certify
    from turnwise.reporting.html.pages import CERTIFICATE_FILES, write_certificate

    counts = None if tokenizer is None else _token_counter(tokenizer)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with showing_progress():
        certificate = certify(
            world,
            parameters=parameters,
            contract=contract,
            count_tokens=counts,
            tokenizer=tokenizer.name if tokenizer else "",
        )
    write_certificate(certificate, folder)
    for remark in certificate.remarks or ["No probe earned more than the random policy; no task stands out."]:
        console.print(remark)
    for name in CERTIFICATE_FILES:
        console.print(f"wrote {folder / name}")


def _token_counter(folder: Path) -> Callable[[str], int]:
    from turnwise.policy.tokenizer import load_tokenizer

    if not (folder / "tokenizer_config.json").is_file():
        raise ConfigurationError(
            f"--tokenizer must be a folder with a tokenizer in Hugging Face's layout; {folder} has no "
            "tokenizer_config.json: give the folder of a model",
            "TW-missing-tokenizer",
        )
    tokenizer = load_tokenizer(folder)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def play(
    world: WorldName,
    preset: Preset = "",
    settings: WorldSettings = None,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="The split of the task.")] = "train",
    task: Annotated[int, typer.Option(min=0, max=MOST, metavar="N", help="Its place in the split, from 0.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The seed of the episode's noise.")] = 0,
    form: Annotated[
        str,
        typer.Option("--format", help="plain: a line is the answer; or one of agent.format: you type the whole reply."),
    ] = "plain",
) -> None:
    """Play an episode in the terminal, as the policy sees it."""
    from turnwise.agent.play_by_hand import play as play_episode

    with showing_progress():
        made_world, _ = named_world(world, preset, settings or [])
    play_episode(made_world, split, task, form, seed, sys.stdin, sys.stdout)


def serve(
    worlds: Annotated[
        list[str],
        typer.Argument(
            metavar="WORLD",
            help="A name, module:Class, WORLD@PRESET, WORLD={parameters} or WORLD=file.yaml.",
            autocompletion=installed_world_names,
        ),
    ],
    host: Annotated[str, typer.Option(help="Another than the loopback address needs a token.")] = "127.0.0.1",
    port: Port = 8600,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable that holds the token.")
    ] = "TURNWISE_SERVICE_TOKEN",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which clients reach it, next to --host and the loopback's."),
    ] = None,
    processes: Annotated[
        list[str] | None, typer.Option(metavar="WORLD=N", help="Worker processes (for sciworld and browser 1).")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Most episodes that are open at once.")] = 1024,
    lease_seconds: Annotated[float, typer.Option(help="An episode that is idle for longer is closed.")] = 600.0,
    call_seconds: Annotated[float, typer.Option(help="Most seconds that a world may take for one call.")] = 300.0,
    body_bytes: Annotated[int, typer.Option(help="Most bytes of a request's body.")] = 1_048_576,
    connections: Annotated[int, typer.Option(help="Most connections that are open at once.")] = 2048,
    request_seconds: Annotated[
        float, typer.Option(help="Most seconds for a request's head to arrive, and again for its body.")
    ] = 20.0,
    client_episodes: Annotated[
        int | None, typer.Option(help="Most episodes that one client has open; by default all.")
    ] = None,
    client_requests: Annotated[
        float | None, typer.Option(help="Most requests of one client per second; by default no limit.")
    ] = None,
) -> None:
    """Serve worlds over HTTP."""
    from envs.service.limits import ServiceLimits
    from envs.service.server import serve as serve_worlds
    from flows.runtime.verifiers_service import is_verifiers, run_service
    from turnwise.store.plugin_identity import world_digest

    try:
        limits = ServiceLimits(
            episodes=episodes,
            lease_seconds=lease_seconds,
            call_seconds=call_seconds,
            body_bytes=body_bytes,
            connections=connections,
            request_seconds=request_seconds,
            client_episodes=client_episodes,
            client_requests=client_requests,
        )
        if any(map(is_verifiers, worlds)):
            if len(worlds) > 1 or processes:
                arguments = ", ".join([*worlds, *(f"--processes {each}" for each in processes or [])])
                raise ValueError(f"an environment of verifiers is served alone, and on threads; found {arguments}")
            options = {"host": host, "port": port, "other_hosts": allow_host or [], "token_variable": token_variable}
            raise typer.Exit(run_service(worlds[0], {**options, "limits": asdict(limits)}))
        serve_worlds(
            worlds,
            host=host,
            port=port,
            token=os.environ.get(token_variable),
            other_hosts=allow_host or [],
            processes=dict(map(_workers, processes or [])),
            limits=limits,
            content_of=world_digest,
        )
    except ValueError as error:
        raise ConfigurationError(str(error), "TW-plugin-import") from error


def _workers(text: str) -> tuple[str, int]:
    """Parse `WORLD=N` of `--processes`."""
    world, _, number = text.partition("=")
    if not world or not number.isdecimal() or not 1 <= int(number) <= MOST_WORKERS:
        raise ConfigurationError(
            f"--processes must be WORLD=N, with N from 1 to {MOST_WORKERS}; found {text!r}", "TW-option-format"
        )
    return world, int(number)
