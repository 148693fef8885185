"""The module that installs the network's files: all or nothing, and of a shared file our own stanza only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible.module_utils.testing import patch_module_args

import guieditor
import network_files

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "network"


def module(
    capsys: pytest.CaptureFixture[str], files: list[dict[str, Any]], *, check: bool = False, **options: Any
) -> dict[str, Any]:
    """Run the module as Ansible does; what it answered."""
    arguments = {"files": files, **options, "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        network_files.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def tree(folder: Path) -> dict[str, str]:
    """Every file and link below the folder, with what is in it."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_set_is_installed_with_folders_modes_and_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        {"path": str(tmp_path / "etc/lab/one"), "content": "1\n", "validate": "grep -q 1 %s"},
        {"path": str(tmp_path / "bin/two"), "content": "2\n", "mode": "0755"},
        {"path": str(tmp_path / "etc/wants/one"), "link": "../lab/one"},
    ]
    shown = module(capsys, files, check=True)
    assert tree(tmp_path) == {}
    assert not (tmp_path / "etc").exists()
    done = module(capsys, files)
    assert tree(tmp_path) == {"bin/two": "2\n", "etc/lab/one": "1\n", "etc/wants/one": "-> ../lab/one"}
    assert (tmp_path / "bin/two").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/lab/one").stat().st_mode & 0o777 == 0o644
    assert done["changed_paths"] == shown["changed_paths"] == [file["path"] for file in files]
    assert done["diff"] == shown["diff"]
    assert done["diff"][0] == {
        "before": "",
        "after": "1\n",
        "before_header": f"{files[0]['path']} (absent)",
        "after_header": files[0]["path"],
    }
    again = module(capsys, files)
    assert (again["changed"], again["changed_paths"], again["diff"]) == (False, [], [])


def test_a_mode_alone_is_a_change_and_shown_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one").write_text("1\n")
    (tmp_path / "one").chmod(0o600)
    done = module(capsys, [{"path": str(tmp_path / "one"), "content": "1\n"}])
    assert (done["diff"][0]["before"], done["diff"][0]["after"]) == ("mode 0600\n", "mode 0644\n")
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o644


def test_warnings_of_a_tool_are_no_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"path": str(tmp_path / "one"), "content": "1\n", "errors": "^error:"}
    warns = {**one, "validate": "sh -c 'echo warning: odd >&2; exit 1' %s"}
    assert module(capsys, [warns])["changed"]
    fails = {**one, "content": "2\n", "validate": "sh -c 'echo warning: odd >&2; echo error: bad >&2; exit 1' %s"}
    assert module(capsys, [fails])["msg"] == f"{tmp_path / 'one'} is refused by sh: error: bad; nothing was changed"


@pytest.mark.parametrize("check", [True, False])
def test_one_refused_file_stops_all(tmp_path: Path, capsys: pytest.CaptureFixture[str], check: bool) -> None:
    (tmp_path / "first").write_text("old\n")
    (tmp_path / "gone").write_text("old\n")
    before = tree(tmp_path)
    bad = tmp_path / "rules"
    done = module(
        capsys,
        [
            {"path": str(tmp_path / "first"), "content": "new\n", "validate": "true %s"},
            {"path": str(tmp_path / "gone"), "state": "absent"},
            {"path": str(bad), "content": "nonsense\n", "validate": "sh -c 'echo line 1 of $0 is bad >&2; exit 3' %s"},
        ],
        check=check,
    )
    assert done["failed"]
    assert done["msg"] == f"{bad} is refused by sh: line 1 of {bad} is bad; nothing was changed"
    assert tree(tmp_path) == before


def test_what_cannot_be_written_takes_the_others_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first").write_text("old\n")
    (tmp_path / "second").mkdir()
    (tmp_path / "third").write_text("no folder\n")
    before = tree(tmp_path)
    files = [
        {"path": str(tmp_path / "first"), "content": "new\n"},
        {"path": str(tmp_path / "new"), "content": "new\n"},
        {"path": str(tmp_path / "third/below"), "content": "new\n"},
    ]
    done = module(capsys, files)
    assert done["failed"]
    assert "nothing was changed" in done["msg"]
    assert str(tmp_path / "third") in done["msg"]
    assert tree(tmp_path) == before


def test_the_last_rename_fails_and_those_before_it_go_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").write_text("old\n")
    (tmp_path / "gone").write_text("old\n")
    before = tree(tmp_path)
    place = network_files.place

    def failing(change: Any) -> None:
        if change.path.name == "last":
            raise OSError(28, "No space left on device")
        place(change)

    monkeypatch.setattr(network_files, "place", failing)
    files = [
        {"path": str(tmp_path / "first"), "content": "new\n"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
        {"path": str(tmp_path / "last"), "content": "new\n"},
    ]
    done = module(capsys, files)
    assert done["msg"] == f"{tmp_path / 'last'} cannot be written (No space left on device); nothing was changed"
    assert tree(tmp_path) == before


def test_what_a_killed_run_left_is_cleared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".one.glasslab-new").write_text("half")
    module(capsys, [{"path": str(tmp_path / "one"), "content": "1\n"}])
    assert tree(tmp_path) == {"one": "1\n"}


def test_a_tool_that_is_not_there_yet_is_noted_in_check_mode_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [{"path": str(tmp_path / "proxy.cfg"), "content": "x\n", "validate": "no-such-proxy -c -f %s"}]
    shown = module(capsys, files, check=True)
    assert shown["notes"] == [f"{tmp_path / 'proxy.cfg'} was not validated: no-such-proxy is not installed yet"]
    assert "no-such-proxy cannot be run" in module(capsys, files)["msg"]
    assert tree(tmp_path) == {}


def test_folders_of_ours_hold_nothing_else_and_go_when_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "lib/glasslab/network"
    files = [{"path": str(program / "new.py"), "content": "1\n"}]
    (program / "__pycache__").mkdir(parents=True)
    (program / "former.py").write_text("0\n")
    done = module(capsys, files, exclusive=[str(program)])
    assert set(tree(program)) == {"new.py"}
    assert done["plan"] == [f"new in {program}: new.py", f"removed in {program}: former.py"]
    (program / "stray.py").write_text("0\n")
    folders = [str(program), str(program.parent)]
    absent = [{**file, "state": "absent"} for file in files]
    module(capsys, absent, exclusive=[str(program)], folders=folders)
    assert list(tmp_path.iterdir()) == [tmp_path / "lib"]
    assert list((tmp_path / "lib").iterdir()) == []


STANZA = "auto vmbr1\niface vmbr1 inet static\n\taddress 10.10.10.1/24\n\tbridge-ports none\n# glasslab: ours\n"
HOST = "# \xe9 not UTF-8 on disk\nauto lo\niface lo inet loopback\n\nauto vmbr0\niface vmbr0 inet dhcp\n\tmtu 1400\n"
OTHER = "\nauto vmbr2\niface vmbr2 inet manual\n# of vmbr2\n\nsource /etc/network/interfaces.d/*\n"


def entry(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "path": str(folder / "interfaces"),
        "interface": "vmbr1",
        "signature": "glasslab",
        "content": STANZA,
        "original": str(folder / "interfaces.before"),
        **changes,
    }


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n"])
def test_of_interfaces_our_stanza_only_is_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    """Put in, changed and taken out again: byte for byte what was there."""
    interfaces = tmp_path / "interfaces"
    former = (HOST + OTHER).rstrip("\n").encode("latin-1") + end.encode()
    interfaces.write_bytes(former)
    interfaces.chmod(0o640)
    done = module(capsys, [entry(tmp_path)])
    assert done["changed_paths"] == [str(tmp_path / "interfaces.before"), str(interfaces)]
    assert interfaces.read_bytes().startswith(former.rstrip(b"\n"))
    assert interfaces.read_bytes().endswith(b"\n\n" + STANZA.encode())
    assert interfaces.stat().st_mode & 0o777 == 0o640
    assert not module(capsys, [entry(tmp_path)])["changed"]
    module(capsys, [entry(tmp_path, content=STANZA.replace("10.10.10.1", "10.10.11.1"))])
    assert interfaces.read_bytes().count(b"vmbr1") == 2
    assert b"10.10.11.1" in interfaces.read_bytes()
    module(capsys, [entry(tmp_path, state="absent")])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"interfaces": former}


def test_interfaces_that_are_a_link_are_edited_where_it_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And are called what everybody calls them: by that name the program knows what it has to bring into effect."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "of-this-host").write_text(HOST)
    (tmp_path / "interfaces").symlink_to("kept/of-this-host")
    done = module(capsys, [entry(tmp_path)])
    assert done["changed_paths"] == [str(tmp_path / "interfaces.before"), str(tmp_path / "interfaces")]
    now = tree(tmp_path)
    assert (now["interfaces"], now["kept/of-this-host"]) == ("-> kept/of-this-host", f"{HOST}\n{STANZA}")
    module(capsys, [entry(tmp_path, state="absent")])
    assert tree(tmp_path) == {"interfaces": "-> kept/of-this-host", "kept/of-this-host": HOST}


def test_what_somebody_adds_behind_our_stanza_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interfaces = tmp_path / "interfaces"
    interfaces.write_text(HOST + "\n" + STANZA + "# mine\nauto vmbr2\niface vmbr2 inet manual\n")
    module(capsys, [entry(tmp_path, content=STANZA.replace("none", "none "))])
    assert interfaces.read_text().endswith("\n# glasslab: ours\n# mine\nauto vmbr2\niface vmbr2 inet manual\n")
    module(capsys, [entry(tmp_path, state="absent")])
    assert interfaces.read_text() == HOST + "# mine\nauto vmbr2\niface vmbr2 inet manual\n"


def test_a_block_of_the_older_form_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interfaces = tmp_path / "interfaces"
    body = STANZA.replace("# glasslab: ours\n", "\t# why\n")
    interfaces.write_text(f"{HOST}# BEGIN glasslab (x)\n{body}# END glasslab (x)\n{OTHER}")
    module(capsys, [entry(tmp_path)])
    assert interfaces.read_text() == HOST + STANZA + OTHER


def test_a_bridge_that_is_somebody_elses_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "interfaces").write_text(HOST + OTHER)
    done = module(capsys, [entry(tmp_path, interface="vmbr2")])
    assert f"vmbr2 is already defined in {tmp_path / 'interfaces'}, not by this role" in done["msg"]
    assert tree(tmp_path) == {"interfaces": HOST + OTHER}


def test_without_interfaces_there_is_nothing_to_edit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = module(capsys, [entry(tmp_path)])
    assert done["msg"].endswith("does not exist: this host is not configured by ifupdown2")
    assert not module(capsys, [entry(tmp_path, state="absent")])["changed"]


def stanza() -> str:
    """Our stanza as the role renders it."""
    variables = {
        "network_bridge": "vmbr1",
        "network_address": "10.10.10.1",
        "network_subnet": "10.10.10.0/24",
        "network_policy": {"entries": ["tap101i0", "fwpr101p0"]},
    }
    template = (ROLE / "templates" / "interfaces.j2").read_text(encoding="utf-8")
    return jinja2.Environment(trim_blocks=True, autoescape=False).from_string(template).render(variables) + "\n"


def test_stanza_is_ours_after_proxmox_has_rewritten_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is written as that editor writes it: byte for byte the same, wherever it then stands."""
    interfaces = tmp_path / "interfaces"
    interfaces.write_text(HOST + OTHER)
    ours = entry(tmp_path, content=stanza())
    module(capsys, [ours])
    before = interfaces.read_text()
    interfaces.write_text(guieditor.rewritten(before))
    assert interfaces.read_text() != before
    assert stanza() in interfaces.read_text()
    assert not module(capsys, [ours])["changed"]
    module(capsys, [{**ours, "state": "absent"}])
    assert "vmbr1" not in interfaces.read_text()
    assert "vmbr2" in interfaces.read_text()


def test_comment_that_was_edited_away_in_proxmox_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interfaces = tmp_path / "interfaces"
    interfaces.write_text(HOST)
    ours = entry(tmp_path, content=stanza())
    module(capsys, [ours])
    kept = "".join(line for line in stanza().splitlines(keepends=True) if not line.startswith("#")) + "#the lab\n"
    interfaces.write_text(interfaces.read_text().replace(stanza(), kept))
    assert module(capsys, [ours])["changed"]
    assert interfaces.read_text() == HOST + "\n" + stanza()
