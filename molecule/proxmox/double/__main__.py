"""python -m double: start the double, say on one line that it is ready, end at SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

from . import certificates
from .directory import ROOT, Rule, User
from .faults import FaultFileError, parse
from .guests import EmulatedDouble
from .server import Double
from .state import SeedError, apply_seed

ROOT_TOKEN = "double"  # noqa: S105 - the name of a token, not its secret


class UsageError(Exception):
    """A value on the command line, or a file it names, that cannot be used."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m double", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8006, help="port, 0 for a free one (default: %(default)s)")
    parser.add_argument("--state", type=Path, required=True, help="folder for certificates, request log, VM states")
    parser.add_argument("--faults", type=Path, help="JSON file of faults, read again at every request")
    parser.add_argument("--seed", type=Path, help="JSON file of what is there before: VMs, storages, bridges")
    parser.add_argument("--version", help="Proxmox VE version to claim (default: the seed's, or 9.0.10)")
    parser.add_argument("--nodes", default="pve", help="names of the cluster's nodes, by commas (default: %(default)s)")
    parser.add_argument("--images", type=Path, help="folder of files that 'download-url' finds by name (STATE/images)")
    parser.add_argument(
        "--token",
        default="glasslab@pve!lab",
        help="USER!ID of a token that may do everything, or 'none' (default: %(default)s)",
    )
    parser.add_argument(
        "--time-scale", type=float, default=0.0, help="seconds for one of Proxmox's; 0: tasks end at once"
    )
    parser.add_argument("--guests", choices=("none", "qemu"), default="none", help="real guests behind the API")
    parser.add_argument("--lab-id", help="with --guests qemu: the embedded lab that guests on vmbr1 plug into")
    parser.add_argument(
        "--ssh-port-base",
        type=int,
        default=20000,
        help="other guests' SSH is at 127.0.0.1, this port plus the VMID (default: %(default)s)",
    )
    return parser


def read_json(path: Path, what: str) -> Any:
    """A JSON file, or UsageError with its name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{what} {path}: {error}") from error


def build(options: argparse.Namespace, password: str) -> Double:
    """The double that the command line asks for, seeded, not yet listening."""
    seed = read_json(options.seed, "seed") if options.seed else {}
    version = options.version or seed.pop("version", "9.0.10")
    if options.faults and options.faults.exists():
        parse(options.faults.read_text(encoding="utf-8"))
    options.state.mkdir(parents=True, exist_ok=True)
    kind = EmulatedDouble if options.guests == "qemu" else Double
    double = kind(
        host=options.host,
        port=options.port,
        state=options.state,
        version=version,
        nodes=[name for name in options.nodes.split(",") if name],
        password=password,
        faults=options.faults,
    )
    double.time_scale = options.time_scale
    if isinstance(double, EmulatedDouble):
        # What guests do takes real time: tasks run behind the answer, as on a real host.
        double.time_scale = options.time_scale or 0.001
        double.open_guests(options.state / "guests", options.ssh_port_base, options.lab_id)
    if options.images:
        double.images = options.images
    seed.pop("version", None)
    apply_seed(double, seed)
    return double


def token_of(double: Double, text: str) -> dict[str, str] | None:
    """The token that may do everything without being root, unless nobody wants one."""
    if text == "none":
        return None
    user, _, name = text.partition("!")
    if "@" not in user or not name:
        raise UsageError(f"--token {text}: give USER@REALM!ID, or none")
    double.directory.users.setdefault(user, User(user))
    token = double.directory.add_token(user, name, privsep=False)
    double.directory.set_rule(Rule("/", "user", user, "Administrator"))
    return {"user": user, "id": name, "secret": token.secret}


async def serve(options: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    password = secrets.token_urlsafe(12)
    double = build(options, password)
    ca, certificate, key = certificates.make(options.state, options.host)
    token = token_of(double, options.token)
    root = double.directory.add_token(ROOT, ROOT_TOKEN, privsep=False)
    await double.start(certificate, key)
    ready = {
        "url": double.url,
        "host": double.host,
        "port": double.port,
        "ca": str(ca.resolve()),
        "node": min(double.nodes),
        "version": double.version,
        "token": token,
        "root": {"user": ROOT, "password": password, "id": ROOT_TOKEN, "secret": root.secret},
        "requests": str((options.state / "requests.jsonl").resolve()),
        "vms": str((options.state / "vms").resolve()),
        "pid": os.getpid(),
    }
    print(json.dumps(ready), flush=True)
    await ended.wait()
    await double.stop()


def main() -> int:
    """The program; what it cannot do is one line on standard error."""
    options = arguments().parse_args()
    try:
        asyncio.run(serve(options))
    except (UsageError, SeedError, FaultFileError, OSError) as error:
        print(f"double: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
