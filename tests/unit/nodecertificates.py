"""Certificates as a Proxmox VE node has them (its own CA, and a leaf for 127.0.0.1), and a server that shows them."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(name: str, issuer: str, key: Any, signer: Any, *, ca: bool) -> x509.Certificate:
    """As Proxmox VE makes them: a CA without key usage, a leaf without an authority key identifier."""
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=ca)
    )
    if not ca:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))])
        built = built.add_extension(names, critical=False)
    return built.sign(signer, hashes.SHA256())


def write(folder: Path) -> None:
    """Make ca.pem, leaf.pem and leaf.key there."""
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "leaf")}
    made = {
        "ca": certificate("PVE", "PVE", keys["ca"], keys["ca"], ca=True),
        "leaf": certificate("pve", "PVE", keys["leaf"], keys["ca"], ca=False),
    }
    for name, one in made.items():
        (folder / f"{name}.pem").write_bytes(one.public_bytes(serialization.Encoding.PEM))
    secret = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "leaf.key").write_bytes(keys["leaf"].private_bytes(*secret))


@contextlib.contextmanager
def serving(folder: Path, answers: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Make the certificates there and serve with them on loopback for the time of a block; the port."""
    write(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
