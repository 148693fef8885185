"""The collector's page without a browser: who may look, what an answer allows, what becomes of hostile text."""

import re
import time
from collections.abc import Iterator

import pytest
import requests

from glasslab.collector.web import login
from glasslab.collector.web.login import COOKIE, Logins
from glasslab.guardrails import hidden_characters
from loglab import AGENT_TOKEN, SEARCH_TOKEN, Lab, start_lab
from weblab import PAGES, PAYLOAD, Elements, fill, get


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
