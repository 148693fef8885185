"""Run in a machine, as root: are a service's TasksMax and MemoryMax more than words? Usage: limits.py UNIT

Two processes of this program's go into the unit's own control group. One makes children until it may not; the other
takes more memory than the unit may have. Prints one JSON object with what the kernel did.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

GROUPS = pathlib.Path("/sys/fs/cgroup")
MEGABYTE = 1 << 20


def group_of(unit):
    shown = subprocess.run(
        ["systemctl", "show", "-P", "ControlGroup", unit], capture_output=True, text=True, check=True
    )
    return GROUPS / shown.stdout.strip().lstrip("/")


def events(group, name):
    lines = (group / name).read_text(encoding="ascii").splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def inside(group, work):
    """Run work in a child in that group; how the child ended, and what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    said = b""
    while data := os.read(reader, 100):
        said += data
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return status, said.decode()


def breed():
    children, refused = [], False
    for _ in range(1000):
        try:
            child = os.fork()
        except BlockingIOError:
            refused = True
            break
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return f"{len(children)} {refused}"


def eat(limit):
    # The kernel is to choose this one, not the service: what is proven is the limit, not the service's luck.
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    held = []
    with contextlib.suppress(MemoryError):
        for _ in range(limit // MEGABYTE + 256):
            held.append(bytearray(os.urandom(4096)) * 256)
    return len(held)


def main():
    group = group_of(sys.argv[1])
    tasks = (group / "pids.max").read_text(encoding="ascii").strip()
    memory = (group / "memory.max").read_text(encoding="ascii").strip()
    before = events(group, "pids.events")["max"], events(group, "memory.events")["oom_kill"]
    _, bred = inside(group, breed)
    after_tasks = events(group, "pids.events")["max"]
    status, _ = inside(group, lambda: eat(int(memory)))
    result = {
        "tasks_max": tasks,
        "memory_max": memory,
        "children": int(bred.split()[0]),
        "fork_refused": bred.split()[1] == "True",
        "pids_events": after_tasks - before[0],
        "eater_killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
    }
    # The group is gone for a moment when systemd starts the service anew.
    with contextlib.suppress(OSError):
        result["oom_kills"] = events(group, "memory.events")["oom_kill"] - before[1]
    print(json.dumps(result))


main()
