"""The lab's optional servers: off by default, pinned as they are, refused when they are not there."""

from pathlib import Path

import pytest

from glasslab import pins
from glasslab.approval_rules import OWN_CLASSES
from glasslab.assembly import toolbox_maker
from glasslab.settings import Settings, SettingsError
from glasslab.toolbox import Toolbox, lab_server
from glasslab.tooltypes import ToolServerError

GOOD = {"hec_url": "https://127.0.0.1:1", "hec_token": "t", "hec_token_mcp": "t"}


@pytest.mark.parametrize("name", ["outbox", "weather"])
def test_each_is_pinned_as_it_is_and_its_tools_have_a_class(name: str, tmp_path: Path) -> None:
    with Toolbox(lab_server(name, {"LAB_OUTBOX": str(tmp_path)})) as tools:
        server = tools.connect({})
    assert not pins.compare(pins.read_lock(), server.name, server.definitions, server.instructions)
    assert {f"{server.name}/{tool['name']}" for tool in server.definitions} <= OWN_CLASSES.keys()


def test_off_by_default_and_where_they_are_set(clean_home: Path, tmp_path: Path) -> None:
    assert [member.key for member in toolbox_maker(Settings.load(**GOOD))().members] == [""]
    more = {"outbox_server": "stdio", "lab_outbox": tmp_path, "weather_server": "unix:/run/none.sock"}
    members = toolbox_maker(Settings.load(**GOOD, **more))().members
    assert [member.key for member in members] == ["", "lab-outbox", "weather"]
    with pytest.raises(ToolServerError, match=r"/run/none\.sock cannot be reached"):
        members[2].tools.start()


@pytest.mark.parametrize("value", ["tcp:1", "on", "unix:relative", ""])
def test_another_place_is_refused(clean_home: Path, value: str) -> None:
    with pytest.raises(SettingsError, match="OUTBOX_SERVER"):
        Settings.load(**GOOD, outbox_server=value)


def test_an_outbox_without_a_folder_is_refused(clean_home: Path, tmp_path: Path) -> None:
    for given, said in (({}, "is not set"), ({"lab_outbox": tmp_path / "none"}, "is no folder")):
        with pytest.raises(SettingsError, match=f"LAB_OUTBOX: .*{said}"):
            Settings.load(**GOOD, outbox_server="stdio", **given)
