"""Ansible action: one change by a Proxmox VE host's API, with the task of the node that it starts.

It runs in ansible-playbook itself, as proxmox_read does.

    proxmox_change:
      api: how the API is reached; the names are those of community.proxmox
      what: what is done, for messages
      then: the command that goes on when the cause of a failure is mended
      method, path, parameters: the call, as a path below /api2/json
      upid: a task to follow, in the place of a call
      patience: seconds to follow a task

It follows the task for `patience` seconds; run again with its `upid` it goes on following, so that the play can show
that it waits. A task that fails is told at once and with its own last words; community.proxmox 2.0.0 waits for it until
its own time is up. In check mode nothing is called. Returns `data` (the answer's), `upid` when there is a task, and
`finished`: whether the task has ended, true when there is none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# A role's module_utils are found for modules alone.
sys.path.append(str(Path(__file__).resolve().parents[1] / "module_utils"))

from proxmox_session import API_ARGUMENT, UPID, Refused, Session

ARGUMENTS: dict[str, Any] = {
    "api": API_ARGUMENT,
    "what": {"type": "str", "required": True},
    "then": {"type": "str", "default": ""},
    "method": {"type": "str", "choices": ["post", "put", "delete"]},
    "path": {"type": "str"},
    "parameters": {"type": "dict", "default": {}},
    "upid": {"type": "str"},
    "patience": {"type": "int", "default": 10},
}


def outcome(state: dict[str, Any] | None, upid: str, what: str) -> dict[str, Any]:
    """What a followed task means; Refused when it failed."""
    if state is None:
        return {
            "finished": False,
            "msg": f"{what}: the node's task still runs when the time for it is up (machine_proxmox_task_timeout); "
            f"it goes on there: {upid}",
        }
    if state["exit"] == "OK" or state["exit"].startswith("WARNING"):
        return {"finished": True}
    words = [line for line in state["log"] if line.strip() and not line.startswith("TASK ERROR")]
    last = f" (its last line: {words[-1].strip()})" if words and words[-1].strip() not in state["exit"] else ""
    raise Refused(f"the node's task failed: {' '.join(state['exit'].split())}{last}; its log: task {upid}")


def change(session: Session, wanted: dict[str, Any]) -> dict[str, Any]:
    """The call, or the task to follow."""
    upid, data = wanted["upid"], None
    if not upid:
        data = session.call(wanted["method"], wanted["path"], wanted["parameters"])
        upid = data if isinstance(data, str) and UPID.match(data) else ""
    if not upid:
        return {"data": data, "finished": True}
    state = session.follow(upid, wanted["patience"])
    return {"data": data, "upid": upid, **outcome(state, upid, wanted["what"])}


class ActionModule(ActionBase):
    """Ansible's entry."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The change; `failed` with one line when it was not made."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            ARGUMENTS,
            required_one_of=[["path", "upid"]],
            mutually_exclusive=[["path", "upid"]],
            required_together=[["path", "method"]],
        )
        wanted = json.loads(json.dumps(given))  # plain values: Ansible's own carry marks
        then = f"; then: {wanted['then']}" if wanted["then"] else ""
        if self._task.check_mode:
            told = f"would be done: {wanted['what']}"
            return {**result, "changed": True, "finished": True, "data": None, "msg": told}
        try:
            found = change(Session(wanted["api"]), wanted)
        except Refused as refused:
            return {**result, "failed": True, "msg": f"{wanted['what']}: {refused}{then}"}
        if not found["finished"]:
            found["msg"] += then
        return {**result, "changed": not wanted["upid"], **found}
