"""The vocabulary: every kind of frame the lab can record, with its sourcetype, fixed summary, writer and fields."""

from __future__ import annotations

from collections.abc import Mapping
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


def _kinds(*kinds: Kind) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


_A, _M, _H, _V = (AGENT,), (MCP,), (HYPERVISOR,), (VERIFIER,)
KINDS: Final[Mapping[str, Kind]] = _kinds(
    # --- trace frames, in the order in which a session writes them
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
    # --- summary events
    # Before the service opens its connection to the model: that flow has no session, and is on record all the same.
    Kind("service.start", SESSION, "The agent's service started", _A, ("model",)),
    # continues: the session whose conversation this one goes on with; continues_sha256: the hash of its last frame;
    # prompt (with prompt_arguments), resources: what was attached to the question, by name
    Kind(
        "session.start",
        SESSION,
        "A session started",
        _A,
        ("model", "question_sha256"),
        ("continues", "continues_sha256", "prompt", "prompt_arguments", "resources"),
    ),
    # how: stub | summary | list | trim | none; before, after, limit: tokens; replaced: results that the model no longer
    # gets whole, the last 200 as {tool_call_id, tool, sha256, characters, seq, event_id, session_id if another's};
    # messages: how many one message (text_sha256) stands for now; messages_sha256: of the canonical JSON of their list,
    # which is that of the llm.request before without system prompt and question; reason: why the model wrote none
    Kind(
        "context.reduced",
        SESSION,
        "The conversation was shortened to fit the model's context",
        _A,
        ("how", "before", "after", "limit", "replaced", "replaced_count"),
        ("messages", "messages_sha256", "text_sha256", "reason"),
    ),
    # What a server listed against what is pinned: old and new by name, and their difference line by line
    Kind(
        "mcp.tools_drift",
        TRACE,
        "What differs between the tools and the lock",
        _A,
        ("server", "old", "new", "diff"),
    ),
    # stage: question | tool_result | answer; action: record | redact | refuse; findings: rule -> number
    Kind(
        "guardrail",
        SESSION,
        "A guardrail found something",
        _A,
        ("stage", "action", "findings"),
        ("tool", "tool_call_id"),
    ),
    # A call waits for a person. sha256: of the canonical JSON of arguments, server and tool; caller: user id of who
    # asked the question; reason: why it waits; seconds: how long
    Kind(
        "approval.request",
        SESSION,
        "A tool call waits for a person's approval",
        _A,
        (
            "approval_id",
            "tool",
            "server",
            "class",
            "arguments",
            "sha256",
            "tool_call_id",
            "caller",
            "reason",
            "seconds",
        ),
    ),
    # decision: approved | denied; how: terminal | service | timeout | nobody | rule; by: user id, null when no person
    # decided; why: what that person gave as the reason; decided_at: epoch seconds; approval_id: null by a rule
    Kind(
        "approval.decision",
        SESSION,
        "A tool call was approved or denied",
        _A,
        (
            "approval_id",
            "tool",
            "server",
            "class",
            "sha256",
            "tool_call_id",
            "caller",
            "reason",
            "decision",
            "how",
            "by",
            "why",
            "decided_at",
            "waited_seconds",
        ),
    ),
    # servers' tools that differ from the lock: lists of names; expected, observed: name -> definition hash
    Kind(
        "tools.drift",
        SESSION,
        "The tools differ from the lock; the model gets no further call",
        _A,
        ("server", "changed", "missing", "extra", "instructions_changed", "refused_characters", "observed"),
        ("expected", "files"),
    ),
    # tokens: {prompt, completion, reasoning, total}; answer_sha256 is null without an answer. cost: US dollars of all
    # calls, when every one's is known; estimated: some provider gave no token counts; delegated: {sessions, turns,
    # tool_calls, tokens} of delegates, which tokens and cost hold, too
    Kind(
        "session.end",
        SESSION,
        "A session ended",
        _A,
        ("status", "turns", "tokens", "answer_sha256"),
        ("reason", "cost", "estimated", "delegated"),
    ),
    # definitions: name -> definition_sha256 of the tools offered; tools_requested: list of {tool, arguments}; cost: US
    # dollars, cost_from: reply | prices; estimated: the provider gave no token counts, these are from the sizes;
    # purpose: summary, of a call that is no turn
    Kind(
        "llm",
        LLM,
        "One model call",
        _A,
        (
            "model",
            "definitions",
            "tools_requested",
            "prompt_tokens",
            "completion_tokens",
            "reasoning_tokens",
            "finish_reason",
            "duration_ms",
        ),
        ("cost", "cost_from", "estimated", "purpose"),
    ),
    # reason: a fixed code such as http_429; wait_seconds: until the next attempt, null when there is none
    Kind(
        "llm.failed",
        LLM,
        "A model call failed",
        _A,
        ("model", "attempt", "reason", "wait_seconds"),
    ),
    Kind(
        "toolcall",
        TOOLCALL,
        "One tool call",
        _A,
        ("tool", "arguments", "tool_call_id", "duration_ms", "result_sha256", "bytes", "is_error", "refused"),
    ),
    # What a person attached to the question. what: prompt | resource
    Kind(
        "attachment",
        TOOLCALL,
        "One prompt or resource for the question",
        _A,
        ("what", "server", "name", "result_sha256", "bytes", "is_error", "duration_ms"),
    ),
    # A request to a tool server that brought no answer and is made again. request: its method, such as tools/list
    Kind(
        "mcp.failed",
        TOOLCALL,
        "A request to a tool server failed",
        _A,
        ("request", "attempt", "wait_seconds"),
        ("server", "tool_call_id"),
    ),
    # The server's own word on a refusal, so that it is on record in summary mode too. Same POST as the path_check.
    Kind(
        "toolcall.refused",
        TOOLCALL,
        "The tool server refused a path",
        _M,
        ("tool", "requested_path", "reason"),
        ("tool_call_id",),
    ),
    # What `glasslab verify --index` found. writers: name -> {frames, signatures, problems}; found: number of findings;
    # problems: the first of them, a line each
    Kind(
        "session.verified",
        SESSION,
        "A session's record was checked",
        _V,
        ("verified_session", "whole", "writers", "found", "problems"),
    ),
    # --- the hypervisor's own events: a stream of its own, beside the sessions. Times are epoch seconds.
    # reason: first | day | state_lost; previous_*: the last frame of the stream before (null: there is none)
    Kind(
        "network.start",
        NETWORK,
        "The hypervisor begins a stream",
        _H,
        ("reason", "previous_session", "previous_seq", "previous_hash", "window_seconds"),
    ),
    # verdict: allowed | denied; flow: its name, or where it was denied. What is null was not in the packet, or differs
    # among the packets that this frame stands for.
    Kind(
        "network.flow",
        NETWORK,
        "The hypervisor saw packets of a flow",
        _H,
        (
            "verdict",
            "flow",
            "in",
            "out",
            "source_mac",
            "source",
            "source_port",
            "destination",
            "destination_port",
            "protocol",
            "count",
            "first",
            "last",
        ),
    ),
    # drift: what the watcher of the rules wrote; count: how many such lines this frame stands for
    Kind("network.drift", NETWORK, "The hypervisor's rules were not as loaded", _H, ("drift", "count")),
    Kind("network.receipt", NETWORK, "A receipt of the network's isolation", _H, ("name", "sha256", "receipt")),
    # what: packets | frames | lines; count is null when nobody can know
    Kind("network.lost", NETWORK, "The hypervisor could not keep all it saw", _H, ("what", "count", "reason")),
)

# In each of the agent's frames of a delegate's session: whose delegate it is.
PARENT_FIELDS: Final = ("parent_session_id", "parent_step", "parent_tool_call_id")
# A session's last frame; of a session that has one frame, that one.
ENDS: Final = ("session.end", "service.start", "session.verified")

# What the chain and the vocabulary write themselves; a kind's own fields cannot take these names.
COMMON_FIELDS: Final = (
    *("session_id", "component", "kind", "step", "summary", "seq", "prev", "clock", "event_id", "sig"),
    *PARENT_FIELDS,
)
