"""`turnwise record`: what an outside agent's episodes are answered with, and where they are kept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.service.guards import require_safe
from flows.endpoint.application import Recorder, create_application
from flows.endpoint.sampling_thread import SamplingThread
from tasks.models_in_memory import whole_policy
from turnwise import seeding
from turnwise.agent.outside_agent import ConversationFrame, RecordedEpisode, trajectories_of_episodes
from turnwise.config.model_settings import EngineName
from turnwise.data.metrics import episode_means
from turnwise.data.trajectory_files import write_trajectories
from turnwise.policy.engines.contract import Engine, Sampling
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.tokenizer import generation_end_tokens, load_tokenizer
from turnwise.store import Reference, default_store

Written = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class AnsweringPolicy:
    """The policy that answers."""

    name: str
    reference: Reference
    """Its artifact, which an update of it begins with."""
    tokenizer: Path
    """The folder of its tokenizer."""


@dataclass(frozen=True)
class RecordSettings:
    """How replies are sampled."""

    engine: EngineName
    device: str
    threads: int
    context_tokens: int
    reply_tokens: int
    temperature: float
    seed: int
    at_once: int


class Recording(AbstractContextManager["Recording"]):
    """An engine with the policy, and what is recorded of its conversations, within a block."""

    def __init__(
        self, policy: AnsweringPolicy, settings: RecordSettings, written: Callable[[dict[str, Any]], None]
    ) -> None:
        """`written` is told of each rollout that was written into the store."""
        self._policy, self._settings, self._written = policy, settings, written
        self._tokenizer = load_tokenizer(policy.tokenizer)
        self._end_tokens = generation_end_tokens(policy.tokenizer)
        plain = self._frame("[]")
        self._sampling = SamplingThread(lambda: self._engine(plain.end_tokens))
        self.recorder = Recorder(self._sampling, cache(self._frame), settings.temperature, self._write, policy.name)

    def __exit__(self, *_: object) -> None:
        """Write what is not written yet, and end the engine."""
        if self.recorder.status["episodes"]:
            self.recorder.write()
        self._sampling.close()

    def wait_until_ready(self) -> None:
        """Wait for the engine. Raises what making it raised."""
        _ = self._sampling.context_length

    @property
    def policy(self) -> Reference:
        """The policy that answers."""
        return self._policy.reference

    @contextmanager
    def serving(self, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Iterator[str]:
        """Answer on a thread while the block runs; the address. Port 0: any that is free."""
        import uvicorn

        require_safe(host, token)
        self.wait_until_ready()
        listening = socket.create_server((host, port))
        app = create_application(self.recorder, host, token)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listening],), name="endpoint", daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()

    def serve(self, host: str, port: int, token: str | None) -> None:
        """Answer until the process receives a signal to end."""
        import uvicorn

        app = create_application(self.recorder, host, token)
        uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)

    def _frame(self, tools: str) -> ConversationFrame:
        return ConversationFrame(self._tokenizer, self._end_tokens, json.loads(tools))

    def _engine(self, end_tokens: tuple[int, ...]) -> Engine:
        settings = self._settings
        engine = make_engine(
            settings.engine,
            device=settings.device,
            threads=settings.threads,
            context_length=settings.context_tokens,
            maximum_episodes=settings.at_once,
        )
        with whole_policy(self._policy.reference) as folder:
            engine.load(folder, self._policy.reference.digest)
        engine.begin(
            seeding.derive(settings.seed, "record"),
            Sampling(temperature=settings.temperature, max_reply_tokens=settings.reply_tokens, end_tokens=end_tokens),
        )
        return engine

    def _write(self, episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
        kept, lost = trajectories_of_episodes(episodes)
        with default_store().write("rollout") as draft:
            write_trajectories(draft.folder, kept, lost)
            draft.metrics.update(episode_means(kept, len(lost)) if kept else {}, lost_episodes=len(lost))
        told = {
            "rollout": str(draft.reference),
            "episodes": len(kept),
            "lost": len(lost),
            "policy": str(self._policy.reference),
        }
        self._written(told)
        return told
