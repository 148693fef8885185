"""What a kind of frame is, who writes frames, and the sourcetypes that they have in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGENT: Final = "agent"
MCP: Final = "mcp"
HYPERVISOR: Final = "hypervisor"
VERIFIER: Final = "verifier"  # the person who runs `glasslab verify`
TRACE: Final = "agent:trace"
SESSION: Final = "agent:session"
LLM: Final = "agent:llm"
TOOLCALL: Final = "agent:toolcall"
NETWORK: Final = "agent:network"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of frame: its name, sourcetype, fixed summary, the writers that may send it, and its own fields."""

    name: str
    sourcetype: str
    summary: str
    writers: tuple[str, ...]
    fields: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def is_trace(self) -> bool:
        """True when the kind is sent in `LAB_TRACE=full` only."""
        return self.sourcetype == TRACE
