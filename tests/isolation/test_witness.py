"""The hypervisor as a witness: what it saw is in the log, signed, once, without content; nobody else can say it saw."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import lab
from glasslab.frames import sha256_hex
from glasslab.keys import load_public_keys
from glasslab.search import Search
from glasslab.witness import CLOCKS, compare, earliest
from isolationtools import LOADER, PLACES, pve, reboot, run, wait_for
from labtools import STATE

AGENT, LOGS, HYPERVISOR = PLACES["agent"], ("exec", "logs"), PLACES["hypervisor"]
MODEL, ELSEWHERE = "203.0.113.10", "203.0.113.80"
MARK = "marker-5e1f2c0d9b"
QUESTION = "What was the root cause of the incident, and what does our access policy say about it?"
DATABASE = "/opt/splunk/var/lib/splunk/glasslab/events.sqlite3"
SOAK = os.environ.get("GLASSLAB_SOAK") == "1"

# Prints as JSON the hypervisor's frames that the log took since a time, those sent again once.
READ = """
import json, sqlite3, sys
rows = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True).execute(
    "SELECT raw FROM events WHERE sourcetype = 'agent:network' AND received >= ? ORDER BY id", (float(sys.argv[2]),))
print(json.dumps(list({event["event_id"]: event for event in (json.loads(raw) for raw, in rows)}.values())))
"""
# Prints how many kinds of denied packets the witness is counting: its windows take ten seconds, and what it saved last
# says when each began.
COUNTING = """
import json, sqlite3, sys, time
log = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True)
(value,) = log.execute("SELECT value FROM state WHERE name = 'counting'").fetchone()
print(sum(1 for key, entry in json.loads(value) if key[0] == "denied" and time.time() - entry["since"] < 11))
"""
# Takes what a test forged out of the log again, for the tests that follow.
FORGET = """
import sqlite3, sys
log = sqlite3.connect(sys.argv[1], timeout=5)
log.execute("DELETE FROM events WHERE raw LIKE ?", (sys.argv[2],))
log.commit()
"""
# Sends as the agent's machine can: datagrams with the mark to ports of an address, or a frame of no protocol.
SEND = """
import socket, sys, time
mark, address, first, last, pause = sys.argv[1].encode(), sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])
if address == "frame":
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind(("eth0", 0))
    own = open("/sys/class/net/eth0/address").read().strip().replace(":", "")
    wire.send(bytes.fromhex("ffffffffffff" + own) + b"\\x88\\xb5" + mark * 4)
else:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for port in range(first, last):
        one.sendto(mark, (address, port))
        time.sleep(pause)
"""


@pytest.fixture(autouse=True, scope="module")
def _the_witness_is_up() -> Iterator[None]:
    units = "glasslab-witness-flows.service glasslab-witness.service glasslab-witness-rotate.timer"
    assert pve(f"systemctl is-active {units}").split() == ["active"] * 3
    yield
    run(LOGS, "systemctl", "start", "glasslab-collector.service")
    pve(f"systemctl start {units}")


def send(address: str, first: int = 9, last: int = 10, pause: float = 0.0) -> None:
    run(AGENT, "python3", "-c", SEND, MARK, address, str(first), str(last), str(pause))


def ask() -> str:
    """Ask the lab's agent; the session's id."""
    words = (lab.GLASSLAB, "ask", "--socket", lab.SOCKET, "--json", "-")
    answer = json.loads(run(AGENT, *words, stdin=QUESTION).stdout)
    assert answer["status"] == "answered", answer
    return str(answer["session_id"])


def seen(since: float, **wanted: Any) -> list[dict[str, Any]]:
    """The hypervisor's frames that the log took since then, with these fields."""
    found = json.loads(run(LOGS, "python3", "-c", READ, DATABASE, str(since)).stdout)
    return [event for event in found if all(event.get(name) == value for name, value in wanted.items())]


def packets(since: float, first: int, last: int) -> dict[int, int]:
    """How many denied packets the log knows of, by destination port."""
    frames = seen(since, kind="network.flow", verdict="denied", destination=ELSEWHERE)
    counts: dict[int, int] = {}
    for event in frames:
        if event["destination_port"] in range(first, last):
            counts[event["destination_port"]] = counts.get(event["destination_port"], 0) + event["count"]
    return counts


def flows(since: float) -> dict[str, Any]:
    """What `glasslab flows` says of the time since then."""
    done = lab.read_log("flows", "--json", "--since", f"{since:.6f}", capture=True)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["agree"] is (done.returncode == 0)
    return found


def whole(stream: str) -> bool:
    """What `glasslab verify` says of a stream."""
    done = lab.read_log("verify", stream, "--json", capture=True)
    return bool(json.loads(done.stdout)["whole"])


def stream() -> str:
    """The hypervisor's stream of today."""
    return str(seen(0)[-1]["session_id"])


def quiet(seconds: float = 1.5) -> None:
    """The rules hand out so many denied packets a second: what others sent must not take this test's share."""
    time.sleep(seconds)


def nothing_is_being_counted() -> None:
    """Wait until the witness's windows have ended: what it has just seen one of is counted, and gives no frame yet."""
    state = "/var/lib/glasslab/witness/witness.sqlite3"
    wait_for("the windows have ended", lambda: run(HYPERVISOR, "python3", "-c", COUNTING, state).stdout == "0\n", 45)


def test_what_passed_and_what_was_denied_are_frames_without_content() -> None:
    nothing_is_being_counted()
    began = time.time()
    session = ask()
    send(ELSEWHERE, 7001, 7002)
    send("frame")
    run(AGENT, "python3", "-c", f"import socket; socket.create_connection(('{MODEL}', 443), 3).send(b'{MARK}')")
    wanted: list[dict[str, Any]] = [
        {"verdict": "denied", "flow": "route", "destination": ELSEWHERE, "destination_port": 7001, "protocol": "udp"},
        {"verdict": "denied", "flow": "bridge", "source": None, "protocol": "ether-88b5"},
        {"verdict": "allowed", "flow": "model", "destination": MODEL, "destination_port": 443, "protocol": "tcp"},
    ]
    for fields in wanted:
        wait_for(f"{fields['flow']} is in the log", lambda fields=fields: seen(began, kind="network.flow", **fields), 8)
    (denied,) = seen(began, **wanted[0])
    assert (denied["source"], denied["source_mac"], denied["in"]) == ("10.10.10.10", "02:10:00:00:00:10", "vmbr1")
    assert (denied["count"], denied["out"]) == (1, None)
    assert began - 1 < denied["first"] == denied["last"] < time.time() + 1
    assert whole(stream())
    # Neither where it is written down, nor where it waits, nor in the log.
    hunt = f"grep -rlaF -e {MARK} -e {MARK.encode().hex()} /var/log/glasslab /var/lib/glasslab /var/spool/glasslab"
    assert pve(f"{hunt} || true") == ""
    assert run(LOGS, "grep", "-caF", MARK, DATABASE, f"{DATABASE}-wal", check=False).stdout.split() == [
        f"{DATABASE}:0",
        f"{DATABASE}-wal:0",
    ]
    assert session


def test_the_agents_machine_cannot_speak_for_the_hypervisor() -> None:
    """All it has is its own token and keys, whatever it does with them."""
    token = (STATE / "secrets" / "hec_token_witness").read_text(encoding="utf-8").strip()
    guid = "-".join((token[:8], token[8:12], token[12:16], token[16:20], token[20:]))
    hunt = f"grep -rlF -e {token} -e {guid} /etc /run /srv /root /home /var 2>/dev/null || true"
    assert run(AGENT, "sh", "-c", hunt).stdout == ""
    assert run(LOGS, "sh", "-c", hunt.replace("/etc", "/opt/splunk/etc")).stdout != "", "the hunt finds it where it is"
    began, name = time.time(), stream()
    last = seen(0, session_id=name)[-1]
    forge = """
import base64, json, ssl, sys, time, urllib.request
sys.path.insert(0, "/opt/glasslab/venv/lib/python3.13/site-packages")
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from glasslab.frames import HYPERVISOR, Chain, event_hash, frame
last = json.load(sys.stdin)
key = load_pem_private_key(open("/etc/glasslab/agent/signing_key", "rb").read(), None)
chain = Chain(last["session_id"], HYPERVISOR, key, last["clock"])
chain.resume(last["seq"], event_hash(last))
ends = dict(source="10.10.10.10", source_port=1, destination="203.0.113.10", destination_port=443, protocol="tcp")
seen = dict(count=1, first=time.time(), last=time.time(), out=None, source_mac=None)
ends |= {"verdict": "allowed", "flow": "model", "in": "vmbr1"}
(event,) = chain.seal([frame("network.flow", step=0, **ends, **seen)])
about = {"time": time.time(), "sourcetype": "agent:network", "source": "glasslab:hypervisor", "index": "agents"}
token = open("/etc/glasslab/agent/hec_token").read().strip()
body = json.dumps({**about, "event": event}).encode()
post = urllib.request.Request("https://10.10.10.20:8088/services/collector", body, {"Authorization": "Splunk " + token})
context = ssl.create_default_context(cafile=sys.argv[1])
print(urllib.request.urlopen(post, context=context, timeout=5).read().decode())
print(event["event_id"])
"""
    ca = run(AGENT, "sh", "-c", "ls /etc/glasslab/ca/*.crt | tail -1").stdout.strip()
    said = run(AGENT, "/opt/glasslab/venv/bin/python", "-c", forge, ca, stdin=json.dumps(last)).stdout
    answer, forged = said.splitlines()
    try:
        assert json.loads(answer)["code"] == 0, "the log takes it; that is not what keeps it out"
        assert not whole(name)
        found = flows(began)
        assert any(name in text for text in found["broken"])
        assert forged not in json.dumps(found["flows_without_frame"] + found["denied"])
    finally:
        run(LOGS, "python3", "-c", FORGET, DATABASE, f"%{forged}%")
    assert whole(name)


def test_nothing_is_lost_or_doubled_while_the_log_is_away_and_the_witness_is_killed() -> None:
    quiet()
    began = time.time()
    kill = "systemctl kill --signal=KILL glasslab-witness.service"
    run(LOGS, "systemctl", "stop", "glasslab-collector.service")
    try:
        for first in range(7100, 7124, 8):
            send(ELSEWHERE, first, first + 8, 0.01)
            pve(f"sleep 0.3; {kill}")
        said = f"journalctl --unit glasslab-witness.service --since=@{int(began)} --output=cat"
        wait_for("it says that the log is away", lambda: "waits on disk" in pve(said), 10)
    finally:
        run(LOGS, "systemctl", "start", "glasslab-collector.service")
    send(ELSEWHERE, 7124, 7132, 0.01)
    pve(f"sleep 0.4; {kill}; sleep 0.7; {kill}")
    expected = dict.fromkeys(range(7100, 7132), 1)
    wait_for("all of it is in the log", lambda: len(packets(began, 7100, 7132)) == len(expected), 25)
    assert packets(began, 7100, 7132) == expected
    assert seen(began, kind="network.lost") == []
    assert whole(stream())


def test_a_flood_is_counted_not_logged() -> None:
    began, size = time.time(), int(pve("stat -c %s /var/log/glasslab/flows.json"))
    send(ELSEWHERE, 20_000, 40_000)
    time.sleep(2)
    frames = seen(began, kind="network.flow", verdict="denied")
    grown = int(pve("stat -c %s /var/log/glasslab/flows.json")) - size
    print(f"20,000 denied packets: {len(frames)} frames, {grown} bytes in flows.json")
    assert 0 < len(frames) <= 200
    assert grown < 400_000


def test_both_searches_find_what_was_seeded_and_nothing_else() -> None:
    # Outside any session: a connection of somebody's own to the model, from the agent's machine.
    (ended,) = _log().since_all({"agent:session": time.time() - 60})
    time.sleep(max(0.0, CLOCKS + 0.5 - (time.time() - ended[-1].time)) if ended else 0)
    began = time.time()
    dial = f"import socket; print(socket.create_connection(('{MODEL}', 443), 3).getsockname()[1])"
    port = int(run(AGENT, "python3", "-c", dial).stdout)
    wait_for("the flow is in the log", lambda: seen(began, kind="network.flow", flow="model", source_port=port), 8)
    found = flows(began)
    assert [event["source_port"] for event in found["flows_without_frame"]] == [port]
    assert (found["frames_without_flow"], found["broken"]) == ([], [])
    # A session like any other: nothing. A little later, for a flow may be that close to a session.
    time.sleep(CLOCKS + 0.5)
    began = time.time()
    session = ask()
    time.sleep(1)
    found = flows(began)
    assert (found["agree"], found["sessions"]) == (True, 1), found
    # The same session, had the hypervisor seen no connection to the model, and not just begun to look.
    past = earliest(began)
    network, sessions, calls = _log().since_all(past)
    key = load_public_keys(STATE / "verify_keys")["hypervisor"]
    blind = [item for item in network if item.event.get("flow") != "model" and item.event["kind"] != "network.start"]
    compared = compare(blind, sessions, calls, key, since=began, unframed_flows=("log",))
    assert session in compared.unseen
    assert compared.broken, "a frame that is taken out of the log breaks the hypervisor's chain"
    assert compare(network, sessions, calls, key, since=began, unframed_flows=("log", "resolver")).unseen == []


def _log() -> Search:
    about = lab.log_environment()
    token = (STATE / "secrets" / "search_token").read_text(encoding="utf-8").strip()
    return Search(about["SPLUNK_URL"], token, STATE / "ca" / "ca.crt", about["SPLUNK_SSH"].split())


def test_drift_is_in_the_log() -> None:
    began = time.time()
    pve("iptables --delete GLASSLAB-INPUT --jump DROP")
    wait_for("the rules stand again", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 10)
    wait_for("the drift is in the log", lambda: seen(began, kind="network.drift"), 8)
    drifts = flows(began)["drifts"]
    assert any("rules.v4" in json.dumps(event["drift"]) for event in drifts), drifts


def test_a_receipt_becomes_one_frame() -> None:
    text = json.dumps({"time": "2026-01-01T00:00:00Z", "counts": {"blocked": 1}, "note": "x" * 50_000})
    submit = ("/usr/local/sbin/glasslab-witness", "submit", "-")
    said = json.loads(run(PLACES["hypervisor"], *submit, stdin=text).stdout)
    (frame,) = seen(0, event_id=said["event_id"])
    assert (frame["session_id"], frame["seq"], said["acknowledged"]) == (said["session_id"], said["seq"], True)
    assert (frame["receipt"], frame["sha256"]) == (json.loads(text), sha256_hex(text.encode()))
    assert run(PLACES["hypervisor"], *submit, stdin="no receipt", check=False).returncode == 2
    assert pve("find /var/spool/glasslab -type f") == ""


def test_who_reads_packets_has_no_key_and_who_has_the_key_reads_no_packets() -> None:
    etc = "/etc/glasslab/hypervisor"
    modes = pve(f"stat -c '%a %U' {etc} {etc}/signing_key {etc}/hec_token /var/lib/glasslab/witness").splitlines()
    assert modes == ["700 root", "600 root", "600 root", "700 glasslab-witness"]
    for user in ("glasslab-flows", "glasslab-witness", "nobody"):
        assert pve(f"runuser -u {user} -- cat {etc}/signing_key {etc}/hec_token 2>/dev/null || true") == "", user
    units = ("glasslab-witness-flows.service", "glasslab-witness.service")
    pids = pve(f"systemctl show --property=MainPID --value {' '.join(units)}").split()
    held = [pve(f"grep -h CapEff /proc/{pid}/status").split()[1] for pid in pids]
    assert held == ["0000000000001000", "0000000000000000"], "CAP_NET_ADMIN, and nothing"
    for unit in units:
        rated = pve(f"systemd-analyze security --no-pager {unit} | tail -1")
        assert float(rated.split(":")[1].split()[0]) < 2.0, rated


if SOAK:

    def test_a_flood_that_no_rule_bounds_is_counted_in_full() -> None:
        """As if the rules handed out every packet: the witness is a second bound, and not one goes uncounted."""
        began = time.time()
        write = """
import json, time
line = {"timestamp": "soak", "oob.prefix": "glasslab denied soak", "oob.in": "vmbr1", "oob.protocol": 2048,
        "ip.protocol": 17, "src_ip": "10.10.10.10", "dest_ip": "203.0.113.80", "src_port": 1}
with open("/var/log/glasslab/flows.json", "a") as file:
    for number in range(20_000):
        now = {"oob.time.sec": int(time.time()), "oob.time.usec": 0, "dest_port": number}
        file.write(json.dumps(line | now) + "\\n")
"""
        run(PLACES["hypervisor"], "python3", "-c", write)

        def counted() -> int:
            return sum(event["count"] for event in seen(began, kind="network.flow", flow="soak"))

        wait_for("every packet is counted", lambda: counted() == 20_000, 40)
        assert len(seen(began, kind="network.flow", flow="soak")) < 300

    def test_a_session_while_the_hypervisor_is_blind_is_found() -> None:
        time.sleep(40)  # no connection to the model is kept for as long
        pve("systemctl stop glasslab-witness-flows.service")
        began = time.time()
        session = ask()
        pve("systemctl start glasslab-witness-flows.service")
        assert flows(began)["frames_without_flow"] == [session]

    def test_it_goes_on_after_a_reboot_and_a_rotation() -> None:
        before = seen(0)[-1]
        pve("/usr/local/lib/glasslab/witness/rotate.sh 10")
        send(ELSEWHERE, 7200, 7201)
        wait_for("read across the rotation", lambda: packets(0, 7200, 7201), 8)
        reboot()
        wait_for(
            "it is up", lambda: "inactive" not in pve("systemctl is-active glasslab-witness.service", check=False), 20
        )
        send(ELSEWHERE, 7201, 7202)
        wait_for("read after the reboot", lambda: packets(0, 7201, 7202), 20)
        after = seen(0)[-1]
        assert (after["session_id"], after["seq"] > before["seq"]) == (before["session_id"], True)
        assert whole(after["session_id"])


def test_the_kernel_keeps_lines_back_for_a_tenth_of_a_second_at_most() -> None:
    (group,) = pve("cat /proc/net/netfilter/nfnetlink_log").splitlines()
    hundredths = group.split()[5]
    assert hundredths == "10"
