"""Users, groups, roles, tokens and access rules, and what somebody may do at a path: no I/O, no HTTP."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from .privileges import Version, built_in_roles, privileges

ROOT = "root@pam"
#: Asked for when somebody wants all of their permissions.
LISTED_PATHS = ("/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms")


@dataclass
class Token:
    """An API token of a user."""

    secret: str
    privsep: bool = True
    expire: int = 0
    comment: str | None = None


@dataclass
class User:
    """An account; its password, if it has one, is the API's own matter."""

    name: str
    enable: bool = True
    expire: int = 0
    groups: set[str] = field(default_factory=set)
    details: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """One line of the access list: at this path, this user, group or token has this role."""

    path: str
    kind: str
    name: str
    role: str
    propagate: bool = True


class AuthenticationError(Exception):
    """A token that does not let anybody in, in Proxmox's words."""


class Directory:
    """Who exists and what they may do."""

    def __init__(self, version: Version) -> None:
        self.known = privileges(version)
        self.built_in = built_in_roles(version)
        self.roles: dict[str, frozenset[str]] = dict(self.built_in)
        self.users: dict[str, User] = {ROOT: User(ROOT)}
        self.groups: dict[str, str | None] = {}
        self.rules: list[Rule] = []
        #: pool -> the paths of its members, kept by the server
        self.pools: dict[str, set[str]] = {}

    # ------------------------------------------------------------ logging in

    def check_enabled(self, name: str) -> None:
        """Raise AuthenticationError unless the account exists and is open."""
        user = self.users.get(name)
        if user is None:
            raise AuthenticationError(f"no such user ('{name}')")
        if not user.enable:
            raise AuthenticationError(f"user '{name}' is disabled")
        if user.expire and user.expire < time.time():
            raise AuthenticationError(f"user '{name}' access expired")

    def check_token(self, full_name: str, secret: str) -> None:
        """Raise AuthenticationError unless `USER!TOKEN` exists, is open and has this secret."""
        name, _, token_name = full_name.partition("!")
        self.check_enabled(name)
        token = self.users[name].tokens.get(token_name)
        if token is None:
            raise AuthenticationError(f"no such token '{token_name}' for user '{name}'")
        if token.expire and token.expire < time.time():
            raise AuthenticationError(f"token '{full_name}' access expired")
        if token.secret != secret:
            raise AuthenticationError("invalid token value!")

    def add_token(self, name: str, token_name: str, privsep: bool = True) -> Token:
        """A new token of an existing user."""
        token = Token(str(uuid.uuid4()), privsep)
        self.users[name].tokens[token_name] = token
        return token

    # ----------------------------------------------------------- permissions

    def roles_at(self, who: str, path: str) -> dict[str, bool]:
        """Role -> whether it is handed down, of a user or `USER!TOKEN` at a path.

        The deepest path with a rule for somebody replaces what stands above it; a user's own rule outdoes
        those of their groups at the same path; NoAccess outdoes everything.
        """
        name, _, token_name = who.partition("!")
        user = self.users.get(name)
        if user is None:
            return {}
        if token_name:
            token = user.tokens.get(token_name)
            if token is None:
                return {}
            if not token.privsep:
                return self.roles_at(name, path)
            subjects = [{("token", who)}]
        else:
            subjects = [{("user", name)}, {("group", group) for group in user.groups}]
        found: dict[str, bool] = {}
        for step in _steps(path):
            for subject in subjects:
                here = {
                    rule.role: rule.propagate
                    for rule in self.rules
                    if rule.path == step and (rule.kind, rule.name) in subject and (rule.propagate or step == path)
                }
                if here:
                    found = here
                    break
        return {"NoAccess": found["NoAccess"]} if "NoAccess" in found else found

    def permissions(self, who: str, path: str) -> dict[str, bool]:
        """Privilege -> whether it is handed down, of a user or `USER!TOKEN` at a path."""
        if who == ROOT:
            return dict.fromkeys(self.known, True)
        roles = self.roles_at(who, path)
        if "NoAccess" not in roles:
            for pool, members in self.pools.items():
                if path in members:
                    from_pool = self.roles_at(who, f"/pool/{pool}")
                    if "NoAccess" in from_pool:
                        roles = {"NoAccess": False}
                        break
                    roles = {**dict.fromkeys(from_pool, False), **roles}
        held: dict[str, bool] = {}
        for role, propagate in roles.items():
            for privilege in self.roles.get(role, ()):
                held[privilege] = held.get(privilege, False) or propagate
        name, _, token_name = who.partition("!")
        if token_name:
            of_user = self.permissions(name, path)
            held = {privilege: propagate for privilege, propagate in held.items() if privilege in of_user}
            token = self.users[name].tokens.get(token_name) if name in self.users else None
            if token and not token.privsep:
                held = of_user
        return held

    def all_permissions(self, who: str) -> dict[str, dict[str, bool]]:
        """Path -> privileges, at each path where the user holds any."""
        paths = {*LISTED_PATHS, *(rule.path for rule in self.rules)}
        for members in self.pools.values():
            paths |= members
        found = {path: self.permissions(who, path) for path in sorted(paths)}
        return {path: held for path, held in found.items() if held}

    # ------------------------------------------------------------ access list

    def set_rule(self, rule: Rule, delete: bool = False) -> None:
        """Add a line of the access list in place of the same one, or take it away."""
        same = (rule.path, rule.kind, rule.name, rule.role)
        self.rules = [each for each in self.rules if (each.path, each.kind, each.name, each.role) != same]
        if not delete:
            self.rules.append(rule)

    def forget(self, kind: str, name: str) -> None:
        """Remove the rules of a user (and their tokens), group, token or role that no longer exists."""

        def gone(rule: Rule) -> bool:
            if kind == "role":
                return rule.role == name
            of_token = kind == "user" and rule.kind == "token" and rule.name.startswith(f"{name}!")
            return of_token or (rule.kind, rule.name) == (kind, name)

        self.rules = [rule for rule in self.rules if not gone(rule)]

    def forget_path(self, path: str) -> None:
        """Remove the rules of a VM or storage that no longer exists."""
        self.rules = [rule for rule in self.rules if rule.path != path]


def _steps(path: str) -> Iterator[str]:
    yield "/"
    parts = [part for part in path.split("/") if part]
    for end in range(1, len(parts) + 1):
        yield "/" + "/".join(parts[:end])
