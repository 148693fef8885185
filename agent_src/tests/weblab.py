"""What the tests of the collector's page share: frames that are hostile in every field, and a page taken apart."""

from html.parser import HTMLParser
from typing import Any

import requests

from glasslab.vocabulary import COMMON_FIELDS, KINDS
from loglab import SEARCH_TOKEN, Lab, envelope
from session_sample import make_keys, make_session

PAYLOAD = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`><svg onload=alert(3)>{{7*7}}{% raw %}"
    "</title></pre></details>&lt;b&gt;\u202egnp.exe\u2066\u200b\U000e0041end"
)
PAGES = ["/", "/sessions/hostile", "/sessions/hostile?all=1", "/sessions/hostile/frames/1", "/receipts", "/detections"]
# Texts of events that are no JSON to one reader or another.
ODD = [
    '{"kind":"\\ud800"}',
    "a\x00b",
    '{"kind":"x"}\x00',
    '{"kind":' + "[" * 3000 + "]" * 3000 + "}",
    '{"kind":1e999}',
    '"kind"',
    '{"kind":{"a":1},"kind":null}',
    '{"kind":"\\u0000"}',
    "{kind:'x'}",
    '{"kind":' + "9" * 5000 + "}",
    "\ufeff{}",
    "{" * 100_000,
]


def send(lab: Lab, sourcetype: str, at: float, **event: Any) -> None:
    assert lab.post(envelope(event, time=f"{at:.6f}", sourcetype=sourcetype)).json()["code"] == 0


def fill(lab: Lab) -> None:
    """The sample session, one that is hostile in every field of every kind, and ids that are no ids."""
    body = [envelope(i.event, time=f"{i.time:.6f}", sourcetype=i.sourcetype) for i in make_session(make_keys())]

    def add(sourcetype: str, **event: Any) -> None:
        body.append(envelope(event, time=1000 + len(body), sourcetype=sourcetype))

    for kind in KINDS.values():
        fields = dict.fromkeys((*COMMON_FIELDS, *kind.fields, *kind.optional), PAYLOAD)
        add(kind.sourcetype, **fields | {"session_id": "hostile", "kind": kind.name})
    add("agent:trace", session_id="hostile", kind=PAYLOAD, component=PAYLOAD, summary=PAYLOAD)
    shapes = {"tokens": {"total": PAYLOAD}, "turns": [PAYLOAD], "cost": {PAYLOAD: PAYLOAD}, "status": PAYLOAD}
    add("agent:session", session_id="hostile", kind="session.end", **shapes)
    add("agent:session", session_id=PAYLOAD, kind="session.start", model=[PAYLOAD])
    probes = [dict.fromkeys(("place", "target", "expected", "observed", "protocol", "port"), PAYLOAD), PAYLOAD]
    made = {"counts": {"blocked": 3, PAYLOAD: PAYLOAD}, "probes": probes}
    add("agent:network", kind="network.receipt", name="ours", sha256="ab", receipt=made)
    body.append(envelope("no JSON " + PAYLOAD, time=2000, fields={"session_id": "hostile"}))
    assert lab.post(b"".join(body)).json()["code"] == 0


def get(lab: Lab, path: str, token: str = SEARCH_TOKEN, method: str = "GET") -> requests.Response:
    with lab.session() as session:
        return session.request(method, lab.web_url + path, headers={"Authorization": f"Bearer {token}"}, timeout=10)


class Elements(HTMLParser):
    """All elements of a page, as a browser would take it apart, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
