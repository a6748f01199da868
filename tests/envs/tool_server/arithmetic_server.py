"""A small MCP server on its standard streams: sums, a note that it keeps, and ways to fail."""

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("arithmetic")
notes: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two whole numbers."""
    return a + b


@server.tool()
def note(text: str) -> str:
    """Keep a note."""
    notes.append(text)
    return "; ".join(notes)


@server.tool()
def divide(a: int, b: int) -> float:
    """A quotient."""
    return a / b


@server.tool()
def crash() -> None:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    server.run("stdio")
