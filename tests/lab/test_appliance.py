"""The appliance on the standing lab: units, two users, two sandboxes, and what each of them cannot do."""

from __future__ import annotations

import json
import re

import pytest
import testinfra

import lab
from labtools import STATE, ask, on, playbook

UNITS = {
    "agent": ["glasslab-agent.service", "glasslab-files.service", "glasslab-files.socket"],
    "logs": ["glasslab-collector.service"],
}
MACHINES = {name: testinfra.get_host(f"ssh://{name}", ssh_config=str(lab.SSH_CONFIG)) for name in UNITS}
SERVICES = [(machine, unit) for machine, units in UNITS.items() for unit in units if unit.endswith(".service")]
SECRETS = ["hec_token_agent", "hec_token_mcp", "hec_token_verifier", "search_token", "scripted_api_key"]
SANDBOX = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectProc": "invisible",
    "MemoryDenyWriteExecute": "yes",
    "RestrictNamespaces": "yes",
    "LockPersonality": "yes",
}


def properties(machine: str, unit: str, *names: str) -> dict[str, str]:
    shown = on(machine, f"systemctl show {unit} -p {','.join(names)}").stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


@pytest.mark.parametrize(("machine", "unit"), [(m, u) for m, units in UNITS.items() for u in units])
def test_unit_is_up_and_comes_at_boot(machine: str, unit: str) -> None:
    service = MACHINES[machine].service(unit)
    assert service.is_running
    # The MCP server's service is started by its socket and wanted by the agent's.
    assert service.systemd_properties["UnitFileState"] == ("static" if "files.service" in unit else "enabled")


@pytest.mark.parametrize(
    ("machine", "path", "owner", "group", "mode"),
    [
        ("agent", "/etc/glasslab/agent/model_api_key", "root", "root", 0o600),
        ("agent", "/etc/glasslab/agent/hec_token", "root", "root", 0o600),
        ("agent", "/etc/glasslab/agent/signing_key", "root", "root", 0o600),
        ("agent", "/etc/glasslab/mcp/hec_token", "root", "root", 0o600),
        ("agent", "/etc/glasslab/mcp/signing_key", "root", "root", 0o600),
        ("agent", "/etc/glasslab/agent", "root", "root", 0o700),
        ("agent", "/etc/glasslab/mcp", "root", "root", 0o700),
        ("agent", "/srv/glasslab/documents", "root", "glasslab-files", 0o750),
        ("agent", "/srv/glasslab/documents/access-policy.md", "root", "glasslab-files", 0o640),
        ("agent", "/run/glasslab-files/mcp.sock", "glasslab-agent", "root", 0o600),
        ("agent", "/run/glasslab-agent", "glasslab-agent", "glasslab-agent", 0o750),
        ("logs", "/etc/glasslab/collector/search_token", "root", "root", 0o600),
        ("logs", "/opt/splunk/etc/apps/glasslab/local/inputs.conf", "root", "splunk", 0o640),
        ("logs", "/opt/splunk/etc/auth/glasslab/server.pem", "root", "splunk", 0o640),
        ("logs", "/opt/splunk/var", "splunk", "splunk", 0o750),
    ],
)
def test_who_may_read_what(machine: str, path: str, owner: str, group: str, mode: int) -> None:
    file = MACHINES[machine].file(path)
    assert (file.user, file.group, file.mode) == (owner, group, mode)


def test_the_log_listens_and_the_agent_does_not() -> None:
    assert MACHINES["logs"].socket("tcp://0.0.0.0:8088").is_listening
    assert MACHINES["logs"].socket("tcp://0.0.0.0:8089").is_listening
    assert MACHINES["logs"].socket("tcp://0.0.0.0:8000").is_listening
    listening = {
        address.rsplit(":", 1)[1] for address in MACHINES["agent"].socket.get_listening_sockets() if "tcp" in address
    }
    assert listening == {"22"}


@pytest.mark.parametrize(
    ("machine", "name"), [("agent", "glasslab-agent"), ("agent", "glasslab-files"), ("logs", "splunk")]
)
def test_the_services_users_cannot_log_in(machine: str, name: str) -> None:
    user = MACHINES[machine].user(name)
    assert user.exists
    assert user.shell.endswith("nologin")
    assert user.uid > 0


@pytest.mark.parametrize(("machine", "unit"), SERVICES)
def test_sandbox_is_configured(machine: str, unit: str) -> None:
    assert properties(machine, unit, *SANDBOX) == SANDBOX
    # Agent and MCP server see who connects, which they could not from a user namespace; the latter reads by openat2.
    assert properties(machine, unit, "PrivateUsers", "RestrictSUIDSGID") == {
        "PrivateUsers": "no" if machine == "agent" else "yes",
        "RestrictSUIDSGID": "no" if unit == "glasslab-files.service" else "yes",
    }
    assert properties(machine, unit, "CapabilityBoundingSet") == {"CapabilityBoundingSet": ""}


def test_no_service_runs_as_root_and_the_two_writers_are_two_users() -> None:
    users = {unit: properties(machine, unit, "User")["User"] for machine, unit in SERVICES}
    assert users == {
        "glasslab-agent.service": "glasslab-agent",
        "glasslab-files.service": "glasslab-files",
        "glasslab-collector.service": "splunk",
    }


def attempt(user: str, code: str, machine: str = "agent") -> str:
    """Run Python as a user in the sandbox that the drop-in gives every glasslab-*.service; return its last line."""
    unit = "glasslab-attempt.service"
    done = on(
        machine,
        f"systemd-run --quiet --wait --pipe --collect --unit={unit} -p User={user} /usr/bin/python3 -",
        stdin=f"try:\n print('did', {code})\nexcept Exception as e:\n print(type(e).__name__)\n",
        check=False,
    )
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"exit {done.returncode}: {done.stderr}"


FORBIDDEN = {
    "the agent reads the server's token": ("glasslab-agent", "open('/etc/glasslab/mcp/hec_token').read()"),
    "the agent reads the server's key": ("glasslab-agent", "open('/etc/glasslab/mcp/signing_key').read()"),
    "the agent reads its own key past systemd": ("glasslab-agent", "open('/etc/glasslab/agent/signing_key').read()"),
    "the agent reads a document": ("glasslab-agent", "open('/srv/glasslab/documents/access-policy.md').read()"),
    "the server reads the model's key": ("glasslab-files", "open('/etc/glasslab/agent/model_api_key').read()"),
    "the server writes a document": ("glasslab-files", "open('/srv/glasslab/documents/access-policy.md', 'w')"),
    "the server uses the agent's socket": (
        "glasslab-files",
        "__import__('socket').socket(1).connect('/run/glasslab-agent/agent.sock')",
    ),
    "somebody else uses the server's socket": (
        "nobody",
        "__import__('socket').socket(1).connect('/run/glasslab-files/mcp.sock')",
    ),
    "the agent writes to /etc": ("glasslab-agent", "open('/etc/glasslab/x', 'w')"),
    "the agent writes to its own code": ("glasslab-agent", "open('/opt/glasslab/x', 'w')"),
    "the server mounts": ("glasslab-files", "__import__('os').unshare(0x20000)"),
    "the agent traces": ("glasslab-agent", "open('/proc/1/environ').read()"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_forbidden(what: str) -> None:
    user, code = FORBIDDEN[what]
    assert attempt(user, code) in ("PermissionError", "FileNotFoundError", "OSError", "ConnectionRefusedError")


def test_the_attempts_can_succeed() -> None:
    """The way of trying works: what a user may do is done."""
    assert (
        attempt("glasslab-files", "open('/srv/glasslab/documents/access-policy.md').read()[:0] + 'read'") == "did read"
    )
    assert attempt("glasslab-agent", "__import__('os').getuid() > 0") == "did True"
    connected = attempt("glasslab-agent", "__import__('socket').socket(1).connect('/run/glasslab-files/mcp.sock')")
    assert connected == "did None"


@pytest.mark.parametrize("machine", ["agent", "logs"])
def test_no_secret_in_a_process_list_an_environment_or_a_journal(machine: str) -> None:
    values = secret_values()
    seen = on(machine, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'", check=False).stdout
    seen += on(machine, "journalctl -o cat --no-pager -b").stdout
    assert "glasslab" in seen
    assert [value for value in values if value in seen] == []


# Everything of every process that this user can open, but its own: environments, arguments, memory, open files.
READS_PROC = """
import os, pathlib, sys
own, opened = {os.getpid(), os.getppid()}, 0
for place in pathlib.Path("/proc").glob("[0-9]*"):
    if int(place.name) in own:
        continue
    names = ["environ", "cmdline", "mem", "maps", "auxv", "stack", "syscall", "status", "comm", "mountinfo"]
    try:
        names += [f"fd/{name}" for name in os.listdir(place / "fd")]
    except OSError:
        pass
    for name in names:
        try:
            descriptor = os.open(place / name, os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(descriptor, 1 << 20)
            os.close(descriptor)
        except OSError:
            continue
        opened += 1
        if name == "mem" or name.startswith("fd/"):
            print("OPENED", place / name)
        sys.stdout.write(data.decode("utf-8", "replace").replace("\\0", "\\n"))
print("READ", opened)
"""


@pytest.mark.parametrize("sandboxed", [True, False])
def test_no_secret_in_what_the_tool_servers_user_can_read_of_any_process(sandboxed: bool) -> None:
    """Also without the unit's sandbox, which hides other users' processes: what is left is what the kernel refuses."""
    unit = "glasslab-attempt.service" if sandboxed else "plain-attempt.service"
    ask("What was the root cause of the September incident?")  # both services hold a session's connections
    done = on(
        "agent",
        f"systemd-run --quiet --wait --pipe --collect --unit={unit} -p User=glasslab-files /usr/bin/python3 -",
        stdin=READS_PROC,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("OPENED")] == []
    assert sandboxed or int(lines[-1].removeprefix("READ ")) > 20, "without the sandbox there is much to see"
    values = secret_values()
    assert [value for value in values if value in done.stdout] == []


def secret_values() -> list[str]:
    """The lab's secrets, tokens also as GUIDs, and the lines of both signing keys."""
    values = [(STATE / "secrets" / name).read_text(encoding="utf-8").split()[0] for name in SECRETS]
    guid = re.compile(r"^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$")
    values += [guid.sub(r"\1-\2-\3-\4-\5", value) for value in values]
    for writer in ("agent", "mcp"):
        values += on("agent", f"grep -v -- '---' /etc/glasslab/{writer}/signing_key").stdout.split()
    return values


def test_the_environment_that_a_tool_inherits_holds_no_secret_file_of_the_other() -> None:
    environ = on(
        "agent", "tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value glasslab-files.service)/environ"
    ).stdout
    assert "HEC_TOKEN_MCP_FILE=" in environ
    assert "MODEL" not in environ


def test_who_may_decide_about_calls_and_who_may_not() -> None:
    """By the kernel's word: root may, the service's own user may, and another that reaches the socket may not."""
    listed = "/opt/glasslab/venv/bin/glasslab approvals"
    assert on("agent", listed).stdout == "nothing waits for an approval\n"
    for user, status in (("glasslab-agent", 0), ("glasslab-files", 1)):
        done = on("agent", f"setpriv --reuid={user} --regid=glasslab-agent --clear-groups {listed}", check=False)
        assert done.returncode == status, done.stderr
        assert ("may not approve here" in done.stderr) is (status == 1)


def test_who_may_ask_the_agent_has_no_way_to_its_tools() -> None:
    """Who is to ask or to approve is put into the agent's group; past it are no approvals and no record."""
    connect = "python3 -c 'import socket, sys; socket.socket(1).connect(sys.argv[1])'"
    member = "setpriv --reuid=nobody --regid=nogroup --groups=glasslab-agent"
    assert on("agent", f"{member} {connect} /run/glasslab-agent/agent.sock", check=False).returncode == 0
    refused = on("agent", f"{member} {connect} /run/glasslab-files/mcp.sock", check=False)
    assert "PermissionError" in refused.stderr


@pytest.mark.parametrize(("machine", "unit"), SERVICES)
def test_exposure_stays_low(machine: str, unit: str) -> None:
    text = on(machine, f"systemd-analyze security --json=short {unit} || true").stdout
    exposed = sum(float(item["exposure"] or 0) for item in json.loads(text) if item["set"] is False)
    assert exposed <= 2.0, text


@pytest.mark.parametrize("unit", ["glasslab-agent.service", "glasslab-files.service"])
def test_a_killed_service_comes_back_and_answers(unit: str) -> None:
    before = properties("agent", unit, "MainPID")["MainPID"]
    on("agent", f"kill -9 {before}")
    on(
        "agent",
        f"for i in $(seq 100); do p=$(systemctl show -p MainPID --value {unit}); "
        f'[ "$p" != 0 ] && [ "$p" != {before} ] && systemctl is-active -q {unit} && exit 0; sleep 0.1; done; exit 1',
    )
    done, result = ask("What was the root cause of the September incident?")
    assert done.returncode == 0, done.stderr
    assert result["status"] == "answered"


def test_check_mode_changes_nothing_and_finds_nothing() -> None:
    done = playbook("site.yml", "--check")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert set(re.findall(r"changed=(\d+)", done.stdout)) == {"0"}
