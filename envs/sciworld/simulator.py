"""One Java process of ScienceWorld, and the isolation of the episodes that share it.

A process takes 1.4 s to start and a quarter of a gigabyte, so it holds many episodes. It is not made for that: calls
from two threads at once put agents into the wrong rooms, and three things exist once per process although each belongs
to an episode. `load` sets them for the episode that begins, and the other episodes would continue with those values:

* the number of the next object: an object made later would get a number that is already in use;
* the random generator, which moves the animals and also words the valid actions;
* the list of simplifications, which determines the possible actions.

So a lock admits one call at a time, and each episode has its own three values, set before each of its calls (`Own`). A
fourth global, Java's identity hash, orders the objects in every observation; it is made constant, or replays would
differ.
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
"""Seconds of waiting, or of work, after which a call is given up: below the 30 s that an episode's host waits."""
JAVA_OPTIONS = (
    f"-Xmx{HEAP_MEGABYTES}m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
NUMBER_BEYOND_ALL = 1_000_000_000
"""First object number for objects made outside an episode: above every number that an episode uses."""


class SimulatorLost(RuntimeError):
    """Raised when the Java process ended, was ended because it hung, or raised: its episodes are missing data."""


@dataclass(frozen=True)
class Answer:
    """The simulator's reply to one action. `points`: the score so far, 0 to 100, or -100 after a failure."""

    text: str
    points: int
    completed: bool
    moves: int
    """Simulated time so far: looking takes none, waiting takes ten."""


@dataclass(eq=False)
class Own:
    """An episode's own values of the globals of a process."""

    simplifications: str = ""
    next_number: int = 0
    generator: Any = None
    """A `java.util.Random`, created when it is first put in place."""


def find_java() -> str:
    """Path of the Java virtual machine. Raises ValueError if there is none."""
    path = shutil.which("java")
    if path is None:
        raise ValueError("sciworld must find Java on the path; found no `java`: install a Java runtime, 8 or later")
    return path


@cache
def java_version() -> str:
    """First line of `java -version`. Raises ValueError if there is no Java."""
    process = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return process.stderr.partition("\n")[0].strip()


class Simulator:
    """A Java process that plays episodes, one call at a time.

    `call_seconds`: the time limit of a call, for waiting and for working: see `watch`.
    """

    def __init__(self, call_seconds: float = CALL_SECONDS) -> None:
        # Imported here, since the import takes time that reading a configuration need not pay.
        from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway
        from scienceworld.constants import BASEPATH, JAR_PATH

        path = find_java()
        try:
            port, process = launch_gateway(
                classpath=JAR_PATH,
                javaopts=list(JAVA_OPTIONS),
                java_path=path,
                cwd=BASEPATH,
                die_on_exit=True,
                return_proc=True,
            )
        except ValueError as error:  # its first output must be the number of its port
            raise SimulatorLost(f"{path} must start with {' '.join(JAVA_OPTIONS)}; it ended at once") from error
        self.process: subprocess.Popen[bytes] = process
        self.episodes = 0
        """Number of open episodes, maintained by the pool."""
        self.ended = False
        self._lock = threading.Lock()
        self._watch = Watch(process, call_seconds)
        parameters = GatewayParameters(port=port)
        self._client = GatewayClient(gateway_parameters=parameters)
        self._gateway = JavaGateway(gateway_parameters=parameters, java_process=process)
        self._gateway.set_gateway_client(self._client)
        self._in_place: Own | None = None
        with self._watch.over():
            self._find_what_there_is_once()

    def gold_path(self, variation: Variation, simplification: str) -> tuple[str, ...]:
        """The actions by which the package's own agent solves a variation. Open episodes are not affected."""
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
        """Load a variation. Raises SimulatorLost when the simulator reports an error."""
        error = interface.load(variation.type, variation.number, simplification, gold)
        if error:
            raise SimulatorLost(f"the simulator must load {variation}; it said: {error}")
        # The interface keeps the objects of every possible task: 11 MB, of no use after loading.
        getattr(interface, "taskMaker_$eq")(None)
        assert self._in_place is not None, "load is called while attending"
        self._in_place.simplifications = interface.agentInterface().get().simplificationStr()

    def detach(self, interface: Any) -> None:
        """Free an episode on the Java side, if the process is still running."""
        with self._lock, self._watch.over():
            if not self.ended:
                self._gateway.detach(interface)

    @contextmanager
    def attending(self, own: Own) -> Iterator[None]:
        """Hold the process for one episode. Raises SimulatorLost when the process has ended, hangs, or raises.

        A process that broke off or is out of memory is ended, with every episode in it; any other Java exception
        affects only the one episode.
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
                lines = str(error).strip().splitlines()
                if any("OutOfMemoryError" in line for line in lines):
                    self.end()
                raise SimulatorLost(f"the simulator raised: {' '.join(lines[:2])}") from error
            except Py4JError as error:
                self.end()
                verdict = f"{self._watch.verdict}: it was ended" if self._watch.verdict else "ended"
                raise SimulatorLost(f"the simulator's process {verdict}") from error

    def end(self) -> None:
        """Kill the process at once, without waiting for its current call."""
        self.ended = True
        self._watch.end()
        self.process.kill()
        self.process.wait()
        # Else each Java object that Python drops later is freed over a new connection, and a traceback is logged.
        self._client.is_connected = False
        self._gateway.close()

    def _find_what_there_is_once(self) -> None:
        """Look up Java names once, since each part of a dotted name is a remote call."""
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
        self._in_place = None  # until all three are set: a fault in between leaves neither episode in place
        if own.generator is None:
            own.generator = self._random_class(0)
        getattr(self._numbers, "count_$eq")(own.next_number)
        self._generator.set(self._global_random, own.generator)
        self._simplifier.parseSimplificationStr(own.simplifications)
        self._in_place = own


class Simulation:
    """One episode in a process."""

    def __init__(self, simulator: Simulator, variation: Variation, simplification: str) -> None:
        """Load the episode. Raises SimulatorLost, as do all other methods."""
        self.simulator = simulator
        self._own = Own()
        with simulator.attending(self._own):
            self._interface = simulator.interface()
            simulator.load(self._interface, variation, simplification)
            self.description: str = self._interface.getTaskDescription()

    def look(self) -> str:
        """View of the agent's surroundings. It takes no time, and no goal is reached by it."""
        with self.simulator.attending(self._own):
            view: str = self._interface.freeActionLook()
        return view

    def step(self, action: str) -> Answer:
        """Play an action, or the number that answers an open question."""
        with self.simulator.attending(self._own):
            text = self._interface.step(action)
            # The package rounds the score like this.
            points = round(100 * self._interface.getScore())
            answer = Answer(text, points, self._interface.getCompleted(), self._interface.getNumMoves())
            if points < 0:
                self._require_no_error()
        return answer

    def drop_question(self) -> None:
        """Cancel an ambiguous action without letting time pass, which the simulator's own way of cancelling does."""
        with self.simulator.attending(self._own):
            self._interface.agentInterface().get().inputParser().clearAmbiguousState()

    def valid_actions(self) -> list[str]:
        """The actions that the simulator lists as valid now, sorted: tens to thousands.

        Finding them takes a tenth of a second or more. A third or more of them are not valid: it lists what is in a
        closed box, and objects by names that it does not understand. See `understands`.
        """
        with self.simulator.attending(Own(self._own.simplifications, NUMBER_BEYOND_ALL)):
            listing = json.loads(self._interface.getValidActionObjectCombinationsJSON())
        return sorted({str(valid["action"]) for valid in listing["validActions"]})

    def understands(self, action: str) -> bool:
        """Whether the parser finds one or more actions in a text, without playing it."""
        with self.simulator.attending(self._own):
            agent = self._interface.agentInterface().get()
            parser, container = agent.inputParser(), agent.agent().getContainer().get()
            monitors = agent.objMonitor(), agent.task().goalSequence()
            visible = agent.getAgentVisibleObjects(False)._2()
            parses: bool = parser.parse(action, visible, agent.universe(), agent.agent(), *monitors, container)._1()
            ambiguous: bool = parser.isInAmbiguousState()
            parser.clearAmbiguousState()
        return parses or ambiguous

    def close(self) -> None:
        """Free the episode on the Java side."""
        self.simulator.detach(self._interface)

    def _require_no_error(self) -> None:
        """Raise SimulatorLost if a score below zero comes from an error of the simulator.

        Otherwise it is a failure of the policy. The simulator goes on after an error of its own.
        """
        agent = self._interface.agentInterface().get()
        if agent.isInErrorState():
            raise SimulatorLost(f"the simulator is in an error state: {agent.getErrorStateMessage()}")
