"""The resolver's and the proxy's configuration, rendered from a policy of many guests and names."""

from __future__ import annotations

import re
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import yaml

from glasslab_policy import network_policy

ROLE = Path(__file__).resolve().parents[2] / "roles/network"

COUNT = 300  # guests; each has a name of its own, and one that all of them share
WORDS = 64  # of a line, as many as HAProxy reads


def rendered(template: str, mode: str = "allowlist") -> str:
    """One of the role's templates, with such a policy."""
    variables: dict[str, Any] = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    guests = [
        {"name": f"g{n}", "address": f"10.{n // 200}.{n % 200}.2", "mac": f"02:00:00:00:{n // 200:02x}:{n % 200:02x}"}
        for n in range(COUNT)
    ]
    own = [{"name": f"own{n}", "from": f"g{n}", "names": [f"n{n}.example"], "ports": [443, 80]} for n in range(COUNT)]
    shared = {"name": "shared", "from": [f"g{n}" for n in range(COUNT)], "names": ["all.example"], "ports": [443]}
    policy = {key.removeprefix("network_"): value for key, value in variables.items()}
    policy |= {"guests": [{**guest, "port": f"tap{n}i0"} for n, guest in enumerate(guests)]}
    policy |= {"flows": [{"protocol": "tcp", "why": "-", **flow} for flow in [*own, shared]]}
    policy |= {"mode": mode, "names_range": "198.18.0.0/16", "subnet": "10.0.0.0/8"}
    loader = jinja2.FileSystemLoader(ROLE / "templates")
    environment = jinja2.Environment(
        loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["flatten"] = lambda lists: list(chain.from_iterable(lists))
    return environment.get_template(template).render(network_policy=network_policy(policy), ansible_managed="-")


def test_each_name_is_for_its_guests_alone() -> None:
    doors = re.split(r"^frontend port-", rendered("proxy.cfg.j2"), flags=re.MULTILINE)[1:]
    assert [door.split("\n")[0] for door in doors] == ["443", "80"]
    for door in doors:
        guests: dict[str, list[str]] = {}
        for name, sources in re.findall(r"acl (guests-\d+) src (.+)", door):
            guests.setdefault(name, []).extend(sources.split())
        routes = re.findall(r"set-var\(txn\.name\) str\((\S+)\) if (\S+) \{ \S+ -m str (\S+)", door)
        assert len(routes) == len(guests) >= COUNT
        for name, who, asked in routes:
            assert name == asked
            if name == "all.example":
                assert len(guests[who]) == COUNT
            else:
                number = int(name.removeprefix("n").removesuffix(".example"))
                assert guests[who] == [f"10.{number // 200}.{number % 200}.2"]


def test_no_line_is_longer_than_the_proxy_reads() -> None:
    assert max(len(line.split()) for line in rendered("proxy.cfg.j2").splitlines() if "#" not in line) < WORDS


def test_the_proxy_has_room_for_all_that_its_guests_may_open() -> None:
    """Or some of them, each within its own limit, would keep the others out."""
    text = rendered("proxy.cfg.j2")
    whole, of_tls, of_http = map(int, re.findall(r"^\tmaxconn (\d+)$", text, re.MULTILINE))
    assert (of_tls, of_http) == (COUNT * 256, COUNT * 256)
    assert whole == of_tls + of_http
    memory = re.search(r"^MemoryMax=(\d+)M$", rendered("glasslab-proxy.service.j2"), re.MULTILINE)
    assert memory is not None
    assert int(memory[1]) == whole // 16, "64 KiB each"


def test_a_name_is_asked_for_in_letters_of_any_size() -> None:
    checks = re.findall(r"\{ (req\.\S+) -m str", rendered("proxy.cfg.j2"))
    # The whole of the header: of a list in it `hdr` takes each word, and one allowed name would do among others.
    assert set(checks) == {"req.ssl_sni,lower", "req.fhdr(host),lower"}


def test_resolver_reads_its_configuration_and_has_nobody_to_ask(tmp_path: Path) -> None:
    text = rendered("resolver.conf.j2")
    (tmp_path / "resolver.conf").write_text(text)
    subprocess.run(["dnsmasq", "--test", f"--conf-file={tmp_path / 'resolver.conf'}"], check=True, capture_output=True)
    lines = text.splitlines()
    assert {"no-resolv", "no-hosts"} <= set(lines)
    assert not [line for line in lines if line.startswith(("server", "resolv-file", "address", "auth"))]
    records = [line for line in lines if line.startswith("host-record=")]
    assert len(records) == COUNT + 1
    assert all(f"local=/{record.split('=')[1].split(',')[0]}/" in lines for record in records)


def test_the_resolver_can_speak_to_those_who_ask_it_alone() -> None:
    """Whatever becomes of its configuration: what it is asked goes nowhere."""
    lines = rendered("glasslab-resolver.service.j2").splitlines()
    assert "IPAddressDeny=any" in lines
    (allowed,) = [line for line in lines if line.startswith("IPAddressAllow=")]
    words = allowed.partition("=")[2].split()
    assert words == ["10.10.10.1", *(f"10.{n // 200}.{n % 200}.2" for n in range(COUNT))]
    # Rendered in every mode, and installed in those that have a resolver.
    assert "IPAddressAllow=10.10.10.1\n" in rendered("glasslab-resolver.service.j2", "closed")


def test_of_the_lab_the_proxy_speaks_to_those_who_ask_it_alone() -> None:
    """Names lead anywhere but into the lab: who takes the proxy over comes to no other guest by it."""
    lines = rendered("glasslab-proxy.service.j2").splitlines()
    assert "IPAddressDeny=10.0.0.0/8" in lines
    (allowed,) = [line for line in lines if line.startswith("IPAddressAllow=")]
    words = allowed.partition("=")[2].split()
    assert words == ["10.10.10.1", *(f"10.{n // 200}.{n % 200}.2" for n in range(COUNT))]
    assert "IPAddressAllow=10.10.10.1\n" in rendered("glasslab-proxy.service.j2", "closed")
