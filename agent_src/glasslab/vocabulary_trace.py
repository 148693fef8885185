"""The trace frames, in the order in which a session writes them; sent with `LAB_TRACE=full` only."""

from __future__ import annotations

from typing import Final

from glasslab.kinds import AGENT, MCP, TRACE, Kind

_A, _M = (AGENT,), (MCP,)
TRACE_KINDS: Final = (
    Kind(
        "agent.start",
        TRACE,
        "The agent received a question",
        _A,
        ("question", "model", "system_prompt", "max_turns", "settings"),
        ("continues", "continues_sha256", "prompt", "prompt_arguments", "resources"),
    ),
    Kind("server.start", TRACE, "The tool server started in its folder", _M, ("sandbox", "pid")),
    Kind(
        "mcp.initialize",
        TRACE,
        "Agent and tool server agreed on a protocol version",
        _A,
        ("protocol_version", "server_name", "server_version", "capabilities"),
    ),
    Kind(
        "mcp.discover",
        TRACE,
        "The agent discovered the tool server",
        _A,
        ("protocol_version", "server_name", "server_version", "capabilities"),
    ),
    # tools: list of {name, description, input_schema, description_sha256, definition_sha256}
    Kind("mcp.tools_list", TRACE, "The tool server listed its tools", _A, ("tools",)),
    Kind(
        "llm.request",
        TRACE,
        "The agent sends this context to the model",
        _A,
        ("turn", "messages", "tools", "message_count"),
        ("tool_choice", "purpose"),
    ),
    # tool_calls: list of {id, name, arguments (text, as sent)}
    Kind(
        "llm.response",
        TRACE,
        "The model replied",
        _A,
        (
            "content",
            "tool_calls",
            "finish_reason",
            "prompt_tokens",
            "completion_tokens",
            "reasoning_tokens",
            "latency_ms",
        ),
        ("refusal", "estimated", "purpose"),
    ),
    # decision: run_tools | answer | stop; calls: number of calls; tools: their names
    Kind("agent.decision", TRACE, "The loop decided what comes next", _A, ("decision", "calls", "tools"), ("reason",)),
    Kind(
        "mcp.call_tool.request",
        TRACE,
        "The agent asks the tool server to run a tool",
        _A,
        ("tool", "arguments", "tool_call_id"),
    ),
    Kind(
        "server.path_check",
        TRACE,
        "The tool server checked a path against its folder",
        _M,
        ("requested_path", "resolved_path", "inside_sandbox"),
        ("tool_call_id", "reason"),
    ),
    Kind("server.list_files", TRACE, "The tool server listed its files", _M, ("files",), ("tool_call_id",)),
    Kind(
        "server.read_file",
        TRACE,
        "The tool server read a file",
        _M,
        ("path", "bytes_read", "bytes_total"),
        ("tool_call_id",),
    ),
    Kind(
        "mcp.call_tool.result",
        TRACE,
        "The tool server returned a result",
        _A,
        ("tool", "tool_call_id", "result", "characters", "is_error", "duration_ms"),
    ),
    # The one tool that is the agent's own: a session of its own (delegate_session_id), whose agent's frames carry
    # PARENT_FIELDS. status, turns, tokens and seconds are that session's; result is what the model is told.
    Kind(
        "delegate.request",
        TRACE,
        "The agent hands a part of the question to a delegate",
        _A,
        ("tool", "arguments", "tool_call_id"),
    ),
    Kind(
        "delegate.result",
        TRACE,
        "The delegate returned",
        _A,
        (
            "tool_call_id",
            "delegate_session_id",
            "status",
            "result",
            "characters",
            "is_error",
            "turns",
            "tokens",
            "seconds",
        ),
    ),
    Kind(
        "mcp.get_prompt.request",
        TRACE,
        "The agent asks a tool server for a prompt",
        _A,
        ("server", "name", "arguments"),
    ),
    Kind(
        "mcp.get_prompt.result",
        TRACE,
        "The tool server returned a prompt",
        _A,
        ("server", "name", "result", "characters", "is_error", "duration_ms"),
    ),
    Kind(
        "mcp.read_resource.request",
        TRACE,
        "The agent asks a tool server for a resource",
        _A,
        ("server", "name"),
    ),
    Kind(
        "mcp.read_resource.result",
        TRACE,
        "The tool server returned a resource",
        _A,
        ("server", "name", "result", "characters", "is_error", "duration_ms"),
    ),
    # A call that never reached a tool server: bad arguments, unknown tool. error is what the model is told.
    Kind(
        "agent.call_refused",
        TRACE,
        "The agent refused a tool call before it reached a tool server",
        _A,
        ("tool", "arguments", "tool_call_id", "reason", "error"),
    ),
    # reason: a fixed code when status is not answered; detail: the error's text, without secrets; so_far: what the
    # person who asked is shown in place of an answer
    Kind(
        "agent.final",
        TRACE,
        "The session ended",
        _A,
        ("status", "answer", "turns", "seconds"),
        ("reason", "detail", "so_far"),
    ),
    # What a server listed against what is pinned: old and new by name, and their difference line by line
    Kind(
        "mcp.tools_drift",
        TRACE,
        "What differs between the tools and the lock",
        _A,
        ("server", "old", "new", "diff"),
    ),
)
