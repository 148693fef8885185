"""The log's page in a browser: no frame's text comes to life, everybody can use it, it lives while one does."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from pagelab import ESCAPES, HOSTILE, QUESTION, RUNNING, PageLab

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
Make = Any  # conftest's fixture `new`


def paths(place: PageLab) -> list[str]:
    session = f"/sessions/{place.session}"
    hostile = f"/sessions/{HOSTILE}"
    return ["/", session, f"{session}?all=1", hostile, f"{hostile}/frames/3", "/receipts", "/detections", "/nothing"]


def expected(complaint: str) -> bool:
    """A page that is not there is said to be so; nothing else may be said."""
    return "404 (Not Found)" in complaint


def test_from_the_login_to_a_frame_by_keyboard_alone(place: PageLab, new: Make) -> None:
    watched = new()
    page = watched.open("/")
    assert page.title() == "Sign in · Glasslab"
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type(place.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    order = []
    for _ in range(7):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", order
    assert order[:6] == ["Skip to content", "Glasslab", "Sessions", "Receipts", "Detections", "Sign out"]
    page.get_by_role("link", name=QUESTION).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".frames")
    assert page.locator(".frames li").count() == 25
    frame = page.locator("#frame-14 summary")
    frame.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#frame-14 pre")).to_contain_text('"path": "incident-report-2026-09.md"')
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Frame 14"
    for text in ("answered", "885", "allow-list"):
        expect(page.locator("main")).to_contain_text(text)
    assert [row.inner_text().split()[:4] for row in page.locator(".growth tbody tr").all()] == [
        ["1", "2", "136", "29"],
        ["2", "4", "173", "57"],
        ["3", "7", "446", "44"],
    ]
    assert [complaint for complaint in watched.complaints if "401" not in complaint] == []


def test_what_a_detection_found_leads_to_its_session_by_keyboard_alone(place: PageLab, new: Make) -> None:
    watched = new(width=400)
    page = watched.sign_in(place.token)
    watched.open("/detections")
    assert page.locator("nav [aria-current]").all_inner_texts() == ["Detections"]
    found = page.locator(".detection", has=page.get_by_role("heading", name="refused paths"))
    expect(found).to_contain_text("LLM06 Excessive Agency")
    expect(found.locator("tbody")).to_contain_text("../.env")
    found.get_by_role("region").focus()  # it can be scrolled, so it can be reached
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".frames")
    assert page.url.endswith("/sessions/session-of-refused-paths")
    assert page.locator("nav [aria-current]").all_inner_texts() == ["Sessions"]
    assert watched.complaints == []


def test_the_cookie_is_out_of_reach_and_the_token_in_no_address(place: PageLab, new: Make) -> None:
    watched = new()
    page = watched.sign_in(place.token)
    (cookie,) = watched.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert page.evaluate("document.cookie") == ""
    assert not [address for address in watched.asked if place.token in address]
    assert {re.match(r"https?://[^/]+", address)[0] for address in watched.asked} == {place.url}  # type: ignore[index]
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector("#token")
    assert watched.context.cookies() == []


@pytest.mark.parametrize("script", [True, False], ids=["scripts on", "scripts off"])
def test_nothing_of_a_frame_comes_to_life(place: PageLab, new: Make, script: bool) -> None:
    watched = new(java_script_enabled=script)
    page = watched.sign_in(place.token)
    for path in paths(place):
        watched.open(path)
        text = page.locator("body").text_content() or ""
        if HOSTILE in path:
            assert all(escape in text for escape in ESCAPES)
            assert "<script>window.pwned=1</script>" in text
            page.locator("summary").last.click() if page.locator("summary").count() else None
        assert page.locator("main img, main iframe, main script, [onerror], [onload], [style]").count() == 0
        if script:
            assert page.evaluate("window.pwned") is None
    assert [complaint for complaint in watched.complaints if not expected(complaint)] == []
    assert {re.match(r"https?://[^/]+", address)[0] for address in watched.asked} == {place.url}  # type: ignore[index]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_every_page_can_be_read(place: PageLab, new: Make, width: int, scheme: str) -> None:
    watched = new(width=width, color_scheme=scheme)
    page = watched.open("/login")
    assert page.evaluate(CONTRAST) == []
    watched.sign_in(place.token)
    grounds = set()
    for path in paths(place):
        watched.open(path)
        if page.locator("summary").count():
            page.locator("summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(CONTRAST) == [], path
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.lang") == "en"
    (ground,) = grounds
    assert (sum(int(part) for part in re.findall(r"\d+", ground)) < 200) == (scheme == "dark")


def test_a_session_lives_on_the_page_and_keeps_focus(place: PageLab, new: Make) -> None:
    place.running()
    watched = new()
    page = watched.sign_in(place.token)
    watched.open(f"/sessions/{RUNNING}")
    expect(page.locator("#live")).to_have_text("Live")
    page.locator("#frame-1 summary").focus()
    page.keyboard.press("Enter")
    place.step(1)
    expect(page.locator("#frame-2")).to_contain_text("tool-1", timeout=15000)
    assert page.evaluate("document.activeElement.closest('li').id") == "frame-1"
    assert page.locator("#frame-1 details").get_attribute("open") is not None
    place.finish()
    expect(page.locator(".status")).to_have_text("answered", timeout=15000)
    expect(page.locator("#live")).to_have_text("")
    asked = len(watched.asked)
    place.step(2)
    page.wait_for_timeout(300)
    assert len(watched.asked) == asked
    assert watched.complaints == []


def test_without_scripts_it_reloads_itself(place: PageLab, new: Make) -> None:
    place.running()
    watched = new(java_script_enabled=False)
    page = watched.sign_in(place.token)
    watched.open("/")
    assert page.locator("noscript meta[http-equiv=refresh]").count() or page.locator("meta[http-equiv=refresh]").count()
