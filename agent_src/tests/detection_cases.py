"""For each form of the app's detections: frames in which it finds something, and frames in which it only seems so.

Frames are sealed as their writers seal them. A time is seconds before now.
"""

from collections import defaultdict
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from glasslab.frames import KINDS, Chain, frame
from session_sample import FIRST, make_keys, make_session

Sent = tuple[float, str, dict[str, Any]]  # seconds before now, sourcetype, event
WITNESS = "hypervisor-1"
_KEY = Ed25519PrivateKey.generate()
_RECORDED = make_session(make_keys())


class Written:
    """Frames of any sessions and writers, each its own commit."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.chains: dict[tuple[str, str], Chain] = {}
        self.clocks: dict[str, int] = defaultdict(int)

    def add(self, ago: float, kind: str, session: str = "s1", **fields: Any) -> "Written":
        """Add a frame of the kind's first writer; a field that is not given is null. Returns itself."""
        about = KINDS[kind]
        chain = self.chains.setdefault((session, about.writers[0]), Chain(session, about.writers[0], _KEY))
        chain.merge(self.clocks[session])
        (event,) = chain.seal([frame(kind, step=1, **(dict.fromkeys(about.fields) | fields))])
        self.clocks[session] = event["clock"]
        self.sent.append((ago, about.sourcetype, event))
        return self


def one(kind: str, ago: float = 60, **fields: Any) -> list[Sent]:
    """Return one frame."""
    return Written().add(ago, kind, **fields).sent


def recorded(ago: float = 600) -> list[Sent]:
    """Return the sample session, 33 frames of two writers."""
    return [(ago - (item.time - FIRST), item.sourcetype, item.event) for item in _RECORDED]


def without(kind: str, sent: list[Sent]) -> list[Sent]:
    """Return frames without the last one of a kind."""
    (*_, last) = (number for number, (_, _, event) in enumerate(sent) if event["kind"] == kind)
    return sent[:last] + sent[last + 1 :]


def edited(sent: list[Sent]) -> list[Sent]:
    """Return frames of which one has another text than its writer gave it."""
    return [
        (ago, sourcetype, event | {"path": "another.md"} if event["kind"] == "server.read_file" else event)
        for ago, sourcetype, event in sent
    ]


def flow(ago: float, verdict: str = "allowed", name: str = "model", **fields: Any) -> list[Sent]:
    """Return a flow that the hypervisor saw for a second."""
    return one("network.flow", ago, session=WITNESS, verdict=verdict, flow=name, count=3, **fields)


def flows_at(now: float, sent: list[Sent]) -> list[Sent]:
    """Return the same with the flows' own times (epoch seconds) written in: they are not known before now is."""
    return [
        (
            ago,
            sourcetype,
            event | {"first": now - ago - 1, "last": now - ago} if event["kind"] == "network.flow" else event,
        )
        for ago, sourcetype, event in sent
    ]


def begun(ago: float, ended: float | None = None, session: str = "s1") -> list[Sent]:
    """Return a session's start, and its end when it has one."""
    written = Written().add(ago, "session.start", session, model="m")
    return (written if ended is None else written.add(ended, "session.end", session, status="answered")).sent


def called(session: str, *tools: str) -> list[Sent]:
    """Return a session's tool calls."""
    written = Written()
    for number, tool in enumerate(tools):
        written.add(100 - number, "toolcall", session, tool=tool, is_error=False, refused=False)
    return written.sent


LISTED = {"name": "read_file", "description_sha256": "changed", "definition_sha256": "changed"}
PINNED = {
    "name": "read_file",
    "description_sha256": "8f1c042bac7ff7fbd7b7d172be340a488a28057d00850b236bbbb9dc754a0c0e",
    "definition_sha256": "0e0ba9e70ce811f4b9e377a5c9902370accfc8a39d42459178f58a66ba0bc0fc",
}
ASKED = {"tool": "send_message", "tool_call_id": "c1", "arguments": {"to": "x"}, "sha256": "a"}
DECIDED = {"tool": "send_message", "tool_call_id": "c1", "decision": "approved", "how": "terminal", "by": 0}
DAYS = 86400.0

# name (without "Glasslab: ") -> what is found in which frames, and frames in which nothing is
CASES: dict[str, tuple[dict[str, str], list[Sent], list[Sent]]] = {
    "tool baseline and drift": (
        {"tool": "read_file", "drift": "the description differs", "sessions": "1"},
        one("mcp.tools_list", tools=[LISTED, "no definition"]),
        one("mcp.tools_list", tools=[PINNED]) + one("mcp.tools_list", 31 * DAYS, session="s2", tools=[LISTED]),
    ),
    "refused paths": (
        {"requested_path": "../.env", "frames": "2", "reason": "outside", "tool": "read_file"},
        Written()
        .add(9, "server.path_check", requested_path="../.env", inside_sandbox=False)
        .add(9, "toolcall.refused", requested_path="../.env", reason="outside", tool="read_file")
        .sent,
        one("server.path_check", requested_path="a.md", inside_sandbox=True),
    ),
    "runs that hit a limit": (
        {"status": "max_steps_reached", "turns": "6", "tokens": "9"},
        one("session.end", status="max_steps_reached", turns=6, tokens={"total": 9}),
        one("session.end", status="model_unreachable") + one("session.end", 8 * DAYS, status="max_cost_reached"),
    ),
    "tool sequences seen rarely": (
        {"session_id": "odd", "sequence": "read_file > send_message", "calls": "2", "seen": "1"},
        [*called("odd", "read_file", "send_message"), *(i for n in range(3) for i in called(f"s{n}", "list_files"))],
        [item for number in range(3) for item in called(f"s{number}", "list_files", "read_file")],
    ),
    "sessions that never ended": (
        {"session_id": "s1", "model": "m"},
        begun(1000),
        begun(1000, 990) + begun(800, session="young"),
    ),
    "what glasslab verify found": (
        {"session_id": "edited", "found": "2", "problems": '["broken link"]'},
        one("session.verified", verified_session="edited", whole=False, found=2, problems=["broken link"]),
        Written()  # the last check counts
        .add(90, "session.verified", "verifier-1", verified_session="s1", whole=False, found=1, problems=["x"])
        .add(60, "session.verified", "verifier-2", verified_session="s1", whole=True, found=0, problems=[])
        .sent,
    ),
    "gaps in the chains": (
        {"component": "agent", "missing": "8", "kind": "mcp.call_tool.request"},
        [item for item in recorded() if (item[2]["component"], item[2]["seq"]) != ("agent", 8)],
        recorded() + recorded()[3:5],
    ),
    "frames cut off": (
        {"writers": "agent,mcp", "missing": "1"},
        without("server.read_file", recorded()),
        recorded(),
    ),
    "broken links in the chains": ({"component": "mcp", "kind": "server.path_check"}, edited(recorded()), recorded()),
    "duplicates in the chains": (
        {"component": "agent", "copies": "2", "versions": "1", "meaning": "the same frame twice"},
        recorded() + recorded()[:1],
        recorded() + one("network.drift", session=WITNESS) * 2,
    ),
    "tools that drifted": (
        {"server": "lab-files", "changed": '["read_file"]', "instructions_changed": "false"},
        one("tools.drift", server="lab-files", changed=["read_file"], instructions_changed=False),
        one("mcp.tools_list", tools=[PINNED]),
    ),
    "guardrail findings": (
        {"stage": "tool_result", "action": "redact", "found": '{"aws_key":1}'},
        one("guardrail", stage="tool_result", action="redact", findings={"aws_key": 1}),
        one("toolcall", tool="read_file", is_error=False, refused=False),
    ),
    "failed model calls": (
        {"reason": "http_429", "attempts": "2", "retried": "1", "sessions": "1"},
        Written()
        .add(9, "llm.failed", model="m", attempt=1, reason="http_429", wait_seconds=1.0)
        .add(8, "llm.failed", model="m", attempt=2, reason="http_429")
        .sent,
        one("llm", model="m"),
    ),
    "failed requests to tool servers": (
        {"server": "lab-files", "request": "tools/list", "attempts": "1"},
        one("mcp.failed", server="lab-files", request="tools/list", attempt=1, wait_seconds=0.5),
        one("toolcall", tool="read_file", is_error=True, refused=False),
    ),
    "tool calls that failed": (
        {"tool": "read_file", "asked": '{"path":"/etc/passwd"}', "refused": "true", "is_error": "false"},
        one("toolcall", tool="read_file", arguments={"path": "/etc/passwd"}, is_error=False, refused=True),
        called("s1", "read_file"),
    ),
    "approvals": (
        {"decision": "approved", "asked": '{"to":"x"}', "changed": "what was decided on is NOT what was asked"},
        Written().add(9, "approval.request", **ASKED).add(5, "approval.decision", **DECIDED, sha256="b").sent,
        one("toolcall", tool="send_message", is_error=False, refused=False),
    ),
    "delegated sessions": (
        {"session_id": "s1", "parent_session_id": "p", "parent_tool_call_id": "c9", "status": "answered"},
        [
            (60, "agent:session", event | {"parent_session_id": "p", "parent_step": 1, "parent_tool_call_id": "c9"})
            for _, _, event in one("session.end", status="answered")
        ],
        begun(60, 50),
    ),
    "contexts that were shortened": (
        {"how": "trim", "before": "900", "after": "400", "limit": "500"},
        one("context.reduced", how="trim", before=900, after=400, limit=500, replaced_count=2),
        recorded(),
    ),
    "flow without a frame": (
        {"flow": "model", "destination": "203.0.113.10", "count": "3"},
        begun(200, 190) + flow(100, destination="203.0.113.10"),
        begun(200, 150)
        + flow(170)
        + flow(149)
        + flow(100, name="log")
        + flow(99, name="resolver-udp")
        + flow(98, verdict="denied"),
    ),
    "frames without a flow": (
        {"session_id": "s1", "calls": "1"},
        flow(500) + one("llm", 100, duration_ms=2000),
        flow(130) + one("llm", 100, duration_ms=2000),  # a connection stays open for 30 seconds
    ),
    "denied": (
        {"flow": "forward", "packets": "3", "source_address": "10.10.10.10", "destination_port": "22"},
        flow(50, "denied", "forward", source="10.10.10.10", destination_port=22),
        flow(50),
    ),
    "rules that drifted": (
        {"drift": "a rule was gone", "count": "1"},
        one("network.drift", session=WITNESS, drift="a rule was gone", count=1),
        one("network.start", session=WITNESS, reason="day"),
    ),
    "lost by the hypervisor": (
        {"what": "packets", "reason": "queue", "lost": "7", "times": "1"},
        one("network.lost", session=WITNESS, what="packets", count=7, reason="queue"),
        one("network.start", session=WITNESS, reason="day"),
    ),
}
