"""Changes that undo themselves: what is kept, what comes back, and when."""

from __future__ import annotations

import fcntl
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hypervisor import backups, change, effect, state


class Host:
    """A host in a folder: its files, and every command that it was told to run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self.seconds = 100.0
        self.boot = "first boot"

    def path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def put(self, name: str, text: str, mode: int = 0o644) -> str:
        self.path(name).write_text(text)
        self.path(name).chmod(mode)
        return str(self.path(name))

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        self.calls.append(" ".join(command).replace(f"{self.root}/", ""))
        return subprocess.CompletedProcess(command, 0, "active\n", "")

    def tree(self) -> dict[str, str]:
        """Files, links and folders outside the program's own records."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if not name.startswith(("state", "run")):
                is_folder = path.is_dir() and not path.is_symlink()
                text = f"-> {path.readlink()}" if path.is_symlink() else "/" if is_folder else path.read_text()
                found[name] = text if path.is_symlink() else f"{path.stat().st_mode & 0o777:o} {text}"
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    one = Host(tmp_path)
    places = {"ETC": "etc", "UNITS": "units", "INTERFACES": "interfaces", "LAUNCHER": "launcher"}
    for name, where in places.items():
        for module in (backups, change, effect):
            monkeypatch.setattr(module, name, tmp_path / where, raising=False)
    monkeypatch.setattr(backups, "STATE", tmp_path / "state")
    for name, where in {"RUN": "run", "LOGS": "logs"}.items():
        monkeypatch.setattr(change, name, tmp_path / where)
    for module in (backups, change, effect):
        monkeypatch.setattr(module, "run", one.run)
    monkeypatch.setattr(change, "boot_id", lambda: one.boot)
    monkeypatch.setattr(change, "now", lambda: one.seconds)
    return one


def told(host: Host, verb: str, *paths: str, folders: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> int:
    """A verb with its words on standard input, as the role calls it."""
    words = {"paths": list(paths), "folders": list(folders), "bridge": "nobr0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(json.dumps(words)))
        return change.main([verb, *options])


def standing(host: Host) -> list[str]:
    """An installed lab; the paths that a change will touch."""
    host.put("launcher", "program 1\n", 0o755)
    kept = host.put("etc/rules.v4", "rules 1\n")
    gone = host.put("units/old.service", "old\n", 0o600)
    host.path("units/wants/old").symlink_to("../old.service")
    return [kept, gone, str(host.path("units/wants/old")), str(host.path("etc/new/resolver.conf"))]


def changed(host: Host) -> None:
    host.put("etc/rules.v4", "rules 2\n", 0o640)
    host.path("units/old.service").unlink()
    host.path("units/wants/old").unlink()
    host.put("etc/new/resolver.conf", "new\n")


def test_rollback_puts_back_texts_modes_links_and_absence(host: Host) -> None:
    paths, folder = standing(host), str(host.root / "etc/new")
    host.path("etc/new").rmdir()
    before = host.tree()
    assert told(host, "arm", *paths, folders=(folder,), options=("--seconds=60",)) == 0
    changed(host)
    assert host.tree() != before
    host.calls.clear()
    assert told(host, "rollback") == 0
    assert host.tree() == before
    assert "launcher apply" in host.calls
    assert "systemctl daemon-reload" in host.calls
    assert change.pending() is None


def test_confirmed_is_kept_and_nothing_is_left_armed(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    told(host, "arm", *standing(host))
    changed(host)
    after = host.tree()
    assert told(host, "confirm") == 0
    assert host.calls[-1] == "systemctl stop glasslab-network-rollback.timer"
    assert told(host, "rollback") == 0
    assert host.tree() == after
    assert told(host, "confirm") == 1
    assert "nothing is armed: the change was not confirmed in time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "boot", "due"), [(159.9, "first boot", False), (160, "first boot", True), (110, "next boot", True)]
)
def test_due_at_its_time_and_at_any_other_boot(host: Host, seconds: float, boot: str, due: bool) -> None:
    told(host, "arm", *standing(host), options=("--seconds=60",))
    changed(host)
    host.seconds, host.boot = seconds, boot
    assert change.overdue() is due
    assert told(host, "rollback", options=("--due",)) == 0
    assert (host.path("etc/rules.v4").read_text() == "rules 1\n") is due
    assert (change.pending() is None) is due


def test_armed_before_the_timer_so_that_a_dead_systemd_is_no_loss(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        if command[0] == "systemd-run":
            raise effect.Failure("`systemd-run` failed: no bus")
        return host.run(*command, check=check)

    monkeypatch.setattr(change, "run", refuses)
    assert told(host, "arm", *standing(host)) == 1
    changed(host)
    host.seconds = 1000
    assert change.honour()
    assert host.path("etc/rules.v4").read_text() == "rules 1\n"


def test_a_damaged_marker_is_no_reason_to_keep_an_unconfirmed_change(host: Host) -> None:
    told(host, "arm", *standing(host))
    changed(host)
    (host.root / "state/pending.json").write_text("")
    assert change.overdue()
    assert change.honour()
    assert host.path("etc/rules.v4").read_text() == "rules 1\n"


MARKER = {"backup": "B", "boot": "first boot", "deadline": 9e9, "until": "-", "bridge": "nobr0", "interfaces": None}
DAMAGED = [
    *({key: value} for key in ("backup", "boot", "bridge") for value in (None, 5, "", "..", "a/b", [], {})),
    *({"deadline": value} for value in (None, "soon", [], {}, float("nan"), float("inf"), 10**400)),
]


@pytest.mark.parametrize(
    "marker",
    [
        *(json.dumps({**MARKER, **change}) for change in DAMAGED),
        *(json.dumps({name: value for name, value in MARKER.items() if name != gone}) for gone in list(MARKER)[:3]),
        *("", "null", "5", '"text"', "[]", "{}", "[" * 100_000, "\0\0\0", '{"backup": "B", "boot"', "a folder"),
    ],
)
def test_whatever_a_marker_has_become_the_change_goes_back(host: Host, marker: str) -> None:
    told(host, "arm", *standing(host))
    armed = change.pending()
    assert armed is not None
    changed(host)
    place = host.root / "state/pending.json"
    place.unlink()
    if marker == "a folder":
        place.mkdir()
    else:
        place.write_text(marker.replace('"B"', json.dumps(armed["backup"])))
    assert change.overdue()
    assert change.honour()
    assert host.path("etc/rules.v4").read_text() == "rules 1\n"
    assert change.pending() is None


@pytest.mark.parametrize(
    ("settings", "bridge"), [('{"bridge": "lab9"}', "lab9"), ("", None), ("[]", None), ('{"bridge": 5}', None)]
)
def test_a_damaged_marker_takes_nobody_elses_bridge_away(
    host: Host, settings: str, bridge: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is only likely may be that of another bridge of the host's."""
    taken: list[str | None] = []
    monkeypatch.setattr(change, "withdraw", lambda name, **_: taken.append(name))
    told(host, "arm", *standing(host))
    host.put("etc/settings.json", settings)
    (host.root / "state/pending.json").write_text("{")
    shutil.rmtree(change.backups.there()[-1])
    (host.root / "state/backup/20260101T000000-1").mkdir()
    assert change.honour()
    assert taken == [bridge]
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{f'the bridge {bridge} and ' if bridge else ': '}the rules are taken away" in said


@pytest.mark.parametrize("settings", ["", "[]", "null", '{"services": 5}', '{"services": [5, "../x"]}', '{"services"'])
def test_damaged_settings_do_not_keep_a_change_from_going_back(host: Host, settings: str) -> None:
    told(host, "arm", *standing(host))
    changed(host)
    host.put("etc/settings.json", settings)
    host.seconds = 1000
    assert change.honour()
    assert host.path("etc/rules.v4").read_text() == "rules 1\n"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"paths": "abc", "folders": [], "bridge": "b"}', "[" * 100_000])
def test_a_verb_told_nonsense_says_what_it_wants(
    host: Host, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert change.main(["arm"]) == 1
    assert capsys.readouterr().err.startswith("glasslab-network: arm: standard input has to be JSON, {")
    assert change.pending() is None
    with pytest.raises(SystemExit):
        change.main(["arm", "--seconds=0"])


def test_nobody_but_root_can_hold_the_locks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read a file may lock it: guests' traffic goes through programs that run as other users."""
    monkeypatch.setattr(state, "RUN", host.root / "run")
    (host.root / "run").mkdir()
    for name, lock in (("lock", state.lock), ("change.lock", change.lock)):
        (host.root / "run" / name).touch(mode=0o644)  # as an earlier version left it
        with lock():
            assert (host.root / "run" / name).stat().st_mode & 0o777 == 0o600


def test_armed_again_goes_back_to_where_it_was_confirmed_last(host: Host) -> None:
    paths = standing(host)
    before = host.tree()
    told(host, "arm", paths[0])
    host.put("etc/rules.v4", "rules 2\n")
    told(host, "arm", *paths, options=("--seconds=500",))
    changed(host)
    host.seconds = 400
    assert not change.overdue()
    told(host, "rollback")
    host.path("etc/new").rmdir()
    assert host.tree() == {name: text for name, text in before.items() if name != "etc/new"}


def test_while_another_rolls_back_the_round_goes_on(host: Host) -> None:
    """The rollback itself calls the program, which must not wait for it."""
    told(host, "arm", *standing(host))
    host.seconds = 1000
    with (host.root / "run/change.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert not change.honour()
    assert change.honour()


def test_first_change_of_all_leaves_nothing(host: Host) -> None:
    interfaces = host.put("interfaces", "auto lo\n")
    before = host.tree()
    paths = [str(host.path("launcher")), str(host.path("etc/rules.v4")), interfaces]
    for empty in ("etc",):
        host.path(empty).rmdir()
    told(host, "arm", *paths, folders=(str(host.root / "etc"),))
    host.put("launcher", "program 1\n", 0o755)
    host.put("etc/rules.v4", "rules 1\n")
    host.put("interfaces", "auto lo\nours\n")
    told(host, "rollback")
    assert host.tree() == before
    assert "launcher remove" in host.calls
    assert not (host.root / "state").exists()
    assert not (host.root / "run").exists()


def test_interfaces_that_somebody_edited_since_stay(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [*standing(host), host.put("interfaces", "auto lo\n")]
    told(host, "arm", *paths)
    changed(host)
    host.put("interfaces", "auto lo\nours\n")
    told(host, "activate", *paths)
    host.put("interfaces", "auto lo\nours\ntheirs\n")
    told(host, "rollback")
    assert host.path("interfaces").read_text() == "auto lo\nours\ntheirs\n"
    assert host.path("etc/rules.v4").read_text() == "rules 1\n"
    assert "was edited since and stays as it is" in capsys.readouterr().err


@pytest.mark.parametrize("edited", ["", "theirs\n"])
def test_interfaces_that_are_a_link_go_back_where_it_leads(
    host: Host, capsys: pytest.CaptureFixture[str], edited: str
) -> None:
    host.path("interfaces").symlink_to(host.put("kept/of-this-host", "auto lo\n", 0o640))
    paths = [*standing(host), str(host.path("interfaces"))]
    told(host, "arm", *paths)
    changed(host)
    host.put("kept/of-this-host", f"auto lo\n{host.root / 'launcher'}\n", 0o640)
    before = len(host.calls)
    told(host, "activate", *paths)
    assert "ifup nobr0" in host.calls[before:]
    with host.path("kept/of-this-host").open("a") as file:
        file.write(edited)
    told(host, "rollback")
    assert host.path("interfaces").is_symlink()
    text = f"auto lo\n{host.root / 'launcher'}\n{edited}" if edited else "auto lo\n"
    assert host.tree()["kept/of-this-host"] == f"640 {text}"
    assert ("was edited since and stays as it is" in capsys.readouterr().err) is bool(edited)


def test_the_last_ten_backups_are_kept_and_an_armed_one_always(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    paths = standing(host)
    told(host, "arm", *paths)
    names = [json.loads(capsys.readouterr().out)["backup"]]
    for _ in range(backups.KEPT + 2):
        told(host, "backup", *paths)
        names.append(capsys.readouterr().out.strip())
    assert len(set(names)) == backups.KEPT + 3
    assert {path.name for path in backups.there()} == {names[0], *names[-backups.KEPT :]}


def test_a_clock_that_was_set_back_takes_no_backup_away(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has just been made is behind all others, and is what a damaged marker falls back on."""
    paths = standing(host)
    for number in range(backups.KEPT + 2):
        armed = {"backup": f"20360101T0000{number:02}-{90 + number}"}
        backups.make({"paths": paths, "folders": [], "bridge": "nobr0"}, armed)
    monkeypatch.setattr(backups.time, "gmtime", lambda *_: (2026, 1, 1, 0, 0, 0, 3, 1, 0))
    names = []
    for text in ("first", "second", "third"):
        host.put("etc/rules.v4", text)
        told(host, "arm", *paths)
        armed = change.pending()
        assert armed is not None
        names.append(armed["backup"])
        assert backups.there()[-1].name == armed["backup"]
        host.put("etc/rules.v4", "changed")
        if text == "second":
            (host.root / "state/pending.json").write_text('{"cut": "short"}')
        told(host, "rollback")
        assert host.path("etc/rules.v4").read_text() == text
    assert len(set(names)) == 3
    assert len(backups.there()) == backups.KEPT


@pytest.mark.parametrize("lost", ["folder", "manifest", "copy", "cut copy", "damaged", "not ours"])
def test_a_lost_backup_takes_bridge_and_rules_away(host: Host, capsys: pytest.CaptureFixture[str], lost: str) -> None:
    """Nothing can go back: the guests are cut off, the host stays as reachable as it was without us, and it is said."""
    told(host, "arm", *standing(host))
    armed = change.pending()
    assert armed is not None
    folder = host.root / "state/backup" / armed["backup"]
    if lost == "folder":
        shutil.rmtree(folder)
    elif lost == "copy":
        next(folder.glob("*rules.v4")).unlink()
    elif lost == "cut copy":
        next(folder.glob("*rules.v4")).write_text("rul")
    elif lost == "manifest":
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text('{"paths": ' if lost == "damaged" else "[]")
    changed(host)
    after, host.seconds = host.tree(), 1000
    host.calls.clear()
    assert change.honour()
    assert host.calls[-2:] == ["launcher remove", "systemctl stop glasslab-network-rollback.timer"]
    assert host.tree() == after
    assert change.pending() is None
    said = capsys.readouterr().err.splitlines()[-1]
    assert str(folder) in said
    assert said.endswith("the bridge nobr0 and the rules are taken away; run playbooks/network.yml again")


def test_a_changed_file_restarts_who_reads_it_and_no_other(host: Host) -> None:
    standing(host)
    services = ["glasslab-resolver.service", "glasslab-proxy.service"]
    for unit in [*services, "glasslab-network-watch.service", "glasslab-network-heal.timer"]:
        host.put(f"units/{unit}", "[Unit]\n")
    host.put("etc/settings.json", json.dumps({"services": services}))
    told(host, "activate", str(host.root / "etc/resolver.conf"), str(host.root / "etc/rules.v4"))
    assert [call for call in host.calls if "start" in call] == [
        "systemctl restart glasslab-network-heal.timer",
        "systemctl restart glasslab-network-watch.service",
        "systemctl restart glasslab-resolver.service",
        "systemctl start glasslab-proxy.service",
    ]


def test_a_unit_that_is_gone_is_stopped(host: Host) -> None:
    standing(host)
    told(host, "activate", str(host.root / "units/glasslab-proxy.service"))
    assert host.calls[:2] == ["systemctl stop glasslab-proxy.service", "systemctl daemon-reload"]
