"""Who is let in, and permission checks that take effect."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from fakepve.model import PveError

from .directory import ROOT, AuthenticationError, Directory

Values = dict[str, Any]
#: Set while fakepve runs code of its own whose checks were made here already, as Proxmox makes them.
_checked: contextvars.ContextVar[bool] = contextvars.ContextVar("checked", default=False)


class AccessApi:
    """Mixin of the double: who may do what."""

    directory: Directory

    # ---------------------------------------------------------------- checks

    @contextlib.contextmanager
    def already_checked(self) -> Iterator[None]:
        """Inside it, fakepve's own coarser checks let everything through."""
        before = _checked.set(True)
        try:
            yield
        finally:
            _checked.reset(before)

    def allowed(self, user: str | None, path: str, priv: str) -> bool:
        """Whether somebody holds a privilege at a path."""
        if _checked.get() or user == ROOT:
            return True
        self._sync_directory()
        return user is not None and priv in self.directory.permissions(user, path)

    def check(self, user: str, path: str, *privileges: str) -> None:
        """Raise Proxmox's 403 unless somebody holds ONE of these privileges at a path."""
        if not any(self.allowed(user, path, privilege) for privilege in privileges):
            raise PveError(403, f"Permission check failed ({path}, {'|'.join(privileges)})")

    def check_permissions(self, user: str | None, perms: Any, values: Values, declared: Any = None) -> None:
        """The rule that the schema gives for a call; only root@pam itself is above it, none of its tokens."""
        if user == ROOT or _checked.get():
            return
        if self.version_pair < (9, 0):
            perms = _before_nine(perms)
        if perms and (perms.get("check") or [None])[0] == "perm-modify":
            self._check_may_grant(str(user), str(values.get("path", "")))
            return
        rule = perms or {}
        if "check" in rule:
            good, why = self._check(user, rule["check"], values, declared)
        else:
            good, why = rule.get("user") in ("all", "world"), "user != root@pam"
        if not good:
            raise PveError(403, f"Permission check failed ({why})" if why else "Permission check failed")

    def _check_may_grant(self, user: str, path: str) -> None:
        """Whoever may make a storage, VM or pool may also hand out rights to it."""
        area = path.split("/")[1] if path.startswith("/") else ""
        also = {"storage": ("Datastore.Allocate",), "vms": ("VM.Allocate",), "pool": ("Pool.Allocate",)}.get(area, ())
        self.check(user, path, "Permissions.Modify", *also)

    def _authenticate(self, request: Any) -> str | None:
        """A token's secret, or fakepve's ticket; then the account must still be open."""
        prefix = "PVEAPIToken="
        header = request.headers.get("Authorization", "")
        try:
            if header.startswith(prefix):
                name, _, secret = header[len(prefix) :].partition("=")
                if "!" not in name:
                    raise AuthenticationError("no tokenid specified")
                self.directory.check_token(name, secret)
                return name
            user: str | None = super()._authenticate(request)
            if user is not None:
                self.directory.check_enabled(user)
        except AuthenticationError as error:
            raise PveError(401, str(error)) from error
        return user


def _before_nine(perms: Any) -> Any:
    """The agent's privileges of Proxmox VE 9 in a permission rule, as the single one they were before."""
    if isinstance(perms, dict):
        return {key: _before_nine(value) for key, value in perms.items()}
    if isinstance(perms, list):
        renamed = ["VM.Monitor" if str(each).startswith("VM.GuestAgent.") else _before_nine(each) for each in perms]
        return [each for n, each in enumerate(renamed) if each != "VM.Monitor" or each not in renamed[:n]]
    return perms
