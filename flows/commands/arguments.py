"""The command line's arguments. Mistakes are reported like those in a configuration, with the nearest valid name."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ConfigurationError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError with argparse's message and a pointer to --help."""
        raise ConfigurationError(f"{message}: see {self.prog} --help")


def read_arguments(
    parser: Parser, commands: Mapping[str, argparse.ArgumentParser], arguments: Sequence[str]
) -> argparse.Namespace:
    """Parse the arguments of one command. Raises ConfigurationError, with the nearest command or option."""
    command = next((each for each in arguments if not each.startswith("-")), "")
    if command and command not in commands:
        raise ConfigurationError(
            f"COMMAND must be one of {', '.join(commands)}; found {command!r}{meant(command, commands)}"
        )
    parsed, left = parser.parse_known_args(arguments)
    if left:
        known = re.findall(r"--[a-z][a-z-]*", commands[command].format_help())
        raise ConfigurationError(
            f"turnwise {command} must be given what it takes; found {left[0]!r}{meant(left[0], known)}"
        )
    return parsed


def whole(lowest: int, highest: int = 1_000_000) -> Callable[[str], int]:
    """Make the argument type of whole numbers within bounds, inclusive."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(f"must be a whole number from {lowest} to {highest}; found {text!r}")
        return int(text)

    return read


def number(lowest: float, highest: float) -> Callable[[str], float]:
    """Make the argument type of finite numbers within bounds, inclusive."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"must be a number from {lowest:g} to {highest:g}; found {text!r}")
        return value

    return read


def one_of(*names: str) -> Callable[[str], str]:
    """Make the argument type of one of these names."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(names)}; found {text!r}{meant(text, names)}")
        return text

    return read


def add_commands(parser: Parser) -> Any:
    """The object to which commands are added; its `choices` are the commands by name."""
    return parser.add_subparsers(required=True, metavar="COMMAND")


PORT = whole(0, 65535)
SEED = whole(0, 2**63 - 1)
