"""Splunk's .conf files: the format, the layers, and one clear line for each fault."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glasslab.collector.conf import ConfError, load, parse
from glasslab.collector.config import load_config
from loglab import ACK_TOKEN, AGENT_TOKEN, ANY_TOKEN, DISABLED_TOKEN, MCP_TOKEN, make_home

TEXT = """\
\ufefftop = of the file
# a comment
   # another one
[one]
key = value # no comment here
spaced   =   a b
empty =
continued = first \\
second \\
third
= no name
no equals sign
[two]
url = https://host:8088/path?a=b
[one]
key = later wins
more = 1
[http://name with space]
x = y\\
"""


def test_the_format_is_splunks() -> None:
    assert parse(TEXT) == {
        "default": {"top": "of the file"},
        "one": {
            "key": "later wins",
            "spaced": "a b",
            "empty": "",
            "continued": "first \nsecond \nthird",
            "more": "1",
        },
        "two": {"url": "https://host:8088/path?a=b"},
        "http://name with space": {"x": "y"},
    }


def test_a_comment_sign_inside_a_value_belongs_to_it() -> None:
    assert parse("[a]\nkey = value # no comment\n")["a"]["key"] == "value # no comment"


def test_stronger_layers_win_key_by_key(tmp_path: Path) -> None:
    places = [
        "etc/system/default",
        "etc/apps/zebra/default",
        "etc/apps/apple/default",
        "etc/apps/zebra/local",
        "etc/apps/apple/local",
        "etc/system/local",
    ]
    for strength, place in enumerate(places):
        (tmp_path / place).mkdir(parents=True)
        keys = "".join(f"k{number} = {place}\n" for number in range(strength, len(places)))
        # Each layer sets the keys from its own number on, so the strongest that sets k3 is number 3.
        lower = "".join(f"k{number} = {place}\n" for number in range(strength + 1))
        (tmp_path / place / "x.conf").write_text(f"[up]\n{keys}[down]\n{lower}", encoding="utf-8")
    merged = load(tmp_path, "x.conf")
    assert merged["up"] == {f"k{number}": places[number] for number in range(6)}
    assert merged["down"] == {f"k{number}": places[-1] for number in range(6)}


def test_default_lies_under_every_stanza(tmp_path: Path) -> None:
    local, default = tmp_path / "etc/apps/a/local", tmp_path / "etc/apps/a/default"
    local.mkdir(parents=True)
    default.mkdir()
    (local / "x.conf").write_text("[default]\nhost = from default\nindex = i\n", encoding="utf-8")
    (default / "x.conf").write_text("[stanza]\nhost = own\n", encoding="utf-8")
    assert load(tmp_path, "x.conf") == {"stanza": {"host": "own", "index": "i"}}


def test_what_the_collector_takes(tmp_path: Path) -> None:
    make_home(tmp_path, 18088, 18089)
    config = load_config(tmp_path)
    assert (config.port, config.management_host, config.management_port) == (18088, "127.0.0.1", 18089)
    assert config.certificate == config.management_certificate == tmp_path / "etc/auth/server.pem"
    assert config.indexes == {"agents", "other", "main", "history", "summary"}
    assert set(config.tokens) == {AGENT_TOKEN, MCP_TOKEN, DISABLED_TOKEN, ACK_TOKEN, ANY_TOKEN}
    agent, acked = config.tokens[AGENT_TOKEN], config.tokens[ACK_TOKEN]
    assert (agent.name, agent.index, agent.indexes, agent.disabled) == ("agent", "agents", {"agents"}, False)
    assert (acked.use_ack, acked.indexes) == (True, {"agents", "other"})
    assert config.tokens[DISABLED_TOKEN].disabled


def test_reading_writes_nothing(tmp_path: Path) -> None:
    make_home(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    load_config(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def _set(name: str, text: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        strongest = home / "etc/system/local"
        strongest.mkdir(parents=True, exist_ok=True)
        (strongest / name).write_text(text, encoding="utf-8")

    return change


def _remove_app(home: Path) -> None:
    (home / "etc/apps/glasslab").rename(home / "etc/elsewhere")


def _not_utf8(home: Path) -> None:
    (home / "etc/apps/glasslab/local/inputs.conf").write_bytes(b"[http]\ndisabled = \xff\n")


FAULTS = {
    "nothing configured": (_remove_app, "HEC is off"),
    "HEC off": (_set("inputs.conf", "[http]\ndisabled = 1"), "disabled = 0 in inputs.conf"),
    "no boolean": (_set("inputs.conf", "[http]\ndisabled = perhaps"), "disabled = perhaps"),
    "port is a word": (_set("inputs.conf", "[http]\nport = web"), "port = web"),
    "port too high": (_set("inputs.conf", "[http]\nport = 70000"), "port = 70000"),
    "token empty": (_set("inputs.conf", "[http://agent]\ntoken ="), "[http://agent] has no token"),
    "token twice": (_set("inputs.conf", f"[http://zoe]\ntoken = {AGENT_TOKEN}"), "has the token of [http://agent]"),
    "index unknown": (_set("inputs.conf", "[http://agent]\nindexes = agents, nowhere"), "index nowhere"),
    "index outside the list": (_set("inputs.conf", "[http://agent]\nindex = other"), "index = other"),
    "index disabled": (_set("indexes.conf", "[agents]\ndisabled = 1"), "index agents"),
    "kept for no time": (
        _set("indexes.conf", "[agents]\nfrozenTimePeriodInSecs = 0"),
        "[agents] frozenTimePeriodInSecs = 0",
    ),
    "kept in no room": (
        _set("indexes.conf", "[agents]\nmaxTotalDataSizeMB = 1GB"),
        "[agents] maxTotalDataSizeMB = 1GB",
    ),
    "management port": (_set("web.conf", "[settings]\nmgmtHostPort = 8089"), "mgmtHostPort = 8089"),
    "body limit": (_set("limits.conf", "[http_input]\nmax_content_length = 5MB"), "max_content_length = 5MB"),
    "not UTF-8": (_not_utf8, "inputs.conf: not UTF-8"),
}


@pytest.mark.parametrize(("change", "named"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_naming_it(change: Callable[[Path], None], named: str, tmp_path: Path) -> None:
    make_home(tmp_path)
    change(tmp_path)
    with pytest.raises(ConfError) as raised:
        load_config(tmp_path)
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


def test_certificates_fall_back_to_the_servers_and_are_needed_for_tls(tmp_path: Path) -> None:
    make_home(tmp_path)
    _set("inputs.conf", "[http]\nserverCert =")(tmp_path)
    assert load_config(tmp_path).certificate == tmp_path / "etc/auth/server.pem"
    _set("server.conf", "[sslConfig]\nserverCert =")(tmp_path)
    with pytest.raises(ConfError, match="no serverCert"):
        load_config(tmp_path)
    _set("inputs.conf", "[http]\nenableSSL = 0")(tmp_path)
    _set("server.conf", "[sslConfig]\nenableSplunkdSSL = false")(tmp_path)
    config = load_config(tmp_path)
    assert config.certificate is None
    assert config.management_certificate is None


def test_the_body_limit_can_be_lowered_but_not_raised(tmp_path: Path) -> None:
    make_home(tmp_path)
    highest = load_config(tmp_path).content_limit
    _set("limits.conf", "[http_input]\nmax_content_length = 1000")(tmp_path)
    assert load_config(tmp_path).content_limit == 1000
    _set("limits.conf", "[http_input]\nmax_content_length = 838860800")(tmp_path)
    assert load_config(tmp_path).content_limit == highest


@pytest.mark.parametrize("part", ["etc", "etc/apps", "etc/apps/glasslab", "etc/apps/glasslab/local/inputs.conf"])
def test_what_cannot_be_looked_into_is_named_and_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    make_home(tmp_path)
    home, look, listing = tmp_path.resolve(), os.stat, os.listdir

    def refuse(path: object) -> None:
        if isinstance(path, Path) and (path == home / part or home / part in path.parents):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def stat(path: Any, **options: Any) -> os.stat_result:
        refuse(path)
        return look(path, **options)

    def listdir(path: Any) -> list[str]:
        refuse(path)
        return listing(path)

    monkeypatch.setattr("os.stat", stat)
    monkeypatch.setattr("os.listdir", listdir)
    with pytest.raises(ConfError, match=rf"cannot read {home}/{part}.*: Permission denied; let the collector's user"):
        load_config(home)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("enableSplunkWebSSL = 0", "enableSplunkWebSSL is off"),
        ("serverCert =", "has no serverCert"),
        ("httpport = web", "httpport = web"),
    ],
)
def test_the_page_is_served_with_tls_or_not_at_all(tmp_path: Path, change: str, named: str) -> None:
    make_home(tmp_path)
    conf = tmp_path / "etc/apps/glasslab/local/web.conf"
    conf.write_text(f"{conf.read_text()}{change}\n")
    with pytest.raises(ConfError, match=named):
        load_config(tmp_path)
    conf.write_text(f"{conf.read_text()}startwebserver = 0\n")
    assert load_config(tmp_path).web is None
