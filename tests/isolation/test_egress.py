"""Egress by name, in the default mode: the model is reached, and nothing else is, whatever the agent's root tries.

What a row of `CLOSED` asks is asked at the same moment by the agent and by the controller, where it is answered.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from egresstools import (
    AGENT,
    CTL,
    LOGS,
    MODEL,
    MODEL_ADDRESS,
    RESOLVER,
    SHUT,
    Question,
    asked,
    dns,
    ends,
    extended,
    hello,
    hypervisor_asks_us,
    proxy_without,
    queries_upstream,
    raw,
    tls,
)
from isolationtools import PLACES, pve, run, wait_for
from labtools import MODEL_RECORD, ROOT, STATE, ask

HYPERVISOR = PLACES["hypervisor"]
HELLO = hello(MODEL)
FIRST_RECORD = HELLO[:3] + (50).to_bytes(2, "big") + HELLO[5:55]
REST = b"\x16\x03\x01" + (len(HELLO) - 55).to_bytes(2, "big") + HELLO[55:]
GET = f"GET /v1/models HTTP/1.1\r\nHost: {MODEL}\r\nConnection: close\r\n\r\n"
QUESTION = "What was the root cause of the September incident?"
OTHER_RESOLVER, ELSEWHERE = "203.0.113.54", "203.0.113.80"
DOH, DOH_ADDRESS = "doh.glasslab.test", "203.0.113.81"


def test_model_is_reached_by_its_name_and_the_question_is_answered() -> None:
    [address, answer] = asked(AGENT, [dns(MODEL), tls(MODEL, verify=MODEL, send=GET)])
    assert address["got"] == f"NOERROR {MODEL_ADDRESS}"
    assert answer["got"].startswith("HTTP/1.1 200 OK")
    done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    assert "recipient allow-list" in result["answer"]


def test_a_names_letters_may_be_large_or_small() -> None:
    """As in any DNS name, whoever asks: the resolver and the proxy. What is another name stays another name."""
    large = [
        raw(HELLO.replace(b"model.glasslab.test", name)) for name in (b"mOdEl.glasslab.test", MODEL.upper().encode())
    ]
    other = raw(HELLO.replace(b"model.glasslab.test", b"MODEM.GLASSLAB.TEST"))
    address, first, second, third = asked(AGENT, [dns(MODEL.upper()), *large, other])
    assert address["got"] == f"NOERROR {MODEL_ADDRESS}"
    assert [one["got"][:3] for one in (first, second)] == ["\x16\x03\x03"] * 2, "an answering hello"
    assert third["end"] == "closed"


def named(name: bytes) -> dict[str, object]:
    """A hello whose server name is these bytes, whatever they are."""
    entry = b"\0" + len(name).to_bytes(2, "big") + name
    return raw(extended(hello(None), 0, len(entry).to_bytes(2, "big") + entry), timeout=5)


# What the agent tries -> the question. From the controller each is answered.
CLOSED = {
    "another name on the model's address": tls("other.glasslab.test", verify="other.glasslab.test"),
    "a name below the model's": tls(f"data.{MODEL}"),
    "a name above the model's": tls("glasslab.test"),
    "a name that ends in the model's": tls(f"x-{MODEL}"),
    "no name": tls(None),
    "the address as the name": raw(hello(MODEL_ADDRESS)),
    "the outer name of an encrypted hello": raw(extended(hello("cloudflare-ech.com"), 0xFE0D, bytes(80))),
    "a hello in two records": raw(FIRST_RECORD + REST),
    "a hello that drips": raw(HELLO, pieces=8, pause=0.6, timeout=2),
    "a second name behind no name": raw(extended(hello(None), 0, b"\0\x16\0\0\x13other.glasslab.test")),
    "DNS over HTTPS by name on the model's address": tls(DOH),
    "DNS over HTTPS by its own name and address": tls(DOH, DOH_ADDRESS, verify=DOH),
    "DNS over HTTPS under the model's name": tls(MODEL, DOH_ADDRESS),
    "another host by its address": raw(b"", ELSEWHERE, 443),
    "another host, plain": raw(b"", ELSEWHERE, 80),
    "another resolver": dns(MODEL, address=OTHER_RESOLVER),
    "another resolver over TCP": raw(b"", OTHER_RESOLVER, 53),
    "DNS over TLS": raw(b"", OTHER_RESOLVER, 853),
    "any host's port 53": dns(MODEL, address=ELSEWHERE),
    "any host's port 853": raw(b"", ELSEWHERE, 853),
    "the package mirror": raw(b"GET / HTTP/1.0\r\n\r\n", "203.0.113.82", 80),
    "a name of the resolver's zone that is not allowed": dns("elsewhere.glasslab.test"),
}
# These are nobody's business even in the open: only that they are not let through to the model.
REFUSED = {
    "plain HTTP on the model's port": raw(GET.encode(), timeout=5),
    "SSH on the model's port": raw(b"SSH-2.0-x\r\n", timeout=5),
    "garbage": raw(bytes(range(256)) * 64, timeout=5),
    "an SSL 2 hello": raw(b"\x80\x2e\x01\x03\x03" + bytes(60), timeout=5),
    "a cut name": raw(HELLO.replace(b"model.glasslab.test", b"model.glasslab.tes\0")),
    "the name with its last dot": named(MODEL.encode() + b"."),
    "the name before a NUL": named(MODEL.encode() + b"\0.other.glasslab.test"),
    "the name before a line's end": named(MODEL.encode() + b"\r\nother.glasslab.test"),
    "the name after a space": named(b" " + MODEL.encode()),
    "the name in wide letters": named("ｍodel.glasslab.test".encode()),
    "an empty name": named(b""),
    "a name as long as names get": named(b".".join([b"a" * 63] * 3 + [b"a" * 41, MODEL.encode()])),
    "a name longer than that": named(b"a" * 4000 + b"." + MODEL.encode()),
    "half a hello": raw(HELLO[:100], timeout=5),
    "nothing": raw(b"", timeout=5),
    "the proxy by its own address": tls(MODEL, "10.10.10.1", 14000),
    "the resolver by its own address": dns(MODEL, address="10.10.10.1", port=1053),
    "the model's other ports": raw(b"", MODEL_ADDRESS, 80),
    "DNS to the model's address": dns(MODEL, address=MODEL_ADDRESS),
    "DNS over TLS to the resolver's address": raw(b"", RESOLVER, 853),
    "the resolver's neighbour": dns(MODEL, address="203.0.113.52"),
}


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[str, dict[str, object]]]:
    """All rows at once, from the agent, the logs machine and the controller."""
    rows = CLOSED | REFUSED
    places = (AGENT, LOGS, CTL)
    with ThreadPoolExecutor(len(places)) as pool:
        answers = pool.map(lambda place: asked(place, list(rows.values())), places)
        return {place[1]: dict(zip(rows, found, strict=True)) for place, found in zip(places, answers, strict=True)}


@pytest.mark.parametrize("row", [*CLOSED, *REFUSED])
def test_nothing_else_gets_through(row: str, seen: dict[str, dict[str, dict[str, object]]]) -> None:
    found = seen["agent"][row]
    if row == "a name of the resolver's zone that is not allowed":
        assert found["got"] == "REFUSED"
        assert seen["ctl"][row]["got"] == "NOERROR 203.0.113.80"
        return
    assert found["end"] in SHUT, found
    if row in CLOSED:
        control = seen["ctl"][row]
        assert control["end"] == "answered", control


def test_a_name_out_of_bytes_is_taken_when_it_is_the_models() -> None:
    """Else what is refused as an odd name would be refused for the way it is written here."""
    [found] = asked(AGENT, [named(MODEL.encode())])
    assert found["got"][:3] == "\x16\x03\x03", found


def test_who_does_not_say_a_name_is_put_off_within_the_time_given(
    seen: dict[str, dict[str, dict[str, object]]],
) -> None:
    for row in ("nothing", "half a hello"):
        assert 2.5 < float(str(seen["agent"][row]["took"])) < 4, row


def test_logs_machine_has_no_egress_at_all(seen: dict[str, dict[str, dict[str, object]]]) -> None:
    """Not to what the agent may reach either: names are each guest's own."""
    assert {row: one["end"] for row, one in seen["logs"].items() if one["end"] != "silent"} == {}
    allowed = [dns(MODEL), dns(MODEL, tcp=True), tls(MODEL)]
    assert ends(AGENT, allowed) == ["answered"] * 3
    assert ends(LOGS, allowed) == ["silent"] * 3


def one_by_one(questions: list[Question]) -> list[dict[str, Any]]:
    """Answers to questions of which a guest may not put all at once over TCP."""
    return [one for at in range(0, len(questions), 3) for one in asked(AGENT, questions[at : at + 3])]


def test_resolver_answers_the_allowed_name_with_an_address_and_nothing_else() -> None:
    kinds = ("AAAA", "HTTPS", "SVCB", "TXT", "NULL", "NS", "SOA", "AXFR", "IXFR")
    chaos = ("version.bind", "servers.bind", "hostname.bind", "auth.bind", "id.server")
    elsewhere = (
        "glasslab.test",
        "test",
        "",
        "example.com",
        "pve",
        "localhost",
        "_dns.resolver.arpa",
        "1.10.10.10.in-addr.arpa",
    )
    for tcp in (False, True):
        names = [dns(MODEL, kind, tcp=tcp) for kind in ("A", *kinds)]
        found = [one["got"] for one in one_by_one(names)]
        assert found == [f"NOERROR {MODEL_ADDRESS}", *["NOERROR NODATA"] * len(kinds)]
        below = [
            dns(f"{label}.{MODEL}", kind, tcp=tcp)
            for label in ("www", "_443._tcp")
            for kind in ("A", "TXT", "NULL", "HTTPS")
        ]
        assert {one["got"] for one in one_by_one(below)} == {"NXDOMAIN"}
        unknown = [dns(name, kind, tcp=tcp) for name in elsewhere for kind in ("A", "TXT", "ANY")]
        assert {one["got"] for one in one_by_one(unknown)} == {"REFUSED"}
        assert {one["got"] for one in asked(AGENT, [dns(name, "TXT", **{"class": 3}, tcp=tcp) for name in chaos])} <= {
            "NOTIMP",
            "REFUSED",
        }


def test_nothing_that_the_agent_asks_arrives_at_the_outside_resolver() -> None:
    """Neither bytes in a name, nor its letters' cases, nor one query for another."""
    token = uuid.uuid4().hex
    before = len(queries_upstream())
    questions = [
        dns(f"{token}.{name}", kind)
        for name in (MODEL, "glasslab.test", "test")
        for kind in ("A", "TXT", "NULL", "HTTPS")
    ]
    questions += [dns(MODEL.upper()), dns("mOdEl.GlAsSlAb.TeSt"), dns(MODEL, "ANY")] + [dns(MODEL)] * 50
    questions += [tls(f"{token}.{MODEL}"), tls(token), raw(HELLO.replace(b"model", b"MODEL"))] + [tls(MODEL)] * 20
    asked(AGENT, questions)
    new = queries_upstream()[before:]
    assert {line for line in new if "192.168.50.2" in line} <= {f"query[A] {MODEL} from 192.168.50.2"}
    assert len(new) <= 2, "the hypervisor asks for itself, once in a while"
    whole = "".join(file.read_text(errors="replace") for file in (STATE / "log").glob("*.log"))
    assert token not in whole
    asked(CTL, [dns(f"{token}.{MODEL}")])
    assert any(token in line for line in queries_upstream()), "what arrives there is seen there"


# The model's name is made to lead inside: to the LAN, the hypervisor on each of its addresses, LAN over IPv6.
INSIDE = ("192.168.50.10", "192.168.50.2", "127.0.0.1", "203.0.113.200", "fd50::10")
SPECIAL, LOCAL, FOUND = "reject if inside", "dst_is_local", "unless { var(txn.to) -m ip 0.0.0.0.0 }"
# What each line of the proxy's configuration alone keeps out.
MATTERS = {SPECIAL: "192.168.50.10", LOCAL: "203.0.113.200", FOUND: "fd50::10"}
OWN_SERVICE = (
    "systemd-run --quiet --collect --unit own-service python3 -S /usr/local/lib/glasslab/listeners.py pve 0.0.0.0:443"
)


def test_model_made_to_lead_inside_leads_nowhere() -> None:
    """Whoever owns the allowed name may point it at any address (DNS rebinding)."""
    question = [raw(HELLO, timeout=4)]
    pve(f"ip address add 203.0.113.200/32 dev vmbr0; {OWN_SERVICE}")
    try:
        with hypervisor_asks_us() as resolver:
            assert ends(AGENT, question) == ["closed"], "a name that does not resolve"
            resolver.says(MODEL_ADDRESS)
            assert ends(AGENT, question) == ["answered"]
            for address in INSIDE:
                resolver.says(address)
                assert ends(AGENT, question) == ["closed"], address
            for line, address in MATTERS.items():
                resolver.says(address)
                with proxy_without(line):
                    [through] = asked(AGENT, question)
                    assert "tcp 443" in through["got"], f"{address} without {line}: {through}"
    finally:
        pve("systemctl stop own-service; ip address delete 203.0.113.200/32 dev vmbr0")


def test_name_check_matters() -> None:
    with proxy_without(FOUND):
        assert ends(AGENT, [tls("other.glasslab.test")]) == ["answered"]
    assert ends(AGENT, [tls("other.glasslab.test")]) == ["closed"]


def test_what_stays_possible_reaches_the_models_address_alone() -> None:
    """The documented rest: another Host behind the allowed name, an encrypted hello behind it, a second name.

    The proxy sees the first name in clear and no more; where the connection goes is not the guest's to say.
    """
    fronted = tls(MODEL, verify=MODEL, send=GET.replace(f"Host: {MODEL}", "Host: other.glasslab.test"))
    hidden = raw(extended(HELLO, 0xFE0D, bytes(80)))
    twice = raw(extended(HELLO, 0, b"\0\x16\0\0\x13other.glasslab.test"))
    before = len(MODEL_RECORD.read_text(encoding="utf-8").splitlines())
    [first, second, third] = asked(AGENT, [fronted, hidden, twice])
    assert first["got"].startswith("HTTP/1.1 200 OK")
    assert len(MODEL_RECORD.read_text(encoding="utf-8").splitlines()) == before + 1
    assert second["got"].startswith("\x16\x03\x03"), "an answering hello"
    assert third["got"].startswith("\x15\x03\x03\0\2\2"), "a fatal alert: no name may be given twice (RFC 8446 4.2)"
    lines = pve("journalctl --unit glasslab-proxy --output cat --lines 12")
    assert lines.count(f"name={MODEL} to={MODEL_ADDRESS} ") >= 3


def test_what_was_asked_for_is_in_the_journal_and_can_do_no_harm_there() -> None:
    token = uuid.uuid4().hex[:12]
    nasty = raw(hello(f"{token}.abcdefg").replace(b".abcdefg", b'"\x1b[2J\n'))
    secret = raw(f"GET /{token}-secret HTTP/1.1\r\n\r\n".encode())
    assert set(ends(AGENT, [nasty, secret, dns(f"{token}.test")])) <= {"closed", "answered"}
    lines = pve("sleep 0.2; journalctl --unit glasslab-proxy --unit glasslab-resolver --output cat --lines 40 --all")
    [line] = [line for line in lines.splitlines() if line.startswith("glasslab-proxy") and token in line]
    assert "%22%1B%5B2J%0A to=- " in line
    assert line.endswith(" ended=PR")
    assert f"{token}-secret" not in lines
    assert f"query[A] {token}.test" in lines


EVENTS = {
    "the bridge is deleted and comes again": "ip link delete vmbr1; sleep 0.2; ifup vmbr1",
    "networking restarts": "systemctl restart networking",
    "both programs are killed": "systemctl kill --signal KILL glasslab-proxy glasslab-resolver",
}


HOLD = """
import socket, sys
held = []
for _ in range(int(sys.argv[1])):
    one = socket.socket()
    one.settimeout(0.7)
    try:
        one.connect(("203.0.113.53", 53))
    except TimeoutError:
        break
    held.append(one)
print(len(held))
"""


def test_no_guest_holds_the_resolver() -> None:
    """It serves twenty connections over TCP; a guest that opens more than its share has the others refused."""
    pve("conntrack -D -s 10.10.10.10 -p tcp --dport 53 >/dev/null 2>&1 || :")
    assert run(AGENT, "python3", "-c", HOLD, "8").stdout == "4\n"
    wait_for("the closed ones are forgotten", lambda: ends(AGENT, [dns(MODEL, tcp=True)]) == ["answered"], 15)


@pytest.mark.parametrize("event", EVENTS)
def test_works_again_after(event: str) -> None:
    pve(EVENTS[event])
    questions = [dns(MODEL), dns(MODEL, tcp=True), tls(MODEL, verify=MODEL)]
    wait_for("the model can be reached by its name", lambda: ends(AGENT, questions) == ["answered"] * 3, 15)
    assert ends(AGENT, [tls("other.glasslab.test")]) == ["closed"]


def test_programs_have_no_rights() -> None:
    for unit in ("glasslab-proxy", "glasslab-resolver"):
        pid = pve(f"systemctl show --property MainPID --value {unit}").strip()
        status = pve(f"cat /proc/{pid}/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert fields["Uid"].split()[0] != "0"


def test_clocks_agree_without_a_flow() -> None:
    """The lab's machines share one kernel's clock (docs/clocks.md); a time server is as far away as any other host."""
    before = time.time()
    clocks = [float(run(place, "date", "+%s.%N").stdout) for place in (AGENT, LOGS, HYPERVISOR)]
    assert before <= min(clocks) <= max(clocks) <= time.time()
    flows = yaml.safe_load((ROOT / "inventories/local/group_vars/hypervisor.yml").read_text(encoding="utf-8"))
    assert not any(flow.get("protocol") == "udp" for flow in flows["network_flows"])
