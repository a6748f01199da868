"""Play a world in this process and print the digests: `python -m turnwise.checking WORLD PARAMETERS_JSON`.

WORLD is a name or `module:Class`. The last line of the output is a JSON object, from what was digested to its digest,
and must be the same under every PYTHONHASHSEED. `check_world` starts this and compares.
"""

from __future__ import annotations

import argparse
import json
import sys

from turnwise.checking.playing import digests
from turnwise.own_process import collect_rarely, leave
from turnwise.world import make_world


def main() -> None:
    """Read the command line, play, print."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.checking", description=__doc__)
    parser.add_argument("world", help="a world's name, or module:Class")
    parser.add_argument("parameters", nargs="?", default="{}", help="its parameters, as a JSON object")
    parser.add_argument("--count", type=int, default=3, help="tasks per split")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the episodes")
    arguments = parser.parse_args()
    world = make_world(arguments.world, json.loads(arguments.parameters))
    sys.stdout.write("\n" + json.dumps(digests(world, arguments.count, arguments.seed)) + "\n")


if __name__ == "__main__":
    collect_rarely()
    main()
    leave(0)
