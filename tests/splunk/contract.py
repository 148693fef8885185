"""Runs the cases of hec_contract.yml against a HEC: the embedded collector's, or a live Splunk's.

Answers are compared at once. What a case stored is compared by the caller, who knows how to look: `faults_of_stored`.
"""

from __future__ import annotations

import gzip
import json
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

FILE = Path(__file__).with_name("hec_contract.yml")
PUBLISHED = ("documented", "probed")
HEADER = "X-Splunk-Request-Channel"
TIMEOUT = 10.0


@dataclass(frozen=True)
class Target:
    """A HEC: its base URL, tokens by their role in the cases, the index they may write to, and what verifies it."""

    url: str
    tokens: dict[str, str]
    index: str
    verify: str | bool
    is_collector: bool = False
    patience: float = 0.0  # seconds that an acknowledgement may take


@dataclass(frozen=True)
class Stored:
    """An event as it was found again."""

    raw: str
    time: float
    host: str
    source: str
    sourcetype: str
    index: str


@dataclass
class Run:
    """One case on one target: by what mark its events are known, and what was not as it should be."""

    case: dict[str, Any]
    target: Target
    mark: str
    faults: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give the placeholders of the case's texts their values."""
        self.names = {"m": self.mark, "index": self.target.index, **self.target.tokens}
        self.names |= {"channel": str(uuid.uuid4()), "other_channel": str(uuid.uuid4())}

    def filled(self, value: Any) -> Any:
        """Return a value of the case with its placeholders filled in."""
        if isinstance(value, str):
            for name, text in self.names.items():
                value = value.replace(f"{{{name}}}", text)
            return value
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if isinstance(value, dict):
            return {self.filled(key): self.filled(item) for key, item in value.items()}
        return value


def cases() -> list[dict[str, Any]]:
    """The cases of the file, each with its steps."""
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [{"steps": [case], **case} for case in found]


def missing(case: dict[str, Any], target: Target) -> str:
    """Why a case cannot be run on a target; empty when it can."""
    if case.get("only") == "collector" and not target.is_collector:
        return "about a bound of the collector's own"
    lacking = {step["token"] for step in case["steps"] if "token" in step} - set(target.tokens)
    return f"no token of the kind {', '.join(sorted(lacking))} was given" if lacking else ""


def run(case: dict[str, Any], target: Target, mark: str) -> Run:
    """Send the requests of a case and compare the answers."""
    one = Run(case, target, mark)
    with requests.Session() as session:
        session.trust_env = False
        for number, step in enumerate(case["steps"]):
            place = f"step {number + 1}: " if len(case["steps"]) > 1 else ""
            until = time.monotonic() + (target.patience if step.get("again") else 0.0)
            while True:
                answer = _send(session, one, step)
                faults = _faults(one, step["answer"], answer)
                if not faults or time.monotonic() >= until:
                    break
                time.sleep(0.5)
            one.faults += [place + fault for fault in faults]
    return one


def post(target: Target, body: bytes) -> requests.Response:
    """Send a body with the agent's token. Raises requests' errors."""
    with requests.Session() as session:
        session.trust_env = False
        return session.post(
            f"{target.url}/services/collector",
            headers={"Authorization": f"Splunk {target.tokens['agent']}"},
            data=body,
            timeout=TIMEOUT,
            verify=target.verify,
        )


def _send(session: requests.Session, one: Run, step: dict[str, Any]) -> requests.Response:
    body = bytes.fromhex(step["body_hex"]) if "body_hex" in step else one.filled(step.get("body", "")).encode()
    headers = one.filled(step.get("headers", {}))
    authorization = step.get("authorization", f"Splunk {{{step.get('token', 'agent')}}}")
    if authorization is not None:
        headers["Authorization"] = one.filled(authorization)
    packed, encoding = _encoded(body * step.get("repeat", 1), step.get("encode", ""))
    if encoding:
        headers["Content-Encoding"] = encoding
    request = requests.Request(
        step.get("method", "POST"),
        f"{one.target.url}/services/collector{step.get('path', '')}",
        params=one.filled(step.get("query", {})),
        headers=headers,
        data=packed,
    )
    return session.send(session.prepare_request(request), timeout=TIMEOUT, verify=one.target.verify)


def _encoded(body: bytes, how: str) -> tuple[bytes, str]:
    if how == "deflate":
        return zlib.compress(body), "deflate"
    if how == "named":
        return body, "gzip"
    if how == "gzip-cut":
        return gzip.compress(body)[:-6], "gzip"
    return (gzip.compress(body), "gzip") if how else (body, "")


def _faults(one: Run, expected: dict[str, Any], answer: requests.Response) -> list[str]:
    try:
        said = answer.json()
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    if isinstance(said.get("ackId"), int):
        one.names["n"] = str(said["ackId"])
    seen = {"status": answer.status_code, "code": said.get("code"), "text": said.get("text"), "acks": said.get("acks")}
    faults = []
    for name, wanted in one.filled(expected).items():
        if name == "number":
            continue
        got = "ackId" in said if name == "ack" else seen[name]
        if got != wanted and not (isinstance(wanted, list) and got in wanted):
            faults.append(f"{name} is {got!r}, not {wanted!r}")
    number = said.get("invalid-event-number")
    # An answer without a code says all; one with a code names the event, or there is none to name.
    if "code" in expected and number != expected.get("number"):
        faults.append(f"invalid-event-number is {number!r}, not {expected.get('number')!r}")
    return faults


def faults_of_stored(one: Run, found: Sequence[Stored]) -> list[str]:
    """What differs between the events found under a run's mark and those that its case creates."""
    wanted = sorted(_canonical(item) for item in one.filled(one.case.get("stored", [])))
    got = sorted(_canonical(item.raw) for item in found)
    if got != wanted:
        return [f"stored are {got}, not {wanted}"]
    faults = []
    for name, value in one.filled(one.case.get("as", {})).items():
        for item in found:
            seen = getattr(item, name)
            same = abs(seen - value) < 0.0015 if name == "time" else seen == value
            if not same:
                faults.append(f"stored {name} is {seen!r}, not {value!r}")
    return faults


def _canonical(value: Any) -> str:
    """An event as one text: JSON objects without regard to spaces or the order of keys."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return value
        if not isinstance(parsed, dict):
            return value
        value = parsed
    return json.dumps(value, sort_keys=True)
