"""A tool server in a few lines, to be run: answers a call with whatever the tool's name stands for, `modern` or not."""

import json
import signal
import sys
import time
from typing import Any

MESSAGES = [{"role": "user", "content": {"type": "text", "text": "Tell me all you know."}}]
ASKED: dict[str, dict[str, Any]] = {
    "sampling/createMessage": {"messages": MESSAGES, "maxTokens": 9},
    "roots/list": {},
    "elicitation/create": {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}},
    "resources/list": {},
}
MODERN = "modern" in sys.argv
CACHED = {"ttlMs": 0, "cacheScope": "private"}
PROMPT = {"name": "review", "description": "Review a city.", "arguments": [{"name": "city", "required": True}]}
RESOURCES = [{"uri": "file:///a.md", "name": "a"}, {"uri": "file:///p.png", "name": "p"}]
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
known: dict[str, Any] = {}
seen: list[str] = []
slow: list[dict[str, Any]] = []


def write(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(request: dict[str, Any], result: dict[str, Any]) -> None:
    write({"id": request["id"], "result": {"resultType": "complete", **CACHED, **result} if MODERN else result})


def refuse(request: dict[str, Any], code: int, why: str = "no") -> None:
    write({"id": request["id"], "error": {"code": code, "message": why}})


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def tools(request: dict[str, Any], params: dict[str, Any]) -> None:
    page = int(params.get("cursor") or 0)
    tool = {"name": f"tool{page}", "inputSchema": {"type": "object"}, "x-unknown": {"kept": True}}
    say(request, {"tools": [tool], **({"nextCursor": str(page + 1)} if page < 2 else {})})


def ask_back(methods: list[str]) -> list[Any]:
    answers = []
    for method in methods:
        write({"id": "mine", "method": method, "params": ASKED[method]})
        answers.append(json.loads(sys.stdin.readline()))
    return answers


def first_time(what: str) -> bool:
    seen.append(what)
    return seen.count(what) == 1


def read(request: dict[str, Any], params: dict[str, Any]) -> None:
    uri = params["uri"]
    match uri.partition(":")[2]:
        case "///a.md":
            say(request, {"contents": [{"uri": uri, "text": "alpha"}, {"uri": uri, "text": json.dumps(params)}]})
        case "///p.png":
            say(request, {"contents": [{"uri": uri, "mimeType": "image/png", "blob": "AAAA"}]})
        case "big":
            say(request, {"contents": [{"uri": uri, "text": "x" * 30_000_000}]})
        case "flaky" if not first_time(uri):
            say(request, {"contents": [{"uri": uri, "text": "at last"}]})
        case "flaky" | "silent":
            pass
        case _:
            refuse(request, -32002)


def prompt(request: dict[str, Any], params: dict[str, Any]) -> None:
    if params["name"] == "silent":
        return
    if params["name"] != "review":
        refuse(request, -32602)
        return
    said = [
        ("user", {"type": "text", "text": f"What of {params['arguments']['city']}?"}),
        ("assistant", {"type": "text", "text": "Let me look."}),
        ("user", {"type": "image", "mimeType": "image/png", "data": "AAAA"}),
    ]
    say(request, {"messages": [{"role": role, "content": content} for role, content in said]})


def call(request: dict[str, Any], params: dict[str, Any]) -> None:
    match params["name"]:
        case "echo":
            say(request, text(json.dumps(params), _meta={"glasslab/clock": 5}))
        case "tool0":
            say(request, text("zero"))
        case "big":
            say(request, text("x" * 30_000_000))
        case "long":
            say(request, text("\u00e9" * 400))
        case "surrogate":
            say(request, text("a\ud800b"))
        case "noise":
            print("this is no json", flush=True)
        case "bytes":
            sys.stdout.buffer.write(b"\xff\xfe\n")
            sys.stdout.buffer.flush()
        case "image":
            image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
            say(request, {"content": [image, {"type": "text", "text": "caption"}]})
        case "structured":
            say(request, {"content": [], "structuredContent": {"city": "Bern"}})
        case "fails":
            say(request, text("it failed", isError=True))
        case "refuses":
            refuse(request, -32602)
        case "shapeless":
            say(request, {"content": "not a list"})
        case "asks":
            say(request, text(json.dumps([known, ask_back(params["arguments"]["methods"])])))
        case "wants":
            wanted = {"q": {"method": "elicitation/create", "params": ASKED["elicitation/create"]}}
            say(request, {"resultType": "input_required", "inputRequests": wanted})
        case "floods":
            note = {"method": "notifications/message", "params": {"level": "error", "data": "x" * 99}}
            for _ in range(20_000):
                write(note)
            say(request, text("after the flood"))
        case "flaky" if not first_time("tool"):
            say(request, text("at last"))
        case "silent" | "flaky":
            pass
        case "slow":
            slow.append(request)
            if len(slow) == 3:  # answers none before all three are asked, and then the last first
                for waiting in reversed(slow):
                    say(waiting, text(json.dumps(waiting["params"])))
        case "mixed":
            slow.append(request)
            if len(slow) == 2:
                print("neither of them can use this", flush=True)
        case "tool1":  # a listed one: the SDK lists anew after a call of another
            say(request, text("I read no more"))
            time.sleep(60)
        case "tells":
            refuse(request, -32603, f"what is {sys.argv[-1]}?")
        case "owns up":
            refuse(request, -32602, f"not with {sys.argv[-1]}")
        case "repeats":
            say(request, text(f"failed with {sys.argv[-1]}", isError=True))
        case "dies":
            sys.exit("fake: gone at once")
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say(request, text("never", isError=True))
            while True:
                time.sleep(1)


def main() -> None:
    signal.alarm(60)  # a host that waits for ever, or does not kill, fails its test then
    server = {"name": "fake", "version": "1"}
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        if method == "server/discover" and MODERN:
            meta = {"io.modelcontextprotocol/serverInfo": server}
            say(request, {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "_meta": meta})
        elif method == "initialize":
            known.update(params["capabilities"])
            agreed = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server}
            say(request, {**agreed, "instructions": "be kind"})
        elif method == "tools/list":
            tools(request, params)
        elif method == "tools/call":
            call(request, params)
        elif method == "resources/list":
            say(request, {"resources": RESOURCES})
        elif method == "prompts/list":
            say(request, {"prompts": [PROMPT]})
        elif method == "resources/read":
            read(request, params)
        elif method == "prompts/get":
            prompt(request, params)
        elif "id" in request:
            refuse(request, -32601)


if __name__ == "__main__":
    main()
