"""Settings of the requests to tool servers: which of them are made again, and how many calls at the same time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from glasslab.settings_sources import LabSettings


class ToolFields(LabSettings):
    """A part of `Settings`."""

    mcp_retries: int = Field(1, ge=0, le=10, description="times that a failed list, read or get is made again")
    retry_calls: Literal["no", "annotated"] = Field("no", description="annotated: repeatable tool calls, too")
    parallel_calls: int = Field(1, ge=1, le=16, description="calls of tools that only read, at the same time")
