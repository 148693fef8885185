"""The summary events, which every session writes, and the events of the hypervisor and of `glasslab verify`."""

from __future__ import annotations

from typing import Final

from glasslab.kinds import AGENT, HYPERVISOR, LLM, MCP, NETWORK, SESSION, TOOLCALL, VERIFIER, Kind

_A, _M, _H, _V = (AGENT,), (MCP,), (HYPERVISOR,), (VERIFIER,)
SUMMARY_KINDS: Final = (
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
