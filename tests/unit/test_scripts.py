"""What the scripts say of wrong names, models and keys, and when they are interrupted: one line, no traceback."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def run(code: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run Python code beside the scripts, with nothing in the environment but these settings."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=SCRIPTS,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"} | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("glasslab: ")
    return line


@pytest.mark.parametrize("lab_id", ["../../etc", "a b", "Lab", "1lab", "x;id", "-x", "a" * 17, "lab\n"])
def test_a_lab_id_that_is_none(lab_id: str, tmp_path: Path) -> None:
    assert "lower-case letters and digits" in one_line(run("import lab", tmp_path, LAB_ID=lab_id))


def test_a_remedy_names_the_lab_that_is_meant(tmp_path: Path) -> None:
    say = "import lab; print(lab.make('destroy FORCE=1'))"
    for given, typed in (
        ({}, "make destroy FORCE=1"),
        ({"LAB_ID": "glasslab"}, "make destroy FORCE=1"),
        ({"LAB_ID": "second"}, "make destroy FORCE=1 LAB_ID=second"),
        ({"INVENTORY": "my labs/one"}, "make destroy FORCE=1 INVENTORY='my labs/one'"),
    ):
        assert run(say, tmp_path, **given).stdout == f"{typed}\n"
    line = one_line(run("import lab; lab.need_lab()", tmp_path, LAB_ID="nosuchlab"))
    assert line == "glasslab: no lab nosuchlab stands on this machine; `make demo LAB_ID=nosuchlab` builds one"


def test_no_message_names_a_verb_without_its_lab() -> None:
    """Typed as it is said, it would work on the default lab: `make destroy FORCE=1` would remove that."""
    verbs = "demo ask approvals approve deny trace verify web flows snapshot reset rebuild status destroy"
    bare = re.compile(rf"\bmake ({verbs.replace(' ', '|')})(?![-\w])(?! LAB_ID=)(?! builds the embedded lab)")
    files = [*SCRIPTS.glob("*.py"), *(ROOT / "roles/machine/files/nspawn").glob("*.py")]
    assert len(files) > 30
    found = []
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
        told = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, owners)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in told:
                found += [f"{file.name}:{node.lineno}: {node.value}"] if bare.search(node.value) else []
    assert found == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:11434/v1", "give http://HOST"),
        ("localhost/v1", "give http://HOST"),
        ("ftp://127.0.0.1/v1", "give http://HOST"),
        ("http:///v1", "give http://HOST"),
        ("http://127.0.0.1:port/v1", "give http://HOST"),
        ("http://127.0.0.1:99999/v1", "give http://HOST"),
        ("http://[::1/v1", "give http://HOST"),
        ("https://user:secret@127.0.0.1/v1", "give the key as MODEL_API_KEY"),
        ("https://127.0.0.1/v1?key=secret", "give the key as MODEL_API_KEY"),
        ("http://127.0.0.1:9/v1", "does not answer"),
        (f"http://{'a' * 70}.test/v1", "does not answer"),
    ],
)
def test_a_model_that_cannot_be(url: str, said: str, tmp_path: Path) -> None:
    line = one_line(run("import real_model; real_model.check()", tmp_path, MODEL_BASE_URL=url))
    assert said in line
    assert "secret" not in line


@pytest.mark.parametrize("name", ["MODEL", "MODEL_CA"])
def test_a_model_without_an_address_is_not_taken_for_the_scripted_one(name: str, tmp_path: Path) -> None:
    check = "import real_model; real_model.check()"
    assert f"{name}=mine is given without MODEL_BASE_URL" in one_line(run(check, tmp_path, **{name: "mine"}))
    assert run(check, tmp_path, **{name: " "}).returncode == 0


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A TLS server on loopback by a CA that nobody knows; its port, and the CA's file."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    command += ["-subj", "/CN=model", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"]
    command += ["-addext", "keyUsage=digitalSignature,keyCertSign"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], tmp_path / "ca.pem"


def test_a_certificate_by_an_unknown_ca(https: tuple[int, Path], tmp_path: Path) -> None:
    port, ca = https
    check = "import real_model; real_model.check()"
    url = f"https://127.0.0.1:{port}/v1"
    assert "MODEL_CA=" in one_line(run(check, tmp_path, MODEL_BASE_URL=url))
    done = run(check, tmp_path, MODEL_BASE_URL=url, MODEL_CA=str(ca))
    assert (done.returncode, done.stderr) == (0, "")
    assert str(ca.parent / "none") in one_line(
        run(check, tmp_path, MODEL_BASE_URL=url, MODEL_CA=str(ca.parent / "none"))
    )


KEEP_KEY = """
import pathlib, real_model
real_model.STATE = pathlib.Path.home() / "state"
real_model.keep_key()
"""


def kept(home: Path, **settings: str) -> str:
    done = run(KEEP_KEY, home, MODEL_BASE_URL="http://127.0.0.1/v1", **settings)
    assert (done.returncode, done.stderr) == (0, "")
    file = home / "state" / "secrets" / "model_api_key"
    assert [p.stat().st_mode & 0o777 for p in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]
    return file.read_text(encoding="utf-8")


def test_the_key_comes_from_the_nearest_place(tmp_path: Path) -> None:
    assert kept(tmp_path) == "no-key-needed\n"
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / ".env").write_text("OPENAI_API_KEY='from$env'\n")
    assert kept(tmp_path) == "from$env\n"
    (tmp_path / "key").write_text("from-file\n")
    assert kept(tmp_path, MODEL_API_KEY_FILE="~/key") == "from-file\n"
    assert kept(tmp_path, MODEL_API_KEY_FILE="~/key", MODEL_API_KEY="given") == "given\n"


def test_a_key_that_cannot_be_had(tmp_path: Path) -> None:
    def said(**settings: str) -> str:
        return one_line(run(KEEP_KEY, tmp_path, MODEL_BASE_URL="http://127.0.0.1/v1", **settings))

    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "fifo")
    assert "is empty" in said(MODEL_API_KEY_FILE="~/empty")
    assert "cannot be read" in said(MODEL_API_KEY_FILE="~/binary")
    assert "is no file" in said(MODEL_API_KEY_FILE="~/none")
    assert "is no file" in said(MODEL_API_KEY_FILE="~/fifo")
    assert "blanks" in said(MODEL_API_KEY="two words")
    assert "two words" not in said(MODEL_API_KEY="two words")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / ".env").write_bytes(b"MODEL_API_KEY=\xff\n")
    assert "lab/.env cannot be read" in said()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals) -> None:
    code = "import lab, time; lab.run(lambda: (print('begun', flush=True), time.sleep(30)))"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=SCRIPTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=25)
    assert time.monotonic() - began < 20
    assert (process.returncode, said) == (130, "glasslab: interrupted; the same command goes on from there\n")


@pytest.mark.parametrize("ends_by", ["SIG_DFL", "SIG_IGN"])
def test_no_program_runs_on_when_its_script_is_interrupted(ends_by: str, tmp_path: Path) -> None:
    theirs = (
        f"import signal, time; signal.signal(signal.SIGINT, signal.{ends_by}); print('begun', flush=True); "
        "time.sleep(60)"
    )
    code = (
        "import os, sys, children, lab\n"
        "children.INTERRUPT_SECONDS = children.END_SECONDS = 0.2\n"
        "def work():\n"
        f"    with children.child([sys.executable, '-c', {theirs!r}], os.environ) as process:\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(process.pid))\n"
        "        print('waiting', flush=True)\n"
        "        process.wait()\n"
        "lab.run(work)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=SCRIPTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        # What is left of the program would hold these pipes open.
        _, said = process.communicate(timeout=25)
    assert (process.returncode, said) == (130, "glasslab: interrupted; the same command goes on from there\n")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text(encoding='utf-8')}").exists()


def test_a_question_that_is_not_utf8(tmp_path: Path) -> None:
    done = run("import os, lab; lab.ask(os.environ['QUESTION'])", tmp_path, QUESTION="caf\udce9")
    assert "not UTF-8" in one_line(done)


def test_preflight_finds_the_tools_of_root_on_any_path(tmp_path: Path) -> None:
    program = ROOT / "roles" / "machine" / "files" / "nspawn" / "lab.py"
    argv = [sys.executable, str(program), "preflight", "--lab-id=glunit"]
    done = run(f"import os; os.execv({argv[0]!r}, {argv!r})", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"presence": "absent"' in done.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """An inventory whose lab stands: its ssh_config is there, and an `ssh` that says what it was called with."""
    place = tmp_path / "elsewhere"
    (place / "group_vars").mkdir(parents=True)
    (place / "hosts.yml").write_text("all: {children: {agents: {hosts: {worker: {}, second: {}}}}}\n")
    lines = [
        f"lab_state_dir: {place}",
        "ansible_ssh_common_args: '-F {{ lab_state_dir }}/ssh_config'",
        "verify_log_environment: {SPLUNK_URL: 'https://192.0.2.7:8089', SPLUNK_SSH: '-F {{ lab_state_dir }}/c node'}",
    ]
    (place / "group_vars" / "all.yml").write_text("\n".join(lines) + "\n")
    (place / "ssh_config").touch()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh"
    program.write_text('#!/bin/sh\necho "$*"; cat\n')
    program.chmod(0o755)
    return place


def test_the_lab_of_an_inventory_is_asked_and_its_log_is_read(elsewhere: Path, tmp_path: Path) -> None:
    code = (
        "import lab, ask; print(*(f'{k}={v}' for k, v in lab.log_environment().items() if 'SPLUNK' in k)); ask.main()"
    )
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    done = run(code, tmp_path, INVENTORY=str(elsewhere), QUESTION="Who?", PATH=path, SPLUNK_URL="https://not.this")
    assert done.returncode == 0, done.stderr
    log, words, question = done.stdout.splitlines()
    assert log == f"SPLUNK_SSH=-F {elsewhere}/c node SPLUNK_URL=https://192.0.2.7:8089"
    asked = "/opt/glasslab/venv/bin/glasslab ask --socket /run/glasslab-agent/agent.sock -"
    assert words == f"-F {elsewhere}/ssh_config worker -- {asked}"
    assert question == "Who?"


def test_what_stands_beside_a_question_goes_by_stdin_too(elsewhere: Path, tmp_path: Path) -> None:
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    given = {
        "QUESTION": "And then?",
        "SESSION": "f" * 32,
        "PROMPT": "web/review 'city=New York'",
        "RESOURCES": "a://1 a://2",
    }
    done = run("import ask; ask.main()", tmp_path, INVENTORY=str(elsewhere), PATH=path, **given)
    assert done.returncode == 0, done.stderr
    words, asked = done.stdout.splitlines()
    assert words.endswith("glasslab ask --socket /run/glasslab-agent/agent.sock --request")
    assert json.loads(asked) == {
        "question": "And then?",
        "session": "f" * 32,
        "prompt": {"name": "web/review", "arguments": {"city": "New York"}},
        "resources": ["a://1", "a://2"],
    }
    for wrong, said in (
        ({"PROMPT": "review city"}, "'city' is no KEY=VALUE"),
        ({"PROMPT": "review 'city"}, "No closing quotation; give words as in a shell"),
        ({"SESSION": "no id"}, "'no id' is no session id"),
        ({"QUESTION": "", "SESSION": "f" * 32}, "QUESTION is empty"),
    ):
        done = run(
            "import ask; ask.main()", tmp_path, INVENTORY=str(elsewhere), PATH=path, **({"QUESTION": "x"} | wrong)
        )
        assert said in one_line(done)


def test_a_check_that_is_to_be_recorded_has_a_token_and_a_key_of_its_own(elsewhere: Path, tmp_path: Path) -> None:
    with (elsewhere / "group_vars" / "all.yml").open("a") as more:
        more.write(f"agent_hec_url: https://192.0.2.7:8088\nlab_secrets: {tmp_path}/secrets\n")
    given = {"INVENTORY": str(elsewhere), "INDEX": "1", "SESSION": "f" * 32}
    line = one_line(run("import sys, trace; sys.argv[1:] = ['verify']; trace.main()", tmp_path, **given))
    assert f"no token for those who check ({tmp_path}/secrets/hec_token_verifier: No such file or directory)" in line
    assert f"`ansible-playbook -i {elsewhere} playbooks/splunk.yml` makes one" in line
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "hec_token_verifier").write_text("0123456789abcdef" * 2 + "\n")
    (tmp_path / "secrets" / "verifier.pub").write_text("public\n")
    (tmp_path / "keys").mkdir()
    glasslab = tmp_path / "bin" / "glasslab"
    glasslab.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$HEC_URL" "$HEC_TOKEN_VERIFY" "$SIGNING_KEY_VERIFY"\n')
    glasslab.chmod(0o755)
    code = (
        "import sys, trace, lab, pathlib;"
        "sys.argv[1:] = ['verify'];"
        f"lab.BIN = pathlib.Path('{glasslab.parent}');"
        f"lab.log_environment = lambda: {{'VERIFY_KEYS': '{tmp_path}/keys'}};"
        "trace.main()"
    )
    plain = run(code, tmp_path, **given | {"INDEX": "0"})
    assert plain.stdout.split() == ["verify", "f" * 32], plain.stderr
    recorded = run(code, tmp_path, **given)
    assert recorded.stdout.split() == [
        *("verify", "f" * 32, "--index", "https://192.0.2.7:8088"),
        *("01234567-89ab-cdef-0123-456789abcdef", f"{tmp_path}/secrets/verifier.pem"),
    ], recorded.stderr
    assert (tmp_path / "keys" / "verifier.pub").read_text() == "public\n"
    # A Splunk that stands elsewhere has made its token itself.
    with (elsewhere / "group_vars" / "all.yml").open("a") as more:
        more.write("splunk_mode: existing\nsplunk_existing_tokens: {agent: x}\n")
    line = one_line(run(code, tmp_path, **given))
    assert f"splunk_existing_tokens of INVENTORY={elsewhere} has no token for those who check; make one there" in line
    with (elsewhere / "group_vars" / "all.yml").open("a") as more:
        more.write("splunk_existing_tokens: {agent: x, verifier: 89abcdef-0000-0000-0000-000000000000}\n")
    assert run(code, tmp_path, **given).stdout.split()[4] == "89abcdef-0000-0000-0000-000000000000"


@pytest.mark.parametrize("broken", ["none", "not built", "no inventory", "vault"])
def test_an_inventory_whose_lab_cannot_be_reached_is_one_line(elsewhere: Path, tmp_path: Path, broken: str) -> None:
    said = {
        "none": "there is no such inventory",
        "not built": f"`ansible-playbook -i {elsewhere} site.yml` builds one",
        "no inventory": "does not say how its lab is reached",
        "vault": "vault",
    }[broken]
    if broken == "not built":
        (elsewhere / "ssh_config").unlink()
    if broken == "no inventory":
        (elsewhere / "hosts.yml").write_text("all: {hosts: {pve: {}}}\n")
    if broken == "vault":
        (elsewhere / "group_vars" / "agents.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    named = str(elsewhere) + ("x" if broken == "none" else "")
    line = one_line(run("import trace; trace.main()", tmp_path, INVENTORY=named))
    assert said in line


def test_the_demo_is_the_embedded_lab_s(elsewhere: Path, tmp_path: Path) -> None:
    line = one_line(run("import demo; demo.main()", tmp_path, INVENTORY=str(elsewhere)))
    assert f"ansible-playbook -i {elsewhere} site.yml" in line


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202etxt"


def test_an_answer_is_shown_by_the_terminal_and_never_obeyed(tmp_path: Path) -> None:
    """A compromised agent's machine may send anything: `make demo` and `make ask` escape it on this side."""
    said = f"print(__import__('demo').folded({HOSTILE!r}))"
    asked = (
        "import os, subprocess, lab, ask;"
        "ask.need_lab = lambda: None;"
        f"tell = lambda stderr: os.write(stderr, {HOSTILE!r}.encode());"
        f"ask.ask = lambda question, stderr: subprocess.CompletedProcess([tell(stderr)], 0, {HOSTILE!r});"
        "ask.main()"
    )
    for code in (said, asked):
        done = run(code, tmp_path, QUESTION="anything")
        assert done.returncode == 0, done.stderr
        assert "owned" in done.stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)


def test_each_room_of_the_isolation_tests_is_in_one_scenario() -> None:
    """They are named in the scenarios one by one: a room that is forgotten there would never be entered."""
    named = [
        name
        for scenario in sorted((ROOT / "molecule").glob("*/verify.yml"))
        for name in re.findall(r"- tests/isolation/(test_\w+\.py)$", scenario.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(named) == sorted(path.name for path in (ROOT / "tests" / "isolation").glob("test_*.py"))


def test_a_failed_steps_excerpt_names_the_test_that_failed() -> None:
    """The recap of all scenarios is longer than what is shown, and names no test."""
    log = ["PLAY [Prove it]", "      E       assert 2 == 1", "      FAILED tests/a/test_b.py::test_c - assert 2 == 1"]
    log += [r'fatal: [localhost]: FAILED! => {"stdout": "E   that\nFAILED tests/d.py::test_e\n1 failed"}']
    code = f"import test\nfor line in test.excerpt({log!r} + ['recap'] * 100): print(line)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True, timeout=60
    )
    said = done.stdout.splitlines()
    assert said[:2] == log[1:3]
    assert said[2:5] == [log[3].split(r"\n")[0], "FAILED tests/d.py::test_e", "[...]"]
    assert said[5:] == ["recap"] * 60
