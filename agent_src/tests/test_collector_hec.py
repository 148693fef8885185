"""HEC beyond the contract: odd bodies, bounds, a disk that refuses; and the one search."""

import gzip
import json
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from loglab import (
    ACK_TOKEN,
    AGENT_TOKEN,
    ANY_TOKEN,
    SEARCH_TOKEN,
    Lab,
    envelope,
    start_lab,
)

CHANNEL = "11111111-2222-4333-8444-555555555555"
A, B, C = envelope("a"), envelope("b"), envelope("c")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("collector") / "splunk")
    yield lab
    lab.stop()


@pytest.fixture
def lab(running: Lab) -> Lab:
    """The running collector; what was stored before does not count."""
    running.seen = len(running.rows())
    return running


def stored(lab: Lab, columns: str = "raw") -> list[Any]:
    return lab.rows(columns)[lab.seen :]


BODIES = {
    "an object keeps the order of its keys": (envelope({"z": 1, "a": 2}), 200, 0, None, ['{"z":1,"a":2}']),
    "a number is an event": (envelope(7), 200, 0, None, ["7"]),
    "a list is an event": (envelope([1]), 200, 0, None, ["[1]"]),
    "all safe keys": (
        envelope(
            "a", time="1790000000.123456", host="h", source="s", sourcetype="t", index="agents", fields={"f": "x"}
        ),
        200,
        0,
        None,
        ["a"],
    ),
    "a list of events": (b"[" + A + b"]", 400, 6, 0, []),
    "NaN": (b'{"event": {"x": NaN}}', 400, 6, 0, []),
    "beyond a double": (b'{"event": {"x": 1e400}}', 400, 6, 0, []),
    "nested without end": (b'{"event": ' + b"[" * 100_000, 400, 6, 0, []),
    "an integer of 5,000 digits": (b'{"event": ' + b"9" * 5000 + b"}", 400, 6, 0, []),
    "host is a number": (envelope("a", host=1), 400, 6, 0, []),
    "event is null": (envelope(None), 400, 13, 0, []),
    "fields is a list": (envelope("a", fields=[1]), 400, 15, 0, []),
    "time is text": (envelope("a", time="now"), 400, 15, 0, []),
    "time is true": (envelope("a", time=True), 400, 15, 0, []),
    "time after the year 9999": (envelope("a", time=999_999_999_999), 400, 15, 0, []),
    "unknown key at the start": (envelope("x", colour="red") + C, 200, 0, None, []),
}


@pytest.mark.parametrize(("body", "status", "code", "number", "kept"), BODIES.values(), ids=BODIES.keys())
def test_body(lab: Lab, body: bytes, status: int, code: int, number: int | None, kept: list[str]) -> None:
    answer = lab.post(body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json().get("invalid-event-number") == number
    assert stored(lab) == kept


@pytest.mark.parametrize("path", ["", "/raw", "/ack"])
def test_a_scheme_without_a_token_is_no_token(lab: Lab, path: str) -> None:
    answer = lab.post(A, path, "Splunk")
    assert (answer.status_code, answer.json()["code"]) == (401, 2)
    assert stored(lab) == []


def test_what_an_envelope_leaves_out_comes_from_the_token(lab: Lab) -> None:
    columns = 'time, host, source, sourcetype, "index", fields, session_id'
    lab.post(
        envelope({"session_id": "s1"}, time=1790000000.123456, host="h", source="s", sourcetype="t", index="agents")
        + envelope("plain", fields={"session_id": "s2", "n": 1})
    )
    lab.post(A, "", f"Splunk {ANY_TOKEN}")
    first, second, third = stored(lab, columns)
    assert first == (1790000000.123456, "h", "s", "t", "agents", None, "s1")
    assert second[1:] == (
        lab.hec_url.removeprefix("https://"),
        "http:agent",
        "httpevent",
        "agents",
        '{"session_id":"s2","n":1}',
        "s2",
    )
    assert third[4] == "main"


def test_a_token_without_a_list_may_use_every_index_that_exists(lab: Lab) -> None:
    both = envelope("a", index="other") + envelope("b", index="nowhere")
    answer = lab.post(both, "", f"Splunk {ANY_TOKEN}")
    assert (answer.status_code, answer.json()["code"], answer.json()["invalid-event-number"]) == (400, 7, 1)
    assert stored(lab) == ["a"]


def test_text_that_cannot_be_utf8_is_kept_readable(lab: Lab) -> None:
    assert lab.post(b'{"event": "a\\ud800b"}{"event": {"x": "\\ud800\\u0000"}, "host": "\\udfff"}').json()["code"] == 0
    assert stored(lab) == ["a\\ud800b", '{"x":"\\ud800\\u0000"}']


def test_raw_is_an_event_a_line_with_its_fields_in_the_query(lab: Lab) -> None:
    answer = lab.post(b"one\n\ntwo\n", "/raw?host=h&sourcetype=t&source=s&index=agents")
    assert answer.json() == {"text": "Success", "code": 0}
    assert stored(lab, 'raw, host, sourcetype, source, "index"') == [
        ("one", "h", "t", "s", "agents"),
        ("two", "h", "t", "s", "agents"),
    ]
    assert lab.post(b"", "/raw").json()["code"] == 5
    assert lab.post(b"x", "/raw?index=other").json()["code"] == 7
    assert len(stored(lab)) == 2


def test_gzip_is_taken_and_deflate_is_not(lab: Lab) -> None:
    assert lab.post(gzip.compress(A), Content_Encoding="gzip").json()["code"] == 0
    assert lab.post(zlib.compress(B), Content_Encoding="deflate").json()["code"] == 6
    assert lab.post(B, Content_Encoding="gzip").json()["code"] == 6
    assert lab.post(gzip.compress(B)[:-4], Content_Encoding="gzip").json()["code"] == 6
    assert stored(lab) == ["a"]


def test_a_body_over_the_limit_is_refused_also_when_packed(lab: Lab) -> None:
    limit = lab.config.content_limit
    packed = lab.post(gzip.compress(b" " * (limit + 1)), Content_Encoding="gzip")
    assert packed.status_code == 413
    with lab.session() as session:
        request = session.prepare_request(requests.Request("POST", f"{lab.hec_url}/services/collector", data=b"x"))
        request.headers.update({"Content-Length": str(limit + 1), "Authorization": f"Splunk {AGENT_TOKEN}"})
        plain = session.send(request, timeout=10)
    assert plain.status_code == 413
    assert f"maximum is {limit}" in plain.json()["text"]
    assert stored(lab) == []


def test_chunked_bodies_are_refused_clearly(lab: Lab) -> None:
    with lab.session() as session:
        answer = session.post(
            f"{lab.hec_url}/services/collector",
            data=iter([A]),
            headers={"Authorization": f"Splunk {AGENT_TOKEN}"},
            timeout=10,
        )
    assert answer.status_code == 411
    assert "Content-Length" in answer.json()["text"]


def test_health_needs_no_token_and_methods_and_paths_are_checked(lab: Lab) -> None:
    with lab.session() as session:
        for path in ("/health", "/health/1.0"):
            answer = session.get(f"{lab.hec_url}/services/collector{path}", timeout=10)
            assert (answer.status_code, answer.json()) == (200, {"text": "HEC is healthy", "code": 17})
        assert session.get(f"{lab.hec_url}/services/collector", timeout=10).status_code == 405
        assert session.get(f"{lab.hec_url}/services/collectors", timeout=10).status_code == 404
        assert session.get(f"{lab.hec_url}/", timeout=10).status_code == 404
    assert lab.post(A, "/nothing").status_code == 404
    with socket.create_connection(("127.0.0.1", lab.servers[0].port), timeout=5) as plain:
        context = ssl.create_default_context(cafile=str(lab.ca))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            for target in (b"//[::1", b"http://[/services/collector", b"/%zz?%zz=\xff"):
                connection.sendall(b"GET " + target + b" HTTP/1.1\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
    assert lab.post(A, "/health").status_code == 405


def test_acknowledgements_need_a_channel_and_are_told_once(lab: Lab) -> None:
    token = f"Splunk {ACK_TOKEN}"
    assert (lab.post(A, "", token).status_code, lab.post(A, "", token).json()["code"]) == (400, 10)
    assert lab.post(A, "", token, X_Splunk_Request_Channel="no-guid").json()["code"] == 11
    assert stored(lab) == []
    numbers = [lab.post(A, "", token, X_Splunk_Request_Channel=CHANNEL).json()["ackId"] for _ in range(2)]
    assert numbers == [0, 1]
    assert lab.post(A, f"?channel={CHANNEL}", token).json()["ackId"] == 2
    assert len(stored(lab)) == 3
    asked = json.dumps({"acks": [0, 1, 9]}).encode()
    assert lab.post(asked, f"/ack?channel={CHANNEL}", token).json() == {"acks": {"0": True, "1": True, "9": False}}
    assert lab.post(asked, f"/ack?channel={CHANNEL}", token).json()["acks"] == {"0": False, "1": False, "9": False}
    other = CHANNEL.replace("1", "2")
    assert lab.post(b'{"acks": [2]}', f"/ack?channel={other}", token).json() == {"acks": {"2": False}}
    assert lab.post(b'{"acks": [2]}', "/ack", token).json()["code"] == 10
    for bad in (b"", b"[]", b'{"acks": "0"}', b'{"acks": [true]}'):
        assert lab.post(bad, f"/ack?channel={CHANNEL}", token).json()["code"] == 6
    assert lab.post(b'{"acks": [0]}', f"/ack?channel={CHANNEL}").json()["code"] == 14
    refused = lab.post(envelope(""), f"?channel={CHANNEL}", token).json()
    assert "ackId" not in refused


def test_a_channel_that_nobody_asks_about_fills_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.collector.ack.MOST_PENDING", 1)
    channel = CHANNEL.replace("1", "3")
    assert lab.post(A, f"?channel={channel}", f"Splunk {ACK_TOKEN}").json()["ackId"] == 0
    answer = lab.post(A, f"?channel={channel}", f"Splunk {ACK_TOKEN}")
    assert (answer.status_code, answer.json()["code"]) == (429, 27)
    assert len(stored(lab)) == 1


def test_busy_at_the_bound_and_an_error_when_the_disk_refuses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("glasslab.collector.store.MOST_WAITING", 0)
        answer = lab.post(A)
        assert (answer.status_code, answer.json()["code"]) == (503, 9)
        with lab.session() as session:
            health = session.get(f"{lab.hec_url}/services/collector/health", timeout=10)
        assert (health.status_code, health.json()["code"]) == (503, 18)
    with monkeypatch.context() as patch:
        patch.setattr("glasslab.collector.store.INSERT", "INSERT INTO nowhere VALUES (?)")
        answer = lab.post(A)
        assert (answer.status_code, answer.json()["code"]) == (500, 8)
    assert stored(lab) == []
    assert lab.post(A).json()["code"] == 0
    monkeypatch.setattr(lab.servers[0], "closing", True)
    answer = lab.post(A)
    assert (answer.status_code, answer.json()["code"]) == (503, 23)


SEARCH = 'search index=agents session_id="s-search" | sort 0 _time'
SEARCHES = {
    "another search": ({"search": "search index=agents"}, 400),
    "more after it": ({"search": f"{SEARCH} | delete"}, 400),
    "a wildcard": ({"search": SEARCH.replace("s-search", "*")}, 400),
    "another format": ({"search": SEARCH, "output_mode": "csv"}, 400),
    "another parameter": ({"search": SEARCH, "earliest_time": "-1d"}, 400),
    "none": ({}, 400),
}


def search(
    lab: Lab, form: dict[str, str], token: str = f"Bearer {SEARCH_TOKEN}", path: str = "", get: bool = False
) -> Any:
    url = f"{lab.search_url}{path or '/services/search/v2/jobs/export'}"
    form = {"output_mode": "json", **form}
    with lab.session() as session:
        given: dict[str, Any] = {"params": form} if get else {"data": form}
        return session.request("GET" if get else "POST", url, headers={"Authorization": token}, timeout=10, **given)


@pytest.mark.parametrize("get", [False, True])
def test_the_search_gives_a_session_in_order_of_time(lab: Lab, get: bool) -> None:
    session = f"s-search-{get}"
    for time, text in ((30.5, "late"), (10.0, "early"), (20.0, "tie 1"), (20.0, "tie 2")):
        lab.post(envelope({"session_id": session, "text": text}, time=time, sourcetype="agent:trace"))
    answer = search(lab, {"search": SEARCH.replace("s-search", session), "preview": "false"}, get=get)
    assert answer.status_code == 200
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [json.loads(line["result"]["_raw"])["text"] for line in lines] == ["early", "tie 1", "tie 2", "late"]
    assert [line["offset"] for line in lines] == [0, 1, 2, 3]
    assert [line.get("lastrow", False) for line in lines] == [False, False, False, True]
    assert lines[3]["result"]["_time"] == "1970-01-01 00:00:30.500 UTC"
    assert {line["result"]["sourcetype"] for line in lines} == {"agent:trace"}


@pytest.mark.parametrize(("form", "status"), SEARCHES.values(), ids=SEARCHES.keys())
def test_any_other_search_is_refused_in_splunks_shape(lab: Lab, form: dict[str, str], status: int) -> None:
    answer = search(lab, form)
    assert answer.status_code == status
    assert answer.json()["messages"][0]["type"] == "FATAL"
    assert answer.json()["messages"][0]["text"]


def test_search_without_results_token_or_path(lab: Lab) -> None:
    assert search(lab, {"search": SEARCH.replace("s-search", "nobody")}).json() == {"preview": False, "lastrow": True}
    for token in ("", "Bearer wrong", f"Splunk {SEARCH_TOKEN}", f"Bearer {AGENT_TOKEN}"):
        answer = search(lab, {"search": SEARCH}, token)
        assert answer.status_code == 401
        assert answer.json()["messages"][0]["text"] == "call not properly authenticated"
    assert search(lab, {"search": SEARCH}, path="/services/search/jobs").status_code == 404


def test_a_second_collector_on_the_same_home_is_refused(lab: Lab) -> None:
    from glasslab.collector.store import FILE, Store, StoreError

    with pytest.raises(StoreError, match="in use by another collector"):
        Store(Path(lab.home) / FILE)
