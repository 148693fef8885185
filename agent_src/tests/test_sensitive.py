"""Secrets and personal data: what is found, what is left of it, and in which ordinary texts nothing is found."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasslab import samples
from glasslab.sensitive import (
    KNOWN,
    PERSONAL,
    SECRETS,
    Finding,
    looks_secret,
    personal_data_in,
    redact,
    redacted,
    secrets_in,
)
from soak import examples

# Put together here, so that no scanner of repositories takes them for real.
SECRET_TEXTS = {
    "private_key": "-----BEGIN " + "PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHh4\n-----END PRIVATE KEY-----",
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "github_token": "ghp_" + "a1B2" * 9,
    "gitlab_token": "glpat-" + "abcDEF123_" * 2,
    "slack_token": "xoxb-" + "123456789012-abcdefABCDEF",
    "model_key": "sk-or-v1-" + "0123456789abcdef" * 2,
    "google_key": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "stripe_key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "pypi_token": "pypi-" + "AgEIcHlwaS5vcmc" * 4,
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTYifQ." + "dozjgNryP4J3jVmNHl0w5N_XgL0",
    "authorization": "Authorization: " + "Bearer abcdef0123456789abcdef",
    "url_password": "postgres://lab:" + "hunter22@db.example/lab",
    "assignment": "DB_PASSWORD=" + "c0rrect-h0rse",
}
TAKEN_OUT = "[redacted: configured_secret]"
PERSONAL_TEXTS = {
    "email_address": "jane.doe+lab@mail.example.com",
    "card_number": "4111 1111 1111 1111",
    "iban": "GB82 WEST 1234 5698 7654 32",
    "phone_number": "+44 20 7946 0958",
    "social_security_number": "078-05-1120",
}
ORDINARY = [
    "What was the root cause of the September incident?",
    "The password policy: at least 14 characters. Password: never by phone.",
    "password = getpass.getpass()", "token: <your token>", "API_KEY=xxxxxxxxxxxx", "SECRET=changeme-now",
    "token = os.environ['TOKEN']", "password: ********", "api_key: ${API_KEY}", "MODEL_API_KEY_FILE=~/key",
    "The secret: patience-and-practice.", "token: string", "max_tokens: 4096 and 128000 tokens",
    "Commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad fixes sha256 "
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sk-learn is a library; a task-force-of-twenty-people is a sk-ill; sk-_-_-_-_-_-_-_-_-_-_-_-",
    "https://user@example.com/path and https://example.com:8443/a@b and ssh://git@host:22/x",
    "Session 0123456789abcdef0123456789abcdef, event 550e8400-e29b-41d4-a716-446655440000",
    "192.168.50.2:8006, 10.10.10.0/24, 2001:db8::1, 52:54:00:12:34:56", "Call 112, or extension 4711.",
    "Order 4111 1111 1111 1112, ISBN 978-3-16-148410-0, 2026-09-01 10:15:00, 1790000000.123456",
    "Version 1.2.3-4.5.6, release 20260901, 1,234,567.89 EUR, 30 000 000", "0000 0000 0000 0000",
    "@decorator, a@b, me@localhost, x @ y.com, price@ 5.00", "DE00 1234 5678 9012 3456 78",
    "Splunk HEC at https://127.0.0.1:8088, index agents, 625 bytes, 623 characters",
    "The code 000-12-3456 and 123-45-67890 are no numbers of people.", "+1 and +49", "C++ 20 2023 10 11",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----",
    "authorization: required", "Authorization = bearer of bad news", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKz lab",
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), SECRET_TEXTS.items(), ids=SECRET_TEXTS)
def test_a_secret_is_found_and_nothing_of_it_stays(rule: str, text: str) -> None:
    whole = f"before {text} after"
    found = secrets_in(whole)
    assert [finding.rule for finding in found] == [rule]
    kept = "db.example/lab" if rule == "url_password" else ""
    assert redact(whole, found) == f"before [redacted: {rule}]{kept} after"
    assert personal_data_in(text) == [] or rule == "url_password"


@pytest.mark.parametrize(("rule", "text"), PERSONAL_TEXTS.items(), ids=PERSONAL_TEXTS)
def test_personal_data_is_found_and_nothing_of_it_stays(rule: str, text: str) -> None:
    for whole in (f"before {text} after", f"({text}), and", f"{text}.", f"a:{text}\n"):
        found = personal_data_in(whole)
        assert [finding.rule for finding in found] == [rule]
        assert redact(whole, found) == whole.replace(text, f"[redacted: {rule}]")
        assert secrets_in(whole) == []


@pytest.mark.parametrize("text", ORDINARY, ids=lambda value: ascii(value)[:40])
def test_in_ordinary_texts_nothing_is_found(text: str) -> None:
    assert secrets_in(text) == []
    assert personal_data_in(text) == []


def test_in_the_samples_nothing_is_found() -> None:
    for document in (Path(samples.__file__).parent / "documents").iterdir():
        assert secrets_in(document.read_text()) == personal_data_in(document.read_text()) == [], document


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        *(
            (name, "hunter22", True)
            for name in ("API_KEY", "--token", "Authorization", "X-Api-Keys", "PGPASSWORD", "pwd")
        ),
        *((name, "Copenhagen", False) for name in ("CITY", "AUTHOR", "KEYBOARD", "PASSAGE", "--units", "")),
        *(("X", value, True) for value in ("0123456789abcdef", f"v{'1' * 15}", SECRET_TEXTS["url_password"])),
        *(
            ("X", value, False)
            for value in ("0123456789012345", "abcdefghijklmnop", "/srv/docs1", "gpt-5.6-luna-preview")
        ),
    ],
)
def test_a_value_is_a_secret_by_its_name_or_its_looks(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret


def test_every_rule_has_its_text() -> None:
    assert (SECRET_TEXTS.keys(), PERSONAL_TEXTS.keys()) == (SECRETS.keys(), PERSONAL.keys())


def test_a_known_secret_is_found_whatever_its_form() -> None:
    text = "it says (hunter$2.x) and hunter$2.x"
    found = secrets_in(text, ["hunter$2.x", "it", ""])
    assert [finding.rule for finding in found] == [KNOWN, KNOWN]
    assert redact(text, found) == f"it says ([redacted: {KNOWN}]) and [redacted: {KNOWN}]"


@given(st.lists(st.sampled_from([*SECRET_TEXTS.values(), "abcdefgh", " ", "x", "=", ":"]), max_size=8).map("".join))
@examples(150)
def test_findings_are_in_order_and_apart(text: str) -> None:
    found = secrets_in(text, ["abcdefgh"])
    ends = [0, *(finding.end for finding in found)]
    assert all(finding.start >= end for finding, end in zip(found, ends, strict=False))
    assert "abcdefgh" not in redact(text, found).replace("[redacted", "")


def test_overlapping_findings_are_one() -> None:
    text = "TOKEN=" + SECRET_TEXTS["github_token"] + "tail"
    assert redact(text, secrets_in(text)) == "[redacted: assignment]"
    assert redact("abc", [Finding("r", 1, 2)]) == "a[redacted: r]c"


@pytest.mark.parametrize(
    "part",
    [
        "x",
        " ",
        "a.",
        "a@",
        "a@a.",
        "token=",
        "a_",
        "eyJ",
        "sk-",
        "4 ",
        "+49 ",
        "AB12 ",
        "-----BEGIN PRIVATE KEY-----",
        "a://",
    ],
)
def test_the_time_is_that_of_one_pass(part: str) -> None:
    seconds = []
    for size in (20_000, 80_000):
        text = part * (size // len(part))
        began = time.process_time()
        secrets_in(text)
        personal_data_in(text)
        seconds.append(time.process_time() - began)
    assert seconds[1] < max(10 * seconds[0], 0.3)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bad tok-1234567890!", f"bad {TAKEN_OUT}!"),
        ("bad Bearer tok-1234567890", f"bad {TAKEN_OUT}"),
        ("cut off: tok-123456", f"cut off: {TAKEN_OUT}"),
        ("two lines: -----KEY----- abcdef", f"two lines: {TAKEN_OUT}"),
        ("a token of tok-, short", "a token of tok-, short"),
    ],
)
def test_known_secrets_are_taken_out_of_a_line(text: str, shown: str) -> None:
    known = ["tok-1234567890", "Bearer tok-1234567890", "-----KEY-----\nabcdef\n", "short"]
    assert redacted(text, known) == shown
