"""The client side of TLS: verified, shared, and a CA file that was replaced is read again."""

import os
import ssl
from pathlib import Path

from conftest import Certificates
from glasslab.tls import client_context
from loglab import make_certificates


def test_servers_are_verified_by_name() -> None:
    context = client_context(None)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert client_context(None) is context


def test_a_ca_is_read_once_and_again_when_it_was_replaced(tmp_path: Path, certificates: Certificates) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(certificates.ca.read_bytes())
    first = client_context(ca)
    assert client_context(ca) is first
    ca.write_bytes(make_certificates(tmp_path / "other").read_bytes())
    os.utime(ca, ns=(1, 1))  # a clock too coarse to tell the two writes apart is not what this is about
    second = client_context(ca)
    assert second.get_ca_certs() != first.get_ca_certs()
