"""The scripted model: turns by conversation, raw answers, records, TLS, bad scripts."""

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from glasslab import scripted
from glasslab.scripted import ScriptedServer, load_script, parse_script
from glasslab.scripted import command as scripted_command
from loglab import make_certificates

Start = Callable[..., str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a scripted model on a script's value (or name) and return its base URL."""
    servers: list[ScriptedServer] = []

    def _start(script: Any, record: Path | None = None) -> str:
        parsed = load_script(script) if isinstance(script, str) else parse_script(script, "test")
        server = ScriptedServer(parsed, "127.0.0.1", 0, record=record)
        server.start()
        servers.append(server)
        return f"http://127.0.0.1:{server.port}/v1"

    yield _start
    for server in servers:
        server.stop(seconds=0)


def ask(base: str, assistants: int = 0, **extra: Any) -> requests.Response:
    messages = [{"role": "user", "content": "q"}, *([{"role": "assistant", "content": "a"}] * assistants)]
    with requests.Session() as session:
        session.trust_env = False
        return session.post(f"{base}/chat/completions", json={"model": "m", "messages": messages, **extra}, timeout=5)


def test_turn_follows_from_the_conversation_whatever_came_before(start: Start) -> None:
    base = start("sample")
    for assistants, tokens, calls in ((2, 446, 0), (0, 136, 1), (1, 173, 2), (0, 136, 1)):
        reply = ask(base, assistants).json()
        choice = reply["choices"][0]
        assert reply["model"] == "openai/gpt-5.6-luna"
        assert reply["usage"]["prompt_tokens"] == tokens
        assert reply["usage"]["total_tokens"] == tokens + reply["usage"]["completion_tokens"]
        assert choice["message"]["role"] == "assistant"
        assert len(choice["message"].get("tool_calls", [])) == calls
    assert ask(base, 0).json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": 13}


def test_by_setting_the_turns_begin_anew_with_each_question(start: Start) -> None:
    def tokens(base: str, *roles: str) -> int:
        said = {"tool result": {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}}
        messages = [said.get(role, {"role": role, "content": "x"}) for role in roles]
        answer = requests.post(f"{base}/chat/completions", json={"model": "m", "messages": messages}, timeout=5)
        return int(answer.json()["usage"]["prompt_tokens"]) if answer.ok else answer.status_code

    earlier = ("user", "assistant", "tool", "assistant", "tool", "tool", "assistant")
    base = start("sample")
    assert tokens(base, *earlier, "user") == 136
    assert tokens(base, *earlier, "user", "assistant", "tool") == 173
    assert tokens(base, *earlier, "user", "assistant", "tool result", "assistant", "tool result") == 446
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    once = start({"turns": [{"message": {"content": "a"}, **usage}]})
    assert (tokens(once, "user"), tokens(once, "user", "assistant", "user")) == (1, 400)


def test_many_sessions_at_once_get_their_own_turns(start: Start) -> None:
    base = start("sample")
    wanted = [136, 173, 446] * 20
    with ThreadPoolExecutor(10) as pool:
        got = list(pool.map(lambda n: ask(base, n % 3).json()["usage"]["prompt_tokens"], range(60)))
    assert got == wanted


def test_past_the_last_turn_is_an_error_and_repeat_last_is_a_loop(start: Start) -> None:
    turn = {"message": {"content": "again"}}
    late = ask(start({"turns": [turn]}), 1)
    assert late.status_code == 400
    assert "1 turns and turn 2" in late.json()["error"]["message"]
    looping = ask(start({"turns": [turn], "repeat_last": True}), 7)
    assert looping.json()["choices"][0]["message"]["content"] == "again"


@pytest.mark.parametrize(
    ("turn", "status", "body"),
    [
        ({"status": 401, "body": {"error": {"message": "no"}}}, 401, b'{"error": {"message": "no"}}'),
        ({"status": 429, "headers": {"Retry-After": "1"}, "body": "slow"}, 429, b"slow"),
        ({"status": 500}, 500, b""),
        ({"status": 200, "body": {"choices": []}}, 200, b'{"choices": []}'),
        ({"status": 200, "body": "<html>"}, 200, b"<html>"),
        ({"status": 200, "headers": {"content-type": "text/html"}, "body": "x"}, 200, b"x"),
    ],
)
def test_raw_answers_are_served_verbatim(start: Start, turn: dict[str, Any], status: int, body: bytes) -> None:
    answer = ask(start({"turns": [turn]}))
    assert (answer.status_code, answer.content) == (status, body)
    for name, value in turn.get("headers", {}).items():
        assert answer.headers[name] == value


def test_delay_and_drip_take_their_time(start: Start) -> None:
    begun = time.monotonic()
    assert ask(start({"turns": [{"message": {"content": "x"}, "delay": 0.2}]})).status_code == 200
    assert time.monotonic() - begun >= 0.2
    begun = time.monotonic()
    assert ask(start({"turns": [{"status": 200, "body": "abcd", "drip": 0.05}]})).content == b"abcd"
    assert time.monotonic() - begun >= 0.2


def test_record_has_a_line_a_request_and_never_a_key(start: Start, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    base = start("sample", record)
    ask(base, 1)
    headers = {"Authorization": "Bearer sk-secret"}
    answer = requests.get(f"{base}/models", headers=headers, timeout=5)
    assert [model["id"] for model in answer.json()["data"]] == ["openai/gpt-5.6-luna"]
    text = record.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["path"], line["messages"], line["authorization"]) for line in lines] == [
        ("/v1/chat/completions", 2, False),
        ("/v1/models", None, True),
    ]
    assert all(abs(line["time"] - time.time()) < 60 for line in lines)
    assert "secret" not in text


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"messages": 1}', b"[" * 100_000])
def test_requests_it_cannot_read_get_400(start: Start, body: bytes) -> None:
    answer = requests.post(start("sample") + "/chat/completions", data=body, timeout=5)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("a: [", "not YAML"),
        ("x", "must be a mapping"),
        ("turns: []", "at least one turn"),
        ("turns: [{message: {}, colour: red}]", "turns[0]: unknown key colour"),
        ("turns: [{status: 200}, {status: 99}]", "turns[1].status"),
        ("turns: [{}]", "turns[0].status"),
        ("turns: [{status: 200, delay: soon}]", "'soon'"),
        ("turns: [{fault: fire}]", "turns[0].fault"),
        ("turns: [{fault: reset, status: 200}]", "turns[0]: unknown key status"),
        ("turns: [{content: text}]", "turns[0].content"),
        ("turns: [[]]", "turns[0]: must hold at least one answer"),
        ("turns: [[{message: {}}, {status: 1}]]", "turns[0][1].status"),
        ("turns: [{message: {}}]\nstrict: 1", "strict: must be true or false"),
        ("turns: [{message: {}}]\nsurprise: 1", "unknown key surprise"),
        ("turns: [{message: {}}]\nwhen: {last: x}", "when: must be a list"),
        ("turns: [{message: {}}]\nwhen: [{message: {}}]", "when[0]: must be a mapping with last"),
        ("turns: [{message: {}}]\nwhen: [{last: x}, {last: '', message: {}}]", "when[0].status"),
        ("turns: [{message: {}}]\nwhen: [{last: x, message: {}, colour: red}]", "when[0]: unknown key colour"),
    ],
)
def test_a_bad_script_is_one_line_naming_the_place(
    script: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yml"
    file.write_text(script, encoding="utf-8")
    assert command(str(file)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"glasslab: {file}")
    assert named in error
    assert error.count("\n") == 1


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    scripted_command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["scripted", *arguments])
    return int(args.run(args))


def test_bad_files_and_ports_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("/nonexistent.yml",): "/nonexistent.yml",
            ("sample", "--port", port): f"127.0.0.1:{port}",
            ("sample", "--port", "70000"): "70000",
            ("sample", "--cert", "/nonexistent.pem"): "/nonexistent.pem",
            ("sample", "--key", "/nonexistent.key"): "--cert",
            ("sample", "--port", "0", "--record", f"{tmp_path}/no/r.jsonl"): f"{tmp_path}/no/r.jsonl",
        }
        for arguments, named in cases.items():
            assert command(*arguments) == 2
            error = capsys.readouterr().err
            assert error.startswith("glasslab: ")
            assert named in error
            assert error.count("\n") == 1


def test_docstring_example_is_a_valid_script() -> None:
    text = (scripted.__doc__ or "").split("A script is YAML:")[1].split("Which turn")[0]
    text = text.split("\nA reply is streamed")[0]
    script = parse_script(yaml.safe_load(text.replace("[...]", "[]")), "docstring")
    assert [[turn.status for turn in turns] for turns in script.turns] == [[200], [200], [429], [200], [503, 200]]
    assert [turns[0].fault for turns in script.turns] == [None, None, None, "reset", None]
    assert [last for last, _ in script.when] == ["Shorten it"]


def test_a_request_is_answered_by_the_text_of_its_last_message(start: Start) -> None:
    script = {
        "turns": [{"message": {"content": "first turn"}}],
        "when": [{"last": "q", "message": {"content": "asked"}}, {"last": "never", "status": 500}],
    }
    base = start(script)
    assert ask(base).json()["choices"][0]["message"]["content"] == "asked"
    messages = [{"role": "user", "content": "q"}, {"role": "user", "content": "something else"}]
    assert ask(base, messages=messages).json()["choices"][0]["message"]["content"] == "first turn"


def test_the_command_speaks_tls_records_and_ends_on_sigterm(tmp_path: Path) -> None:
    ca = make_certificates(tmp_path)
    tls = ["--cert", str(tmp_path / "server.pem"), "--record", str(tmp_path / "record")]
    process = subprocess.Popen(
        [sys.executable, "-m", "glasslab.cli", "scripted", "sample", "--port", "0", *tls],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    base = process.stdout.readline().split()[-1]
    assert base.startswith("https://127.0.0.1:")
    with requests.Session() as session:
        session.trust_env = False
        assert session.get(f"{base}/models", timeout=5, verify=str(ca)).status_code == 200
        process.terminate()
        assert process.wait(timeout=20) == 0  # although the connection stands
    assert len((tmp_path / "record").read_text(encoding="utf-8").splitlines()) == 1
