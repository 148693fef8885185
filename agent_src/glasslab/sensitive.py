"""Secrets and personal data in a text: found by form, and by value where the value is known. Small pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_SHORTEST_KNOWN: Final = 8  # a shorter "secret" would be found in ordinary words
_END: Final = r"(?![A-Za-z0-9])"
# Every repetition has a bound, so that the time is that of one pass over the text.
SECRETS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "private_key": r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----"
        r"(?:\s{0,3}(?:Proc-Type|DEK-Info):[^\n]{0,200}){0,3}[A-Za-z0-9+/=\s\\]{0,8000}"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----)?",
        "aws_key": rf"\b(?:AKIA|ASIA)[A-Z0-9]{{16}}{_END}",
        "github_token": rf"\b(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{22,255}}){_END}",
        "gitlab_token": rf"\bglpat-[A-Za-z0-9_-]{{20,100}}{_END}",
        "slack_token": rf"\bxox[abeoprs]-[A-Za-z0-9-]{{10,250}}{_END}",
        "model_key": r"\bsk-(?=[A-Za-z0-9_-]{0,200}[0-9])(?=[A-Za-z0-9_-]{0,200}[A-Za-z])[A-Za-z0-9_-]{20,250}",
        "google_key": rf"\bAIza[A-Za-z0-9_-]{{35}}{_END}",
        "stripe_key": rf"\b[sr]k_(?:live|test)_[A-Za-z0-9]{{16,200}}{_END}",
        "pypi_token": r"\bpypi-[A-Za-z0-9_-]{50,300}",
        "jwt": r"\beyJ[A-Za-z0-9_-]{10,4000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,4000}",
        "authorization": r"(?i:\bauthorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:bearer|basic|splunk|token) )"
        r"[A-Za-z0-9._~+/=-]{16,4000}",
        "url_password": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,100}:[^\s/@'\"<>${}*]{3,200}@(?=[A-Za-z0-9\[])",
        "assignment": r"(?i:\b(?:[a-z0-9]{1,30}[_-]){0,4}(?:password|passwd|passphrase|secret|api_?key|apikey|"
        r"access_?key|auth_?token|token)['\"]?\s{0,3}[:=]\s{0,3})"
        r"(?:\"[^\"\s]{8,200}\"|'[^'\s]{8,200}'|[^\s'\",;<>(){}\[\]]{8,200})",
    }.items()
}
PERSONAL: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "email_address": r"(?<![\w.+/-])[A-Za-z0-9][\w.%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b",
        "card_number": r"(?<![\d.-])[3-6](?:[ -]?\d){12,18}(?![\d]|[.-]\d)",
        "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])",
        "phone_number": r"(?<![\w+])(?:\+|00)[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?"
        r"\d{1,4}(?:[ .-]?\d{2,4}){1,5}(?!\d)",
        "social_security_number": r"(?<![\d-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\d-])",
    }.items()
}
KNOWN: Final = "configured_secret"
# What a name says of its value, where a word ends there: API_KEY and --token, and not AUTHOR or KEYBOARD.
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:auth(?:orization)?|bearer|cookie|cred(?:ential)?|dsn|key|pass(?:wd|word|phrase|code)?|pat|pin|pwd|secret|"
    r"session|signature|token)s?(?![a-z])"
)
_MACHINE_MADE: Final = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}")
_PLACEHOLDER: Final = re.compile(
    r"(?i)^[\W_]*(?:x+|\*+|\.+|-+|_+|redacted.*|\[redacted.*|your.*|my.*|some.*|example.*|change_?me.*|placeholder.*|"
    r"\$.*|%.*|<.*|env.*|os\..*|secret.*|password.*|token.*|none|null|true|false)[\W_]*$"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a text: the rule it meets, and where it begins and ends."""

    rule: str
    start: int
    end: int


def secrets_in(text: str, known: Iterable[str] = ()) -> list[Finding]:
    """Return the places that look like secrets, in order and apart; `known` are secrets to be found by their value."""
    found = [
        Finding(KNOWN, match.start(), match.end())
        for secret in known
        if len(secret) >= _SHORTEST_KNOWN
        for match in re.finditer(re.escape(secret), text)
    ]
    for name, rule in SECRETS.items():
        for match in rule.finditer(text):
            if name != "assignment" or _is_secret_value(match.group()):
                found.append(Finding(name, match.start(), match.end()))
    return _apart(found)


def personal_data_in(text: str) -> list[Finding]:
    """Return the places that look like a person's data, in order and apart; numbers only where their check fits."""
    checks = {"card_number": _luhn, "iban": _iban, "phone_number": _phone}
    return _apart(
        Finding(name, match.start(), match.end())
        for name, rule in PERSONAL.items()
        for match in rule.finditer(text)
        if name not in checks or checks[name](match.group())
    )


def redact(text: str, findings: Sequence[Finding]) -> str:
    """Return a text with each place replaced by what was there, `[redacted: email_address]`."""
    parts, position = [], 0
    for finding in findings:
        parts += [text[position : finding.start], f"[redacted: {finding.rule}]"]
        position = finding.end
    return "".join([*parts, text[position:]])


def looks_secret(name: str, value: str) -> bool:
    """Whether a value that is given under this name (of a variable, a header, an option) is one to keep to oneself."""
    return bool(_SECRET_NAME.search(name) or _MACHINE_MADE.search(value) or secrets_in(value))


def redacted(text: str, known: Iterable[str]) -> str:
    """Return one line, as visible_line makes it, without these secrets, nor what a cut at its end has left of one."""
    forms = {" ".join(secret.split()) for secret in known}
    for secret in sorted(forms, key=len, reverse=True):  # one may hold another
        if len(secret) < _SHORTEST_KNOWN:
            continue
        text = text.replace(secret, f"[redacted: {KNOWN}]")
        cut = next((n for n in range(len(secret), _SHORTEST_KNOWN - 1, -1) if text.endswith(secret[:n])), 0)
        text = f"{text[: len(text) - cut]}[redacted: {KNOWN}]" if cut else text
    return text


def _apart(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order, those that overlap as one: nothing of a secret may stay between two of them."""
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda item: (item.start, -item.end)):
        if kept and finding.start < kept[-1].end:
            kept[-1] = Finding(kept[-1].rule, kept[-1].start, max(kept[-1].end, finding.end))
        else:
            kept.append(finding)
    return kept


def _is_secret_value(assignment: str) -> bool:
    """Whether what is assigned looks made by a machine or kept from people: no placeholder, and no plain word."""
    value = re.split(r"[:=]\s*", assignment, maxsplit=1)[1].strip("'\"")
    digit, lower, upper = (any(map(kind, value)) for kind in (str.isdigit, str.islower, str.isupper))
    other = any(not letter.isalnum() for letter in value)
    return not _PLACEHOLDER.match(value) and ((digit and (lower or upper)) or (lower and upper and other))


def _luhn(text: str) -> bool:
    digits = [int(letter) for letter in text if letter.isdigit()][::-1]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def _phone(text: str) -> bool:
    return 8 <= sum(letter.isdigit() for letter in text) <= 15


def _iban(text: str) -> bool:
    plain = text.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1
