"""Connections to an MCP server, over its standard streams or over HTTP, for callers on ordinary threads.

The protocol's library is asynchronous, and a connection must be opened and closed by one task. So every session is a
task on one loop, which runs on a thread of this process, and calls wait for it from theirs.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")

INVALID_PARAMETERS = -32602
"""The code of JSON-RPC for arguments that a method does not take: what a policy wrote, and no failure."""
OPENING_SECONDS = 30.0


class ToolServerFault(RuntimeError):
    """Raised when the server cannot be reached, dies, or does not answer in time: the episode is missing data."""


@dataclass(frozen=True)
class Address:
    """Where a server is: a command that starts it, or the address of a running one."""

    command: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True)
class Tool:
    """A tool: its name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolReply:
    """What a tool said, as text; `failed` if it says itself that it could not do its work."""

    text: str
    failed: bool


class ToolSession:
    """An open connection. A command is started for it, and ended with it. Every method raises ToolServerFault."""

    def __init__(self, address: Address, seconds: float) -> None:
        self._seconds = seconds
        self._calls: asyncio.Queue[tuple[str, dict[str, Any], Future[ToolReply]] | None] = asyncio.Queue()
        self._opened: Future[tuple[Tool, ...]] = Future()
        self._ended = _run(self._live(address))
        try:
            self.tools = self._wait(self._opened, OPENING_SECONDS, "start")
        except ToolServerFault:
            self.close()
            raise

    def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """What a tool says to these arguments."""
        reply: Future[ToolReply] = Future()
        _loop().call_soon_threadsafe(self._calls.put_nowait, (name, arguments, reply))
        return self._wait(reply, self._seconds, f"answer {name}")

    def close(self) -> None:
        """End the connection."""
        _loop().call_soon_threadsafe(self._calls.put_nowait, None)

    def _wait(self, future: Future[Result], seconds: float, what: str) -> Result:
        try:
            return future.result(seconds)
        except TimeoutError as error:
            self._ended.cancel()
            raise ToolServerFault(f"the MCP server must {what} within {seconds:g} s; it did not") from error

    async def _live(self, address: Address) -> None:
        """Open the connection, answer calls until it is closed, and tell every failure to whoever waits."""
        waiting: Future[Any] = self._opened
        try:
            async with _client(address, self._seconds) as client:
                self._opened.set_result(tuple(map(_tool, await _all_tools(client))))
                while (call := await self._calls.get()) is not None:
                    name, arguments, waiting = call
                    waiting.set_result(await _reply(client, name, arguments))
        except Exception as error:  # whatever the library raises, the caller is to know it
            cause = _first_cause(error)
            fault = ToolServerFault(f"the MCP server must answer; found {type(cause).__name__}: {cause}")
            if not waiting.done():
                waiting.set_exception(fault)
            await self._refuse_the_rest(fault)

    async def _refuse_the_rest(self, fault: ToolServerFault) -> None:
        while (call := await self._calls.get()) is not None:
            call[2].set_exception(fault)


def _first_cause(error: BaseException) -> BaseException:
    """What was raised first: the library's tasks raise groups within groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _client(address: Address, seconds: float) -> Any:
    try:
        from mcp import Client, StdioServerParameters
    except ModuleNotFoundError as error:
        raise ToolServerFault(f"{error}: pip install 'turnwise[mcp]'") from error
    if address.url:
        return Client(address.url, read_timeout_seconds=seconds)
    return Client(
        StdioServerParameters(command=address.command[0], args=list(address.command[1:])), read_timeout_seconds=seconds
    )


async def _all_tools(client: Any) -> list[Any]:
    tools: list[Any] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools


def _tool(mcp_tool: Any) -> Tool:
    return Tool(mcp_tool.name, " ".join((mcp_tool.description or "").split()), dict(mcp_tool.input_schema))


async def _reply(client: Any, name: str, arguments: dict[str, Any]) -> ToolReply:
    from mcp import MCPError

    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        if error.code == INVALID_PARAMETERS:
            return ToolReply(str(error), failed=True)
        raise
    parts = [getattr(part, "text", None) or f"[{part.type}]" for part in result.content]
    return ToolReply("\n".join(parts), failed=bool(result.is_error))


def _run(work: Coroutine[Any, Any, None]) -> Future[None]:
    return asyncio.run_coroutine_threadsafe(work, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    return _loop_of(os.getpid())


@functools.cache
def _loop_of(process: int) -> asyncio.AbstractEventLoop:
    """The loop of this process, on a thread of its own. A forked process makes another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp sessions", daemon=True).start()
    return loop


@functools.cache
def tools_of(address: Address, seconds: float) -> tuple[Tool, ...]:
    """The tools of a server, asked for once per process."""
    session = ToolSession(address, seconds)
    session.close()
    return session.tools


def select_tools(tools: Sequence[Tool], names: Sequence[str] | None) -> tuple[Tool, ...]:
    """The tools of these names, in the server's order; all without names. Raises ValueError for an unknown name."""
    known = [tool.name for tool in tools]
    if names is None:
        return tuple(tools)
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"tools must be of the server's, {', '.join(known)}; found {missing[0]!r}")
    return tuple(tool for tool in tools if tool.name in names)
