"""Settings of the conversation: how large it may grow, how it is shortened, and what a delegate may do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from glasslab.settings_sources import LabSettings


def _names(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("is no list of names, each once, with commas between; for example list_files,read_file")
    return ",".join(names)


class ContextFields(LabSettings):
    """A part of `Settings`."""

    # The largest one keeps a request within what a log takes in one POST: each is recorded whole.
    context_tokens: int = Field(100_000, ge=1_000, le=600_000, description="tokens that a model call may send")
    compaction: Literal["model", "list"] = Field("model", description="who sums up what no longer fits")

    delegate_tools: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="tools of a delegate, with commas between; there is none without"
    )
    delegate_turns: int = Field(4, ge=1, le=100, description="model calls that a delegate may take")
    delegate_tool_calls: int = Field(10, ge=0, le=1000, description="tool calls that a delegate may take")
