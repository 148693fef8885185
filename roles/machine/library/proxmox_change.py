#!/usr/bin/python
"""Ansible module: one change by a Proxmox VE host's API, with the task of the node that it starts."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.glasslab_proxmox import API_ARGUMENT, UPID, Refused, Session

DOCUMENTATION = r"""
module: proxmox_change
short_description: One change by a Proxmox VE host's API, with the task of the node that it starts
description:
  - Follows the task for C(patience) seconds. Run again with its C(upid) it goes on following, so that the play can show
    that it waits.
  - A task that fails is told at once and with its own last words; community.proxmox 2.0.0 waits for it until its own
    time is up. In check mode nothing is called.
options:
  api: {type: dict, required: true, description: How the API is reached; the names are those of community.proxmox.}
  what: {type: str, required: true, description: What is done, for messages.}
  then: {type: str, default: "", description: The command that goes on when the cause of a failure is mended.}
  method: {type: str, choices: [post, put, delete], description: The call's method.}
  path: {type: str, description: The call's path below C(/api2/json).}
  parameters: {type: dict, default: {}, description: The call's parameters.}
  upid: {type: str, description: A task to follow, in the place of a call.}
  patience: {type: int, default: 10, description: Seconds to follow a task.}
"""

EXAMPLES = r"""
- proxmox_change:
    api: "{{ machine_proxmox_api }}"
    what: start of VM 105 (agent)
    method: post
    path: nodes/pve/qemu/105/status/start
"""

RETURN = r"""
data: {type: raw, returned: when a call was made, description: The answer's data.}
upid: {type: str, returned: when there is a task, description: The task of the node.}
finished: {type: bool, returned: success, description: Whether the task has ended; true when there is none.}
"""


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


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "api": API_ARGUMENT,
            "what": {"type": "str", "required": True},
            "then": {"type": "str", "default": ""},
            "method": {"type": "str", "choices": ["post", "put", "delete"]},
            "path": {"type": "str"},
            "parameters": {"type": "dict", "default": {}},
            "upid": {"type": "str"},
            "patience": {"type": "int", "default": 10},
        },
        required_one_of=[["path", "upid"]],
        mutually_exclusive=[["path", "upid"]],
        required_together=[["path", "method"]],
        supports_check_mode=True,
    )
    wanted = module.params
    then = f"; then: {wanted['then']}" if wanted["then"] else ""
    if module.check_mode:
        module.exit_json(changed=True, finished=True, data=None, msg=f"would be done: {wanted['what']}")
    try:
        found = change(Session(wanted["api"]), wanted)
    except Refused as refused:
        module.fail_json(msg=f"{wanted['what']}: {refused}{then}")
    if not found["finished"]:
        found["msg"] += then
    module.exit_json(changed=not wanted["upid"], **found)


if __name__ == "__main__":
    main()
