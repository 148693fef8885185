"""The roles: whom they inherit from, which indexes they search, and what they are kept from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from splunkcheck import fields, reference
from splunkcheck.conffile import Conf, Stanza
from splunkcheck.findings import FaultError, Finding
from splunkcheck.terms import MODIFIERS, terms


def check(conf: Conf) -> Iterator[Finding]:
    """Return what is wrong with authorize.conf by itself."""
    roles = {name.removeprefix("role_"): stanza for name, stanza in conf.stanzas.items() if name.startswith("role_")}
    for name, stanza in roles.items():
        for key, fault in (*_imports(name, stanza, roles), *_indexes(stanza, roles), *_filter(stanza)):
            line = stanza.settings[key].line if key in stanza.settings else stanza.line
            yield Finding(conf.file, line, f"[{stanza.name}] {fault}")


def listed(stanza: Stanza, key: str) -> list[str]:
    """Return the names of a list of a role's."""
    return [name for name in re.split(r"[;,\s]+", stanza.get(key)) if name]


def _imports(name: str, stanza: Stanza, roles: Mapping[str, Stanza]) -> Iterator[tuple[str, str]]:
    for role in listed(stanza, "importRoles"):
        if role not in roles:
            word = "may do more than it needs" if role in reference.BUILT_IN_ROLES else "does not exist"
            yield "importRoles", f"imports {role}, which {word}"
        elif role == name or name in _all(role, roles):
            yield "importRoles", f"imports {role}, which imports it: a role cannot inherit from itself"


def _all(role: str, roles: Mapping[str, Stanza]) -> set[str]:
    """Return the roles that a role imports, and those that they import."""
    found: set[str] = set()
    todo = [role]
    while todo:
        for one in listed(roles[todo.pop()], "importRoles"):
            if one in roles and one not in found:
                found.add(one)
                todo.append(one)
    return found


def _indexes(stanza: Stanza, roles: Mapping[str, Stanza]) -> Iterator[tuple[str, str]]:
    own = stanza.name.removeprefix("role_")
    if "srchIndexesAllowed" not in stanza.settings:
        yield "srchIndexesAllowed", "has no srchIndexesAllowed"
        return
    allowed = {index for role in {own, *_all(own, roles)} for index in listed(roles[role], "srchIndexesAllowed")}
    for index in listed(stanza, "srchIndexesDefault"):
        if index not in allowed and "*" not in allowed:
            yield "srchIndexesDefault", f"srchIndexesDefault: {index} is none of srchIndexesAllowed"
    for role in listed(stanza, "grantableRoles"):
        if role not in roles and role not in reference.BUILT_IN_ROLES:
            yield "grantableRoles", f"grantableRoles: {role} does not exist"
    if listed(stanza, "deleteIndexesAllowed"):
        yield "deleteIndexesAllowed", "deleteIndexesAllowed: frames are not deleted; that is more than it needs"
    for index in listed(stanza, "srchIndexesDisallowed"):
        if index in allowed:
            yield "srchIndexesDisallowed", f"srchIndexesDisallowed: {index} is allowed too, and is then not searched"


def _filter(stanza: Stanza) -> Iterator[tuple[str, str]]:
    text = stanza.get("srchFilter")
    if not text or text == "*":
        return
    known = fields.of_kinds(fields.VALUES["kind"])
    try:
        for name, _, _ in terms(text).compared:
            if name not in MODIFIERS and (fault := fields.fault(name, known)):
                yield "srchFilter", f"srchFilter: {fault}"
    except FaultError as error:
        yield "srchFilter", f"srchFilter: {error}"


def allowed(conf: Conf, indexes: frozenset[str], own: Conf) -> Iterator[Finding]:
    """Return what a role may not search, or more than it needs: what only the app's own file says, with its indexes."""
    roles = {name.removeprefix("role_"): stanza for name, stanza in conf.stanzas.items() if name.startswith("role_")}
    for name, stanza in roles.items():
        if not any("search" in roles[role].settings for role in {name, *_all(name, roles)}):
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] cannot search: no search = enabled, and imports none"
            )
    searched = {index for stanza in roles.values() for index in listed(stanza, "srchIndexesAllowed")}
    for name, stanza in own.stanzas.items():
        if name not in searched and "*" not in searched and not name.startswith(("volume:", "default")):
            yield Finding(
                own.file, stanza.line, f"[{name}] no role may search it (srchIndexesAllowed of authorize.conf)"
            )
    for stanza in conf.stanzas.values():
        for key in ("srchIndexesAllowed", "srchIndexesDefault", "srchIndexesDisallowed"):
            for index in listed(stanza, key):
                line = stanza.settings[key].line
                if index not in indexes:
                    yield Finding(conf.file, line, f"[{stanza.name}] {key}: there is no index {index}")
                elif index in ("*", "_*") and key != "srchIndexesDisallowed":
                    yield Finding(conf.file, line, f"[{stanza.name}] {key} = {index} is more than it needs")
