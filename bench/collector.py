"""What the embedded collector bears: acknowledged events a second at full durability, and its page over a full store.

    .venv/bin/python bench/collector.py [--json] [--profile] [--events 1000000]
    .venv/bin/python bench/collector.py --disk-full   (as root: fills a file system of its own, in a mount namespace)

It needs no lab: it runs `glasslab collector` on loopback, TLS included, and speaks to it over connections that stay
open, from processes of their own that do little else. Every event counted was acknowledged, so it was synced to the
disk before (WAL, synchronous=FULL). `--profile` says where the collector's threads are that do not wait
(a thread in SQLite is computing or syncing), and whose its CPU time is.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "agent_src" / "tests"))

import loglab
from glasslab.collector.config import load_config
from glasslab.collector.server import start
from glasslab.collector.store import FILE, INSERT, Store
from session_sample import make_keys, make_session

SECONDS = 5.0
CLIENTS = 8
ROUNDS = 3
SAMPLE = 0.005  # seconds
WAITING = ("wait", "select", "accept", "read", "do_handshake")  # what a thread without work is in
PAGES = 50
SMALL_MB = 12
PADDING = "x" * 300  # of an event, so that a store is as large as one of real frames


def commits() -> list[tuple[int, bytes]]:
    """The sample session's commits: how many events, and the body of one POST."""
    stored = make_session(make_keys())
    found: list[tuple[int, bytes]] = []
    batch: list[bytes] = []
    for item in stored:
        batch.append(loglab.envelope({**item.event, "padding": PADDING}, time=item.time, sourcetype=item.sourcetype))
        if "sig" in item.event:  # the last frame of a commit is the one that is signed
            found.append((len(batch), b"".join(batch)))
            batch = []
    return found


def request(body: bytes) -> bytes:
    """A whole request."""
    head = f"POST /services/collector HTTP/1.1\r\nHost: localhost\r\nAuthorization: Splunk {loglab.AGENT_TOKEN}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def client(port: int, ca: str, bodies: list[tuple[int, bytes]], seconds: float, told: Any) -> None:
    """Send bodies in turn over one connection for so long; tell how many events and requests were acknowledged."""
    ready = [(count, request(body)) for count, body in bodies]
    context = ssl.create_default_context(cafile=ca)
    events = posts = 0
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            count, whole = ready[posts % len(ready)]
            connection.sendall(whole)
            if b'"code":0' not in connection.recv(4096):
                raise SystemExit("an event was not acknowledged")
            events += count
            posts += 1
    told.put((events, posts))


def collector(home: str, told: Any, profile: bool) -> None:
    """Run a collector until SIGTERM; tell its CPU time, and with `profile` where its threads' time went."""
    config = load_config(Path(home))
    samples: Counter[str] = Counter()
    store = Store(config.home / FILE, config.retention)
    began = time.process_time()
    servers = start(config, store, "127.0.0.1", [loglab.SEARCH_TOKEN], 256)
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    told.put([server.port for server in servers])
    # Not cProfile: since Python 3.12 one profiler is for the whole process, and mixes its threads' calls.
    while not done.wait(SAMPLE if profile else None):
        samples.update(working())
    spent = time.process_time() - began
    writer = time.clock_gettime(time.pthread_getcpuclockid(store._thread.ident or 0))
    told.put(spent)
    for server in servers:
        server.stop(0.2)
    store.close()
    if profile:
        whole = sum(samples.values()) or 1
        found = "".join(f"{count / whole:6.1%}  {place}\n" for place, count in samples.most_common(8))
        told.put(f"{found}of its CPU time {writer / spent:.0%} are the writer's, the rest HTTP's, TLS's and JSON's\n")


def working() -> list[str]:
    """Where the threads are that do not wait: the function at work, and what of ours called it."""
    found = []
    for number, frame in sys._current_frames().items():
        if number == threading.get_ident() or frame.f_code.co_name in WAITING:
            continue
        ours: Any = frame
        while ours is not None and "glasslab" not in ours.f_code.co_filename:
            ours = ours.f_back
        caller = f"  < {Path(ours.f_code.co_filename).name}:{ours.f_code.co_name}" if ours not in (None, frame) else ""
        found.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}{caller}")
    return found


class Running:
    """A collector in a process of its own."""

    def __init__(self, home: Path, *, profile: bool = False) -> None:
        """Start it; the ports of HEC, search and page are known then."""
        self.told: Any = multiprocessing.Queue()
        # A daemon: a measurement that fails leaves none behind.
        self.process = multiprocessing.Process(target=collector, args=(str(home), self.told, profile), daemon=True)
        self.process.start()
        self.ports: list[int] = self.told.get(timeout=120)
        self.profile = profile

    def stop(self) -> tuple[float, str]:
        """End it; return its CPU time in seconds, and its profile."""
        self.process.terminate()
        seconds = float(self.told.get(timeout=60))
        text = self.told.get(timeout=60) if self.profile else ""
        self.process.join(30)
        return seconds, str(text)


def rate(ca: Path, running: Running, bodies: list[tuple[int, bytes]]) -> tuple[float, float]:
    """Events and requests a second that all clients had acknowledged."""
    told: Any = multiprocessing.Queue()
    arguments = (running.ports[0], str(ca), bodies, SECONDS, told)
    clients = [multiprocessing.Process(target=client, args=arguments, daemon=True) for _ in range(CLIENTS)]
    for one in clients:
        one.start()
    found = [told.get(timeout=60) for _ in clients]
    for one in clients:
        one.join()
    return sum(events for events, _ in found) / SECONDS, sum(posts for _, posts in found) / SECONDS


def throughput(folder: Path, *, profile: bool) -> list[dict[str, Any]]:
    """Acknowledged events a second: in the sample session's commits, and one by one."""
    ca = loglab.make_home(folder)
    whole = commits()
    single = [(1, loglab.envelope({"kind": "x", "session_id": "s", "padding": PADDING}, sourcetype="agent:trace"))]
    results = []
    for design, bodies in (("in the sample session's commits", whole), ("one by one", single)):
        running = Running(folder, profile=profile)
        rates = [rate(ca, running, bodies) for _ in range(ROUNDS)]
        seconds, text = running.stop()
        if profile:
            sys.stderr.write(f"\n{design}: where its threads are that do not wait\n{text}")
        events = sorted(each for each, _ in rates)
        result = {"name": "collector", "design": design, "unit": "acknowledged events/s", "n": ROUNDS}
        results.append(result | {"median": round(statistics.median(events)), "p95": round(events[0])})
        # What a busy machine does not change: the collector's own CPU time for an event.
        spent = round(seconds * 1e6 / (sum(events) * SECONDS))
        cpu = {"name": "collector", "design": f"{design}, its CPU time", "unit": "µs an event", "n": ROUNDS}
        results.append(cpu | {"median": spent, "p95": spent})
    return results


def seed(folder: Path, events: int) -> str:
    """Fill a store with copies of the sample session; return the id of one in the middle."""
    stored = make_session(make_keys())
    sessions = events // len(stored) + 1
    store = Store(folder / FILE)
    began = time.time() - sessions
    database = store._writing
    for first in range(0, sessions, 500):
        rows = []
        for number in range(first, min(first + 500, sessions)):
            for item in stored:
                event = {**item.event, "session_id": f"session-{number}", "padding": PADDING}
                at = began + number + (item.time - stored[0].time)
                text = json.dumps(event, separators=(",", ":"))
                row = (at, "agent", item.source, item.sourcetype, "agents", text, event["session_id"], None, at, "")
                rows.append(row)
        database.execute("BEGIN")
        database.executemany(INSERT, rows)
        database.execute("COMMIT")
    store.close()
    return f"session-{sessions // 2}"


def pages(folder: Path, events: int) -> list[dict[str, Any]]:
    """Milliseconds from the request to the whole page, over a connection that stays open."""
    ca = loglab.make_home(folder)
    middle = seed(folder, events)
    running = Running(folder)
    results = []
    with loglab.requests.Session() as session:
        session.trust_env = False
        session.verify = str(ca)
        session.headers["Authorization"] = f"Bearer {loglab.SEARCH_TOKEN}"
        for design, path in (("a session", f"/sessions/{middle}"), ("the list of sessions", "/")):
            times = []
            for _ in range(PAGES + 1):
                began = time.perf_counter()
                answer = session.get(f"https://127.0.0.1:{running.ports[2]}{path}", timeout=60)
                times.append((time.perf_counter() - began) * 1000)
                answer.raise_for_status()
            times = sorted(times[1:])  # the first opens the connection and compiles the templates
            result = {"name": "collector's page", "design": f"{design}, {events} events stored", "unit": "ms"}
            p95 = round(times[math.ceil(0.95 * len(times)) - 1], 1)
            results.append(result | {"median": round(statistics.median(times), 1), "p95": p95, "n": PAGES})
    running.stop()
    return results


def disk_full(folder: Path) -> None:
    """Fill a small file system with events, make room, and compare what is stored with what was acknowledged."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "glasslab-bench", str(folder)], check=True)
    ca = loglab.make_home(folder / "splunk")
    running = Running(folder / "splunk")
    answers: Counter[str] = Counter()
    acknowledged: list[str] = []
    with loglab.requests.Session() as session:
        session.trust_env = False
        session.verify = str(ca)
        session.headers["Authorization"] = f"Splunk {loglab.AGENT_TOKEN}"
        base = f"https://127.0.0.1:{running.ports[0]}/services/collector"

        def send(number: int) -> None:
            answer = session.post(base, data=loglab.envelope(f"{number} {PADDING * 60}"), timeout=30)
            answers[f"{answer.status_code} code {answer.json()['code']}"] += 1
            acknowledged.extend([str(number)] * (answer.status_code == 200))

        for number in range(2 * SMALL_MB * 60):
            send(number)
        said = session.get(f"{base}/health", timeout=30)
        health = f"{said.status_code} code {said.json()['code']}"
        subprocess.run(["mount", "-o", f"remount,size={2 * SMALL_MB}m", str(folder)], check=True)
        full = len(acknowledged)
        send(-1)
    running.stop()
    store = Store(folder / "splunk" / FILE)
    kept = [event.raw.partition(" ")[0] for event in store.select("1", ())]
    store.close()
    lost, extra = len(set(acknowledged) - set(kept)), len(kept) - len(acknowledged)
    print(f"answers: {dict(answers)}; health while full: {health}; with room again: {len(acknowledged) - full} taken")
    print(f"{len(acknowledged)} events acknowledged, {lost} of them lost, {extra} stored that were not acknowledged")


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--profile", action="store_true", help="say where the collector's time goes (slows it down)")
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N", help="events in the store (0: no page)")
    parser.add_argument(
        "--disk-full", action="store_true", help="as root: what becomes of events when the disk is full"
    )
    given = parser.parse_args()
    if given.disk_full:
        with tempfile.TemporaryDirectory(prefix="glasslab-bench-") as folder:
            disk_full(Path(folder))
            subprocess.run(["umount", folder], check=True)
        return
    with tempfile.TemporaryDirectory(prefix="glasslab-bench-") as folder:
        results = throughput(Path(folder) / "hec", profile=given.profile)
        if given.events:
            results += pages(Path(folder) / "page", given.events)
    if given.json:
        print(json.dumps(results))
        return
    for one in results:
        worst = "worst" if one["unit"].endswith("/s") else "p95"
        print(f"{one['name']:<17} {one['design']:<46} median {one['median']} {one['unit']}, {worst} {one['p95']}")


if __name__ == "__main__":
    main()
