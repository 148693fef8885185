"""Build mode: packages can be had from the mirror by the agent's own apt, nothing is denied on the way, and it closes.

One change opens it, with a name for the logs machine besides, so that two guests have names of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from egresstools import AGENT, CTL, LOGS, MODEL, MODEL_ADDRESS, asked, denied, dns, ends, hello, proxy_without, raw, tls
from isolationtools import playbook_lines, run, wait_for
from labtools import ROOT, playbook

MIRROR, MIRROR_ADDRESS = "packages.glasslab.test", "203.0.113.82"
ELSEWHERE = "elsewhere.glasslab.test"  # nobody has given it an address: one of network_names_range is handed out
INVENTORY = ROOT / "inventories/local/group_vars/hypervisor.yml"


@pytest.fixture(scope="module", autouse=True)
def build_mode() -> Iterator[None]:
    """Opened for this file, and closed again."""
    flows = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))["network_flows"]
    of_logs = {"name": "elsewhere", "from": "logs", "names": [ELSEWHERE], "protocol": "tcp", "ports": [80, 443]}
    opened = {"network_mode": "build", "network_flows": [*flows, {**of_logs, "why": "names are each guest's own"}]}
    done = playbook("playbooks/network.yml", "--extra-vars", json.dumps(opened))
    assert done.returncode == 0, playbook_lines(done)
    try:
        yield
    finally:
        done = playbook("playbooks/network.yml")
        assert done.returncode == 0, playbook_lines(done)
    assert closed()


def closed() -> bool:
    """Whether the mirror is out of the agent's reach, and its name unknown."""
    questions = [raw(b"", MIRROR_ADDRESS, 80), raw(b"", MIRROR_ADDRESS, 443), dns(MIRROR), tls(MIRROR)]
    found = asked(AGENT, questions)
    ended = [one["end"] for one in found]
    return ended == ["silent", "silent", "answered", "closed"] and found[2]["got"] == "REFUSED"


APT = "apt-get -o Dir::Etc::SourceList=/root/mirror.list -o Dir::Etc::SourceParts=/dev/null"
APT += " -o Acquire::https::CAInfo=/etc/glasslab/ca/hec.crt -o Acquire::Languages=none -o APT::Update::Error-Mode=any"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_apt_installs_from_the_mirror_and_nothing_is_denied(scheme: str) -> None:
    before = denied()
    script = (
        f"echo 'deb [trusted=yes] {scheme}://{MIRROR} ./' >/root/mirror.list; {APT} update && "
        f"{APT} install --yes --no-install-recommends glasslab-sample && cat /usr/share/glasslab-sample/here"
    )
    try:
        assert run(AGENT, "sh", "-c", script).stdout.endswith("from the mirror\n")
    finally:
        run(AGENT, "sh", "-c", "apt-get purge --yes glasslab-sample; rm -rf /root/mirror.list /var/lib/apt/lists/*_*")
    assert denied() == before


def get(lines: str, **more: Any) -> dict[str, Any]:
    """A request to the mirror's port 80; an empty line ends it."""
    return raw((lines + "\n\n").replace("\n", "\r\n").encode(), MIRROR_ADDRESS, 80, **more)


GET = f"GET /Packages HTTP/1.1\nHost: {MIRROR}"
END = "\nConnection: close"
THROUGH = {
    "the allowed host": get(GET + END),
    "with its port": get(GET + ":80" + END),
    "in large letters": get(GET.replace(MIRROR, MIRROR.upper()) + END),
    "in large and small ones, with its port": get(GET.replace(MIRROR, MIRROR.title()) + ":80" + END),
    "HTTP/1.0": get(f"GET /Packages HTTP/1.0\nHost: {MIRROR}"),
}
WEB_SOCKET = (
    "\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
)
# Every request -> the answer of the proxy itself.
REFUSED = {
    "another host": (get("GET /Packages HTTP/1.1\nHost: other.glasslab.test" + END), 403),
    "another port": (get(GET + ":81" + END), 403),
    "no host": (get("GET /Packages HTTP/1.1" + END), 403),
    "no host, HTTP/1.0": (get("GET /Packages HTTP/1.0"), 403),
    "another host in large letters": (get("GET /Packages HTTP/1.1\nHost: OTHER.GLASSLAB.TEST" + END), 403),
    "a tunnel": (get(f"CONNECT {MIRROR}:80 HTTP/1.1\nHost: {MIRROR}:80"), 403),
    "a tunnel elsewhere": (get("CONNECT 203.0.113.80:80 HTTP/1.1\nHost: 203.0.113.80:80"), 403),
    "another host in the address": (get(GET.replace("/P", "http://other.glasslab.test/P", 1) + END), 400),
    "the host in the address": (get(GET.replace("/P", f"http://{MIRROR}/P", 1) + END), 403),
    "two hosts": (get(GET + "\nHost: other.glasslab.test" + END), 400),
    "a list of hosts": (get(GET + ", other.glasslab.test" + END), 400),
    "a folded host": (get(GET + "\n other.glasslab.test" + END), 400),
    "a user's name before the host": (get(GET.replace(MIRROR, f"{MIRROR}@other.glasslab.test") + END), 400),
    "the host with its last dot": (get(GET + "." + END), 403),
    "a tab before the end of the host": (get(GET + "\t.other.glasslab.test" + END), 400),
    "a NUL in the host": (get(GET + "\0.other.glasslab.test" + END), 400),
    "a bell in the host": (get(GET + "\a" + END), 400),
    "a bare line feed in the host": (raw(f"{GET}\n.other\r\n\r\n".encode(), MIRROR_ADDRESS, 80), 400),
    "an empty host": (get("GET /Packages HTTP/1.1\nHost: " + END), 403),
    "a host of 4,000 letters": (get("GET /Packages HTTP/1.1\nHost: " + "a" * 4000 + "." + MIRROR + END), 403),
    "a host of 40,000 letters": (get("GET /Packages HTTP/1.1\nHost: " + "a" * 40_000 + END), 400),
    "the server as a whole": (get(f"OPTIONS * HTTP/1.1\nHost: {MIRROR}" + END), 403),
    "a change of protocol": (get(GET + WEB_SOCKET), 403),
    "HTTP/2 at once": (raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), MIRROR_ADDRESS, 80), 400),
    "TLS": (raw(hello(MIRROR), MIRROR_ADDRESS, 80), 400),
    "garbage": (raw(bytes(range(200)), MIRROR_ADDRESS, 80), 400),
}


def test_plain_requests_go_to_the_allowed_host_alone() -> None:
    assert [one["got"].splitlines()[0] for one in asked(AGENT, list(THROUGH.values()))] == ["HTTP/1.1 200 OK"] * len(
        THROUGH
    )
    found = asked(AGENT, [question for question, _ in REFUSED.values()])
    statuses = {row: one["got"].split(" ")[1:2] for row, one in zip(REFUSED, found, strict=True)}
    assert statuses == {row: [str(status)] for row, (_, status) in REFUSED.items()}


def test_a_connection_cannot_go_to_another_host_later() -> None:
    second = "GET /Packages HTTP/1.1\nHost: other.glasslab.test"
    pipelined = get(f"{GET}\n\n{second}{END}")
    hidden = get(
        f"POST / HTTP/1.1\nHost: {MIRROR}\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\n{second}{END}"
    )
    first, smuggled = asked(AGENT, [pipelined, hidden])
    assert re.findall(r"HTTP/1\.1 (\d+)", first["got"]) == ["200", "403"]
    assert re.findall(r"HTTP/1\.1 (\d+)", smuggled["got"]) in (["404"], ["404", "403"]), smuggled["got"]
    assert first["got"].count("Package: glasslab-sample") == 1


def test_host_check_matters() -> None:
    """Without it whatever is asked goes on to the address that was asked for."""
    with proxy_without("http-request deny unless { var(txn.to)"):
        [through] = asked(AGENT, [REFUSED["another host"][0]])
        assert through["got"].startswith("HTTP/1.1 200"), through


def test_names_are_each_guests_own() -> None:
    of_agent, of_logs = hello(MODEL), hello(ELSEWHERE)
    said, handed_out = asked(LOGS, [dns(ELSEWHERE)])[0]["got"].split()
    assert said == "NOERROR"
    assert ip_address(handed_out) in ip_network("192.0.2.128/25")
    [answer] = asked(LOGS, [raw(of_logs, handed_out)])
    assert "glasslab internet tcp 443" in answer["got"]
    get_elsewhere = f"GET / HTTP/1.1\r\nHost: {ELSEWHERE}\r\n\r\n".encode()
    # the address is out of reach, and so is the name behind an address of one's own
    assert ends(AGENT, [raw(of_logs, handed_out), raw(of_logs, MODEL_ADDRESS)]) == ["silent", "closed"]
    assert ends(LOGS, [raw(of_agent, MODEL_ADDRESS), raw(of_agent, handed_out)]) == ["silent", "closed"]
    assert "403" in asked(AGENT, [raw(get_elsewhere, MIRROR_ADDRESS, 80)])[0]["got"]
    # no guest finds the address that was handed out: it is nobody's
    assert ends(CTL, [raw(of_logs, handed_out)])[0] not in {"answered"}


def test_what_is_denied_is_counted() -> None:
    before = denied()
    assert ends(AGENT, [raw(b"", "203.0.113.80", 80)]) == ["silent"]
    wait_for("the rules and the witness have counted it", lambda: denied() >= before + 2, 10)
