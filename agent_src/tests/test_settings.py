"""Settings: their places and order, secrets from files, and one clear line for each thing that is wrong."""

import json
import os
import re
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr

from agent_lab import LIST, StubTools
from conftest import Certificates
from glasslab.assembly import agent_from_settings, check_names
from glasslab.keys import KeyFileError, load_public_keys, load_signing_key
from glasslab.settings import SearchSettings, ServerSettings, Settings, SettingsError, VerifierSettings
from glasslab.settings_sources import ALIASES, is_secret
from glasslab.toolset import Member, Toolset
from glasslab.tooltypes import ServerInfo

EXAMPLE = Path(__file__).parent.parent / "env.example"
GOOD = {"HEC_URL": "https://127.0.0.1:8088", "HEC_TOKEN": "agent-token", "HEC_TOKEN_MCP": "mcp-token"}


@pytest.fixture
def environment(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def give(environment: pytest.MonkeyPatch, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        environment.setenv(name, value)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def lines(kind: type[Settings] | type[ServerSettings] | type[SearchSettings] = Settings) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        kind.load()
    assert all("\n" not in line for line in caught.value.lines)
    return caught.value.lines


def names_of_settings() -> set[str]:
    names = set()
    for kind in (Settings, ServerSettings, SearchSettings, VerifierSettings):
        for field, info in kind.model_fields.items():
            names.add(field.upper())
            if is_secret(info):
                names.add(f"{field.upper()}_FILE")
    return names


def test_the_example_lists_exactly_the_settings() -> None:
    listed = [line.lstrip("#").split("=")[0] for line in EXAMPLE.read_text().splitlines() if is_setting(line)]
    assert len(listed) == len(set(listed))
    assert set(listed) == names_of_settings()


def is_setting(line: str) -> bool:
    name = line.lstrip("#").split("=")[0]
    return "=" in line and bool(name) and name == name.upper() and name.replace("_", "").isalnum()


def test_the_examples_defaults_are_the_defaults(environment: pytest.MonkeyPatch) -> None:
    give(environment, GOOD)
    settings = Settings.load()
    for line in EXAMPLE.read_text().splitlines():
        field = line.lstrip("#").split("=")[0].lower()
        if line.startswith("#") and is_setting(line) and field in Settings.model_fields:
            default = getattr(settings, field)
            if default is not None and field not in ("lab_documents", "system_prompt"):
                given = re.sub("^~", str(Path.home()), line.split("=", 1)[1])
                assert str(type(default)(given)) == str(default), line


def test_a_later_place_wins(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    give(environment, GOOD)
    write(clean_home / "lab/.env", "MODEL=from-lab\nMAX_TURNS=2\nHEC_INDEX=lab\n")
    write(clean_home / ".env", "MODEL=from-here\nMAX_TURNS=3\n")
    environment.setenv("MODEL", "from-environment")
    settings = Settings.load()
    assert (settings.model, settings.max_turns, settings.hec_index) == ("from-environment", 3, "lab")


def test_an_alias_in_a_later_place_wins_over_the_name_in_an_earlier_one(
    environment: pytest.MonkeyPatch, clean_home: Path
) -> None:
    give(environment, GOOD)
    write(clean_home / "lab/.env", "MODEL_BASE_URL=https://lab.example/v1\nMODEL_API_KEY=lab\n")
    give(environment, {"OPENAI_BASE_URL": "https://env.example/v1/", "OPENAI_API_KEY": "env"})
    settings = Settings.load()
    assert settings.model_base_url == "https://env.example/v1"
    assert settings.model_api_key is not None
    assert settings.model_api_key.get_secret_value() == "env"
    assert set(ALIASES) == {"OPENAI_BASE_URL", "OPENAI_API_KEY"}


@pytest.mark.parametrize("name", ["HEC_TOKEN", "HEC_TOKEN_MCP", "MODEL_API_KEY", "OPENAI_API_KEY"])
def test_each_secret_can_be_a_file_and_beats_an_earlier_place(
    environment: pytest.MonkeyPatch, clean_home: Path, name: str
) -> None:
    write(clean_home / "lab/.env", "".join(f"{key}={value}\n" for key, value in (GOOD | {name: "earlier"}).items()))
    environment.setenv(f"{name}_FILE", str(write(clean_home / "secret", "from-file\n")))
    field = ALIASES.get(name, name).lower()
    assert getattr(Settings.load(), field).get_secret_value() == "from-file"


def test_a_secret_is_never_shown(environment: pytest.MonkeyPatch) -> None:
    give(environment, {**GOOD, "MODEL_API_KEY": "sk-very-secret"})
    settings = Settings.load()
    shown = repr(settings) + repr(settings.shown()) + repr(settings.hec())
    assert not any(secret in shown for secret in ("sk-very-secret", "agent-token", "mcp-token"))
    assert settings.shown()["HEC_URL"] == GOOD["HEC_URL"]
    assert not {"SYSTEM_PROMPT", "HEC_TOKEN", "HEC_TOKEN_MCP", "MODEL_API_KEY"} & settings.shown().keys()


BAD = [
    ({"HEC_URL": ""}, "HEC_URL is not set"),
    ({"HEC_TOKEN": " "}, "HEC_TOKEN is not set"),
    ({"HEC_TOKEN_MCP": ""}, "HEC_TOKEN_MCP is not set"),
    ({"HEC_URL": "ftp://log:8088"}, "HEC_URL: 'ftp://log:8088' is no http(s) URL"),
    ({"HEC_URL": "log:8088"}, "HEC_URL: 'log:8088' is no http(s) URL"),
    ({"HEC_URL": "https://log:port"}, "HEC_URL: 'https://log:port' is no http(s) URL"),
    ({"HEC_URL": "http://10.10.10.20:8088"}, "HEC_URL: 'http://10.10.10.20:8088' is plain http to another machine"),
    ({"HEC_URL": "https://u:p@log:8088"}, "holds a user"),
    ({"MODEL_BASE_URL": "https://u:geheim@m/v1"}, "MODEL_BASE_URL: 'https://...@m/v1' holds a user"),
    ({"MODEL_BASE_URL": "https://m/v1?key=geheim"}, "MODEL_BASE_URL: 'https://m/v1?...' holds a user"),
    ({"HEC_URL": f"https://u:{'geheim' * 99}@log:8088"}, "HEC_URL: 'https://...@log:8088' holds a user"),
    ({"HEC_URL": "https://u:ge/heim@log:8088"}, "HEC_URL: 'https://...@log:8088' is no http(s) URL"),
    ({"HEC_CA": "/dev/zero"}, "HEC_CA: '/dev/zero' is no regular file"),
    ({"HEC_CA": "~nobody-here/ca"}, "HEC_CA: '~nobody-here/ca' names a home folder that nobody knows"),
    ({"MODEL_API_KEY_FILE": "~nobody-here/key"}, "MODEL_API_KEY_FILE: '~nobody-here/key' names a home folder"),
    ({"MODEL_API_KEY_FILE": "/dev/zero"}, "MODEL_API_KEY_FILE: '/dev/zero' is larger than 65536 bytes"),
    ({"HEC_URL": "https://log..example:8088"}, "HEC_URL: 'https://log..example:8088' is no http(s) URL"),
    ({"HEC_URL": "https://log:8088/a b"}, "HEC_URL: 'https://log:8088/a b' is no http(s) URL"),
    ({"MODEL_BASE_URL": "https://m/v1\x01"}, "MODEL_BASE_URL: 'https://m/v1\\x01' is no http(s) URL"),
    ({"MODEL_BASE_URL": "https://[v1.x]/v1"}, "MODEL_BASE_URL: 'https://[v1.x]/v1' is no http(s) URL"),
    ({"MODEL_BASE_URL": f"https://{'m' * 64}/v1"}, "/v1' is no http(s) URL"),
    ({"HEC_INDEX": "a" * 129}, "HEC_INDEX: 'aaa"),
    ({"MAX_TURNS": "9" * 5000}, "MAX_TURNS: '999"),
    ({"MODEL_API_KEY_FILE": "/"}, "MODEL_API_KEY_FILE: cannot read / (Is a directory)"),
    ({"HEC_TOKEN": "a b"}, "HEC_TOKEN: the value holds characters that no token has"),
    ({"HEC_TOKEN": "caf\u00e9"}, "HEC_TOKEN: the value holds characters that no token has"),
    ({"HEC_CA": "/no/such/ca.crt"}, "HEC_CA: '/no/such/ca.crt' cannot be read (No such file or directory)"),
    ({"HEC_CA": "/"}, "HEC_CA: '/' cannot be read (Is a directory)"),
    ({"HEC_CA": "/etc/hostname"}, "HEC_CA: '/etc/hostname' holds no certificate"),
    ({"HEC_URL": "https://log:8088/services/collector"}, "leave /services/collector away"),
    ({"HEC_DEADLINE": "soon"}, "HEC_DEADLINE: 'soon'"),
    ({"HEC_DEADLINE": "0"}, "HEC_DEADLINE: '0'"),
    ({"HEC_DEADLINE": "nan"}, "HEC_DEADLINE: 'nan'"),
    ({"HEC_INDEX": "a b"}, "HEC_INDEX: 'a b'"),
    ({"HEC_ACK": "maybe"}, "HEC_ACK: 'maybe'"),
    ({"LAB_TRACE": "all"}, "LAB_TRACE: 'all'"),
    ({"LAB_DOCUMENTS": "/no/such/folder"}, "LAB_DOCUMENTS: '/no/such/folder' is no folder"),
    ({"MAX_TURNS": "0"}, "MAX_TURNS: '0'"),
    ({"MAX_TURNS": "many"}, "MAX_TURNS: 'many'"),
    ({"MAX_COST": "0"}, "MAX_COST: '0'"),
    ({"MODEL_PRICES": "m=1"}, "MODEL_PRICES: 'm=1' has 'm=1'"),
    ({"MODEL_PRICES": "=1/2"}, "has '=1/2'"),
    ({"MODEL_PRICES": "a=1/2, b=1/nan"}, "has 'b=1/nan'"),
    ({"MODEL_RETRIES": "-1"}, "MODEL_RETRIES: '-1'"),
    ({"MODEL_SECONDS": "0"}, "MODEL_SECONDS: '0'"),
    ({"MODEL_MAX_TOKENS": "0"}, "MODEL_MAX_TOKENS: '0'"),
    ({"MAX_TOOL_CALLS_PER_TURN": "0"}, "MAX_TOOL_CALLS_PER_TURN: '0'"),
    ({"LAST_TURN": "stop"}, "LAST_TURN: 'stop'"),
    ({"MCP_SERVER": "tcp:1"}, "MCP_SERVER: 'tcp:1'"),
    ({"MCP_REVISION": "2024-11-05"}, "MCP_REVISION: '2024-11-05'"),
    ({"MODEL_PROVIDER": "gemini"}, "MODEL_PROVIDER: 'gemini'"),
    ({"MODEL_PROVIDER": "anthropic"}, "MODEL is not set"),
    ({"MODEL_BASE_URL": "model"}, "MODEL_BASE_URL: 'model' is no http(s) URL"),
    ({"MODEL_BASE_URL": "http://model.example/v1", "MODEL_API_KEY": "k"}, "would carry MODEL_API_KEY unencrypted"),
    ({"MODEL_CA": "/no/such"}, "MODEL_CA: '/no/such' cannot be read"),
    ({"MODEL_API_KEY_FILE": "/no/such"}, "MODEL_API_KEY_FILE: cannot read /no/such"),
    ({"HEC_TOKEN_FILE": "/dev/null"}, "HEC_TOKEN and HEC_TOKEN_FILE are both set"),
    ({"HEC_TOKEN": "", "HEC_TOKEN_FILE": "/dev/null"}, "HEC_TOKEN_FILE: /dev/null is empty"),
]


@pytest.mark.parametrize(("values", "expected"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_one_line_that_names_it(
    environment: pytest.MonkeyPatch, values: Mapping[str, str], expected: str
) -> None:
    give(environment, {**GOOD, **values})
    found = lines()
    assert len(found) == 1
    assert expected in found[0]
    assert ";" in found[0]  # the remedy
    assert "geheim" not in found[0]
    assert len(found[0]) < 700
    if "HEC_TOKEN" in values:
        assert values["HEC_TOKEN"].strip() not in found[0] or not values["HEC_TOKEN"].strip()


def rules_about(*tools: str) -> str:
    return json.dumps({"rules": [{"tool": tool, "then": "ask"} for tool in tools]})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"TOOL_CLASSES": "weather/get_current_wether=send"},
            "TOOL_CLASSES: 'weather/get_current_wether' is no tool of",
        ),
        ({"TOOL_CLASSES": "weahter/*=send"}, "TOOL_CLASSES: 'weahter/*' is no tool of the lock, which has (agent)/del"),
        (
            {"DELEGATE_TOOLS": "list_files,read_fil"},
            "DELEGATE_TOOLS: 'read_fil' is no tool of the lock, which has get_c",
        ),
        ({"DELEGATE_TOOLS": "delegate"}, "DELEGATE_TOOLS: 'delegate' is no tool of the lock"),
        ({"APPROVAL_RULES": "lab-outbx/*"}, "APPROVAL_RULES: 'lab-outbx/*' is no tool of the lock, which has (agent)/"),
        ({"APPROVAL_RULES": "lab-outbox/send"}, "APPROVAL_RULES: 'lab-outbox/send' is no tool of the lock"),
        ({"APPROVAL_RULES": "send_message"}, "APPROVAL_RULES: 'send_message' is no tool of the lock"),
    ],
)
def test_a_tool_that_nothing_has_is_named(
    environment: pytest.MonkeyPatch, clean_home: Path, values: Mapping[str, str], expected: str
) -> None:
    rules = write(clean_home / "rules.json", rules_about("*/read*", *values.values()))
    give(environment, {**GOOD, **values} | ({"APPROVAL_RULES": str(rules)} if "APPROVAL_RULES" in values else {}))
    with pytest.raises(SettingsError) as caught:
        agent_from_settings()
    assert str(caught.value).startswith(expected)
    assert "; correct it, or pin first" in str(caught.value)


def test_a_name_that_is_offered_shortened_may_be_named(environment: pytest.MonkeyPatch) -> None:
    long = "t" * 62
    tools = Toolset([Member(StubTools(), key) for key in ("one", "two")])
    listed = [{**LIST, "name": long}]
    shown = list(
        tools.offer([ServerInfo("", key, "", {}, None, listed, "initialize", key=key) for key in ("one", "two")])
    )
    give(environment, {**GOOD, "DELEGATE_TOOLS": ",".join(shown)})
    lock = {key: {"tools": {long: "0"}} for key in ("one", "two")}
    check_names(Settings.load(), lock)
    with pytest.raises(SettingsError, match=f"'{shown[1]}' is no tool of the lock"):
        check_names(Settings.load(), {"one": lock["one"]})


def test_tools_that_there_are_may_be_named(environment: pytest.MonkeyPatch) -> None:
    classes = "weather/get_current_weather=send, lab-files/*=send, (agent)/delegate=write"
    give(environment, {**GOOD, "TOOL_CLASSES": classes, "DELEGATE_TOOLS": "list_files, lab-files_read_file"})
    agent_from_settings().close()


def test_everything_that_is_wrong_is_said_at_once(environment: pytest.MonkeyPatch) -> None:
    assert [line.split()[0] for line in lines()] == ["HEC_URL", "HEC_TOKEN"]


def test_an_unreadable_settings_file_is_named(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    (clean_home / ".env").write_bytes(b"\xff\xfe")
    assert "settings file .env: not UTF-8 text" in lines()[0]


@pytest.mark.parametrize("line", ["HEC TOKEN geheim", "=geheim", "HEC_TOKEN='geheim", "HEC_TOKEN=geheim\0"])
def test_a_line_that_is_no_setting_is_named_and_not_shown(
    environment: pytest.MonkeyPatch, clean_home: Path, line: str
) -> None:
    write(clean_home / "lab/.env", f"\ufeff# mine\nexport HEC_URL = 'https://log:8088' # the log\r\n{line}\n")
    found = lines()
    assert "geheim" not in "".join(found)
    assert found[0].startswith(("settings file", "HEC_TOKEN: the value holds characters"))
    if "\0" not in line:
        assert found == (
            f"settings file {clean_home}/lab/.env: line 3 is no NAME=value; correct it, or put # before it",
        )


def test_documents_in_a_folder_that_may_not_be_looked_into_are_one_line(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    look = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if str(path) == "/locked/documents":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    give(environment, {**GOOD, "LAB_DOCUMENTS": "/locked/documents"})
    environment.setattr("os.stat", stat)
    assert lines() == ("LAB_DOCUMENTS: '/locked/documents' is no folder; create it or name another one",)


def test_a_settings_file_that_anybody_may_write_is_refused(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    write(clean_home / "lab/.env", "MODEL_BASE_URL=https://elsewhere/v1\n").chmod(0o666)
    assert lines() == (f"settings file {clean_home}/lab/.env: anybody may write it, and name a model; chmod o-w it",)


def test_a_path_in_a_file_that_holds_nul_is_one_line(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    write(clean_home / "lab/.env", "MODEL_API_KEY_FILE=/a\0b\n")
    assert lines() == ("MODEL_API_KEY_FILE: '/a\\x00b' holds a NUL character; give the path of a file",)


def test_without_a_home_or_a_working_directory_there_are_no_files_of_settings(
    environment: pytest.MonkeyPatch, clean_home: Path, tmp_path: Path
) -> None:
    given = {**GOOD, "SIGNING_KEY": "/keys/a.pem", "SIGNING_KEY_MCP": "/keys/m.pem"}
    give(environment, given)
    environment.setattr("os.path.expanduser", lambda path: path)  # as for a user that /etc/passwd does not know
    assert Settings.load().hec_url == GOOD["HEC_URL"]
    environment.delenv("SIGNING_KEY")
    assert lines() == (
        "SIGNING_KEY: '~/.local/state/glasslab/agent.pem' names a home folder that nobody knows; give the whole path",
    )
    environment.setenv("SIGNING_KEY", "relative.pem")
    gone = tmp_path / "gone"
    gone.mkdir()
    environment.chdir(gone)
    gone.rmdir()
    assert "SIGNING_KEY: 'relative.pem' cannot be read (No such file or directory)" in lines()[0]


def test_plain_http_to_this_machine_and_a_keyless_model_are_fine(environment: pytest.MonkeyPatch) -> None:
    give(environment, {**GOOD, "HEC_URL": "http://127.0.0.1:8088", "MODEL_BASE_URL": "http://ollama.example:11434/v1"})
    assert Settings.load().model_api_key is None


def test_an_empty_file_of_an_optional_secret_means_none(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    give(environment, {**GOOD, "MODEL_API_KEY_FILE": str(write(clean_home / "key", "\n"))})
    assert Settings.load().model_api_key is None


def test_with_a_running_tool_server_neither_its_token_nor_its_documents_are_needed(
    environment: pytest.MonkeyPatch,
) -> None:
    give(environment, {**GOOD, "HEC_TOKEN_MCP": "", "MCP_SERVER": "unix:/run/x.sock", "LAB_DOCUMENTS": "/no/such"})
    assert Settings.load().mcp_server == "unix:/run/x.sock"


def test_the_server_reads_the_environment_alone_and_no_setting_of_the_model(
    environment: pytest.MonkeyPatch, clean_home: Path
) -> None:
    write(clean_home / ".env", "".join(f"{name}={value}\n" for name, value in GOOD.items()))
    assert [line.split()[0] for line in lines(ServerSettings)] == ["HEC_URL", "HEC_TOKEN_MCP"]
    assert not any(field.startswith("model") or field == "hec_token" for field in ServerSettings.model_fields)


def test_what_a_checkout_gives_its_tool_server_is_what_that_reads(
    environment: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    ca = certificates.ca
    give(environment, {**GOOD, "MODEL_API_KEY": "sk-secret", "HEC_CA": str(ca), "HEC_DEADLINE": "2.5"})
    environment.setenv("LAB_TRACE", "full")
    given = Settings.load().server_environment()
    assert "sk-secret" not in given.values()
    assert GOOD["HEC_TOKEN"] not in given.values()
    for name in [*GOOD, "HEC_CA", "HEC_DEADLINE", "LAB_TRACE"]:
        environment.delenv(name)
    give(environment, given)
    read = ServerSettings.load()
    assert (read.hec().url, read.hec().token, read.hec().ca, read.hec().deadline) == (
        GOOD["HEC_URL"],
        "mcp-token",
        ca,
        2.5,
    )
    assert read.trace


def test_a_key_is_made_on_first_use_with_its_public_half_beside_it(
    environment: pytest.MonkeyPatch, clean_home: Path
) -> None:
    give(environment, GOOD)
    key = Settings.load().key()
    path = clean_home / ".local/state/glasslab/agent.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_public_keys(path.parent)["agent"].public_bytes_raw() == key.public_key().public_bytes_raw()
    assert Settings.load().key().private_bytes_raw() == key.private_bytes_raw()
    assert sorted(file.name for file in path.parent.iterdir()) == ["agent.pem", "agent.pub"]


def test_two_first_uses_at_once_agree_on_one_key(clean_home: Path) -> None:
    path = clean_home / "state/agent.pem"
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_signing_key(path, make=True).private_bytes_raw()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_key_given_as_a_file_has_to_exist(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    give(environment, {**GOOD, "SIGNING_KEY_FILE": str(clean_home / "none.pem")})
    with pytest.raises(KeyFileError, match="No such file"):
        Settings.load().key()
    assert not (clean_home / "none.pem").exists()


def test_a_public_half_that_is_missing_is_made_again(clean_home: Path) -> None:
    path = clean_home / "state/agent.pem"
    key = load_signing_key(path, make=True)
    path.with_suffix(".pub").unlink()
    load_signing_key(path, make=False)
    assert not path.with_suffix(".pub").exists()
    load_signing_key(path, make=True)
    assert load_public_keys(path.parent)["agent"].public_bytes_raw() == key.public_key().public_bytes_raw()


def test_a_key_without_an_end_is_refused() -> None:
    with pytest.raises(KeyFileError, match=r"^signing key /dev/zero is larger than 65536 bytes"):
        load_signing_key(Path("/dev/zero"), make=False)
    with pytest.raises(KeyFileError, match=r"^VERIFY_KEYS: /dev/zero is larger than 65536 bytes"):
        load_public_keys(Path("/dev/zero"))


def test_a_secret_that_others_could_read_or_write_is_refused(environment: pytest.MonkeyPatch, clean_home: Path) -> None:
    file = write(clean_home / "token", "agent-token")
    pem = clean_home / "state/agent.pem"
    load_signing_key(pem, make=True)
    give(environment, {**GOOD, "HEC_TOKEN": "", "HEC_TOKEN_FILE": str(file), "SIGNING_KEY_FILE": str(pem)})
    for mode in (0o600, 0o400, 0o640, 0o440):  # a group may: credentials of systemd and of Kubernetes are such
        file.chmod(mode)
        pem.chmod(mode)
        assert Settings.load().key()
    for mode, why in ((0o604, "read by anybody; chmod o-r"), (0o602, "written by anybody; chmod o-w")):
        pem.chmod(mode)
        with pytest.raises(KeyFileError, match=f"^signing key {pem} may be {why} it$"):
            Settings.load().key()
        file.chmod(mode)
        assert lines() == (f"HEC_TOKEN_FILE: '{file}' may be {why} it",)
        file.chmod(0o600)


def test_a_secret_on_a_read_only_mount_may_be_readable_as_containers_have_it(
    environment: pytest.MonkeyPatch, clean_home: Path
) -> None:
    file = write(clean_home / "token", "agent-token")
    file.chmod(0o444)
    real = os.fstatvfs
    flags = {"f_flag": os.ST_RDONLY | os.ST_NOSUID}
    environment.setattr("os.fstatvfs", lambda descriptor: SimpleNamespace(real=real(descriptor), **flags))
    give(environment, {**GOOD, "HEC_TOKEN": "", "HEC_TOKEN_FILE": str(file)})
    assert Settings.load().hec_token == SecretStr("agent-token")
    file.chmod(0o446)
    assert lines() == (f"HEC_TOKEN_FILE: '{file}' may be written by anybody; chmod o-w it",)


def test_a_public_key_that_anybody_may_write_is_none_to_verify_with(clean_home: Path) -> None:
    pem = clean_home / "state/agent.pem"
    load_signing_key(pem, make=True)
    assert load_public_keys(pem.parent).keys() == {"agent"}
    pem.with_suffix(".pub").chmod(0o666)
    with pytest.raises(KeyFileError, match=r"^VERIFY_KEYS: .*/agent\.pub may be written by anybody; chmod o-w it$"):
        load_public_keys(pem.parent)


def test_a_pipe_is_read_to_its_end_and_not_waited_for_for_ever(
    environment: pytest.MonkeyPatch, clean_home: Path
) -> None:
    pipe = clean_home / "pipe"
    os.mkfifo(pipe)
    give(environment, {**GOOD, "MODEL_API_KEY_FILE": str(pipe)})
    writer = threading.Thread(target=pipe.write_text, args=("sk-from-a-pipe\n",))
    writer.start()
    assert Settings.load().model_api_key == SecretStr("sk-from-a-pipe")
    writer.join()
    environment.setattr("glasslab.jsonfiles.PIPE_SECONDS", 0.01)
    assert lines() == (f"MODEL_API_KEY_FILE: '{pipe}' is a pipe that did not end within 0.01 s; give a file",)


def test_a_key_of_another_kind_is_refused(clean_home: Path) -> None:
    path = clean_home / "key.pem"
    other = generate_private_key(SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="is not Ed25519"):
        load_signing_key(path, make=False)
    path.write_text("no key")
    with pytest.raises(KeyFileError, match="no PEM private key"):
        load_signing_key(path, make=True)
    with pytest.raises(KeyFileError, match=r"no \*\.pub file"):
        load_public_keys(clean_home)
