"""Settings of the tools that may be pinned, and of the guardrails: what is done about what they find."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from glasslab.settings_sources import AnyPath, LabSettings


class GuardFields(LabSettings):
    """A part of `Settings`: what is recorded, taken out, or refused."""

    mcp_servers: AnyPath | None = Field(None, description="file of more tool servers, of the mcpServers shape")
    max_tools: int = Field(20, ge=1, le=1000, description="tools that pin does not warn of")
    tool_mix: Literal["warn", "refuse"] = Field("warn", description="tools that read what others wrote, and that act")

    guard_secrets: Literal["record", "redact", "refuse"] = Field(
        "refuse", description="secrets in a question; in an answer redact and refuse both take them out"
    )
    guard_personal: Literal["record", "redact", "refuse"] = Field("redact", description="personal data in a question")
    guard_injection: Literal["record", "refuse"] = Field("record", description="orders to a model in a question")
    guard_hidden: Literal["record", "refuse"] = Field("refuse", description="hidden characters in a question")
    mark_results: Literal["yes", "no"] = Field("yes", description="tool results marked as data for the model")
