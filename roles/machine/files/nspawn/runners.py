"""One running thing each, inside the supervisor: a machine that may reboot, a stand-in that is started again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import IO, Any

import cgroups
import keys
import machine
import netns
import standins
from errors import LabError
from plugging import Plugger
from standins import Standin
from topology import Lab

AGAIN_AT_MOST = 5  # times within AGAIN_WITHIN seconds; more is a loop, not a reboot or an accident
AGAIN_WITHIN = 60.0
HALT_DEADLINE = 15.0


class _Bound:
    """Counts restarts and says when there were too many."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=AGAIN_AT_MOST)

    def exceeded(self) -> bool:
        now = time.monotonic()
        loop = len(self.times) == AGAIN_AT_MOST and now - self.times[0] < AGAIN_WITHIN
        self.times.append(now)
        return loop


async def _spawn(argv: list[str], output: IO[bytes]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=machine.ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


class MachineRunner:
    """A machine: stopped, running, rebooting or failed."""

    def __init__(self, lab: Lab, name: str, plugger: Plugger) -> None:
        self.lab, self.name, self.plugger = lab, name, plugger
        self.state, self.reason = "stopped", ""
        self.reboots = 0
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.bound = _Bound()

    def report(self) -> dict[str, Any]:
        """What `status` shows."""
        pid = self.process.pid if self.process and self.state == "running" else None
        shown = {"state": self.state, "pid": pid, "reboots": self.reboots}
        return {**shown, "reason": self.reason} if self.reason else shown

    def start(self) -> bool:
        """Boot the machine unless it runs; True when it did."""
        if self.task is not None and not self.task.done():
            return False
        self.state, self.reason = "running", ""
        if self.task is not None:  # it ran before: switching it on again finds an empty network, like a reboot
            self._renew()
        self.task = asyncio.get_running_loop().create_task(self._run())
        return True

    async def _run(self) -> None:
        try:
            with (self.lab.logs / f"{self.name}.console").open("ab") as console:
                while await self._once(console) == machine.REBOOT and self._reboot():
                    pass
        except (LabError, OSError) as error:
            self.state, self.reason = "failed", str(error)
        print(f"machine {self.name}: {self.state} {self.reason}".rstrip(), flush=True)

    async def _once(self, console: IO[bytes]) -> int:
        # what a killed nspawn leaves running would hold the namespace and the disk
        cgroups.kill(self.lab, self.name)
        machine.clear_after_kill(self.lab, self.name)
        self.process = await _spawn(machine.boot_command(self.lab, self.name), console)
        self.state = "running"
        code = await self.process.wait()
        self.state, self.reason = ("stopped", "") if code in (0, machine.REBOOT) else ("failed", f"exit code {code}")
        cgroups.kill(self.lab, self.name)
        keys.forget_connections(self.lab, self.name)
        return code

    def _reboot(self) -> bool:
        if self.bound.exceeded():
            self.state, self.reason = "failed", f"more than {AGAIN_AT_MOST} reboots in {AGAIN_WITHIN:.0f} s"
            return False
        self.state = "rebooting"
        self.reboots += 1
        self._renew()
        print(f"machine {self.name}: reboot {self.reboots}", flush=True)
        return True

    def _renew(self) -> None:
        netns.renew(self.lab, self.name)
        if self.name == "pve":
            self.plugger.open()  # its ports lie in the new namespace

    async def halt(self) -> None:
        """Shut the machine down within a deadline, then by force."""
        if self.task is None or self.task.done():
            return
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.task), HALT_DEADLINE)
        await self.cut()

    async def cut(self) -> None:
        """End the machine at once, as pulling its plug would."""
        if self.task is None or self.task.done():
            return
        self.task.cancel()  # first: it would boot again what is being killed
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        cgroups.kill(self.lab, self.name)
        if self.process is not None:
            await self.process.wait()
        keys.forget_connections(self.lab, self.name)
        self.state, self.reason = "stopped", ""


class StandinRunner:
    """A stand-in, started again when it ends, up to a bound."""

    def __init__(self, lab: Lab, standin: Standin) -> None:
        self.lab, self.standin = lab, standin
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self.bound = _Bound()
        self.stopping = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def running(self) -> bool:
        """True unless it has been given up."""
        return not self.task.done()

    def report(self) -> dict[str, Any]:
        """What `status` shows."""
        pid = self.process.pid if self.process and self.running() else None
        return {"state": "running" if self.running() else "failed", "pid": pid, "restarts": self.restarts}

    async def _run(self) -> None:
        argv = cgroups.launcher(self.lab, "standins", self.standin.command(self.lab))
        with standins.log_file(self.lab, self.standin.name).open("ab") as log:
            while not self.stopping:
                self.process = await _spawn(argv, log)
                code = await self.process.wait()
                if self.stopping or self.bound.exceeded():
                    break
                print(f"stand-in {self.standin.name} ended with {code}: starting it again", flush=True)
                self.restarts += 1
                await asyncio.sleep(0.2)

    def stop(self) -> asyncio.Task[None] | None:
        """Have it end; returns what to wait for."""
        self.stopping = True
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        return None if self.task.done() else self.task
