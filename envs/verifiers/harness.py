"""The program that plays a seat of verifiers 0.4: it asks the policy once, in this process.

The library's own chat program starts a Python of its own for each reply. Set up as the module `turnwise_harness`, since
the library finds a harness by the name of a top-level module.
"""

from __future__ import annotations

from typing import Any

import httpx
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["AskOnce", "AskOnceConfig"]


class AskOnceConfig(HarnessConfig):
    """No settings beside the library's."""


class AskOnce(Harness[AskOnceConfig]):
    """One request per segment of an exchange. Tools of a server of their own are not called."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> Any:
        """Ask for the reply to a task's prompt, or to a conversation. The library records it as it passes."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return ProgramResult(0 if reply.is_success else 1, "", reply.text)
