"""A collector for tests: a SPLUNK_HOME with configuration, a CA and a certificate, and the collector on it."""

import datetime
import ipaddress
import json
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from glasslab.collector.config import Config, Retention, load_config
from glasslab.collector.hec import Event
from glasslab.collector.server import start
from glasslab.collector.store import FILE, Store

AGENT_TOKEN = "0a000000-0000-4000-8000-000000000001"
MCP_TOKEN = "0a000000-0000-4000-8000-000000000002"
DISABLED_TOKEN = "0a000000-0000-4000-8000-000000000003"
ACK_TOKEN = "0a000000-0000-4000-8000-000000000004"
ANY_TOKEN = "0a000000-0000-4000-8000-000000000005"
SEARCH_TOKEN = "search-token-for-tests"

EVENT = Event(time=time.time(), host="h", source="s", sourcetype="t", index="agents", raw="{}")
FOR_EVER = Retention({"agents": 10**9}, 2**40)

INPUTS = f"""
[http]
disabled = 0
enableSSL = 1
port = {{port}}
serverCert = $SPLUNK_HOME/etc/auth/server.pem

[http://agent]
token = {AGENT_TOKEN}
index = agents
indexes = agents
[http://mcp]
token = {MCP_TOKEN}
index = agents
indexes = agents
[http://off]
disabled = 1
token = {DISABLED_TOKEN}
index = agents
[http://acked]
token = {ACK_TOKEN}
index = agents
indexes = agents, other
useACK = 1
[http://any]
token = {ANY_TOKEN}
"""


WEB = """\
startwebserver = 1
httpport = 0
server.socket_host = 127.0.0.1
enableSplunkWebSSL = 1
serverCert = $SPLUNK_HOME/etc/auth/server.pem
"""


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def make_certificates(folder: Path) -> Path:
    """Write server.pem (certificate and key for localhost) and ca.crt into a folder; return the CA's file."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def builder(subject: str, public: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.CertificateBuilder:
        usage = {"digital_signature": not ca, "key_cert_sign": ca, "crl_sign": ca}
        unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("test CA"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(**usage, **dict.fromkeys(unused, False), encipher_only=False, decipher_only=False),
                critical=True,
            )
        )

    authority = builder("test CA", ca_key.public_key(), ca=True).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = builder("logs", key.public_key(), ca=False).add_extension(names, critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "ca.crt"


def make_home(home: Path, port: int = 0, management_port: int = 0) -> Path:
    """Write a SPLUNK_HOME as the splunk role does; return the CA's file. Port 0 means any free one."""
    ca = make_certificates(home / "etc" / "auth")
    app = home / "etc" / "apps" / "glasslab"
    for layer in ("default", "local"):
        (app / layer).mkdir(parents=True)
    (app / "local" / "inputs.conf").write_text(INPUTS.format(port=port), encoding="utf-8")
    (app / "local" / "indexes.conf").write_text("[agents]\nhomePath = x\n[other]\n", encoding="utf-8")
    (app / "local" / "web.conf").write_text(
        f"[settings]\nmgmtHostPort = 127.0.0.1:{management_port}\n{WEB}", encoding="utf-8"
    )
    (app / "local" / "server.conf").write_text(
        "[sslConfig]\nserverCert = $SPLUNK_HOME/etc/auth/server.pem\n", encoding="utf-8"
    )
    return ca


@dataclass
class Lab:
    """A running collector in this process."""

    home: Path
    ca: Path
    config: Config
    store: Store
    servers: list[Any] = field(default_factory=list)
    seen: int = 0  # rows stored before the test at hand

    @property
    def hec_url(self) -> str:
        return f"https://127.0.0.1:{self.servers[0].port}"

    @property
    def search_url(self) -> str:
        return f"https://127.0.0.1:{self.servers[1].port}"

    @property
    def web_url(self) -> str:
        return f"https://127.0.0.1:{self.servers[2].port}"

    def session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.verify = str(self.ca)
        return session

    def post(
        self, body: bytes, path: str = "", authorization: str | None = f"Splunk {AGENT_TOKEN}", **headers: str
    ) -> Any:
        """POST to /services/collector + path; header names are given with underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorization is not None:
            sent["Authorization"] = authorization
        with self.session() as session:
            return session.post(f"{self.hec_url}/services/collector{path}", data=body, headers=sent, timeout=10)

    def rows(self, columns: str = "raw") -> list[Any]:
        """Return what is stored, in the order of arrival."""
        database = sqlite3.connect(self.home / FILE)
        try:
            rows = database.execute(f"SELECT {columns} FROM events ORDER BY id").fetchall()
        finally:
            database.close()
        return [row[0] if len(row) == 1 else row for row in rows]

    def stop(self) -> None:
        for server in self.servers:
            server.stop(seconds=0.2)
        self.store.close()


def start_lab(home: Path, max_connections: int = 256) -> Lab:
    """Make a home and run a collector on it, on any free ports of 127.0.0.1."""
    ca = make_home(home)
    config = load_config(home)
    store = Store(config.home / FILE)
    return Lab(home, ca, config, store, start(config, store, "127.0.0.1", [SEARCH_TOKEN], max_connections))


def texts(store: Store) -> list[str]:
    """Return the texts of what is stored, by time."""
    return [event.raw for event in store.select("1", ())]


def envelope(event: Any, **extra: Any) -> bytes:
    """Return one event in its envelope."""
    return json.dumps({"event": event, **extra}).encode()
