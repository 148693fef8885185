"""Classes and rules: a server's word makes a class only stricter, a rule makes a call only harder."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasslab import allowlist
from glasslab.approval_rules import CLASSES, OWN_CLASSES, STRICTEST, class_of, parse_classes, read_rules
from glasslab.approvals import Policy
from glasslab.settings import SettingsError

LIST = ("*@lab.example", "anna@other.example")


@pytest.mark.parametrize("value", ["ap@lab.example", "a.b+c@lab.example", "anna@other.example", ["x@lab.example"]])
def test_what_is_on_the_list(value: object) -> None:
    assert allowlist.allows(LIST, value)


@pytest.mark.parametrize(
    "value",
    [
        "thief@evil.example",
        "thief@evil.example, x@lab.example",
        "thief@evil.example;x@lab.example",
        "thief@evil.example\n@lab.example",
        "<thief@evil.example> x@lab.example",
        "thief@evil.example@lab.example",
        "x@lab.example.evil.example",
        "x@lab.example\n",
        "x@labXexample",
        "@lab.example",
        "ANNA@other.example",
        "\u0430nna@other.example",  # a Cyrillic letter
        ["x@lab.example", "thief@evil.example"],
        [],
        [["x@lab.example"]],
        {"x@lab.example": 1},
        None,
        7,
    ],
    ids=ascii,
)
def test_what_is_not(value: object) -> None:
    assert not allowlist.allows(LIST, value)


@given(st.text(), st.text())
def test_nothing_gets_past_an_entry_by_what_stands_around_it(before: str, after: str) -> None:
    value = f"{before}a@lab.example{after}"
    assert allowlist.allows(["a@lab.example"], value) is (value == "a@lab.example")


def annotated(**hints: object) -> dict[str, Any]:
    return {"name": "t", "annotations": hints}


@pytest.mark.parametrize(
    ("given_", "hints", "expected"),
    [
        ("read", {}, "read"),
        ("read", {"readOnlyHint": True, "openWorldHint": True}, "read"),
        ("read", {"readOnlyHint": False}, "write"),
        ("read", {"openWorldHint": True}, "send"),
        ("read", {"destructiveHint": True}, "delete"),
        ("read", {"readOnlyHint": True, "destructiveHint": True}, "read"),
        ("pay", {"readOnlyHint": True}, "pay"),
        ("write", {"readOnlyHint": "no", "destructiveHint": 1}, "write"),
    ],
)
def test_a_servers_word_makes_a_class_only_stricter(given_: str, hints: dict[str, Any], expected: str) -> None:
    found = class_of({"s/t": given_}, "s/t", annotated(**hints))
    assert found == expected
    assert CLASSES.index(found) >= CLASSES.index(given_)


def test_a_tool_without_a_class_counts_as_the_strictest() -> None:
    assert class_of(OWN_CLASSES, "other/read_file", annotated(readOnlyHint=True)) == STRICTEST == "publish"
    assert class_of({"s/*": "read"}, "s/t", {"name": "t", "annotations": "odd"}) == "read"
    assert class_of({"s/*": "read", "s/t": "pay"}, "s/t", {}) == "pay"
    assert class_of(OWN_CLASSES, "lab-files/read_file", {}) == "read"


@pytest.mark.parametrize("text", ["read_file=read", "s/t=harmless", "s/t", "/t=read", "s/=read", "s/t=read=pay"])
def test_a_class_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="give SERVER/TOOL=CLASS"):
        parse_classes(text)


def rules(tmp_path: Path, *entries: object, text: str | None = None) -> Policy:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": list(entries)}) if text is None else text)
    return Policy(OWN_CLASSES, read_rules(path))


SEND = {"tool": "lab-outbox/*", "only": {"to": ["*@lab.example"]}, "why": "colleagues only"}


def test_rules_by_caller_and_by_argument(tmp_path: Path) -> None:
    policy = rules(
        tmp_path,
        SEND,
        {"class": ["send", "pay"], "callers_except": ["root", 1000], "then": "deny", "why": "not you"},
        {"tool": "lab-files/read_file", "callers": [1001], "then": "ask"},
    )
    good, bad = {"to": "a@lab.example"}, {"to": "a@evil.example"}
    assert policy.action("lab-outbox/send_message", "send", 0, good) == ("ask", "class send")
    assert policy.action("lab-outbox/send_message", "send", 0, bad) == ("deny", "colleagues only")
    assert policy.action("lab-outbox/send_message", "send", 0, {}) == ("deny", "colleagues only")
    assert policy.action("lab-outbox/send_message", "send", 1001, good) == ("deny", "not you")
    assert policy.action("bank/transfer", "pay", 1000, {}) == ("ask", "class pay")
    assert policy.action("lab-files/read_file", "read", 1001, {})[0] == "ask"
    assert policy.action("lab-files/read_file", "read", 1000, {}) == ("run", "class read")


def test_no_rule_makes_anything_milder(tmp_path: Path) -> None:
    policy = rules(tmp_path, {"then": "ask"}, {"tool": "s/*", "only": {"path": ["notes.md"]}})
    for class_ in CLASSES:
        assert policy.action("s/t", class_, 0, {"path": "notes.md"})[0] == "ask"
        assert policy.action("s/t", class_, 0, {"path": "other.md"})[0] == "deny"
    assert Policy(OWN_CLASSES, everything=True).action("lab-files/read_file", "read", 0, {})[0] == "ask"


BAD = [
    ({"then": "run"}, "a rule makes nothing milder"),
    ({"then": "ask", "only": {"to": ["x"]}}, 'needs one of "only" and "then"'),
    ({"tool": "x"}, 'needs one of "only" and "then"'),
    ({"only": {}}, 'has an "only" that is no'),
    ({"only": {"to": [1]}}, "no list of texts"),
    ({"then": "deny", "class": "harmless"}, "has the class 'harmless'"),
    ({"then": "deny", "callers": ["nobody-of-this-name"]}, "whom this machine does not know"),
    ({"then": "deny", "callers": [True]}, "is no user"),
    ({"then": "deny", "callers": [-1]}, "whom this machine does not know"),
    ({"then": "deny", "why": 7}, 'has a "why" that is no text'),
    ({"then": "deny", "tools": "x"}, "has an unknown key 'tools'"),
    ("deny", "is no object"),
]


@pytest.mark.parametrize(("entry", "problem"), BAD, ids=lambda value: str(value)[:40])
def test_a_rule_that_is_none_is_one_clear_line(tmp_path: Path, entry: object, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rules(tmp_path, {"then": "ask"}, entry)
    (line,) = caught.value.lines
    assert line.startswith(f"APPROVAL_RULES: {tmp_path}/rules.json: rule 2 ")
    assert problem in line
    assert ";" in line


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"rules": {}}', '{"rules": [], "rules": []}', '{"rules": [], "x": 1}', "{"]
)
def test_a_file_that_holds_no_rules_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="APPROVAL_RULES: "):
        rules(tmp_path, text=text)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text('{"rules": []}')
    path.chmod(0o666)
    with pytest.raises(SettingsError, match="may be written by anybody"):
        read_rules(path)


@pytest.mark.parametrize("class_", CLASSES)
def test_every_class_but_read_waits_for_a_person(class_: str) -> None:
    action, _ = Policy({}).action("s/t", class_, 1, {})
    assert action == ("run" if class_ == "read" else "ask")
    assert Policy({}, everything=True).action("s/t", class_, 1, {})[0] == "ask"
