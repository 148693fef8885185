"""The daemon of one lab: boots its machines, boots them again when they reboot, plugs their ports, keeps stand-ins up.

Usage: supervisor.py LAB_ID (started by lab.py, detached, in its control group). It holds a lock for life, which is how
others know that it lives, and answers requests on a unix socket (control.py), one JSON object a line.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from typing import Any

import cgroups
import control
import runners
import standins
import state
import topology
from errors import LabError
from plugging import Plugger
from topology import Lab


class Supervisor:
    """Everything that runs in one lab, by name."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.plugger = Plugger(lab)
        self.machines = {name: runners.MachineRunner(lab, name, self.plugger) for name in topology.MACHINES}
        self.standins: dict[str, runners.StandinRunner] = {}
        self.model: dict[str, Any] | None = None
        self.ended = asyncio.Event()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request; `changed` says whether it did anything. Raises LabError for an unknown one."""
        verb = request.get("verb")
        if verb == "boot":
            started = [name for name in request["machines"] if self.machines[name].start()]
            return {"changed": bool(started), "started": started}
        if verb in ("halt", "cut"):
            wanted = [one for name in request["machines"] if (one := self.machines[name]).state != "stopped"]
            await asyncio.gather(*(one.halt() if verb == "halt" else one.cut() for one in wanted))
            return {"changed": bool(wanted)}
        if verb == "standins":
            return {"changed": await self.set_standins(request.get("model"))}
        if verb == "status":
            return {
                "changed": False,
                "machines": {name: one.report() for name, one in self.machines.items()},
                "standins": {name: one.report() for name, one in self.standins.items()},
            }
        if verb == "stop":
            self.ended.set()
            return {"changed": True}
        raise LabError(f"unknown request {verb!r}")

    async def hold(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Freeze machines until the client says otherwise, goes away or is too late; True when it said so in time."""
        frozen = []
        try:
            for name in request["machines"]:
                frozen.append(name)
                cgroups.freeze(self.lab, self.machines[name].name, on=True)
            writer.write(json.dumps({"changed": True, "frozen": frozen}).encode() + b"\n")
            return bool(await asyncio.wait_for(reader.readline(), float(request["seconds"])))
        except TimeoutError:
            return False
        finally:
            for name in frozen:
                cgroups.freeze(self.lab, name, on=False)

    async def set_standins(self, model: dict[str, Any] | None) -> bool:
        """Start the stand-ins that are missing and replace the one whose command changed; True when it did any."""
        changed = False
        for one in standins.all_of(self.lab, model):
            runner = self.standins.get(one.name)
            if runner is not None and runner.standin == one and runner.running():
                continue
            if runner is not None and (ending := runner.stop()):
                await ending  # it holds the address, and would still answer in its successor's place
            self.standins[one.name] = runners.StandinRunner(self.lab, one)
            changed = True
        self.model = model
        return changed

    async def shut_down(self) -> None:
        """Halt the machines, as pressing their power buttons would, then end what is left."""
        await asyncio.gather(*(one.halt() for one in self.machines.values()))
        await asyncio.gather(*(task for one in self.standins.values() if (task := one.stop())))


async def serve(lab: Lab) -> None:
    """Run the supervisor until it is told to stop."""
    supervisor = Supervisor(lab)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            if request.get("verb") == "freeze":
                reply = {"changed": False, "held": await supervisor.hold(request, reader, writer)}
            else:
                reply = await supervisor.answer(request)
        except (LabError, ValueError, KeyError, TypeError) as error:
            reply = {"error": str(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.ended.set)
    supervisor.plugger.open()
    where = control.socket_path(lab)
    where.unlink(missing_ok=True)
    old = os.umask(0o177)
    server = await asyncio.start_unix_server(client, path=where)
    os.umask(old)
    print(f"supervisor {os.getpid()} of lab {lab.lab_id} is ready", flush=True)
    await supervisor.ended.wait()
    server.close()
    await supervisor.shut_down()


def main() -> int:
    """Take the lock and serve; 1 when another supervisor of this lab lives."""
    lab = topology.lab(sys.argv[1])
    with state.supervisor_lock(lab).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lab {lab.lab_id} has a living supervisor already", file=sys.stderr)
            return 1
        (lab.runtime / "supervisor.pid").write_text(f"{os.getpid()}\n")
        asyncio.run(serve(lab))
    return 0


if __name__ == "__main__":
    sys.exit(main())
