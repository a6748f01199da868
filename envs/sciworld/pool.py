"""A few Java processes for all episodes of this Python process, however many worlds and threads there are.

An episode goes to the process with the fewest open episodes; a new process is started only when each has at least one.
A lost process takes only its own episodes with it: they raise, and an episode that is played again gets another
process.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

from envs.sciworld.simulator import CALL_SECONDS, Simulation, Simulator
from envs.sciworld.variations import Variation

GOLD_PATHS_KEPT = 4096


class Pool:
    """At most `processes` simulators, started when they are needed and ended with this Python process."""

    def __init__(self, processes: int, call_seconds: float = CALL_SECONDS) -> None:
        self._processes, self._call_seconds = processes, call_seconds
        self._lock = threading.Lock()
        self._simulators: list[Simulator] = []
        self.gold_path = lru_cache(GOLD_PATHS_KEPT)(self._gold_path)
        """Gold path by variation and simplification, cached: finding it takes a second or two, and it never changes."""

    @property
    def simulators(self) -> tuple[Simulator, ...]:
        """The simulators that are running."""
        return tuple(simulator for simulator in self._simulators if not simulator.ended)

    def open(self, variation: Variation, simplification: str) -> Simulation:
        """A new episode at its start. Release it with `close`."""
        simulator = self._take()
        try:
            return Simulation(simulator, variation, simplification)
        except BaseException:
            self._give_back(simulator)
            raise

    def close(self, simulation: Simulation) -> None:
        """Release an episode."""
        self._give_back(simulation.simulator)
        simulation.close()

    def end(self) -> None:
        """End every process. Open episodes are lost; the pool can be used again."""
        with self._lock:
            for simulator in self.simulators:
                simulator.end()

    def _gold_path(self, variation: Variation, simplification: str) -> tuple[str, ...]:
        simulator = self._take()
        try:
            return simulator.gold_path(variation, simplification)
        finally:
            self._give_back(simulator)

    def _take(self) -> Simulator:
        with self._lock:
            self._simulators = list(self.simulators)
            idlest = min(self._simulators, key=lambda simulator: simulator.episodes, default=None)
            if idlest is None or (idlest.episodes > 0 and len(self._simulators) < self._processes):
                idlest = Simulator(self._call_seconds)
                self._simulators.append(idlest)
            idlest.episodes += 1
            return idlest

    def _give_back(self, simulator: Simulator) -> None:
        with self._lock:
            simulator.episodes -= 1


_pools: dict[tuple[int, int, float], Pool] = {}
_pools_lock = threading.Lock()


def pool(processes: int, call_seconds: float = CALL_SECONDS) -> Pool:
    """The pool with these settings, one per Python process: a fork must not use its parent's connections."""
    with _pools_lock:
        return _pools.setdefault((os.getpid(), processes, call_seconds), Pool(processes, call_seconds))
