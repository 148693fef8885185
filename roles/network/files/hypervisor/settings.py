"""The files that say what the walls are: rule files and settings.json, as the role writes them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

from .kernel import Failure

ETC = pathlib.Path("/etc/glasslab/network")
RULES = ("rules.v6", "bridge.nft", "rules.v4")
LAST_LINE = "# end of the rules"


@dataclasses.dataclass(frozen=True)
class Settings:
    """settings.json. What an older file lacks has the older program's meaning."""

    bridge: str
    ports: list[str]  # the guests', under each name that one may have at the bridge
    isolated: list[str]  # those that reach no other isolated one
    forwarding: bool
    sysctls: dict[str, str]  # path below /proc/sys: value
    ip_rules: list[list[str]]  # arguments of `ip rule`, the family (-4, -6) first
    services: list[str]  # units that answer the guests

    @classmethod
    def of(cls, found: dict[str, Any]) -> Settings:
        """Raises KeyError, TypeError, AttributeError for what is no such file."""
        bridge = str(found["bridge"])
        ipv6_off = {f"net/ipv6/conf/{bridge}/disable_ipv6": "1"}
        return cls(
            bridge=bridge,
            ports=[str(port) for port in found["ports"]],
            isolated=[str(port) for port in found.get("isolated", [])],
            forwarding=bool(found.get("forwarding", True)),
            sysctls={str(path): str(value) for path, value in found.get("sysctls", ipv6_off).items()},
            ip_rules=[[str(word) for word in rule] for rule in found.get("ip_rules", [])],
            services=[str(name) for name in found.get("services", [])],
        )


def read(name: str) -> str:
    """One of the files; Failure when it cannot be read."""
    try:
        return (ETC / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{ETC / name} cannot be read ({error}): run playbooks/network.yml again") from error


def settings() -> tuple[Settings, dict[str, Any]]:
    """settings.json, understood and as it is; Failure when it is damaged."""
    try:
        found = json.loads(read("settings.json"))
        return Settings.of(found), found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{ETC}/settings.json is damaged ({error!r}): run playbooks/network.yml again") from error


def rule_files() -> dict[str, str]:
    """The rule files. Failure for one that was cut short or added to.

    Emptied, or cut short behind a COMMIT, a file would load without an error and leave the bridge open.
    """
    texts = {name: read(name) for name in RULES}
    if cut := [str(ETC / name) for name, text in texts.items() if text.splitlines()[-1:] != [LAST_LINE]]:
        raise Failure(f"{', '.join(cut)}: cut short or added to: run playbooks/network.yml again")
    return texts


def digest() -> str:
    """Names the state of all files together."""
    return hashlib.sha256("\0".join(read(name) for name in (*RULES, "settings.json")).encode()).hexdigest()
