"""Each privilege of the role's list taken away in turn: the preflight names it, where it is missing, and the remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import access
import labinventory
import place
import plays
import pvehost


def lacking(one: pvehost.Double, number: int, grant: access.Grant | None) -> dict[str, Any]:
    """A guest that is looked after with a token of its own, which lacks one privilege."""
    user = f"lacks{number}@pve"
    granted = [one for one in access.grants() if one != grant]
    token = access.token(one.host.api(), user, granted)
    own = {"machine_proxmox_user": user, "machine_proxmox_token_secret": token.secret}
    return labinventory.guest(100 + number, machine_memory_mb=512, **own)


def test_the_preflight_names_the_privilege_that_is_missing(tmp_path: Path) -> None:
    grants = access.grants()
    assert len(grants) >= 20
    with place.own_place(tmp_path / "double", foreigners=False) as (one, where):
        hosts = {f"lacks-{number}": lacking(one, number, grant) for number, grant in enumerate(grants)}
        hosts["lacks-none"] = lacking(one, len(grants), None)
        everyone = {"agents": hosts}
        inventory = labinventory.write(
            one.state / "each", replace(where.lab), where.lab.token, everyone, **place.image(one.state)
        )
        since = one.count()
        played = plays.play(plays.CONVERGE, inventory, "--tags=preflight")
        assert pvehost.writing(one.requests(since)) == []
    assert played.code != 0
    assert played.recap["lacks-none"].failed == 0, played.tail
    for number, (path, privilege) in enumerate(grants):
        host = f"lacks-{number}"
        assert played.recap[host].failed == 1, f"{privilege} on {path} is not missed:\n{played.tail}"
        said = [line for line in played.output.splitlines() if f"{host}: " in line and "lacks@" not in line]
        told = [line for line in said if f"lacks{number}@pve!lab lacks {privilege} " in line and f" on {path}:" in line]
        assert told, f"{privilege} on {path} is not named:\n" + "\n".join(said)
        assert "playbooks/proxmox_access.yml" in told[0]
        assert plays.RESUME.search(told[0])
