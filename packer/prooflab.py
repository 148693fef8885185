"""What a machine made from a template is proven with: QEMU in software emulation, a collector and a scripted model.

All of it on loopback: the machine's own network is cut off but for the two doors that QEMU forwards, connection by
connection, to the collector and the model of this machine.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import yaml

import seeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = ROOT / ".venv/bin"
# As the machine sees them: QEMU's user network is 10.0.2.0/24.
LOG, MODEL = "10.0.2.100", "10.0.2.101"
# A boot has so much of the processor, and of the clock so much at most: on a busy machine the two are far apart.
BOOT_PROCESSOR_SECONDS = 300.0
BOOT_SECONDS = 1800
SSH_SECONDS = 30
SSH_FAILED = 255
# An instruction takes 2 to the power of this many nanoseconds of the machine's own time: a processor of 250 MIPS, about
# what emulation makes of a core that has nothing else to do.
NANOSECONDS_SHIFT = 2


class ProofError(Exception):
    """Something is not as it has to be; the message is one line."""


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def openssl(*words: str) -> None:
    """Run openssl. Raises ProofError with its last line."""
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ProofError(f"openssl {words[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def authority(place: Path) -> None:
    """A CA and one P-256 certificate for both doors: ca.crt, server.crt, server.key."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    ca = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    openssl(
        "req", "-x509", *curve, "-subj", "/CN=proof CA", *ca, "-keyout", f"{place}/ca.key", "-out", f"{place}/ca.crt"
    )
    openssl("req", *curve[:-2], "-subj", "/CN=proof", "-keyout", f"{place}/server.key", "-out", f"{place}/server.csr")
    (place / "extensions").write_text(
        f"subjectAltName=IP:{LOG},IP:{MODEL},IP:127.0.0.1\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
        encoding="ascii",
    )
    issuer = ["-CA", f"{place}/ca.crt", "-CAkey", f"{place}/ca.key", "-CAcreateserial", "-days", "2"]
    files = ["-extfile", f"{place}/extensions", "-in", f"{place}/server.csr", "-out", f"{place}/server.crt"]
    openssl("x509", "-req", *issuer, *files)


@dataclass
class Surroundings:
    """Collector and model, on loopback, until `end`."""

    place: Path
    log_port: int = field(default_factory=free_port)
    search_port: int = field(default_factory=free_port)
    model_port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    tokens: dict[str, str] = field(default_factory=lambda: {name: str(uuid.uuid4()) for name in ("agent", "mcp")})
    search_token: str = field(default_factory=lambda: secrets.token_hex(20))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self) -> None:
        """Make the certificates, write the collector's configuration from the role's own templates, start both."""
        authority(self.place)
        home = self.place / "splunk"
        local, auth = home / "etc/apps/glasslab/local", home / "etc/auth/glasslab"
        for folder in (local, auth, home / "var"):
            folder.mkdir(parents=True)
        texts = [(self.place / name).read_text(encoding="ascii") for name in ("server.crt", "server.key")]
        (auth / "server.pem").write_text("".join(texts), encoding="ascii")
        loader = jinja2.FileSystemLoader(ROOT / "roles/splunk/templates")
        templates = jinja2.Environment(
            loader=loader,
            trim_blocks=True,
            autoescape=False,  # noqa: S701 - no HTML: these are Splunk's .conf files
            undefined=jinja2.StrictUndefined,
        )
        defaults = yaml.safe_load((ROOT / "roles/splunk/defaults/main.yml").read_text(encoding="utf-8"))
        given = defaults | {
            "ansible_managed": "proof",
            "splunk_home": str(home),
            "splunk_enterprise": False,
            "splunk_hec_accept_from": [],
            "splunk_hec_ack": False,
            "splunk_index": "agents",
            "splunk_index_days": 1,
            "splunk_index_max_mb": 100,
            "splunk_hec_port": self.log_port,
            "splunk_management_port": self.search_port,
            "splunk_hec_tokens": self.tokens,
            "splunk_web_port": self.web_port,
        }
        for name in ("indexes.conf", "inputs.conf", "server.conf", "web.conf"):
            text = templates.get_template(f"{name}.j2").render(given).replace("0.0.0.0:", "127.0.0.1:")
            (local / name).write_text(text, encoding="utf-8")
        token = self.place / "search_token"
        token.write_text(f"{self.search_token}\n", encoding="ascii")
        self.start("collector", "--splunk-home", str(home), "--search-token-file", str(token), "--host", "127.0.0.1")
        keys = ["--cert", f"{self.place}/server.crt", "--key", f"{self.place}/server.key"]
        self.start("scripted", "sample", "--host", "127.0.0.1", "--port", str(self.model_port), *keys)
        for port in (self.log_port, self.search_port, self.model_port):
            self.wait(port)

    def start(self, *words: str) -> None:
        """Start a program of glasslab's."""
        with (self.place / f"{words[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                [BIN / "glasslab", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)

    def wait(self, port: int) -> None:
        """Wait until a port of loopback takes connections. Raises ProofError after half a minute."""
        deadline = time.monotonic() + SSH_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise ProofError(f"nothing listens on 127.0.0.1:{port}: see {self.place}/collector.log and scripted.log")

    def session(self, session_id: str) -> list[str]:
        """The kinds of a session's trace frames, as the log has them."""
        environment = os.environ | {
            "SPLUNK_URL": f"https://127.0.0.1:{self.search_port}",
            "SPLUNK_TOKEN_FILE": f"{self.place}/search_token",
            "HEC_CA": f"{self.place}/ca.crt",
        }
        argv = [BIN / "glasslab", "trace", session_id, "--json"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProofError(f"the log does not show the session: {done.stderr.strip()}")
        events = json.loads(done.stdout)["events"]
        return [str(event["event"]["kind"]) for event in events if event["sourcetype"] == "agent:trace"]

    def end(self) -> None:
        """Stop what was started."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(SSH_SECONDS)


@dataclass
class Guest:
    """A machine made from an image, which itself stays as it is."""

    image: Path
    place: Path
    surroundings: Surroundings
    memory: int = 1024
    quick: bool = False
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the seed and the disk, and start QEMU."""
        key = seeds.key_pair(self.place)
        seeds.cloud_init(self.place / "seed", f"proof-{uuid.uuid4().hex[:8]}", "root", key)
        make = ["xorriso", "-as", "mkisofs", "-quiet", "-V", "cidata", "-J", "-r", "-o", f"{self.place}/seed.iso"]
        subprocess.run([*make, f"{self.place}/seed"], check=True, capture_output=True)
        overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(self.image.resolve())]
        subprocess.run([*overlay, f"{self.place}/disk.qcow2"], check=True)
        door = f"cmd:{sys.executable} -S {HERE / 'door.py'}"
        net = (
            f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
            f",guestfwd=tcp:{LOG}:8088-{door} {self.surroundings.log_port}"
            f",guestfwd=tcp:{MODEL}:443-{door} {self.surroundings.model_port}"
        )
        argv = ["qemu-system-x86_64", "-machine", "q35", "-cpu", "Nehalem"]
        if self.quick:
            argv += ["-accel", "tcg,thread=multi,tb-size=512"]
        else:
            # Its clock counts instructions: what it has to do in time, it does, however little of a processor it gets.
            argv += ["-accel", "tcg,thread=single,tb-size=512", "-icount", f"shift={NANOSECONDS_SHIFT}"]
        argv += ["-smp", "2", "-m", str(self.memory), "-display", "none", "-serial", f"file:{self.place}/console.log"]
        argv += ["-drive", f"file={self.place}/disk.qcow2,if=virtio,cache=unsafe,discard=unmap"]
        argv += ["-drive", f"file={self.place}/seed.iso,if=virtio,format=raw,readonly=on"]
        argv += ["-netdev", net, "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci"]
        with (self.place / "qemu.log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def ssh_options(self) -> list[str]:
        """Options of ssh for this machine, whose host key nobody has seen before."""
        known = ["-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]
        return [*known, "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10", "-i", f"{self.place}/id_ed25519"]

    def run(self, command: str, stdin: str = "", seconds: float = 240) -> subprocess.CompletedProcess[str]:
        """Run a command there as root."""
        argv = ["ssh", *self.ssh_options(), "-p", str(self.port), "root@127.0.0.1", "--", command]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)

    def say(self, command: str, stdin: str = "") -> str:
        """What a command prints. Raises ProofError when it fails."""
        done = self.run(command, stdin)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no message"])[-1]
            raise ProofError(f"{command.splitlines()[0]}: {last}")
        return done.stdout.strip()

    def wait(self, unlike: str = "") -> str:
        """Wait until SSH answers, in another boot than that; return the boot's id. Raises ProofError."""
        deadline, spent = time.monotonic() + BOOT_SECONDS, self.spent()
        while time.monotonic() < deadline and self.spent() - spent < BOOT_PROCESSOR_SECONDS:
            if self.process and self.process.poll() is not None:
                raise ProofError(f"QEMU has ended: see {self.place}/qemu.log")
            try:
                done = self.run("cat /proc/sys/kernel/random/boot_id", seconds=SSH_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            up = done.returncode == 0 and done.stdout.strip() != unlike
            # cloud-init starts the SSH server anew when it has made the keys.
            if up and self.run("cloud-init status --wait", seconds=BOOT_SECONDS).returncode != SSH_FAILED:
                return done.stdout.strip()
            time.sleep(1)
        used = f"{self.spent() - spent:.0f} s of the processor"
        raise ProofError(f"no SSH within {BOOT_SECONDS} s or {used}: see {self.place}/console.log")

    def spent(self) -> float:
        """Seconds of the processor that the machine has had."""
        try:
            text = Path(f"/proc/{self.process.pid if self.process else 0}/stat").read_text(encoding="ascii")
        except FileNotFoundError:
            return 0.0
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop QEMU."""
        if self.process:
            self.process.terminate()
            self.process.wait(SSH_SECONDS)
