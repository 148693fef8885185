"""A collector with sessions to look at: one that a real agent made, one hostile in every field, one that still runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "agent_src" / "tests"))

import loglab  # found by the line above
from detection_cases import CASES, flows_at
from glasslab.scripted import ScriptedServer, load_script
from glasslab.vocabulary import COMMON_FIELDS, KINDS

APP = Path(__file__).resolve().parents[2] / "roles/splunk/files/app"
QUESTION = "What was the root cause of the September incident?"
HOSTILE = "hostile-session"
RUNNING = "running-session"
# Markup in every place where it could come to life, a hidden override, an isolate, a zero-width space and a tag letter.
PAYLOAD = (
    "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'`><svg onload=window.pwned=3>"
    "{{7*7}}${window.pwned=4}javascript:window.pwned=5</title></pre></details></textarea>&lt;b&gt;"
    "\u202egnp.exe\u2066\u200b\U000e0041end"
)
ESCAPES = ("\\u202e", "\\u2066", "\\u200b", "\\U000e0041")
PROBE = {"place": "agent", "target": "LAN", "protocol": "tcp", "port": 22, "expected": "blocked", "observed": "blocked"}
RECEIPT = {
    "counts": {"blocked": 1, "reachable": 1, "unproven": 0},
    "probes": [PROBE, PROBE | {"target": "log", "observed": "reachable"}, dict.fromkeys(PROBE, PAYLOAD)],
}


class PageLab:
    """A running collector in this process, its page included."""

    def __init__(self, folder: Path) -> None:
        """Start it with nothing in it."""
        self.folder = folder
        self.lab = loglab.start_lab(folder / "splunk")
        app = self.lab.home / "etc/apps/glasslab"
        for part in ("lookups", "sqlite"):
            shutil.copytree(APP / part, app / part)
        for name in ("savedsearches.conf", "macros.conf"):
            shutil.copy(APP / "default" / name, app / "default")
        self.ca = self.lab.ca
        self.token = loglab.SEARCH_TOKEN
        self.url = self.lab.web_url

    def send(self, sourcetype: str, event: dict[str, Any], at: float) -> None:
        """Put one event into the log."""
        body = loglab.envelope(event, time=f"{at:.6f}", sourcetype=sourcetype)
        answer = self.lab.post(body)
        assert answer.json()["code"] == 0, answer.text

    def ask(self, question: str = QUESTION) -> str:
        """Have an agent answer the sample question, with this log; return the session's id."""
        model = ScriptedServer(load_script("sample"), "127.0.0.1", 0)
        model.start()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "HEC_URL": self.lab.hec_url,
            "HEC_TOKEN": loglab.AGENT_TOKEN,
            "HEC_TOKEN_MCP": loglab.MCP_TOKEN,
            "HEC_CA": str(self.ca),
            "MODEL": "openai/gpt-5.6-luna",
            "MODEL_BASE_URL": f"http://127.0.0.1:{model.port}/v1",
            "LAB_TRACE": "full",
        }
        try:
            command = [sys.executable, "-m", "glasslab.cli", "ask", "--json", question]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            return str(json.loads(done.stdout)["session_id"])
        finally:
            model.stop(seconds=0.1)

    def hostile(self) -> None:
        """Put a session into the log whose every field is the payload, one frame of every kind, and an odd id."""
        began = time.time() - 3600
        lists = {"tool_calls": [{"name": PAYLOAD, "arguments": PAYLOAD}], "tools": [PAYLOAD], "files": [{"x": PAYLOAD}]}
        for number, kind in enumerate(KINDS.values()):
            own: dict[str, Any] = dict.fromkeys((*COMMON_FIELDS, *kind.fields, *kind.optional), PAYLOAD)
            own |= {name: value for name, value in lists.items() if name in own}
            event = own | {"session_id": HOSTILE, "kind": kind.name}
            self.send(kind.sourcetype, event, began + number / 100)
        unknown = {"session_id": HOSTILE, "kind": PAYLOAD, "component": PAYLOAD, "summary": PAYLOAD}
        self.send("agent:trace", unknown, began + 1)
        end = {"tokens": {"total": PAYLOAD}, "turns": PAYLOAD, "cost": PAYLOAD, "status": PAYLOAD}
        self.send("agent:session", {"session_id": HOSTILE, "kind": "session.end", **end}, began + 2)
        self.send("agent:session", {"session_id": PAYLOAD, "kind": "session.start", "model": PAYLOAD}, began + 3)

    def receipt(self, receipt: dict[str, Any] = RECEIPT) -> None:
        """Put a receipt into the log."""
        event = {"session_id": "hypervisor-x", "kind": "network.receipt", "component": "hypervisor", "name": "sample"}
        self.send("agent:network", event | {"sha256": "ab" * 32, "receipt": receipt}, time.time() - 60)

    def found(self) -> None:
        """Put what detections are for into the log: a refused path, a limit, flows at a time of no session."""
        for name in ("refused paths", "runs that hit a limit", "flow without a frame", "guardrail findings"):
            now, session = time.time(), f"session-of-{name.replace(' ', '-')}"
            for ago, sourcetype, event in flows_at(now, CASES[name][1]):
                self.send(
                    sourcetype,
                    event | ({"session_id": session} if event["component"] != "hypervisor" else {}),
                    now - ago,
                )

    def running(self) -> None:
        """Begin a session that has no end yet."""
        now = time.time() - 1
        common = {"session_id": RUNNING, "component": "agent", "step": 0}
        self.send("agent:trace", common | {"kind": "agent.start", "question": "Still at work?", "model": "m"}, now)
        self.send("agent:session", common | {"kind": "session.start", "model": "m"}, now)

    def step(self, number: int) -> None:
        """Have the session that runs do one thing more."""
        event = {"session_id": RUNNING, "component": "agent", "kind": "mcp.call_tool.request", "tool": f"tool-{number}"}
        self.send("agent:trace", event | {"arguments": {}, "step": 1}, time.time())

    def finish(self) -> None:
        """End the session that runs."""
        event = {"session_id": RUNNING, "component": "agent", "kind": "session.end", "status": "answered", "turns": 1}
        self.send("agent:session", event | {"tokens": {"total": 7}}, time.time())

    def stop(self) -> None:
        """End it."""
        self.lab.stop()


if __name__ == "__main__":  # to look at it: python tests/web/pagelab.py FOLDER
    place = PageLab(Path(sys.argv[1]))
    place.ask()
    place.hostile()
    place.receipt()
    place.running()
    print(f"{place.url}  CA {place.ca}  token {place.token}", flush=True)
    try:
        time.sleep(86400)
    except KeyboardInterrupt:
        place.stop()
