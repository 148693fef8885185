"""One session with the API of a Proxmox VE host; whatever goes wrong there becomes one line that says what to do."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

try:
    import requests
    from proxmoxer import ProxmoxAPI
    from proxmoxer.core import AuthenticationError, ResourceException

    MISSING = ""
except ImportError as error:  # said by the action, as the line it ends with
    MISSING = str(error)

API_OPTIONS: dict[str, Any] = {
    "api_host": {"type": "str", "required": True},
    "api_port": {"type": "int", "default": 8006},
    "api_user": {"type": "str", "required": True},
    "api_password": {"type": "str", "no_log": True},
    "api_token_id": {"type": "str", "no_log": False},
    "api_token_secret": {"type": "str", "no_log": True},
    "ca_path": {"type": "path"},
    "api_timeout": {"type": "int", "default": 60},
}
API_ARGUMENT: dict[str, Any] = {"type": "dict", "required": True, "options": API_OPTIONS}

POLL_SECONDS = 1.0
LOG_LINES = 500
UPID = re.compile(r"UPID:([^:]+):")
DENIED = re.compile(r"Permission check failed \((?P<path>[^,)]+), *(?P<privilege>[^)]+)\)")


class Refused(Exception):
    """The line that says why a call did not succeed; `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, line: str, status: int = 0) -> None:
        super().__init__(line)
        self.status = status


class Session:
    """Calls by path, with certificates verified."""

    def __init__(self, api: dict[str, Any]) -> None:
        if MISSING:
            raise Refused(f"{MISSING}: run `make setup`, and ansible-playbook from .venv/bin")
        if api.get("ca_path") and not Path(api["ca_path"]).is_file():
            raise Refused(
                f"machine_proxmox_ca {api['ca_path']} is no file: copy the node's /etc/pve/local/pve-ssl.pem there "
                "(docs/proxmox.md), or set it to '' when a public CA has issued the node's certificate"
            )
        self._api = api
        self._where = f"https://{api['api_host']}:{api['api_port']}"
        secret = (
            {"token_name": api["api_token_id"], "token_value": api["api_token_secret"] or ""}
            if api.get("api_token_id")
            else {"password": api.get("api_password") or ""}
        )
        try:
            self._session = ProxmoxAPI(
                api["api_host"],
                port=api["api_port"],
                user=api["api_user"],
                verify_ssl=api.get("ca_path") or True,
                timeout=api["api_timeout"],
                **secret,
            )
        except (requests.RequestException, AuthenticationError, OSError) as error:
            raise Refused(self._line(error)) from error

    def call(self, method: str, path: str, parameters: dict[str, Any] | None = None) -> Any:
        """The answer's data. A query may stand in the path."""
        path, _, query = path.strip("/").partition("?")
        words = {**dict(parse_qsl(query)), **(parameters or {})}
        words = {name: int(value) if isinstance(value, bool) else value for name, value in words.items()}
        try:
            return getattr(self._session(path), method)(**words)
        except ResourceException as error:
            raise Refused(self._denied(error), int(error.status_code)) from error
        except (requests.RequestException, AuthenticationError, OSError) as error:
            raise Refused(self._line(error)) from error

    def follow(self, upid: str, seconds: float) -> dict[str, Any] | None:
        """The state of a node's task when it has ended, or None when it has not after so many seconds.

        A lost poll is no lost task: it is asked again until the time is up, and only then told.
        """
        found = UPID.match(upid)
        path = f"nodes/{found[1] if found else ''}/tasks/{upid}"
        until, lost = time.monotonic() + seconds, None
        while True:
            try:
                state, lost = self.call("get", f"{path}/status"), None
            except Refused as error:
                state, lost = {}, error
            if state.get("status") == "stopped":
                return {"exit": str(state.get("exitstatus", "no exit status")), "log": self._log(path)}
            if time.monotonic() >= until:
                break
            time.sleep(POLL_SECONDS)
        if lost is not None:
            raise lost
        return None

    def _log(self, path: str) -> list[str]:
        try:
            lines = self.call("get", f"{path}/log", {"limit": LOG_LINES})
        except Refused:
            return []
        return [str(line.get("t", "")) for line in lines or []]

    def _denied(self, error: ResourceException) -> str:
        """An answer that refuses, with what ends it where that is known."""
        who = f"{self._api['api_user']}!{self._api['api_token_id']}" if self._api.get("api_token_id") else ""
        who = who or self._api["api_user"]
        reason = " ".join(str(error.content).split()).rstrip(". ")
        if error.errors:
            fields = error.errors.items() if isinstance(error.errors, dict) else [("", error.errors)]
            reason += " (" + "; ".join(f"{name}: {' '.join(str(text).split())}" for name, text in fields) + ")"
        if error.status_code == 401:
            return (
                f"{self._where} does not accept {who} ({reason}): see machine_proxmox_user, machine_proxmox_token_id "
                "and machine_proxmox_token_secret, or make the token with playbooks/proxmox_access.yml"
            )
        denied = DENIED.search(reason)
        if denied:
            return (
                f"{who} lacks {denied['privilege']} on {denied['path']}: playbooks/proxmox_access.yml grants what "
                "the lab needs"
            )
        if error.status_code == 403:
            return f"{who} is refused ({reason}): playbooks/proxmox_access.yml grants what the lab needs"
        return f"{self._where} answers {error.status_code}: {reason}"

    def _line(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        if isinstance(error, requests.exceptions.SSLError):
            return (
                f"the certificate of {self._where} is not accepted ({_innermost(text)}): give as machine_proxmox_ca a "
                "copy of the node's /etc/pve/local/pve-ssl.pem (Python before 3.13: /etc/pve/pve-root-ca.pem), or the "
                "CA of a certificate of your own"
            )
        if isinstance(error, requests.exceptions.ReadTimeout):
            return (
                f"{self._where} gave no answer within {self._api['api_timeout']} s: raise machine_proxmox_timeout when "
                "the node is only slow"
            )
        if isinstance(error, AuthenticationError):
            return f"{self._where} does not accept {self._api['api_user']}: {text}"
        if isinstance(error, requests.exceptions.ConnectionError):
            return f"{self._where} does not answer ({_innermost(text)}): see machine_proxmox_host and the way there"
        return f"{self._where}: {_innermost(text)}"


def _innermost(text: str) -> str:
    """Of requests' nested text only what happened."""
    found = re.search(r"(\[SSL[^\]]*\][^'\")]*|\[Errno -?\d+\][^'\")]*|timed out[^'\")]*|Remote end[^'\")]*)", text)
    return " ".join((found[1] if found else text).split()).rstrip(" (")
