"""Refuse values of a policy that are of another kind than they have to be, before anything is computed from them.

Ansible's own check of a role's arguments takes what it could convert (443 for a list, "no" for false) and converts
nothing: what was meant as one thing would be read as another.
"""

from __future__ import annotations

from typing import Any

TEXT = "text: put it in quotes"


def policy_kinds(policy: dict[str, Any]) -> list[str]:
    """Values of another kind than they have to be: YAML makes numbers of what has no quotes, and a word of a list."""
    problems = []

    def one(where: str, value: object, kinds: tuple[type, ...], what: str) -> None:
        fits = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
        if not fits or (isinstance(value, str) and not value.isprintable()):
            problems.append(f"{where} {value!r} is not {what}")

    def some(where: str, value: object, kinds: tuple[type, ...], what: str) -> None:
        if not isinstance(value, list):
            problems.append(f"{where} {value!r} is not a list, such as [{value!r}]")
            return
        for item in value:
            one(where, item, kinds, what)

    for name in ("bridge", "uplink", "address", "subnet", "resolver_address", "names_range"):
        one(f"network_{name}", policy[name], (str,), TEXT)
    for name in ("connection_limit", "confirm_seconds", "lease_seconds"):
        if isinstance(policy[name], bool) or not str(policy[name]).lstrip("-").isdecimal():
            problems.append(f"network_{name} {policy[name]!r} is not a number")
    some("network_special_ranges", policy["special_ranges"], (str,), TEXT)
    for name in ("guests", "flows"):
        some(f"network_{name}", policy[name], (dict,), "an entry with keys and values")
    one("network_name_addresses", policy["name_addresses"], (dict,), "a list of `name: address`")
    if problems:
        return problems
    for name, text in policy["name_addresses"].items():
        one("network_name_addresses: name", name, (str,), TEXT)
        one(f"network_name_addresses: {name}", text, (str,), TEXT)
    for guest in policy["guests"]:
        for key in ("name", "address", "mac", "port"):
            one(f"network_guests: {key}", guest.get(key), (str,), TEXT)
    for flow in policy["flows"]:
        name = flow.get("name")
        where = f"network_flows: {name if str(name).isprintable() else repr(name)}:"
        one("network_flows: name", name, (str,), TEXT)
        ones = flow.get("from")
        some(f"{where} from", ones if isinstance(ones, list) else [ones], (str,), "a guest's name")
        some(f"{where} ports", flow.get("ports"), (int, str), "a number")
        one(f"{where} to", "" if flow.get("to") is None else flow["to"], (str,), TEXT)
        one(f"{where} private", flow.get("private", False), (bool,), "true or false, without quotes")
        some(f"{where} names", flow.get("names", []), (str,), "a DNS name")
        some(f"{where} modes", flow.get("modes", []), (str,), "a mode")
    return problems


class FilterModule:
    """The filter that tasks/preflight.yml asks first."""

    def filters(self) -> dict[str, Any]:
        """The filter by its name."""
        return {"glasslab_network_kinds": policy_kinds}
