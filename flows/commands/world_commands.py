"""The commands on worlds: list, check, play, serve and begin them. Each imports what it needs only when it runs.

`check` takes credit rules and rewards, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

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
from turnwise.errors import ConfigurationError, TurnwiseError

MOST_WORKERS = 1024
"""Most worker processes of one world in a service; they share its episodes."""


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder, made where it is missing.", show_default=False)
    ],
    world: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the world's module, such as my_task.")
    ] = "number_game",
) -> None:
    """Make a folder for an experiment of one's own: params.yaml, dvc.yaml and a world."""
    from flows.commands.starting import init_folder

    init_folder(folder, world)


def new(
    kind: Annotated[
        Literal["world", "rule", "reward"],
        typer.Argument(metavar="KIND", help="world | rule | reward", show_default=False),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of its module, such as my_task.", show_default=False)
    ],
) -> None:
    """Write a world, a credit rule or a reward that keeps its contract, and an experiment on it, to begin from."""
    from flows.commands.starting import new_plugin

    new_plugin(kind, name, Path())


def worlds() -> None:
    """List the installed worlds, and the success of their baseline policies."""
    from flows.commands.worlds import DOCS, show_worlds

    show_worlds(DOCS)


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
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Count the certificate's lengths in its tokens.", show_default=False),
    ] = None,
) -> None:
    """Check that a world, a credit rule or a reward keeps its contract."""
    from flows.commands.worlds import named_world
    from turnwise.checking import check_world
    from turnwise.checking.named_subjects import check_named, kind_of
    from turnwise.config.overlays import parse_setting

    kind = kind or kind_of(name)
    if certificate is not None and kind != "world":
        raise ConfigurationError(f"--certificate belongs to worlds; {name!r} is a {kind}: leave it out")
    if tokenizer is not None and certificate is None:
        raise ConfigurationError("--tokenizer counts the lengths in a certificate: give --certificate FOLDER, too")
    if kind == "world":
        made, parameters = named_world(name, preset, settings or [])
        found = check_world(made, parameters=parameters)
    else:
        if preset:
            raise ConfigurationError(f"--preset belongs to worlds; {name!r} is a {kind}: leave it out")
        found = check_named(kind, name, dict(map(parse_setting, settings or [])))
    sys.stdout.write("\n".join(found.lines()) + "\n")
    if certificate is not None:
        from flows.commands.worlds import show_certificate

        show_certificate(made, parameters, found, certificate, tokenizer)
    if not found.passed:
        raise TurnwiseError(f"the {found.what} {name!r} does not keep its contract")


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
    from flows.commands.play import play as play_episode
    from flows.commands.worlds import named_world

    made, _ = named_world(world, preset, settings or [])
    play_episode(made, split, task, form, seed, sys.stdin, sys.stdout)


def serve(
    worlds: Annotated[
        list[str],
        typer.Argument(
            metavar="WORLD",
            help="A name, module:Class, WORLD@PRESET, WORLD={parameters} or WORLD=file.yaml.",
            autocompletion=installed_world_names,
            show_default=False,
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
        int | None, typer.Option(help="Most episodes that one client has open; by default all.", show_default=False)
    ] = None,
    client_requests: Annotated[
        float | None,
        typer.Option(help="Most requests of one client per second; by default no limit.", show_default=False),
    ] = None,
) -> None:
    """Serve worlds over HTTP."""
    from envs.service.limits import ServiceLimits
    from envs.service.server import serve as serve_worlds
    from turnwise.store.world_identity import world_digest

    try:
        serve_worlds(
            worlds,
            host=host,
            port=port,
            token=os.environ.get(token_variable),
            other_hosts=allow_host or [],
            processes=dict(map(_workers, processes or [])),
            limits=ServiceLimits(
                episodes=episodes,
                lease_seconds=lease_seconds,
                call_seconds=call_seconds,
                body_bytes=body_bytes,
                connections=connections,
                request_seconds=request_seconds,
                client_episodes=client_episodes,
                client_requests=client_requests,
            ),
            content_of=world_digest,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _workers(text: str) -> tuple[str, int]:
    """Parse `WORLD=N` of `--processes`."""
    world, _, number = text.partition("=")
    if not world or not number.isdecimal() or not 1 <= int(number) <= MOST_WORKERS:
        raise ConfigurationError(f"--processes must be WORLD=N, with N from 1 to {MOST_WORKERS}; found {text!r}")
    return world, int(number)
