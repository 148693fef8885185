"""The command line from a checkout: a whole question over stdio, and one clear line for what is wrong."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agent_lab import API_KEY, QUESTION, ScriptedModel, lab_environment, scripted_model, turn
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab import pins
from glasslab.cli import COMMANDS, main
from glasslab.statuses import JSON_FIELDS, MAX_QUESTION_CHARACTERS

SCRIPT = {"turns": [turn(("list_files", "{}")), turn(content="The answer.")]}


@pytest.fixture
def environment(hec: FaultyHec, certificates: Certificates, tmp_path: Path) -> dict[str, str]:
    model = {"MODEL_API_KEY": API_KEY, "MODEL_BASE_URL": "http://127.0.0.1:1/v1"}
    return lab_environment(tmp_path, hec.url, certificates.ca, **model)


def glasslab(
    environment: Mapping[str, str], *arguments: str, stdin: bytes = b"", status: int = 0
) -> tuple[str, list[str]]:
    """Run the command; return its output and its lines on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "glasslab.cli", *arguments],
        env=dict(environment), input=stdin, capture_output=True, cwd=environment["HOME"], check=False, timeout=60,
    )  # fmt: skip
    err = done.stderr.decode()
    assert "Traceback" not in err
    assert done.returncode == status, err
    return done.stdout.decode(), err.splitlines()


def test_a_whole_question_from_a_checkout(environment: dict[str, str], hec: FaultyHec, tmp_path: Path) -> None:
    with scripted_model(SCRIPT, tmp_path) as model:
        environment |= {"MODEL_BASE_URL": model.url, "LAB_TRACE": "full"}
        out, err = glasslab(environment, "ask", QUESTION)
    session = hec.events("session.end")[0]["session_id"]
    search = f'search index=agents session_id="{session}" | sort 0 _time'
    assert out == f"The answer.\n\nsession: {session}\nsearch:  {search}\n"
    assert len(err) == 2
    assert "outside the glass" in err[0]
    assert "LAB_TRACE=full" in err[1]
    assert hec.events("server.list_files")[0]["files"]
    assert API_KEY.encode() not in b"".join(hec.bodies)
    assert b"token-of-the" not in b"".join(hec.bodies)
    state = tmp_path / ".local/state/glasslab"
    assert sorted(path.name for path in state.iterdir()) == ["agent.pem", "agent.pub", "mcp.pem", "mcp.pub"]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\u202etxt\udc9b \x9b31m\u2028\U000e0041 \u2014 \N{WOMAN}\u200d\N{ROCKET}\r\n\tend"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\r\u202etxt\udc9b \x9b31m\u2028\U000e0041 \u2014 " + "\N{WOMAN}\u200d\N{ROCKET}\n\tend"


def test_an_answer_is_shown_by_a_terminal_and_never_obeyed(
    environment: dict[str, str], hec: FaultyHec, tmp_path: Path
) -> None:
    script = {"turns": [{"status": 200, "body": json.dumps({"choices": [{"message": {"content": HOSTILE}}]})}]}
    with scripted_model(script, tmp_path) as model:
        environment |= {"MODEL_BASE_URL": model.url, "LAB_TRACE": "full"}
        out, _ = glasslab(environment, "ask", QUESTION)
        ascii_out, _ = glasslab({**environment, "PYTHONIOENCODING": "ascii"}, "ask", QUESTION)
        json_out, _ = glasslab(environment, "ask", "--json", QUESTION)
    assert out.split("\n\nsession: ")[0] == SHOWN.replace("\\u2014", "\u2014")
    assert ascii_out.startswith(r"\x1b]0;owned")
    assert json_out.isascii()
    assert json.loads(json_out)["answer"] == HOSTILE
    assert hec.events("agent.final")[0]["answer"] == HOSTILE.replace("\udc9b", "\\udc9b")


def test_a_problem_that_quotes_others_is_one_plain_line(environment: dict[str, str], tmp_path: Path) -> None:
    said = {"error": {"message": f"no\n\x1b[2J \u202e\x9b{API_KEY} way"}}
    with scripted_model({"turns": [{"status": 500, "body": said}]}, tmp_path) as model:
        _, err = glasslab({**environment, "MODEL_BASE_URL": model.url}, "ask", QUESTION, status=6)
    assert len(err) == 2
    assert err[1].isprintable()
    assert API_KEY not in err[1]


@pytest.mark.parametrize("redirection", ["< /dev/null >&-", "<&- >&- 2>&-", "> /dev/null 2>&- <&-"])
def test_closed_streams_change_nothing(
    environment: dict[str, str], hec: FaultyHec, tmp_path: Path, redirection: str
) -> None:
    with scripted_model(SCRIPT, tmp_path) as model:
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -m glasslab.cli ask "$1" {redirection}', sys.executable, QUESTION],
            env={**environment, "MODEL_BASE_URL": model.url}, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert hec.events("session.end")[0]["status"] == "answered"


def test_output_that_cannot_be_written_is_one_line(environment: dict[str, str]) -> None:
    for arguments in (("ask", "--json", ""), ("ask", "--json", "-")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "glasslab.cli", *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            "glasslab: cannot write the output: No space left on device; give it another place"
        )
        assert "Traceback" not in done.stderr


class Garbage(BaseHTTPRequestHandler):
    """A tool server whose answers a library complains of, with what it sent."""

    def do_POST(self) -> None:
        body = b"event: message\r\ndata: {\x1b[31m\r\n\r\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_what_a_library_logs_of_others_answers_reaches_no_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers = {"garbage": {"url": f"http://127.0.0.1:{server.server_port}/mcp"}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        environment["MCP_SERVERS"] = str(tmp_path / "mcp.json")
        _, (line,) = glasslab(environment, "pin", status=5)
        server.shutdown()
    assert line.startswith("glasslab: server 'garbage' of MCP_SERVERS: connecting to the tool server: Failed to parse")
    assert "\x1b" not in line


def test_the_log_is_down_at_the_start(environment: dict[str, str], hec: FaultyHec, tmp_path: Path) -> None:
    hec.reset(1, "down")
    with scripted_model(SCRIPT, tmp_path) as model:
        out, err = glasslab({**environment, "MODEL_BASE_URL": model.url}, "ask", "--json", QUESTION, status=4)
        assert not list(tmp_path.glob("model-*.jsonl")) or model.requests == 0
    assert err[-1].startswith(f"Agent stopped: Splunk HEC unreachable: {hec.url}: connection refused; ")
    result = json.loads(out)
    assert list(result) == list(JSON_FIELDS)
    assert (result["status"], result["answer"], result["turns"]) == ("log_unreachable", None, 0)


def test_the_model_is_down(environment: dict[str, str], hec: FaultyHec) -> None:
    out, err = glasslab(environment, "ask", QUESTION, status=6)
    assert err[-1].startswith("glasslab: model openai/gpt-5.6-luna at 127.0.0.1:1: connection refused; ")
    assert out.startswith("session: ")
    assert hec.events("session.end")[0]["status"] == "model_unreachable"


def test_the_tool_servers_own_log_fails(environment: dict[str, str], hec: FaultyHec) -> None:
    hec.reset(2, "bad_token")
    _, err = glasslab({**environment, "LAB_TRACE": "full"}, "ask", QUESTION, status=4)
    assert err[-1].startswith(f"Agent stopped: Splunk HEC rejected: {hec.url}: the tool server's log: HTTP 403, code 4")


@pytest.mark.parametrize("question", ["", "  \n", "x" * (MAX_QUESTION_CHARACTERS + 1)])
def test_a_question_that_is_none(environment: dict[str, str], hec: FaultyHec, question: str) -> None:
    out, err = glasslab(environment, "ask", "--json", question, status=7)
    assert json.loads(out)["status"] == "input_refused"
    assert len(err) == 1
    assert hec.received == 0


@pytest.mark.parametrize("stdin", [b"", b"\n", b"caf\xe9?\n", b"x" * 90_000])
def test_a_question_from_standard_input_that_is_none(environment: dict[str, str], stdin: bytes) -> None:
    _, err = glasslab(environment, "ask", "-", stdin=stdin, status=7)
    assert len(err) == 1


def test_wrong_configuration_is_one_line_each(environment: dict[str, str], hec: FaultyHec) -> None:
    bad = {**environment, "HEC_URL": "ftp://x", "MAX_TURNS": "0"}
    _, err = glasslab(bad, "ask", QUESTION, status=2)
    assert [line.split()[:2] for line in err] == [["glasslab:", "HEC_URL:"], ["glasslab:", "MAX_TURNS:"]]
    _, err = glasslab({**environment, "SIGNING_KEY": "/dev/null"}, "ask", QUESTION, status=2)
    assert err == ["glasslab: signing key /dev/null is no PEM private key; make one with openssl genpkey"]
    assert hec.received == 0


@pytest.mark.parametrize("arguments", [(), ("ask",), ("fly",), ("ask", "a", "b"), ("serve",)])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: glasslab")


def test_no_service_at_the_socket(environment: dict[str, str], tmp_path: Path) -> None:
    _, err = glasslab(environment, "ask", "--socket", str(tmp_path / "none.sock"), QUESTION, status=2)
    assert err == [f"glasslab: service at {tmp_path}/none.sock: No such file or directory; start it: glasslab serve"]


@pytest.mark.parametrize("command", [["ask", "hello"], ["serve", "--socket", "/no/such/folder/s"], ["pin"], ["doctor"]])
def test_what_holds_the_models_key_cannot_be_looked_into(environment: dict[str, str], command: list[str]) -> None:
    """Neither its environment nor its memory, before it starts a tool server: that of a checkout is the same user's."""
    code = (
        "import ctypes, glasslab.cli, glasslab.settings, resource, sys\n"
        "def look(**_):\n"
        " print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), 'core', resource.getrlimit(resource.RLIMIT_CORE))\n"
        " raise KeyboardInterrupt\n"
        "glasslab.settings.Settings.load = look\n"
        f"sys.argv = ['glasslab', *{command!r}]\n"
        "glasslab.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "dumpable 0 core (0, 0)\n", done.stderr


def test_help_names_every_command_and_imports_none(environment: dict[str, str]) -> None:
    out, _ = glasslab(environment, "--help")
    assert all(command in out for command in COMMANDS)
    code = (
        "import sys, glasslab.cli; glasslab.cli._parser(['--help']); print([m for m in sys.modules if 'pydantic' in m])"
    )
    quick = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert quick.stdout == "[]\n"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: glasslab {command}")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_tools_are_the_pinned_ones_in_both_revisions(environment: dict[str, str], revision: str) -> None:
    out, err = glasslab({**environment, "MCP_REVISION": revision}, "pin")
    assert [tool["name"] for tool in json.loads(out)["tools"]] == ["list_files", "read_file"]
    assert err == ["glasslab: the tools of 'lab-files' are the pinned ones"]
    assert sorted(pins.read_lock()["lab-files"]["tools"]) == ["list_files", "read_file"]


def test_doctor_says_what_does_not_answer(environment: dict[str, str], hec: FaultyHec, tmp_path: Path) -> None:
    out, _ = glasslab(environment, "doctor", status=1)
    assert [line.split()[0] for line in out.splitlines()] == ["settings", "log", "model", "tools"]
    assert "connection refused" in out.splitlines()[2]
    with scripted_model(SCRIPT, tmp_path) as model:
        out, _ = glasslab({**environment, "MODEL_BASE_URL": model.url}, "doctor")
    assert "model     ok" in out


def test_a_question_to_a_model_that_speaks_anthropic(
    environment: dict[str, str], hec: FaultyHec, tmp_path: Path
) -> None:
    with scripted_model({**SCRIPT, "strict": True}, tmp_path) as model:
        environment |= {"MODEL_BASE_URL": model.url.removesuffix("/v1"), "MODEL_PROVIDER": "anthropic", "MODEL": "m"}
        out, _ = glasslab(environment, "ask", QUESTION)
        doctor, _ = glasslab(environment, "doctor")
        told, _ = glasslab(environment | {"MODEL_MAX_TOKENS": "7"}, "ask", "--json", QUESTION)
    assert out.startswith("The answer.\n")
    assert "model     ok" in doctor
    assert json.loads(told)["status"] == "answered"


def test_ctrl_c_is_a_recorded_end(environment: dict[str, str], hec: FaultyHec, tmp_path: Path) -> None:
    model = ScriptedModel({"turns": [{**turn(content="Late."), "delay": 5}]}, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "glasslab.cli", "ask", "--json", QUESTION],
        env={**environment, "MODEL_BASE_URL": model.url, "LAB_TRACE": "full"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 15
    while not hec.events("llm.request") and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    model.stop()
    assert process.returncode == 8, err
    assert json.loads(out)["status"] == "cancelled"
    assert hec.events("session.end")[0]["status"] == "cancelled"
    assert "Traceback" not in err


def test_a_terminal_shows_what_arrives_and_then_what_is_on_record(
    environment: dict[str, str], hec: FaultyHec, tmp_path: Path
) -> None:
    hostile = {"turns": [{"message": {"content": "It is \x1b[2J so."}}]}
    with scripted_model(hostile, tmp_path) as model:
        out, err = glasslab(environment | {"MODEL_BASE_URL": model.url}, "ask", "--stream", QUESTION)
    assert "before it is screened and on record" in err[1]
    assert err[2:] == ["It is \\x1b[2J so."]
    assert out.startswith("It is \\x1b[2J so.\n\nsession: ")


def test_a_service_has_nobody_who_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ask", "--stream", "--socket", "/run/x", "q"])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_what_was_found_is_printed_in_place_of_an_answer(
    environment: dict[str, str], hec: FaultyHec, tmp_path: Path
) -> None:
    with scripted_model({**SCRIPT, "repeat_last": False}, tmp_path) as model:
        limited = environment | {"MODEL_BASE_URL": model.url, "MAX_TURNS": "2", "MAX_TOTAL_TOKENS": "12"}
        out, err = glasslab(limited, "ask", QUESTION, status=3)
    assert out.startswith("session: ")  # nothing was run, nothing was said
    with scripted_model({"turns": [SCRIPT["turns"][0]], "repeat_last": True}, tmp_path) as model:
        limited = environment | {"MODEL_BASE_URL": model.url, "MAX_TURNS": "2"}
        out, err = glasslab(limited, "ask", QUESTION, status=3)
    lines = out.splitlines()
    assert lines[0] == "no answer; found so far:"
    assert lines[1].startswith("list_files {}: ")
    assert lines[2] == ""
    assert err[-1] == "glasslab: stopped after 2 turns: max_steps_reached; raise MAX_TURNS or ask for less"
