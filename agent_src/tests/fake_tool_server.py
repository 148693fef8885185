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
known: dict[str, Any] = {}


def write(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(request: dict[str, Any], result: dict[str, Any]) -> None:
    write({"id": request["id"], "result": {"resultType": "complete", **CACHED, **result} if MODERN else result})


def refuse(request: dict[str, Any], code: int) -> None:
    write({"id": request["id"], "error": {"code": code, "message": "no"}})


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
        case "silent":
            pass
        case "dies":
            sys.exit("fake: gone at once")
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say(request, text("never", isError=True))
            while True:
                time.sleep(1)


def main() -> None:
    server = {"name": "fake", "version": "1"}
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        if method == "server/discover" and MODERN:
            meta = {"io.modelcontextprotocol/serverInfo": server}
            say(request, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta})
        elif method == "initialize":
            known.update(params["capabilities"])
            agreed = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
            say(request, {**agreed, "instructions": "be kind"})
        elif method == "tools/list":
            tools(request, params)
        elif method == "tools/call":
            call(request, params)
        elif "id" in request:
            refuse(request, -32601)


if __name__ == "__main__":
    main()
