"""What is made from the app: docs/searches.md, and from the lock of the tools their baseline in the app."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from glasslab.pins import description_sha256, read_lock
from splunkcheck.app import App, load
from splunkcheck.conffile import Stanza, parse, read

HEAD = """# The searches of the app

The Splunk app `glasslab` (roles/splunk/files/app) brings these. None is scheduled. Those of a whole session want a time
range that begins before it does. This page is written by `scripts/splunk_app.py docs` from the app's own files.

No SPL is run by this project's tests: its form, the types of its expressions, the options of its commands, and that
every field, macro, lookup and view exists, are checked by `scripts/splunk_app.py check`, as is the rest of the app (how
much that finds is in [VERIFICATION.md](VERIFICATION.md)); what it returns, only a Splunk can show. What a search means
is tried all the same where it has a form in SQLite (`sqlite/` in the app's folder): the embedded log's page runs these,
and for each a test has frames in which it finds something and frames in which it finds nothing.
"""
AFTER = """
## Limits that a Splunk needs

A trace frame may hold a megabyte, and its keys are sorted, so that `session_id`, `seq` and `sig` stand behind the
model's messages. By default Splunk makes fields of the first 10,240 characters of an event: a search for a session
would miss its largest frames. The role `splunk` writes `maxchars` and `extraction_cutoff` of 1,048,576 into the app's
local/limits.conf; where you install the app yourself, set them (`[kv]` and `[spath]` of limits.conf).
"""


def made(root: Path, app: Path) -> dict[Path, str]:
    """Return the files that are made, with what they hold."""
    lock = root / "agent_src/glasslab/tools.lock.json"
    return {root / "docs/searches.md": page(load(app), _text(app)), app / "lookups/glasslab_tools.csv": baseline(lock)}


def _text(app: Path) -> str:
    return (app / "default/savedsearches.conf").read_text(encoding="utf-8")


def stale(root: Path, app: Path) -> list[str]:
    """Return the files that are not as they would be written, relative to `root`."""
    return [
        str(path.relative_to(root))
        for path, text in made(root, app).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def write(root: Path, app: Path) -> None:
    """Write them."""
    for path, text in made(root, app).items():
        path.write_text(text, encoding="utf-8")


def baseline(lock: Path) -> str:
    """Return the tool baseline as CSV: a line for each tool that is pinned."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(("server", "tool", "description_sha256", "definition_sha256"))
    for server, entry in sorted(read_lock(lock).items()):
        for tool, definition_hash in sorted(entry["tools"].items()):
            table.writerow((server, tool, description_sha256(entry["shown"]["tools"][tool]), definition_hash))
    return out.getvalue()


def page(app: App, text: str) -> str:
    """Return docs/searches.md. A heading is a comment of savedsearches.conf that begins with `# ---`."""
    lines = [HEAD]
    saved = app.conf("savedsearches.conf").stanzas
    forms = _forms(app.root / "sqlite")
    heading, collecting = "", False
    for line in text.splitlines():
        if line.startswith("# --- "):
            heading, collecting = line.removeprefix("# --- "), True
        elif collecting and line.startswith("# "):
            heading += " " + line.removeprefix("# ")
        elif line.startswith("["):
            if heading:
                title, _, rest = heading.partition(": ")
                lines += [
                    f"## {title[0].upper()}{title[1:]}",
                    "",
                    *([f"{rest[0].upper()}{rest[1:]}.", ""] if rest else []),
                ]
            heading, collecting = "", False
            (stanza,) = parse(line, "", "savedsearches.conf")[0].stanzas.values()
            lines += _search(saved[stanza.name], forms.get(stanza.name, ""))
        else:
            collecting = False
    lines += ["## Macros", "", "| macro | what it stands for | definition |", "|---|---|---|"]
    for stanza in app.conf("macros.conf").stanzas.values():
        lines.append(f"| `{stanza.name}` | {stanza.get('description')} | `{stanza.get('definition')}` |")
    lines += ["", "## Event types", "", "| event type | what it is | search |", "|---|---|---|"]
    for stanza in app.conf("eventtypes.conf").stanzas.values():
        lines.append(f"| `{stanza.name}` | {stanza.get('description')} | `{stanza.get('search')}` |")
    return "\n".join(lines) + "\n" + AFTER


def _forms(folder: Path) -> dict[str, str]:
    """Return what is said of each search's form in SQLite: its file, or why there is none."""
    said = {}
    for file in sorted(folder.glob("*.sql")):
        said[file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("-- ")] = f"In SQLite: `{file.name}`."
    for stanza in read(folder / "none.conf", "sqlite/none.conf")[0].stanzas.values():
        said[stanza.name] = f"Not in SQLite: {stanza.get('reason')}."
    return said


def _search(stanza: Stanza, form: str) -> list[str]:
    body = "\n".join(line.strip() for line in stanza.get("search").splitlines())
    span = f"From {stanza.get('dispatch.earliest_time')} to {stanza.get('dispatch.latest_time')}."
    if stanza.get("dispatch.earliest_time") == "0":
        span = "Over all time."
    return [
        f"### {stanza.name.removeprefix('Glasslab: ')}",
        "",
        f"{stanza.get('description')} {span}",
        "",
        "```spl",
        body,
        "```",
        "",
        *([form, ""] if form else []),
    ]
