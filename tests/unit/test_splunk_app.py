"""The Splunk app: it has no fault, what is made from it is up to date, and the checker finds a fault of each kind."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from glasslab.statuses import EXIT_CODES
from splunkcheck import app, docs, settings, views
from splunkcheck.conffile import parse, read
from splunkcheck.definition import View
from splunkcheck.definition import read as read_view
from splunkcheck.searches import World

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "roles/splunk/files/app"
SAVED = "default/savedsearches.conf"
MACROS = "default/macros.conf"
VIEWS = "default/data/ui/views"
FAULTS = yaml.safe_load((ROOT / "tests/splunk/app_faults.yml").read_text(encoding="utf-8"))
KINDS = yaml.safe_load((ROOT / "tests/splunk/app_kinds.yml").read_text(encoding="utf-8"))
# Where a value of app_kinds.yml stands: the file, a text of it, and the same with the value (@) in it.
LAST = "| sort 0 - last_seen \\\n| table tool drift"
PLACES = {
    "spl": (SAVED, LAST, "| @ \\\n" + LAST),
    "term": (SAVED, 'kind="mcp.failed" \\', 'kind="mcp.failed" @ \\'),
    "saved": (SAVED, "dispatch.earliest_time = -30d\n", "dispatch.earliest_time = -30d\n@\n"),
    "earliest": (SAVED, "dispatch.earliest_time = -30d\n", "dispatch.earliest_time = @\n"),
    "cron": (
        SAVED,
        "dispatch.earliest_time = -30d\n",
        "dispatch.earliest_time = -30d\nenableSched = 1\ncron_schedule = @\n",
    ),
    "alert": (
        SAVED,
        "dispatch.earliest_time = -30d\n",
        "dispatch.earliest_time = -30d\nenableSched = 1\ncron_schedule = 0 * * * *\n@\n",
    ),
    "props": ("default/props.conf", "KV_MODE = json\n", "KV_MODE = json\n@\n"),
    "transforms": ("default/transforms.conf", "max_matches = 1\n", "max_matches = 1\n@\n"),
    "transform": ("default/transforms.conf", "# Names of", "[glasslab_x]\n@\n# Names of"),
    "macro": (MACROS, "args = field\n", "args = field\n@\n"),
    "eventtype": ("default/eventtypes.conf", "A session ended.\n", "A session ended.\n@\n"),
    "eventtype_search": ("default/eventtypes.conf", 'kind="session.end"\n', 'kind="session.end" @\n'),
    "role": ("default/authorize.conf", "srchJobsQuota = 12\n", "srchJobsQuota = 12\n@\n"),
    "index": ("default/indexes.conf", "frozenTimePeriodInSecs", "@\nfrozenTimePeriodInSecs"),
    "nav": ("default/data/ui/nav/default.xml", '<view name="search"/>', '<view name="search"/>@'),
    "overview": (f"{VIEWS}/overview.xml", "", "@"),
    "session": (f"{VIEWS}/session.xml", "", "@"),
    "chain": (
        f"{VIEWS}/overview.xml",
        '"type": "ds.search",\n      "name": "Cost",\n      "options": {',
        '"type": "ds.chain", "name": "Cost", "options": {@}, "meta": {',
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app, to be changed in one file at a time."""
    return Path(shutil.copytree(APP, tmp_path_factory.mktemp("splunk") / "app"))


def checked(copy: Path, file: str, text: str) -> list[str]:
    """What the checker says when a file of the app has another text."""
    (copy / file).write_text(text, encoding="utf-8")
    try:
        return [str(finding) for finding in app.check(copy)]
    finally:
        shutil.copyfile(APP / file, copy / file)


def test_the_app_has_no_fault() -> None:
    assert [str(finding) for finding in app.check(APP)] == []


def test_what_is_made_from_it_is_up_to_date() -> None:
    assert docs.stale(ROOT, APP) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_a_fault_is_found(fault: dict[str, str], copy: Path) -> None:
    text = (APP / fault["file"]).read_text(encoding="utf-8")
    assert fault["old"] in text
    found = checked(copy, fault["file"], text.replace(fault["old"], fault["new"]))
    assert any(line.startswith(fault["file"]) and fault["says"] in line for line in found), found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.get('at', 'file')}: {kind['wrong'][:60]}")
def test_a_kind_of_fault_is_told_from_the_right_value(kind: dict[str, str], copy: Path) -> None:
    file, old, new = PLACES.get(kind.get("at", ""), (kind.get("file", ""), "", "@"))
    old = kind.get("old", old)
    text = (APP / file).read_text(encoding="utf-8")
    assert old in text
    wrong, right = (
        checked(copy, file, text.replace(old, new.replace("@", kind[one]), 1)) for one in ("wrong", "right")
    )
    assert any(line.startswith(kind.get("in", file)) and kind["says"] in line for line in wrong), wrong
    assert right == []


def test_the_limits_are_those_that_end_a_session_with_exit_code_3() -> None:
    definition = read(APP / MACROS, MACROS)[0].stanzas["glasslab_limits"].get("definition")
    assert set(re.findall(r'"(\w+)"', definition)) == {status for status, code in EXIT_CODES.items() if code == 3}


def test_the_published_search_is_there_word_by_word() -> None:
    saved = read(APP / SAVED, SAVED)[0].stanzas["Glasslab: rebuild a session"]
    assert saved.get("search") == 'search index=agents session_id="$session_id$" | sort 0 _time'


def test_every_search_is_in_the_page() -> None:
    page = (ROOT / "docs/searches.md").read_text(encoding="utf-8")
    names = read(APP / SAVED, SAVED)[0].stanzas
    assert [name for name in names if f"### {name.removeprefix('Glasslab: ')}\n" not in page] == []


# These are for systemd, or not an app's.
OTHERS = ("tmpfiles.conf.j2", "splunkd-limits.conf.j2", "user-seed.conf.j2")
TEMPLATES = sorted(path for path in (ROOT / "roles/splunk/templates").glob("*.conf.j2") if path.name not in OTHERS)


@pytest.mark.parametrize("mode", ["collector", "enterprise"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_what_the_role_writes_is_well_formed_too(template: Path, mode: str) -> None:
    given = yaml.safe_load((ROOT / "roles/splunk/defaults/main.yml").read_text(encoding="utf-8"))
    given |= {"ansible_managed": "Ansible", "splunk_hec_tokens": {"agent": "a", "mcp": "b"}}
    given |= {"splunk_enterprise": mode == "enterprise", "splunk_hec_accept_from": ["127.0.0.1", "10.10.10.0/24"]}
    # No HTML: these are Splunk's .conf files.
    places = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    text = places.from_string(template.read_text(encoding="utf-8")).render(given)
    conf, findings = parse(text, template.stem, template.stem)
    assert [str(finding) for finding in [*findings, *settings.check(conf)]] == []
    assert conf.stanzas


def test_the_collector_cannot_take_the_machines_memory() -> None:
    unit = (ROOT / "roles/splunk/templates/glasslab-collector.service.j2").read_text(encoding="utf-8")
    assert re.findall(r"^MemoryMax=(.*)$", unit, re.MULTILINE) == ["1G"]


def test_a_view_of_another_shape_is_a_finding_and_no_traceback() -> None:
    """Every fifth part of a view's JSON becomes a number, nothing, a list: the checker goes on, and names the part."""
    unnamed = []
    definition = json.dumps(read_view(APP / VIEWS / "session.xml", "session.xml").definition)
    for number in range(0, len(list(parts(json.loads(definition)))), 5):
        for other in (7, None, [], [[1]]):
            changed = json.loads(definition)
            holder, key = list(parts(changed))[number]
            holder[key] = other
            view = View("session", "session.xml", changed)
            found = views.check(view, World(), {}, {"session": view})
            if other == [[1]] and not any(str(key) in finding.text for finding in found):
                unnamed.append((key, other))
    assert unnamed == []


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part inside a JSON value, by what holds it and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from parts(value[key])
