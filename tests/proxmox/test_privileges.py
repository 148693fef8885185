"""Each privilege of the role's list taken away in turn: the preflight names it, where it is missing, and the remedy.

Each is judged by the role's own filter on what the API says to such a token; whole plays are run for three of them,
rotating with the run's seed, and in `make soak` for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import access
import labinventory
import place
import plays
import pvehost
from glasslab_proxmox_preflight import privilege_problems
from pvehost import Token
from runseed import SEED, SOAK

GRANTS = access.grants()
IN_A_PLAY = 3


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pvehost.Double, place.Place]]:
    """A host that belongs to nobody else."""
    with place.own_place(tmp_path_factory.mktemp("privileges") / "double", foreigners=False) as found:
        yield found


@pytest.fixture(scope="module")
def tokens(where: tuple[pvehost.Double, place.Place]) -> list[Token]:
    """For each privilege a token that has all the others; at the end one that has all."""
    api = where[0].host.api()
    users = [(f"lacks{number}@pve", grant) for number, grant in enumerate([*GRANTS, None])]
    return [access.token(api, user, [one for one in GRANTS if one != grant]) for user, grant in users]


def test_each_missing_privilege_is_named_with_its_path(
    where: tuple[pvehost.Double, place.Place], tokens: list[Token]
) -> None:
    assert len(GRANTS) >= 20
    wanted = {"token": "t", "privileges": [{"path": p, "privilege": name, "why": "w"} for p, name in GRANTS]}
    for token, (path, privilege) in zip(tokens, GRANTS, strict=False):
        permissions = replace(where[0].host, token=token).api().access.permissions.get()
        said = privilege_problems(permissions, wanted)
        assert said == [f"t lacks {privilege} (w) on {path}: playbooks/proxmox_access.yml grants it"]
    assert privilege_problems(replace(where[0].host, token=tokens[-1]).api().access.permissions.get(), wanted) == []


def guest(number: int, token: Token) -> dict[str, Any]:
    """A guest that is looked after with a token of its own."""
    own = {"machine_proxmox_user": token.user, "machine_proxmox_token_secret": token.secret}
    return labinventory.guest(100 + number, machine_memory_mb=512, **own)


def test_the_preflight_ends_with_what_is_missing_and_the_command_that_goes_on(
    where: tuple[pvehost.Double, place.Place], tokens: list[Token]
) -> None:
    one, furnished = where
    numbers = range(len(GRANTS)) if SOAK else [(SEED * IN_A_PLAY + n) % len(GRANTS) for n in range(IN_A_PLAY)]
    print(f"\nGLASSLAB_FAULT_SEED={SEED}: without", *(f"\n  {GRANTS[number][1]}" for number in numbers))
    hosts = {f"lacks-{number}": guest(number, tokens[number]) for number in numbers}
    hosts["lacks-none"] = guest(len(GRANTS), tokens[-1])
    own = place.image(one.state)
    inventory = labinventory.write(one.state / "each", furnished.lab, furnished.lab.token, {"agents": hosts}, **own)
    since = one.count()
    played = plays.play(plays.CONVERGE, inventory, "--tags=preflight")
    assert pvehost.writing(one.requests(since)) == []
    assert played.code != 0
    assert played.recap["lacks-none"].failed == 0, played.tail
    for number in numbers:
        path, privilege = GRANTS[number]
        assert played.recap[f"lacks-{number}"].failed == 1, f"{privilege} on {path} is not missed:\n{played.tail}"
        said = [line for line in played.output.splitlines() if f"lacks-{number}: " in line]
        told = [line for line in said if f"lacks{number}@pve!lab lacks {privilege} " in line and f" on {path}:" in line]
        assert told, f"{privilege} on {path} is not named:\n" + "\n".join(said)
        assert "playbooks/proxmox_access.yml" in told[0]
        assert plays.RESUME.search(told[0])
