"""The lab's roles, user and permissions on a Proxmox VE host: what differs, as calls of the API.

Pure: nothing is called here. One role a place (pool, storages, node, bridge), so that no right is granted where it
means something else.
"""

from __future__ import annotations

import re
from typing import Any

ROLE = "Glasslab"
COMMENT = "Glasslab: playbooks/proxmox_access.yml made it"

Call = dict[str, Any]


def words(text: Any) -> set[str]:
    """Privileges as a role lists them."""
    return {word for word in re.split(r"[, ]+", str(text or "")) if word}


def role_name(place: str) -> str:
    """The role of a place."""
    return f"{ROLE}-{place}"


def call(what: str, method: str, path: str, /, **parameters: Any) -> Call:
    """As tasks/proxmox/change.yml takes it."""
    return {"what": what, "method": method, "path": path, "parameters": parameters}


def present(now: dict[str, Any], needed: dict[str, Any]) -> list[Call]:
    """Pool, roles, user and grants that are missing or differ."""
    user, pool = needed["user"], needed["pool"]
    places = sorted({grant["key"] for grant in needed["grants"]})
    roles = {one["roleid"]: words(one.get("privs")) for one in now["access/roles"]}
    calls = []
    if pool and pool not in [one["poolid"] for one in now["pools"]]:
        calls.append(call(f"pool {pool}", "post", "pools", poolid=pool, comment=COMMENT))
    for place in places:
        wanted = {one["privilege"] for one in needed["privileges"] if one["place"] == place}
        role, text = role_name(place), ",".join(sorted(wanted))
        if role not in roles:
            calls.append(call(f"role {role}", "post", "access/roles", roleid=role, privs=text))
        elif roles[role] != wanted:
            calls.append(call(f"privileges of role {role}", "put", f"access/roles/{role}", privs=text))
    if user not in [one["userid"] for one in now["access/users"]]:
        calls.append(call(f"user {user}", "post", "access/users", userid=user, comment=COMMENT))
    held = {(one["path"], one["roleid"]) for one in now["access/acl"] if one["ugid"] == user}
    for grant in needed["grants"]:
        role, path = role_name(grant["key"]), grant["value"]
        if (path, role) not in held:
            words_of = {"path": path, "roles": role, "users": user, "propagate": 1}
            calls.append(call(f"role {role} for {user} on {path}", "put", "access/acl", **words_of))
    return calls


def absent(now: dict[str, Any], needed: dict[str, Any], token_there: bool) -> list[Call]:
    """The same taken away: token, grants, user, roles, pool."""
    user, pool, token = needed["user"], needed["pool"], needed["token"]
    calls = []
    if token_there:
        calls.append(call(f"removal of token {user}!{token}", "delete", f"access/users/{user}/token/{token}"))
    for one in now["access/acl"]:
        if one["ugid"] == user:
            words_of = {"path": one["path"], "roles": one["roleid"], "users": user, "delete": 1}
            calls.append(
                call(f"role {one['roleid']} taken from {user} on {one['path']}", "put", "access/acl", **words_of)
            )
    if user in [one["userid"] for one in now["access/users"]]:
        calls.append(call(f"removal of user {user}", "delete", f"access/users/{user}"))
    for one in now["access/roles"]:
        if one["roleid"].startswith(f"{ROLE}-"):
            calls.append(call(f"removal of role {one['roleid']}", "delete", f"access/roles/{one['roleid']}"))
    if pool and pool in [one["poolid"] for one in now["pools"]]:
        calls.append(call(f"removal of pool {pool}, which has to be empty", "delete", f"pools/{pool}"))
    return calls


def access(now: dict[str, Any], needed: dict[str, Any]) -> dict[str, Any]:
    """{"calls", "said", "token_there"}. `now` is what the API lists by path, `needed` what the inventory asks for."""
    tokens = now.get(f"access/users/{needed['user']}/token") or []
    token_there = needed["token"] in [one["tokenid"] for one in tokens]
    if needed["state"] == "absent":
        calls = absent(now, needed, token_there)
        return {"calls": calls, "said": [one["what"] for one in calls] or ["nothing is left"], "token_there": False}
    calls = present(now, needed)
    said = [
        f"{role_name(grant['key'])} on {grant['value']}: {one['privilege']}, to {one['why']}"
        for grant in needed["grants"]
        for one in needed["privileges"]
        if one["place"] == grant["key"]
    ]
    changes = [one["what"] for one in calls] + (
        [] if token_there else [f"token {needed['user']}!{needed['token']}, its secret into a file"]
    )
    return {
        "calls": calls,
        "said": [f"what {needed['user']} may do:", *said, f"to change: {', '.join(changes) or 'nothing'}"],
        "token_there": token_there,
    }


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Any]:
        """The filter by its name in templates."""
        return {"glasslab_access": access}
