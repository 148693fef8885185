#!/usr/bin/python
"""Ansible module: several reads of a Proxmox VE host's API in one session."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.glasslab_proxmox import API_ARGUMENT, Refused, Session

DOCUMENTATION = r"""
module: proxmox_read
short_description: Several reads of a Proxmox VE host's API in one session
description:
  - What may not be read is told beside what may, so that a preflight can say all of it at once.
  - What community.proxmox has no module for is read with it (permissions, a node's processor and memory, bridges).
options:
  api: {type: dict, required: true, description: How the API is reached; the names are those of community.proxmox.}
  paths: {type: list, elements: str, default: [], description: What is read, as paths below C(/api2/json) with queries.}
  free_ids: {type: int, default: 0, description: So many ids that no guest of the cluster has, whatever the token sees.}
  what: {type: str, default: "", description: What is looked for. With it, a path that cannot be read is a failure.}
  then: {type: str, default: "", description: The command that goes on when the cause of a failure is mended.}
"""

EXAMPLES = r"""
- proxmox_read:
    api: "{{ machine_proxmox_api }}"
    paths: [version, nodes/pve/status]
"""

RETURN = r"""
data: {type: dict, returned: always, description: The answers by path.}
problems: {type: dict, returned: always, description: What could not be read, by path, each as one line.}
free_ids: {type: list, returned: always, description: The free ids.}
"""

TRIES = 1000


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


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "api": API_ARGUMENT,
            "paths": {"type": "list", "elements": "str", "default": []},
            "free_ids": {"type": "int", "default": 0},
            "what": {"type": "str", "default": ""},
            "then": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        found = read(module.params["api"], module.params["paths"], module.params["free_ids"])
        if module.params["what"] and found["problems"]:
            raise Refused("; ".join(found["problems"].values()))
    except Refused as refused:
        what = f"{module.params['what']}: " if module.params["what"] else ""
        then = f"; then: {module.params['then']}" if module.params["then"] else ""
        module.fail_json(msg=f"{what}{refused}{then}")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
