"""Somebody's Splunk, outside of the lab: two collectors as its indexers behind haproxy, and what is its search head.

All of it is in the lab's internet, at splunk.glasslab.test, with certificates of a CA of its own. The balancer keeps a
client at one indexer by a cookie; told not to, it sends every question for acknowledgements to the indexer that did not
take the event. haproxy is the hypervisor's, in its file system, and in the internet's network.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

import lab
from labtools import LAB_ID, ROOT, on

# Names that the lab's internet has (roles/machine/files/nspawn/topology.py).
NAME, ADDRESS = "splunk.glasslab.test", "203.0.113.83"
# The backend's modules are a program of their own: asked from outside.
LEADER = "import machine, sys, topology; print(machine.leader(topology.Lab(sys.argv[1]), 'pve'))"
WRITERS = ("agent", "mcp", "hypervisor", "verifier")
GUEST = {"name": "agent", "address": "10.10.10.10", "mac": "02:10:00:00:00:10", "port": "tap101i0"}
INDEXERS = {"a": (18088, 18089), "b": (28088, 28089)}
SEARCH_HEAD = 38089
NET = f"--net=/run/netns/{LAB_ID}-internet"
BALANCER = """\
global
    maxconn 200
    log stdout format raw local0
defaults
    mode http
    log global
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend hec
    bind {address}:8088 ssl crt /run/elsewhere/splunk.pem
    http-request capture req.hdr(X-Splunk-Request-Channel) len 40
    log-format "served %[capture.req.hdr(0)] %HPO %s"
{choice}
backend sticky
    balance roundrobin
    cookie INDEXER insert indirect nocache
    server a 127.0.0.1:18088 cookie a
    server b 127.0.0.1:28088 cookie b
backend first
    server a 127.0.0.1:18088
backend second
    server b 127.0.0.1:28088
frontend search
    bind {address}:8089 ssl crt /run/elsewhere/splunk.pem
    log-format "searched"
    default_backend head
backend head
    server head 127.0.0.1:38089
"""
STICKY = "    default_backend sticky"
LOOSE = "    use_backend second if { path_end /ack }\n    default_backend first"


class Elsewhere:
    """It stands until `end`."""

    def __init__(self, place: Path) -> None:
        self.place, self.processes = place, list[subprocess.Popen[bytes]]()
        self.tokens = {name: str(uuid.uuid4()) for name in WRITERS}
        self.search_token = secrets.token_hex(20)
        self.ca = place / "ca.crt"
        self.balancer: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Certificates, indexers, search head, balancer."""
        self._certificates()
        (self.place / "search_token").write_text(f"{self.search_token}\n", encoding="ascii")
        for name, ports in INDEXERS.items():
            self._indexer(name, *ports)
        ports = [str(search) for _, search in INDEXERS.values()]
        self._start(NET, sys.executable, str(ROOT / "tests/splunk/searchhead.py"), str(SEARCH_HEAD), *ports)
        self.balance(STICKY)

    def balance(self, choice: str) -> None:
        """The balancer anew, with another way to choose."""
        if self.balancer:
            self.balancer.terminate()
            self.balancer.wait()
        on("pve", "mkdir -p -m 700 /run/elsewhere && cat >/run/elsewhere/splunk.pem", stdin=self.pem)
        config = BALANCER.format(address=ADDRESS, choice=choice)
        on("pve", "cat >/run/elsewhere/haproxy.cfg", stdin=config)
        words = [sys.executable, "-B", "-c", LEADER, LAB_ID]
        place = ROOT / "roles/machine/files/nspawn"
        pid = subprocess.run(words, cwd=place, capture_output=True, text=True, check=True).stdout.strip()
        self.balancer = self._start(
            "-t", pid, "-m", "-r", "-w", NET, "haproxy", "-db", "-f", "/run/elsewhere/haproxy.cfg"
        )
        self._answers()

    def served(self) -> dict[str, set[str]]:
        """By the channel of a client, the indexers that its requests came to."""
        found = defaultdict(set)
        for log in self.place.glob("*.log"):
            for channel, indexer in re.findall(r"^served ([0-9a-f-]{36}) \S+ (\w)$", log.read_text(), re.MULTILINE):
                found[channel].add(indexer)
        return found

    def end(self) -> None:
        """Nothing of it is left in the lab."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(10)
        on("pve", "rm -rf /run/elsewhere")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.place / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                ["nsenter", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def _answers(self) -> None:
        until = time.monotonic() + 20
        knock = f"import socket; socket.create_connection(('{ADDRESS}', 8088), 1)"
        indexers = "".join(f"; socket.create_connection(('127.0.0.1', {one}), 1)" for one, _ in INDEXERS.values())
        words = ["nsenter", NET, sys.executable, "-c", f"{knock}{indexers}"]
        while subprocess.run(words, capture_output=True, check=False).returncode:
            assert time.monotonic() < until, [log.read_text() for log in self.place.glob("*.log")]
            time.sleep(0.2)

    def _indexer(self, name: str, hec: int, search: int) -> None:
        home = self.place / name
        local = home / "etc/apps/glasslab/local"
        shutil.copytree(ROOT / "roles/splunk/files/app", home / "etc/apps/glasslab")
        local.mkdir()
        inputs = f"[http]\ndisabled = 0\nenableSSL = 0\nport = {hec}\n"
        for writer, token in self.tokens.items():
            ack = int(writer in ("agent", "mcp"))
            inputs += f"[http://{writer}]\ntoken = {token}\nindex = agents\nindexes = agents\nuseACK = {ack}\n"
        (local / "inputs.conf").write_text(inputs, encoding="ascii")
        (local / "server.conf").write_text("[sslConfig]\nenableSplunkdSSL = false\n", encoding="ascii")
        (local / "web.conf").write_text(f"[settings]\nmgmtHostPort = 127.0.0.1:{search}\n", encoding="ascii")
        words = ("--splunk-home", str(home), "--search-token-file", str(self.place / "search_token"))
        self._start(NET, str(lab.BIN / "glasslab"), "collector", *words, "--host", "127.0.0.1")

    def _certificates(self) -> None:
        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], cwd=self.place, check=True, capture_output=True)

        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        usage = ("-addext", "keyUsage=critical,keyCertSign")
        openssl(
            "req", "-x509", *new, *usage, "-subj", "/CN=somebody", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt"
        )
        openssl("req", *new, "-subj", "/CN=splunk", "-keyout", "leaf.key", "-out", "leaf.csr")
        about = f"subjectAltName=DNS:{NAME}\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        (self.place / "leaf.ext").write_text(about, encoding="ascii")
        issuer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", "2", "-days", "2", "-extfile", "leaf.ext")
        openssl("x509", "-req", "-in", "leaf.csr", *issuer, "-out", "leaf.crt")

    @property
    def pem(self) -> str:
        """Certificate and key of the balancer."""
        return (self.place / "leaf.crt").read_text() + (self.place / "leaf.key").read_text()


def inventory(place: Path, elsewhere: Elsewhere) -> Path:
    """The embedded lab's inventory as a user changes it: no log machine, and where the Splunk stands."""
    shutil.copytree(ROOT / "inventories/local/group_vars", place / "group_vars")
    settings = place / "group_vars/all.yml"
    text = settings.read_text(encoding="utf-8")
    given = {
        "splunk_mode: collector": "splunk_mode: existing",
        'splunk_existing_hec_url: ""': f"splunk_existing_hec_url: https://{NAME}:8088",
        'splunk_existing_ca: ""': f"splunk_existing_ca: {elsewhere.ca}",
        "splunk_existing_tokens: {}": f"splunk_existing_tokens: {json.dumps(elsewhere.tokens)}",
        "splunk_hec_ack: false": f"splunk_hec_ack: true\nsplunk_existing_search_token: {elsewhere.search_token}",
    }
    for before, after in given.items():
        assert text.count(f"\n{before}\n") == 1, before
        text = text.replace(f"\n{before}\n", f"\n{after}\n")
    settings.write_text(text, encoding="utf-8")
    network = place / "group_vars/hypervisor.yml"
    text = network.read_text(encoding="utf-8")
    told = f"network_name_addresses:\n  {NAME}: 192.0.2.30\n"
    for before, after in {
        "    to: logs\n": f"    names: [{NAME}]\n",
        "network_name_addresses:\n": told,
        "# What may pass;": f"network_guests:\n  - {json.dumps(GUEST)}\n# What may pass;",
    }.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    network.write_text(text, encoding="utf-8")
    hosts = (ROOT / "inventories/local/hosts.yml").read_text(encoding="utf-8")
    head, _, _ = hosts.partition("        logservers:\n")
    (place / "hosts.yml").write_text(f"{head}        logservers: {{}}\n", encoding="utf-8")
    return place
