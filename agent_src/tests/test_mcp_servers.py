"""The file of tool servers: what is taken, and one clear line for what is not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Certificates
from glasslab.mcp_servers import read_servers
from glasslab.settings import SettingsError
from glasslab.toolbox import ServerCommand
from glasslab.tooltypes import OAuthClient, ServerUrl


@pytest.fixture
def folder(tmp_path: Path, certificates: Certificates) -> Path:
    (tmp_path / "ca.pem").write_bytes(certificates.ca.read_bytes())
    for name, text in (
        ("token", "tok-123\n"),
        ("client.json", json.dumps({"client_id": "c", "client_secret": "client-secret"})),
        ("no-ca.pem", "x"),
        ("empty", ""),
        ("open", "tok"),
        ("program.py", ""),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    return tmp_path


def read(folder: Path, servers: Any, text: str | None = None, mode: int = 0o600) -> list[Any]:
    path = folder / "mcp.json"
    path.write_text(text if text is not None else json.dumps({"mcpServers": servers}).replace("HERE", str(folder)))
    path.chmod(mode)
    return read_servers(path)


def test_a_server_on_this_machine(folder: Path) -> None:
    script = str(folder / "program.py")
    entry = {"type": "stdio", "command": sys.executable, "args": [script, "--flag"], "env": {"A": "b"}}
    (got,) = read(folder, {"tides": {**entry, "files": ["HERE/token"]}})
    assert got.name == "tides"
    assert got.server == ServerCommand(sys.executable, (script, "--flag"), {"A": "b"})
    assert got.files == [Path(sys.executable).resolve(), Path(script), folder / "token"]


def test_a_server_over_http(folder: Path) -> None:
    found = read(
        folder,
        {
            "plain": {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Team": "lab"}},
            "token": {"type": "http", "url": "https://h.example/mcp", "bearerTokenFile": "HERE/token"},
            "oauth": {
                "url": "https://h.example/mcp",
                "caFile": "HERE/ca.pem",
                "oauth": {"credentialsFile": "HERE/client.json", "issuer": "https://auth.example"},
            },
            "off": {"command": "/no/such/program", "disabled": True},
        },
    )
    assert [item.server for item in found] == [
        ServerUrl("http://127.0.0.1:1/mcp", {"X-Team": "lab"}),
        ServerUrl("https://h.example/mcp", {"Authorization": "Bearer tok-123"}),
        ServerUrl(
            "https://h.example/mcp",
            {},
            OAuthClient("c", "client-secret", "https://auth.example"),
            folder / "ca.pem",
        ),
    ]
    assert "client-secret" not in repr(found)
    assert "tok-123" not in repr(found)


HTTP = {"url": "https://h.example/mcp"}
OAUTH = {"credentialsFile": "HERE/client.json", "issuer": "https://auth.example"}
BAD = [
    ({"a b": HTTP}, "'a b' cannot be a server's name"),
    ({"lab-files": HTTP}, "'lab-files' cannot be a server's name"),
    ({"x" * 33: HTTP}, "cannot be a server's name"),
    ({"a": 7}, "server 'a' is no object"),
    ({"a": {}}, 'neither "command" nor "url"'),
    ({"a": {"command": "no-such-program-here"}}, "which is not found; install it"),
    ({"a": {"command": ""}}, "needs 'command' as a text"),
    ({"a": {"command": "sh", "args": "x"}}, '"args" that are no list of texts'),
    ({"a": {"command": "sh", "args": ["\0"]}}, '"args" that are no list of texts'),
    ({"a": {"command": "sh", "env": {"A": 1}}}, "'env' that is no object of texts"),
    ({"a": {"command": "sh", "files": [1]}}, '"files" that are no list of paths'),
    ({"a": {"command": "sh", "cwd": "/"}}, "an unknown key 'cwd'; known: args, command"),
    ({"a": {"command": "sh", "type": "http"}}, "has the type 'http'; use stdio"),
    ({"a": {**HTTP, "type": "sse"}}, "has the type 'sse'; use http"),
    ({"a": {"url": "ftp://h/mcp"}}, "no http(s) address"),
    ({"a": {"url": "https://u:geheim@h/mcp"}}, "no http(s) address"),
    ({"a": {"url": "https://h:port/mcp"}}, "no http(s) address"),
    ({"a": {"url": "http://10.0.0.1/mcp"}}, "plain http to another machine"),
    ({"a": {**HTTP, "headers": {"X": "a\nb"}}}, "a header 'X' that no request can carry"),
    ({"a": {**HTTP, "headers": {"X:": "a"}}}, "a header 'X:' that no request can carry"),
    ({"a": {**HTTP, "bearerTokenFile": "HERE/nothing"}}, "cannot be read (No such file"),
    ({"a": {**HTTP, "bearerTokenFile": "HERE/empty"}}, "holds no token"),
    ({"a": {**HTTP, "bearerTokenFile": "HERE/open"}}, "may be read by anybody; chmod o-r it"),
    ({"a": {**HTTP, "bearerTokenFile": "HERE/token", "oauth": OAUTH}}, "two ways to authorize"),
    ({"a": {**HTTP, "caFile": "HERE/nothing"}}, "CA file"),
    ({"a": {**HTTP, "caFile": "HERE/no-ca.pem"}}, "no-ca.pem', which holds no certificate"),
    ({"a": {**HTTP, "caFile": "~nobody-here/ca"}}, "'caFile' that names a home folder that nobody knows"),
    ({"a": {**HTTP, "bearerTokenFile": "~nobody-here/token"}}, "'bearerTokenFile' that names a home folder"),
    ({"a": {**HTTP, "oauth": {**OAUTH, "credentialsFile": "~nobody-here/c"}}}, "'credentialsFile' that names a home"),
    ({"a": {"command": "sh", "files": ["~nobody-here/f"]}}, "names a home folder that nobody knows"),
    ({"a": {"command": "sh", "files": ["a\0b"]}}, "holds a NUL character"),
    ({"a": {"url": "https://h.example/m\u001bcp"}}, "no http(s) address"),
    ({"a": {"url": "https://h.example/m cp"}}, "no http(s) address"),
    ({"a": {"url": f"https://{'h' * 64}.example/mcp"}}, "no http(s) address"),
    ({"a": {"url": "https://[v1.x]/mcp"}}, "no http(s) address"),
    ({"a": {**HTTP, "oauth": {**OAUTH, "secret": "x"}}}, "unknown oauth key 'secret'"),
    ({"a": {**HTTP, "oauth": {"credentialsFile": "HERE/client.json"}}}, "needs 'issuer' as a text"),
    ({"a": {**HTTP, "oauth": {**OAUTH, "credentialsFile": "HERE/token"}}}, "is not JSON"),
]


@pytest.mark.parametrize(("servers", "words"), BAD, ids=lambda value: str(value)[:50])
def test_what_is_wrong_is_one_line_that_names_it(folder: Path, servers: Any, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(folder, servers)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"MCP_SERVERS: {folder}/mcp.json: ")
    assert "\n" not in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("tok-123", "client-secret", "geheim"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ("{}", 'has no "mcpServers" object'),
        ('{"mcpServers": {"a": {"url": "https://a/"}, "a": {"url": "https://b/"}}}', "'a' is given twice"),
        ("[" * 100_000, "is not JSON"),
        ("x" * 1_000_001, "larger than"),
    ],
)
def test_a_file_that_is_none(folder: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match="MCP_SERVERS") as caught:
        read(folder, {}, text)
    assert words in str(caught.value)


def test_a_file_that_anybody_may_write_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match="may be written by anybody"):
        read(folder, {"a": HTTP}, mode=0o666)
    with pytest.raises(SettingsError, match="No such file"):
        read_servers(folder / "nothing.json")


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "sh", "env": {"API_KEY": "hunter22"}},
        {"command": "sh", "args": ["--token=hunter22"]},
        {**HTTP, "headers": {"Authorization": "Bearer hunter22"}},
        {"url": "https://h.example/mcp?key=hunter22"},
    ],
)
def test_a_file_with_a_secret_in_it_is_one_that_not_everybody_may_read(folder: Path, entry: dict[str, Any]) -> None:
    assert read(folder, {"a": entry}, mode=0o640)
    with pytest.raises(SettingsError, match="the file, which holds secrets, may be read by anybody; chmod o-r it"):
        read(folder, {"a": entry}, mode=0o644)


def test_a_file_without_any_may_be_read_by_everybody(folder: Path) -> None:
    command = {"command": "sh", "args": ["--units", "si"], "env": {"CITY": "Copenhagen"}}
    assert len(read(folder, {"a": command, "b": {**HTTP, "bearerTokenFile": "HERE/token"}}, mode=0o644)) == 2
