"""Asks a Splunk that stands elsewhere whether it takes what the lab's writers send, and puts the app there if told to.

Run on the hypervisor, where the lab's own connections will come from, with one JSON object as argument of `main`:
{"url", "ca" (text, or null for the system's), "index", "tokens": {writer: token}, "ack": [writers], "seconds", "app":
null or {"url", "token", "source", "version"}, "writes"}. Prints {"faults": [a line each, with its remedy], "app": "",
"same" or "installed"}. It writes one event of the sourcetype glasslab:preflight for each writer: nothing else shows
that a token may write to an index. With `writes` false, in check mode, it asks for its health alone. A token is in no
line that it prints.
"""

import http.cookiejar
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

REQUEST_SECONDS = 10
POLL_SECONDS = 0.5
ANSWER_BYTES = 1 << 20
HEALTHY, NEAR_CAPACITY = 17, (24, 25)
REMEDIES = {
    1: "the token is disabled there: enable it",
    2: "no token arrived: does something in between take the Authorization header out?",
    3: "the token is malformed: see splunk_existing_tokens",
    4: "the token is unknown there: see splunk_existing_tokens",
    7: "the index is not there, or the token may not write to it: make it, and add it to the token's indexes",
    9: "it is busy: try again",
    10: "the token wants indexer acknowledgement: set splunk_hec_ack=true, or turn it off (always the hypervisor's)",
}
STICKY = (
    "what it took is not acknowledged within {} s: behind a load balancer a question has to come to the indexer that "
    "took the event: turn on sticky sessions (by cookie) there, or set splunk_hec_ack=false"
)


class Fault(Exception):
    """What is wrong, in one line."""


class Place:
    """One base address, and the cookies of one writer: a load balancer's keep it at one indexer."""

    def __init__(self, url: str, ca: str | None, authorization: str) -> None:
        self.url, self.authorization = url.rstrip("/"), authorization
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=ca)),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
        )

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict]:
        """Status and JSON of one request. Raises Fault when there is no such answer."""
        headers = {"Authorization": self.authorization, **{k.replace("_", "-"): v for k, v in headers.items()}}
        request = urllib.request.Request(f"{self.url}{path}", body, headers)  # noqa: S310  # the role has seen https
        try:
            try:
                answer = self.opener.open(request, timeout=REQUEST_SECONDS)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                status, text = answer.status, answer.read(ANSWER_BYTES)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            told = getattr(reason, "verify_message", "") or getattr(reason, "strerror", "") or str(reason)
            remedy = (
                "see splunk_existing_ca" if isinstance(reason, ssl.SSLError) else "see its address, and the way there"
            )
            raise Fault(f"{told}: {remedy}") from None
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise Fault(f"HTTP {status} and no JSON: is this a Splunk?")
        return status, said


def refused(status: int, said: dict, token: str) -> str:
    """What a HEC said that it did not do, and what helps."""
    text = str(said.get("text", "")).replace(token, "[token]")[:200]
    remedy = REMEDIES.get(said.get("code"), "look at its own log")
    return f"HTTP {status}, code {said.get('code')} ({text}): {remedy}"


def healthy(order: dict) -> None:
    """Does it say that it is well? Raises Fault."""
    status, said = Place(order["url"], order["ca"], "").ask("/services/collector/health")
    if status != 200 or said.get("code") not in (HEALTHY, *NEAR_CAPACITY):
        raise Fault(refused(status, said, "none"))


def takes(order: dict, writer: str) -> None:
    """Does it take an event of a writer, and acknowledge it where that is asked for? Raises Fault."""
    token, index = order["tokens"][writer], order["index"]
    place, channel = Place(order["url"], order["ca"], f"Splunk {token}"), str(uuid.uuid4())
    event = {"kind": "lab.preflight", "writer": writer}
    body = {"time": round(time.time(), 6), "sourcetype": "glasslab:preflight", "index": index, "event": event}
    headers = {"X_Splunk_Request_Channel": channel} if writer in order["ack"] else {}
    status, said = place.ask("/services/collector/event", json.dumps(body).encode(), **headers)
    if status != 200 or said.get("code") != 0:
        raise Fault(refused(status, said, token))
    if not headers:
        return
    if type(said.get("ackId")) is not int:
        raise Fault("the token has indexer acknowledgement off: turn it on there, or set splunk_hec_ack=false")
    question, until = json.dumps({"acks": [said["ackId"]]}).encode(), time.monotonic() + order["seconds"]
    while time.monotonic() < until:
        status, told = place.ask(f"/services/collector/ack?channel={channel}", question, **headers)
        acks = told.get("acks")
        if status == 200 and isinstance(acks, dict) and acks.get(str(said["ackId"])) is True:
            return
        time.sleep(POLL_SECONDS)
    raise Fault(STICKY.format(order["seconds"]))


def install(order: dict) -> str:
    """Have the app there in this version: `same` or `installed`. Raises Fault."""
    app = order["app"]
    place = Place(app["url"], order["ca"], f"Bearer {app['token']}")
    status, said = place.ask("/services/apps/local/glasslab?output_mode=json")
    if status == 200 and said["entry"][0]["content"].get("version") == app["version"]:
        return "same"
    if status not in (200, 404):
        raise Fault(f"HTTP {status}: the token may not look at apps: see splunk_existing_app_token")
    form = {"name": app["source"], "filename": "true", "update": "true"}
    status, said = place.ask("/services/apps/local?output_mode=json", urllib.parse.urlencode(form).encode())
    if status not in (200, 201):
        told = " ".join(str(one.get("text", "")) for one in said.get("messages", []))[:200]
        raise Fault(f"HTTP {status} ({told}): put the package there, see splunk_existing_app_source")
    return "installed"


def main(order: dict) -> None:
    """Print what was found."""
    faults, done = [], ""
    try:
        healthy(order)
    except Fault as fault:
        faults.append(f"{order['url']}: {fault}")
    for writer in order["tokens"] if order["writes"] and not faults else []:
        try:
            takes(order, writer)
        except Fault as fault:
            faults.append(f"{order['url']}, writer {writer}, index {order['index']}: {fault}")
    if order["app"] and not faults:
        try:
            done = install(order)
        except Fault as fault:
            faults.append(f"{order['app']['url']}, the app: {fault}")
    print(json.dumps({"faults": faults, "app": done}))
