"""The commands on worlds: list them, check them, play them, serve them, and record what policies reach in them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from flows.commands.arguments import PORT, SEED, one_of, whole
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.world import SPLITS

MOST_WORKERS = 1024
"""Most worker processes of one world in a service; they share its episodes."""


def add_worlds(commands: Any) -> None:
    """Add every command of this module and its arguments."""
    _add_list(commands)
    _add_check(commands)
    _add_play(commands)
    _add_baselines(commands)
    _add_lessons(commands)
    _add_serve(commands)


def _add_list(commands: Any) -> None:
    worlds = commands.add_parser("worlds", help="list the installed worlds")
    worlds.set_defaults(run=_list)


def _list(parsed: argparse.Namespace) -> None:
    from flows.commands.worlds import DOCS, show_worlds

    show_worlds(DOCS)


def _add_check(commands: Any) -> None:
    check = commands.add_parser("check", help="check that a world keeps its contract")
    _add_world(check)
    check.set_defaults(run=_check)


def _check(parsed: argparse.Namespace) -> None:
    from flows.commands.worlds import named_world
    from turnwise.checking import check_world

    world, parameters = named_world(parsed.world, parsed.preset, parsed.set)
    found = check_world(world, parameters=parameters)
    sys.stdout.write("\n".join(found.lines()) + "\n")
    if not found.passed:
        raise TurnwiseError(f"the world {parsed.world!r} does not keep its contract")


def _add_play(commands: Any) -> None:
    play = commands.add_parser("play", help="play an episode in the terminal")
    _add_world(play)
    play.add_argument(
        "--split", type=one_of(*SPLITS), default="train", help="train, validation or test (default: %(default)s)"
    )
    play.add_argument("--task", type=whole(0), default=0, metavar="N", help="its place in the split, from 0")
    play.add_argument("--seed", type=SEED, default=0, help="of the episode's noise (default: %(default)s)")
    play.add_argument(
        "--format",
        default="plain",
        help="plain: a line is the answer; or one of agent.format: what is typed is the whole reply",
    )
    play.set_defaults(run=_play)


def _play(parsed: argparse.Namespace) -> None:
    from flows.commands.play import play
    from flows.commands.worlds import named_world

    world, _ = named_world(parsed.world, parsed.preset, parsed.set)
    play(world, parsed.split, parsed.task, parsed.format, parsed.seed, sys.stdin, sys.stdout)


def _add_baselines(commands: Any) -> None:
    baselines = commands.add_parser("baselines", help="record what the scripted players reach")
    baselines.add_argument("worlds", nargs="*", metavar="WORLD", help="default: all that are installed")
    baselines.add_argument("--episodes", type=whole(1), help="of every player (default: thousands, or hundreds)")
    baselines.add_argument("--folder", type=Path, help="of the record (default: docs, beside the code)")
    baselines.set_defaults(run=_baselines)


def _baselines(parsed: argparse.Namespace) -> None:
    from flows.commands.worlds import DOCS
    from flows.studies.baselines import record_baselines

    record_baselines(parsed.worlds, parsed.folder or DOCS, parsed.episodes)


def _add_lessons(commands: Any) -> None:
    lessons = commands.add_parser("lessons", help="record what small policies have learned on each world")
    lessons.add_argument("overlays", nargs="*", type=Path, metavar="OVERLAY", help="default: all of experiments/worlds")
    lessons.add_argument("--folder", type=Path, help="of the record (default: docs, beside the code)")
    lessons.set_defaults(run=_lessons)


def _lessons(parsed: argparse.Namespace) -> None:
    from flows.commands.worlds import DOCS
    from flows.studies.results_page import record_lessons

    record_lessons(parsed.overlays, parsed.folder or DOCS)


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="serve worlds over HTTP")
    serve.add_argument(
        "worlds",
        nargs="+",
        metavar="WORLD",
        help="a name, module:Class, WORLD@PRESET, WORLD={parameters} or WORLD=file.yaml",
    )
    serve.add_argument("--host", default="127.0.0.1", help="another than the loopback address needs a token")
    serve.add_argument("--port", type=PORT, default=8600)
    serve.add_argument(
        "--token-variable", default="TURNWISE_SERVICE_TOKEN", metavar="NAME", help="the environment variable with it"
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients reach it by, beside --host and the loopback's",
    )
    serve.add_argument(
        "--processes", action="append", default=[], metavar="WORLD=N", help="workers (sciworld, browser: 1)"
    )
    serve.add_argument("--episodes", type=int, default=1024, help="open at once (default: %(default)s)")
    serve.add_argument("--lease-seconds", type=float, default=600.0)
    serve.add_argument("--call-seconds", type=float, default=300.0)
    serve.add_argument("--body-bytes", type=int, default=1_048_576)
    serve.add_argument("--connections", type=int, default=2048, help="open at once (default: %(default)s)")
    serve.add_argument(
        "--request-seconds", type=float, default=20.0, help="for a request's head to arrive, and again for its body"
    )
    serve.set_defaults(run=_serve)


def _serve(parsed: argparse.Namespace) -> None:
    from envs.service.episodes import ServiceLimits
    from envs.service.server import serve
    from turnwise.store.world_identity import world_digest

    try:
        serve(
            parsed.worlds,
            host=parsed.host,
            port=parsed.port,
            token=os.environ.get(parsed.token_variable),
            other_hosts=parsed.allow_host,
            processes=dict(map(_workers, parsed.processes)),
            limits=ServiceLimits(
                episodes=parsed.episodes,
                lease_seconds=parsed.lease_seconds,
                call_seconds=parsed.call_seconds,
                body_bytes=parsed.body_bytes,
                connections=parsed.connections,
                request_seconds=parsed.request_seconds,
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


def _add_world(command: argparse.ArgumentParser) -> None:
    """Add the arguments that name a world and its parameters."""
    command.add_argument("world", help="a world's name, or module:Class")
    command.add_argument("--preset", default="", metavar="NAME", help="published settings; -p changes them")
    command.add_argument(
        "-p", "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set a world's parameter"
    )
