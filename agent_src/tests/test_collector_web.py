"""The collector's page without a browser: who may look, what an answer allows, what becomes of hostile text."""

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests

from glasslab.collector.conf import ConfError
from glasslab.collector.config import load_config
from glasslab.collector.web import data, detections, figures, login, receipt
from glasslab.collector.web.data import Frame
from glasslab.collector.web.login import COOKIE, Logins
from glasslab.guardrails import hidden_characters
from glasslab.vocabulary import COMMON_FIELDS, KINDS
from loglab import AGENT_TOKEN, SEARCH_TOKEN, Lab, envelope, make_home, start_lab
from session_sample import SESSION, make_keys, make_session

PAYLOAD = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`><svg onload=alert(3)>{{7*7}}{% raw %}"
    "</title></pre></details>&lt;b&gt;\u202egnp.exe\u2066\u200b\U000e0041end"
)
PAGES = ["/", "/sessions/hostile", "/sessions/hostile?all=1", "/sessions/hostile/frames/1", "/receipts", "/detections"]


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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("web") / "splunk")
    folder = lab.home / "etc/apps/glasslab/sqlite"
    folder.mkdir()
    text, name = PAYLOAD.replace("'", ""), PAYLOAD.replace('"', "")
    (folder / "hostile.sql").write_text(f"-- {PAYLOAD}\nSELECT session_id, '{text}' AS \"{name}\" FROM events")
    (folder / "fault.sql").write_text(f'SELECT 1 FROM "{name}"')
    fill(lab)
    yield lab
    lab.stop()


@pytest.fixture
def browser(lab: Lab) -> Iterator[requests.Session]:
    lab.servers[2].logins = Logins([SEARCH_TOKEN])
    with lab.session() as session:
        yield session


def get(lab: Lab, path: str, token: str = SEARCH_TOKEN, method: str = "GET") -> requests.Response:
    with lab.session() as session:
        return session.request(method, lab.web_url + path, headers={"Authorization": f"Bearer {token}"}, timeout=10)


def sign_in(lab: Lab, browser: requests.Session, token: str = SEARCH_TOKEN, **headers: str) -> requests.Response:
    url = f"{lab.web_url}/login"
    return browser.post(url, data={"token": token}, headers=headers, timeout=10, allow_redirects=False)


# --- who may look


def test_nothing_is_shown_without_the_token(lab: Lab) -> None:
    with lab.session() as session:
        for path in [*PAGES, "/nothing", "/?token=" + SEARCH_TOKEN]:
            answer = session.get(lab.web_url + path, timeout=10)
            assert answer.status_code == 401
            assert "September" not in answer.text
            assert 'action="/login"' in answer.text
    for token in ("", "wrong", AGENT_TOKEN):
        assert get(lab, "/", token).status_code == 401
    assert get(lab, "/").status_code == 200


def test_a_login_is_a_cookie_that_no_script_reads_and_no_other_site_sends(lab: Lab, browser: requests.Session) -> None:
    answer = sign_in(lab, browser)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{43}}; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Strict", cookie)
    assert SEARCH_TOKEN not in cookie
    assert browser.get(f"{lab.web_url}/", timeout=10).status_code == 200
    out = browser.post(f"{lab.web_url}/logout", timeout=10, allow_redirects=False)
    assert (out.status_code, "Max-Age=0" in out.headers["Set-Cookie"]) == (303, True)
    kept = {"Cookie": cookie.partition(";")[0]}
    assert browser.get(f"{lab.web_url}/", headers=kept, timeout=10).status_code == 401


def test_a_login_ends_after_an_hour(lab: Lab, browser: requests.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = sign_in(lab, browser).headers["Set-Cookie"].partition(";")[0]
    logins, now = lab.servers[2].logins, time.monotonic()
    monkeypatch.setattr("glasslab.collector.web.login.time.monotonic", lambda: now + 3590)
    assert logins.holds(cookie)
    monkeypatch.setattr("glasslab.collector.web.login.time.monotonic", lambda: now + 3610)
    assert not logins.holds(cookie)


def test_logins_and_attempts_are_bounded(lab: Lab, browser: requests.Session) -> None:
    for _ in range(login.MOST_FAILURES):
        assert sign_in(lab, browser, "wrong").status_code == 403
    answer = sign_in(lab, browser)
    assert (answer.status_code, "Wait a minute" in answer.text) == (429, True)
    logins = Logins(["t"])
    cookies = [logins.begin().partition(";")[0] for _ in range(login.MOST_LOGINS + 1)]
    assert [logins.holds(cookie) for cookie in cookies[:2]] == [False, True]
    for number in range(login.MOST_ADDRESSES + 1):
        logins.failed(str(number))
    assert len(logins._failures) == login.MOST_ADDRESSES


@pytest.mark.parametrize(
    "header", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}]
)
def test_a_form_of_another_site_is_refused(lab: Lab, browser: requests.Session, header: dict[str, str]) -> None:
    answer = sign_in(lab, browser, **header)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)
    own = {"Origin": lab.web_url, "Sec-Fetch-Site": "same-origin"}
    assert sign_in(lab, browser, **own).status_code == 303


@pytest.mark.parametrize(
    "cookie", ["", "=", f"{COOKIE}=", f"{COOKIE}=x; {COOKIE}=y", "\x01=2", f'{COOKIE}="\\777"', ";" * 5000]
)
def test_a_cookie_that_is_none_is_none(cookie: str) -> None:
    assert not Logins(["t"]).holds(cookie)


# --- what an answer allows


def test_every_answer_forbids_what_no_page_needs(lab: Lab, browser: requests.Session) -> None:
    answers = [get(lab, path) for path in [*PAGES, "/nothing", "/login", "/static/style.css"]]
    answers += [
        get(lab, "/", "wrong"),
        sign_in(lab, browser),
        sign_in(lab, browser, "wrong"),
        get(lab, "/", method="POST"),
    ]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_it_reads_and_changes_nothing(lab: Lab) -> None:
    before = lab.rows("id, raw")
    for path in [*PAGES, "/nothing"]:
        assert get(lab, path, method="POST").status_code == 405
        head = get(lab, path, method="HEAD")
        assert (head.content, int(head.headers["Content-Length"]) > 0) == (b"", True)
    assert get(lab, "/nothing").status_code == 404
    assert get(lab, "/sessions/nobody").status_code == 404
    assert get(lab, "/sessions/hostile/frames/999").status_code == 404
    assert get(lab, "/static/../server.py").status_code == 404
    assert lab.rows("id, raw") == before


# --- hostile text


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


@pytest.mark.parametrize("path", PAGES)
def test_no_text_of_a_frame_becomes_markup_or_hides(lab: Lab, path: str) -> None:
    answer = get(lab, path)
    assert answer.status_code == 200
    page = Elements(answer.text)
    assert "alert(" in page.text
    assert hidden_characters(answer.text) == []
    assert "\\u202e" in page.text
    scripts = [about for tag, about in page.found if tag == "script"]
    assert [about.get("src") for about in scripts] in ([], ["/static/live.js"])
    for tag, about in page.found:
        assert tag not in ("img", "iframe", "object", "style", "base", "b")
        assert not [name for name in about if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            value = about.get(name) or "/"
            assert value.startswith(("/", "#")), value
            assert not value.startswith("//")
    assert "49" not in re.sub(r"\d\d:\d\d:\d\d|\d+\.\d+", "", page.text).split()  # {{7*7}} is nobody's template


def test_a_session_whose_id_is_hostile_can_be_looked_at(lab: Lab) -> None:
    links = [about["href"] for tag, about in Elements(get(lab, "/").text).found if tag == "a" and "href" in about]
    (link,) = [link for link in links if link and "script" in link]
    answer = get(lab, link)
    assert answer.status_code == 200
    assert "no end on record" in answer.text
    assert hidden_characters(answer.text) == []


# --- what is shown


def test_the_sample_session_is_shown_frame_by_frame(lab: Lab) -> None:
    answer = get(lab, f"/sessions/{SESSION}")
    page = Elements(answer.text)
    rows = [about for tag, about in page.found if tag == "li"]
    assert [row["data-key"] for row in rows] == [str(number) for number in range(1, 26)]
    for text in (
        "What was it?",
        "No allow-list.",
        "answered",
        "885",
        "All 33 events",
        "217 characters, stop; 446 + ? tokens",
    ):
        assert text in page.text
    everything = Elements(get(lab, f"/sessions/{SESSION}?all=1").text)
    assert len([1 for tag, _ in everything.found if tag == "li"]) == 33
    frame = get(lab, f"/sessions/{SESSION}/frames/14")
    assert "mcp.call_tool.request" in frame.text
    assert "&#34;path&#34;: &#34;incident-report-2026-09.md&#34;" in frame.text


def frames(*events: tuple[float, str, dict[str, Any]]) -> list[Frame]:
    return [
        Frame(number, at, sourcetype, "s", json.dumps(event)) for number, (at, sourcetype, event) in enumerate(events)
    ]


def test_the_contexts_growth_and_the_time_of_each_part() -> None:
    session = frames(
        (0.0, "agent:session", {"kind": "session.start", "component": "agent", "model": "m"}),
        (1.0, "agent:trace", {"kind": "llm.request", "component": "agent", "message_count": 2}),
        (3.0, "agent:llm", {"kind": "llm", "prompt_tokens": 100, "completion_tokens": 9, "duration_ms": 2000}),
        (4.0, "agent:trace", {"kind": "server.path_check", "component": "mcp", "inside_sandbox": False}),
        (5.0, "agent:toolcall", {"kind": "toolcall", "tool": "read_file", "duration_ms": 1000, "refused": True}),
        (6.0, "agent:trace", {"kind": "llm.request", "component": "agent", "message_count": 4}),
        (8.0, "agent:llm", {"kind": "llm", "prompt_tokens": 400, "completion_tokens": None, "duration_ms": 2000}),
        (
            10.0,
            "agent:session",
            {"kind": "session.end", "status": "max_steps_reached", "tokens": {"total": 509}, "cost": 0.5},
        ),
    )
    shown = figures.session("s", session, 1, 100, everything=False)
    assert (shown.status, shown.running, shown.seconds, shown.tokens, shown.cost) == (
        "max_steps_reached",
        False,
        10.0,
        "509",
        "0.5",
    )
    assert [(t.messages, t.prompt, t.completion, t.share) for t in shown.turns] == [
        (2, 100, 9, 25.0),
        (4, 400, None, 100.0),
    ]
    model, tools, server = shown.lanes
    assert (model.name, model.seconds, [(bar.begin, bar.width) for bar in model.bars]) == (
        "model",
        4.0,
        [(100.0, 200.0), (600.0, 200.0)],
    )
    assert [(bar.begin, bar.width, bar.bad) for bar in tools.bars] == [(400.0, 100.0, True)]
    assert [(bar.begin, bar.bad) for bar in server.bars] == [(400.0, True)]
    assert [row.bad for row in shown.rows] == [False, True, False]


def test_a_receipts_probes_are_shown_by_place_and_target() -> None:
    blocked = {"place": "agent", "target": "LAN", "expected": "blocked", "protocol": "tcp"}
    probes = [
        {**blocked, "port": 22, "observed": "blocked"},
        {**blocked, "port": 80, "observed": "reachable"},
        {**blocked, "port": None, "protocol": "ping", "observed": "blocked"},
        {
            "place": "agent",
            "target": "log",
            "expected": "reachable",
            "observed": "reachable",
            "protocol": "tcp",
            "port": 8088,
        },
    ]
    lan, log = receipt.groups({"probes": probes})
    assert (lan.tried, lan.seen, lan.as_expected) == ("tcp 22 80, ping", "2 blocked, 1 reachable", False)
    assert (log.tried, log.seen, log.as_expected) == ("tcp 8088", "1 reachable", True)
    for none in (None, [], "x", {}, {"probes": 1}, {"probes": ["x", None]}):
        assert receipt.groups(none) == []


def test_figures_that_are_none_are_none() -> None:
    bad: list[Any] = ["x", -1, True, 1e300, None, [], 10**20]
    session = frames(
        *((float(n), "agent:llm", {"kind": "llm", "prompt_tokens": b, "duration_ms": b}) for n, b in enumerate(bad))
    )
    shown = figures.session("s", session, 1, 100, everything=True)
    assert [turn.prompt for turn in shown.turns] == [None] * len(bad)
    assert all(bar.begin >= 0 and bar.begin + bar.width <= 1000 for bar in shown.lanes[0].bars)


def test_a_session_without_an_end_runs_until_nothing_more_comes(lab: Lab) -> None:
    now = time.time()
    send(lab, "agent:session", now - 1, session_id="at-work", kind="session.start", model="m")
    send(lab, "agent:session", now - 1000, session_id="died", kind="session.start", model="m")
    page = get(lab, "/sessions/at-work").text
    assert (">running<" in page, 'data-live="2"' in page, '<meta http-equiv="refresh"' in page) == (True, True, True)
    page = get(lab, "/sessions/died").text
    assert ("no end on record" in page, "data-live" in page, "live.js" in page) == (True, False, False)


def test_lists_and_sessions_are_shown_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = start_lab(tmp_path / "splunk")
    try:
        monkeypatch.setattr("glasslab.collector.web.data.PAGE", 3)
        monkeypatch.setattr("glasslab.collector.web.server.ROWS", 4)
        for number in range(7):  # three of one moment: the place in the list is more than the time
            send(lab, "agent:session", 100.0 + number // 3, session_id=f"s{number}", kind="session.start", model="m")
        seen, path = [], "/"
        for size in (3, 3, 1):
            page = Elements(get(lab, path).text)
            keys = [about["data-key"] for tag, about in page.found if tag == "tr" and "data-key" in about]
            assert len(keys) == size
            seen += keys
            links = [
                about["href"] or "" for tag, about in page.found if tag == "a" and "before" in (about["href"] or "")
            ]
            path = links[0] if links else ""
        assert (seen, path) == ([f"s{number}" for number in reversed(range(7))], "")
        assert "from before that" in get(lab, "/?before=1.0-1").text
        assert "s6" in get(lab, "/?before=nonsense").text
        for number in range(10):
            send(lab, "agent:trace", 200.0 + number, session_id="s0", kind="x", summary="y")
        page = Elements(get(lab, "/sessions/s0?from=5").text)
        assert [about["data-key"] for tag, about in page.found if tag == "li"] == ["5", "6", "7", "8"]
        monkeypatch.setattr("glasslab.collector.web.data.MOST_EVENTS", 5)
        assert "its first 5 events" in get(lab, "/sessions/s0").text
    finally:
        lab.stop()


def test_a_page_that_takes_long_is_not_taken_for_a_client_that_drips(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.httpserver.REQUEST_SECONDS", 0.2)
    sessions = data.sessions
    monkeypatch.setattr("glasslab.collector.web.data.sessions", lambda *given: (time.sleep(0.5), sessions(*given))[1])
    assert get(lab, "/").status_code == 200


def test_what_a_page_takes_into_memory_is_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FRAME_BYTES", 3000)
    monkeypatch.setattr(data, "LISTED_BYTES", 2000)
    monkeypatch.setattr(data, "MOST_BYTES", 5000)
    lab = start_lab(tmp_path / "splunk")
    try:
        send(lab, "agent:session", 100, session_id="s", kind="session.start", model="m" * 2000)
        send(lab, "agent:trace", 101, session_id="s", kind="agent.start", question="x" * 2000)
        send(lab, "agent:session", 102, session_id="s", kind="x", text="x" * 3000)
        for at in range(103, 106):
            send(lab, "agent:session", at, session_id="s", kind="x", text="x" * 500)
        for number, size in enumerate((5000, 2000, 2000, 2000)):
            send(lab, "agent:network", 200 + number, kind="network.receipt", name=f"r{number}", pad="x" * size)
        (item,) = data.sessions(lab.store).items
        assert (item.start.raw, item.question) == (data.TOO_LARGE, data.TOO_LARGE)
        frames, complete = data.session(lab.store, "s")
        assert ([frame.raw == data.TOO_LARGE for frame in frames], complete) == ([False, False, True, False], False)
        first = data.receipts(lab.store)
        assert [frame.event["name"] for frame in first.items] == ["r3", "r2"]
        page = get(lab, f"/receipts?before={first.next}").text
        assert ("r1" in page, "r0" in page, page.count(data.TOO_LARGE)) == (True, False, 1)
        assert get(lab, "/").text.count(data.TOO_LARGE) == 1
    finally:
        lab.stop()


def test_an_empty_log_says_how_to_fill_it(tmp_path: Path) -> None:
    lab = start_lab(tmp_path / "splunk")
    try:
        assert "There is no session in the log" in get(lab, "/").text
        assert "There is no receipt" in get(lab, "/receipts").text
        assert "No detection has a form" in get(lab, "/detections").text
        (lab.home / "etc/apps/glasslab/default/savedsearches.conf").write_text(
            "[one]\nsearch = x\ndescription = finds\n"
        )
        page = get(lab, "/detections").text
        assert ("one" in page, "finds" in page, "nothing here does" in page) == (True, True, True)
    finally:
        lab.stop()


def test_detections_read_within_bounds(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc/apps/a/sqlite"
    folder.mkdir(parents=True)
    monkeypatch.setattr(detections, "SECONDS", 0.2)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    forms = {
        "a": "-- Sessions\nSELECT session_id, count(*) AS frames FROM events GROUP BY 1 HAVING session_id = 'hostile'",
        "b": "SELECT 1 WHERE 0",
        "c": f"{endless} SELECT x FROM n",
        "d": f"{endless} SELECT max(x) FROM n",
        "e": "DELETE FROM events",
        "f": "ATTACH 'x.db' AS x",
        "g": "SELECT 1; SELECT 2",
    }
    for name, text in forms.items():
        (folder / f"{name}.sql").write_text(text)
    (folder / "h.sql").write_bytes(b"\xff")
    found = {one.name: one for one in detections.run_all(lab.store, tmp_path)}
    assert (found["a"].title, found["a"].columns, found["a"].rows[0][0]) == (
        "Sessions",
        ["session_id", "frames"],
        "hostile",
    )
    assert (found["b"].rows, found["b"].error) == ([], "")
    assert (len(found["c"].rows), found["c"].more) == (detections.MOST_ROWS, True)
    assert found["d"].error == "took more than 0.2 s"
    assert [bool(found[name].error) for name in "efgh"] == [True] * 4
    assert len(data.session(lab.store, "hostile")[0]) > 10


# --- its configuration


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("enableSplunkWebSSL = 0", "enableSplunkWebSSL is off"),
        ("serverCert =", "has no serverCert"),
        ("httpport = web", "httpport = web"),
    ],
)
def test_the_page_is_served_with_tls_or_not_at_all(tmp_path: Path, change: str, named: str) -> None:
    make_home(tmp_path)
    conf = tmp_path / "etc/apps/glasslab/local/web.conf"
    conf.write_text(f"{conf.read_text()}{change}\n")
    with pytest.raises(ConfError, match=named):
        load_config(tmp_path)
    conf.write_text(f"{conf.read_text()}startwebserver = 0\n")
    assert load_config(tmp_path).web is None
