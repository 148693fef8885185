"""What stands for the lab's surroundings: which processes there are, in which namespace, and when they are ready."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keys
import netns
import topology
from errors import LabError
from topology import Lab

MODEL_PORT = 443


@dataclass(frozen=True)
class Standin:
    """A process, the namespace it runs in (None: the root one) and the TCP sockets by which it is ready."""

    name: str
    namespace: str | None
    argv: tuple[str, ...]
    ready: tuple[tuple[str, int], ...]

    def command(self, lab: Lab) -> list[str]:
        """The command line, entering the namespace first."""
        enter = [f"--net={netns.path(lab, self.namespace)}"] if self.namespace else []
        return ["nsenter", *enter, *self.argv] if enter else list(self.argv)


def all_of(lab: Lab, model: dict[str, Any] | None) -> list[Standin]:
    """Every stand-in of the lab. Raises LabError for a model specification that is neither a command nor a relay."""
    found = [_resolver(), *(_listener(lab, name) for name in topology.LISTENERS), *_web_hosts(lab)]
    return [*found, model_api(lab, model)] if model else found


def _resolver() -> Standin:
    argv = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--no-poll"]
    argv += ["--pid-file", "--log-facility=-", "--log-queries", "--bind-interfaces", "--cache-size=0"]
    argv += [f"--listen-address={topology.RESOLVER}", "--except-interface=lo", "--local=/#/"]
    argv += [f"--host-record={name},{address}" for name, address in topology.NAMES.items()]
    return Standin("resolver", "internet", tuple(argv), ((topology.RESOLVER, 53),))


def _listener(lab: Lab, name: str) -> Standin:
    addresses, ports = topology.LISTENERS[name]
    targets = tuple((address, port) for address in addresses for port in ports)
    program = (keys.interpreter(), "-S", str(lab.runtime / "program/listeners.py"), name)
    words = (f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address, port in targets)
    return Standin(name, name, (*program, *words), targets)


def _web_hosts(lab: Lab) -> list[Standin]:
    """With TLS once the lab has a certificate for them, which the program's caller makes."""
    certificate, key = (lab.state / f"ca/surroundings.{end}" for end in ("crt", "key"))
    pair = (str(certificate), str(key)) if certificate.exists() and key.exists() else ()
    program = (keys.interpreter(), "-s", "-E", str(lab.runtime / "program/webhosts.py"))
    doh = ("doh", topology.DOH_ADDRESS, (443,) if pair else ())
    packages = ("packages", topology.PACKAGES_ADDRESS, (443, 80) if pair else (80,))
    return [
        Standin(name, "internet", (*program, name, address, *pair), tuple((address, port) for port in ports))
        for name, address, ports in (doh, packages)
        if ports
    ]


def model_api(lab: Lab, model: dict[str, Any]) -> Standin:
    """The model API: the given command inside the internet namespace, or the relay to a model elsewhere."""
    ready = ((topology.MODEL_ADDRESS, MODEL_PORT),)
    command, relay = model.get("command"), model.get("relay")
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command) and not relay:
        return Standin("model", "internet", tuple(command), ready)
    if isinstance(relay, dict) and not command:
        wanted = ("base_url", "certificate", "key")
        if lacking := [part for part in wanted if not isinstance(relay.get(part), str)]:
            raise LabError(f"spec: model.relay lacks {', '.join(lacking)}: give base_url, certificate and key as text")
        argv = [keys.interpreter(), "-s", "-E", str(lab.runtime / "program/relay.py")]
        argv += ["--namespace", str(netns.path(lab, "internet")), "--host", topology.MODEL_ADDRESS]
        argv += ["--port", str(MODEL_PORT), "--base-url", relay["base_url"]]
        argv += ["--cert", relay["certificate"], "--key", relay["key"]]
        argv += ["--ca", relay["ca"]] if relay.get("ca") else []
        return Standin("model", None, tuple(argv), ready)
    raise LabError("spec: model: give either command (a list of words) or relay (base_url, certificate, key, ca)")


def wait_until_ready(
    lab: Lab, wanted: list[Standin], given_up: Callable[[], list[str]], deadline: float = 15.0
) -> None:
    """Return once every stand-in accepts TCP connections.

    Raises LabError with what one printed last when it is late, or at once when `given_up` names it.
    """
    end = time.monotonic() + deadline
    for one in wanted:
        for address, port in one.ready:
            while not _answers(lab, one.namespace or "internet", address, port):
                if time.monotonic() > end or one.name in given_up():
                    raise LabError(f"stand-in {one.name} does not listen on {address}:{port}: {last_words(lab, one)}")
                time.sleep(0.05)


def _answers(lab: Lab, namespace: str, address: str, port: int) -> bool:
    with netns.inside(netns.path(lab, namespace)):
        probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    with probe:
        probe.settimeout(1.0)
        return probe.connect_ex((address, port)) == 0


def log_file(lab: Lab, name: str) -> Path:
    """Where a stand-in's output goes."""
    return lab.logs / f"{name}.log"


def last_words(lab: Lab, one: Standin) -> str:
    """The last line a stand-in printed, with the file for the rest."""
    try:
        lines = log_file(lab, one.name).read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{lines[-1] if lines else 'it printed nothing'} (all of it in {log_file(lab, one.name)})"
