"""One Java process of ScienceWorld, and what keeps the episodes that share it apart.

A process takes 1.4 s to start and a quarter of a gigabyte, so it holds many episodes. It is not made for that: calls
from two threads at once put agents into the wrong rooms, and three things exist once per process although each
belongs to an episode. `load` gives them values for the episode that begins, and the others play on with those:

* the number of the next object: an object that is made later would bear a number that is taken;
* the random generator, which moves the animals, and which also words the valid actions;
* the list of simplifications, which decides on the actions there are.

So a lock lets one call in at a time, and each episode has its own three, put in place before its calls (`Own`). A
fourth, Java's identity hash, orders the objects in every observation; it is made a constant, or replays would differ.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from envs.sciworld.variations import Variation
from envs.sciworld.watch import Watch

HEAP_MEGABYTES = 256
CALL_SECONDS = 25.0
"""After which a call in which the process does not work is given up: below the 30 s that an episode's host waits."""
JAVA_OPTIONS = (
    f"-Xmx{HEAP_MEGABYTES}m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
NUMBER_BEYOND_ALL = 1_000_000_000
"""For objects that are made beside an episode: above every number that an episode gives out."""


class SimulatorLost(RuntimeError):
    """The Java process has ended, was ended because it hung, or raised: the episodes that it took are missing data."""


@dataclass(frozen=True)
class Answer:
    """What the simulator says to one action. `points`: the score so far, 0 to 100, or -100 after a failure."""

    text: str
    points: int
    completed: bool
    moves: int
    """How much time has passed: looking costs none, waiting costs ten."""


@dataclass(eq=False)
class Own:
    """An episode's own value of what the process has once."""

    simplifications: str = ""
    next_number: int = 0
    generator: Any = None
    """A `java.util.Random`, made when it is first put in place."""


def java() -> str | None:
    """The path of the Java virtual machine, or None where there is none."""
    return shutil.which("java")


@cache
def java_version() -> str:
    """What the Java virtual machine calls itself, in its first line. Raises ValueError where there is none."""
    path = java()
    if path is None:
        raise ValueError("ScienceWorld needs Java; found no 'java' on the path")
    told = subprocess.run([path, "-version"], capture_output=True, text=True, check=True)
    return told.stderr.partition("\n")[0].strip()


class Simulator:
    """A Java process that plays episodes, one call at a time.

    `call_seconds`: how long a call may wait, and how long it may work: see `watch`.
    """

    def __init__(self, call_seconds: float = CALL_SECONDS) -> None:
        # Here and not above: their import takes time that a configuration need not pay.
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from scienceworld.constants import BASEPATH, JAR_PATH

        path = java()
        if path is None:
            raise SimulatorLost("ScienceWorld needs Java; found no 'java' on the path")
        try:
            port, process = launch_gateway(
                classpath=JAR_PATH,
                javaopts=list(JAVA_OPTIONS),
                java_path=path,
                cwd=BASEPATH,
                die_on_exit=True,
                return_proc=True,
            )
        except ValueError as error:  # what it says first must be the number of its port
            raise SimulatorLost(f"{path} must start with {' '.join(JAVA_OPTIONS)}; it ended at once") from error
        self.process: subprocess.Popen[bytes] = process
        self.episodes = 0
        """Open ones: kept by the pool."""
        self.ended = False
        self._lock = threading.Lock()
        self._watch = Watch(process, call_seconds)
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port), java_process=process)
        self._in_place: Own | None = None
        with self._watch.over():
            self._find_what_there_is_once()

    def gold_path(self, variation: Variation, simplification: str) -> tuple[str, ...]:
        """The actions by which the package's own agent solves a variation. The open episodes do not notice."""
        with self.attending(Own()):
            interface = self.interface()
            self.load(interface, variation, simplification, gold=True)
            path = tuple(interface.getGoldActionSequence())
            self._gateway.detach(interface)
        if not path:
            raise SimulatorLost(f"the package's agent must know a path for {variation}; it has none")
        return path

    def interface(self) -> Any:
        """A new episode on the Java side."""
        return self._interface_class()

    def load(self, interface: Any, variation: Variation, simplification: str, gold: bool = False) -> None:
        """Build a variation's world. Raises SimulatorLost when the simulator says that it cannot."""
        error = interface.load(variation.type, variation.number, simplification, gold)
        if error:
            raise SimulatorLost(f"the simulator must load {variation}; it said: {error}")
        # The interface keeps the objects of every task that might have been: 11 MB, of no use once it is loaded.
        getattr(interface, "taskMaker_$eq")(None)
        assert self._in_place is not None, "load is called while attending"
        self._in_place.simplifications = interface.agentInterface().get().simplificationStr()

    def detach(self, interface: Any) -> None:
        """Let the Java side forget an episode, if it still lives."""
        with self._lock, self._watch.over():
            if not self.ended:
                self._gateway.detach(interface)

    @contextmanager
    def attending(self, own: Own) -> Iterator[None]:
        """Hold the process for one episode. Raises SimulatorLost when it has ended, hangs, or raises.

        A process that broke off or is out of memory is ended, with every episode in it; what Java raised else is the
        fault of the one episode.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        with self._lock:
            if self.ended:
                raise SimulatorLost("the simulator's process has ended, and this episode with it")
            try:
                with self._watch.over():
                    self._put_in_place(own)
                    yield
            except Py4JJavaError as error:
                said = str(error).strip().splitlines()
                if any("OutOfMemoryError" in line for line in said):
                    self.end()
                raise SimulatorLost(f"the simulator raised: {' '.join(said[:2])}") from error
            except Py4JError as error:
                self.end()
                verdict = f"{self._watch.verdict}: it was ended" if self._watch.verdict else "ended"
                raise SimulatorLost(f"the simulator's process {verdict}") from error

    def end(self) -> None:
        """Kill the process: whatever it is doing is not worth waiting for."""
        self.ended = True
        self._watch.end()
        self.process.kill()
        self.process.wait()
        self._gateway.close()

    def _find_what_there_is_once(self) -> None:
        """Names are looked up once: each part of a dotted name is a call of its own."""
        virtual_machine = self._gateway.jvm
        self._interface_class = virtual_machine.scienceworld.runtime.pythonapi.PythonInterface
        self._random_class = virtual_machine.java.util.Random
        self._numbers = virtual_machine.util.UniqueIdentifier
        self._simplifier = virtual_machine.main.scala.scienceworld.runtime.SimplifierProcessor
        self._global_random = getattr(getattr(virtual_machine.scala.util, "Random$"), "MODULE$")
        self._generator = virtual_machine.java.lang.Class.forName("scala.util.Random").getDeclaredField("self")
        self._generator.setAccessible(True)

    def _put_in_place(self, own: Own) -> None:
        before = self._in_place
        if before is own:
            return
        if before is not None:
            before.next_number = self._numbers.count()
        self._in_place = None  # until all three are: a fault between them must not look like one of the two
        if own.generator is None:
            own.generator = self._random_class(0)
        getattr(self._numbers, "count_$eq")(own.next_number)
        self._generator.set(self._global_random, own.generator)
        self._simplifier.parseSimplificationStr(own.simplifications)
        self._in_place = own


class Simulation:
    """One episode in a process."""

    def __init__(self, simulator: Simulator, variation: Variation, simplification: str) -> None:
        """Load it. Raises SimulatorLost, here and in every call."""
        self.simulator = simulator
        self._own = Own()
        with simulator.attending(self._own):
            self._interface = simulator.interface()
            simulator.load(self._interface, variation, simplification)
            self.description: str = self._interface.getTaskDescription()

    def look(self) -> str:
        """What is to be seen where the agent stands. Nothing passes, and no goal is reached by it."""
        with self.simulator.attending(self._own):
            seen: str = self._interface.freeActionLook()
        return seen

    def step(self, action: str) -> Answer:
        """Play an action, or the number that resolves an open question."""
        with self.simulator.attending(self._own):
            text = self._interface.step(action)
            # As the package rounds it.
            points = round(100 * self._interface.getScore())
            answer = Answer(text, points, self._interface.getCompleted(), self._interface.getNumMoves())
            if points < 0:
                self._require_no_error()
        return answer

    def drop_question(self) -> None:
        """Take back an ambiguous action without letting time pass, which the simulator's own way of cancelling does."""
        with self.simulator.attending(self._own):
            self._interface.agentInterface().get().inputParser().clearAmbiguousState()

    def valid_actions(self) -> list[str]:
        """What the simulator lists as valid now, in order: tens to thousands, a tenth of a second and more to find.

        A third and more of it is not: what is in a closed box is listed, and objects by names that it does not
        understand. See `understands`.
        """
        with self.simulator.attending(Own(self._own.simplifications, NUMBER_BEYOND_ALL)):
            told = json.loads(self._interface.getValidActionObjectCombinationsJSON())
        return sorted({str(valid["action"]) for valid in told["validActions"]})

    def understands(self, action: str) -> bool:
        """Whether the parser finds an action, or several, in a text; it is not played."""
        with self.simulator.attending(self._own):
            agent = self._interface.agentInterface().get()
            parser, container = agent.inputParser(), agent.agent().getContainer().get()
            monitors = agent.objMonitor(), agent.task().goalSequence()
            seen = agent.getAgentVisibleObjects(False)._2()
            found: bool = parser.parse(action, seen, agent.universe(), agent.agent(), *monitors, container)._1()
            ambiguous: bool = parser.isInAmbiguousState()
            parser.clearAmbiguousState()
        return found or ambiguous

    def close(self) -> None:
        """Free the Java side."""
        self.simulator.detach(self._interface)

    def _require_no_error(self) -> None:
        """A score below zero is a failure of the player, or one of the simulator, which goes on after its own."""
        agent = self._interface.agentInterface().get()
        if agent.isInErrorState():
            raise SimulatorLost(f"the simulator is in an error state: {agent.getErrorStateMessage()}")
