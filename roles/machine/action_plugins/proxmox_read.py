"""Ansible action: several reads of a Proxmox VE host's API in one session.

It runs in ansible-playbook itself: as a module each call would be a process of its own, which compiles Ansible's and
imports requests before it asks anything.

    proxmox_read:
      api: how the API is reached; the names are those of community.proxmox
      paths: what is read, as paths below /api2/json with queries
      free_ids: so many ids that no guest of the cluster has, whatever the token sees
      what: what is looked for; with it, a path that cannot be read is a failure
      then: the command that goes on when the cause of a failure is mended

What may not be read is told beside what may, so that a preflight can say all of it at once. Returns `data` (the answers
by path), `problems` (what could not be read, by path, each as one line) and `free_ids`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# A role's module_utils are found for modules alone.
sys.path.append(str(Path(__file__).resolve().parents[1] / "module_utils"))

from proxmox_session import API_ARGUMENT, Refused, Session

TRIES = 1000
ARGUMENTS: dict[str, Any] = {
    "api": API_ARGUMENT,
    "paths": {"type": "list", "elements": "str", "default": []},
    "free_ids": {"type": "int", "default": 0},
    "what": {"type": "str", "default": ""},
    "then": {"type": "str", "default": ""},
}


def free_ids(session: Session, count: int) -> list[int]:
    """The first free ids. The list of guests will not do: a token sees those alone that it may see."""
    found: list[int] = []
    candidate = int(session.call("get", "cluster/nextid")) if count else 0
    for number in range(candidate, candidate + TRIES):
        if len(found) == count:
            break
        try:
            session.call("get", "cluster/nextid", {"vmid": number})
        except Refused as refused:
            if refused.status != 400:
                raise
        else:
            found.append(number)
    return found


def read(api: dict[str, Any], paths: list[str], count: int) -> dict[str, Any]:
    """All of it."""
    session = Session(api)
    data: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for path in paths:
        try:
            data[path] = session.call("get", path)
        except Refused as refused:
            if not refused.status or refused.status == 401:
                raise  # nothing else will be answered either
            problems[path] = str(refused)
    return {"data": data, "problems": problems, "free_ids": free_ids(session, count)}


class ActionModule(ActionBase):
    """Ansible's entry. In check mode it reads as well."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The reads; `failed` with one line when the API cannot be asked."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(ARGUMENTS)
        wanted = json.loads(json.dumps(given))  # plain values: Ansible's own carry marks
        try:
            found = read(wanted["api"], wanted["paths"], wanted["free_ids"])
            if wanted["what"] and found["problems"]:
                raise Refused("; ".join(found["problems"].values()))
        except Refused as refused:
            what = f"{wanted['what']}: " if wanted["what"] else ""
            then = f"; then: {wanted['then']}" if wanted["then"] else ""
            return {**result, "failed": True, "msg": f"{what}{refused}{then}"}
        return {**result, "changed": False, **found}
