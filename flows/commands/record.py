"""`turnwise record`: an endpoint that outside agents talk to.

turnwise record models/mine --port 8700
turnwise record "mt-grpo seed 1" --best
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.commands.options import LARGEST_SEED, MOST, Port, Tracking
from turnwise.errors import ConfigurationError


def record(
    policy: Annotated[
        str, typer.Argument(metavar="FOLDER or RUN", help="The policy that answers.", show_default=False)
    ],
    iteration: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST, metavar="N", help="Of a run; 0: the warm start.", show_default="the final policy"
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Of a run: that with the most success in validation.")] = False,
    engine: Annotated[Literal["embedded", "vllm"], typer.Option(help="What samples.")] = "embedded",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="CPU threads of the engine.")] = 1,
    context_tokens: Annotated[int, typer.Option(min=2, max=MOST, help="Of a context with its reply, at most.")] = 2048,
    reply_tokens: Annotated[int, typer.Option(min=1, max=MOST, help="Of a reply, at most.")] = 256,
    temperature: Annotated[float, typer.Option(min=0.01, max=100.0, help="At which everything is sampled.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the sampling.")] = 0,
    host: Annotated[str, typer.Option(help="Another than the loopback address needs a token.")] = "127.0.0.1",
    port: Port = 8700,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable that holds the token, the agents' API key.")
    ] = "TURNWISE_RECORD_TOKEN",
    tracking: Tracking = None,
) -> None:
    """Answer an outside agent by OpenAI's protocol, and record its episodes for credit and updates."""
    from rich.console import Console

    from envs.service.guards import require_safe

    token = os.environ.get(token_variable)
    try:
        require_safe(host, token)
    except ValueError as error:
        raise ConfigurationError(
            f"--{error}" if str(error).startswith("host") else str(error), "TW-service-address"
        ) from error
    from flows.python.outside_agents import record

    console = Console(highlight=False, soft_wrap=True)

    def written(rollout: dict[str, Any]) -> None:
        console.print(f"{rollout['rollout']}  {rollout['episodes']} episodes, {rollout['lost']} without a reward")

    recording = record(
        Path(policy) if Path(policy).is_dir() else policy,
        iteration=iteration,
        best=best,
        engine=engine,
        device=device,
        threads=threads,
        context_tokens=context_tokens,
        reply_tokens=reply_tokens,
        temperature=temperature,
        seed=seed,
        written=written,
        tracking=tracking,
    )
    with recording:
        recording.wait_until_ready()
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        console.print(f"{recording.policy} answers at {address}/GROUP/EPISODE/v1 (Ctrl-C writes what was recorded)")
        console.print(f"reward: POST {address}/GROUP/EPISODE/reward; write a rollout: POST {address}/rollout")
        recording.serve(host, port, token)
