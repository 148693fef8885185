#!/usr/bin/python
"""Ansible module: install, change or remove a whole set of files, or none of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: network_files
short_description: A whole set of files, all or nothing
description:
  - Every file that has a C(validate) command is validated before any file is replaced.
    A refused one stops the module with nothing changed.
  - One remote call, however many files. Returns a diff a file, also in check mode and where no folder exists yet.
options:
  files:
    type: list
    elements: dict
    required: true
    description: The files, in the order in which they are put into place.
    options:
      path: {type: path, required: true, description: Where the file is.}
      state: {type: str, choices: [present, absent], default: present, description: Whether it is wanted.}
      content: {type: str, description: Its text.}
      link: {type: str, description: What it points to, for a symbolic link.}
      interface:
        type: str
        description:
          - C(content) is this interface's stanza in a file of interfaces(5); the rest of the file is not edited.
          - A stanza of the interface that does not have C(signature) in it is somebody else's, and refused.
      signature: {type: str, description: Text that only our own stanza has in it.}
      original:
        type: path
        description: Where the file as it was is kept; removal goes back to that when only white space differs.
      mode: {type: str, default: "0644", description: Its mode; that of a file with C(interface) is kept.}
      validate: {type: str, description: Command that refuses a bad file; C(%s) is a copy of it.}
      errors:
        type: str
        description: For a command that fails on warnings too, the expression that its lines of refusal match.
  exclusive:
    type: list
    elements: path
    default: []
    description: Folders in which no other file may be; what a former version left there is removed.
  folders:
    type: list
    elements: path
    default: []
    description: Folders of ours, deepest first, removed when no file is left in them.
"""

EXAMPLES = r"""
- network_files:
    files:
      - {path: /etc/glasslab/network/rules.v4, content: "*filter\nCOMMIT\n", validate: iptables-restore --test %s}
      - {path: /etc/glasslab/network/old, state: absent}
"""

RETURN = r"""
changed_paths: {type: list, returned: always, description: What is or would be created, replaced or removed.}
plan: {type: list, returned: always, description: The same in words.}
notes: {type: list, returned: always, description: What could not be validated in check mode.}
"""

NEW = ".glasslab-new"  # a file on its way; one that a killed run left is cleared by the next
KEYWORD = re.compile(r"\s*(iface|mapping|auto|source|source-directory|no-auto-down|no-scripts|allow-\S+)\s")


class Refused(Exception):
    """The one line that says which file is refused, and why."""


class Look(NamedTuple):
    """A file as it is or as it should be; neither text nor link: absent."""

    text: bytes | None = None
    link: str | None = None
    mode: int | None = None

    def there(self) -> bool:
        return self.text is not None or self.link is not None

    def raw(self) -> str:
        """For editing: other people's bytes come through unchanged."""
        return (self.text or b"").decode(errors="surrogateescape")

    def shown(self) -> str:
        """For a diff."""
        if self.link is not None:
            return f"link to {self.link}\n"
        return (self.text or b"").decode(errors="replace")


class Change(NamedTuple):
    """One file: what it is now, what it is to be. `name`: what it is called, where its path is what a link leads to."""

    path: pathlib.Path
    before: Look
    after: Look
    validate: str | None = None
    errors: str | None = None
    name: str = ""


def look(path: pathlib.Path) -> Look:
    """The file as it is."""
    try:
        if path.is_symlink():
            return Look(link=str(path.readlink()))
        return Look(text=path.read_bytes(), mode=path.stat().st_mode & 0o7777)
    except (FileNotFoundError, NotADirectoryError):
        return Look()
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror})") from error


def stanzas(lines: list[str], interface: str) -> list[tuple[int, int]]:
    """Where the interface is defined: first line, line after the last; its `auto` line and comments inside included."""
    found = []
    for number, line in enumerate(lines):
        if line.split()[:2] != ["iface", interface]:
            continue
        start, end = number, number + 1
        while end < len(lines) and lines[end].strip() and not KEYWORD.match(lines[end]):
            end += 1
        if start and lines[start - 1].split() == ["auto", interface]:
            start -= 1
        found.append((start, end))
    return found


def with_stanza(text: str, entry: dict[str, Any]) -> str:
    """The file with our stanza in place of its former self, or at its end; without it when none is wanted."""
    lines = text.splitlines(keepends=True)
    wanted = entry["content"].splitlines(keepends=True) if entry["state"] == "present" else []
    place = None
    for start, end in reversed(stanzas(lines, entry["interface"])):
        ours = [number for number in range(start, end) if entry["signature"] in lines[number]]
        if not ours:
            raise Refused(
                f"{entry['interface']} is already defined in {entry['path']}, not by this role: "
                "choose another network_bridge or take it out"
            )
        # Comments behind our last line, which is a comment too, belong to what comes after.
        if lines[max(ours)].startswith("#"):
            end = max(ours) + 1
        while start and lines[start - 1].startswith("#") and entry["signature"] in lines[start - 1]:
            start -= 1
        del lines[start:end]
        place = start
    if place is None:
        if wanted and lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        gap = ["\n"] if wanted and lines and lines[-1].strip() else []
        return "".join([*lines, *gap, *wanted])
    if not wanted and place > 0 and not lines[place - 1].strip():
        del lines[place - 1]
    return "".join([*lines[:place], *wanted, *lines[place:]])


def wanted(entry: dict[str, Any], now: Look) -> Look:
    """What the file is to be."""
    if entry["interface"]:
        if not now.there():
            if entry["state"] == "absent":
                return now
            raise Refused(f"{entry['path']} does not exist: this host is not configured by ifupdown2")
        text = with_stanza(now.raw(), entry)
        if entry["state"] == "absent" and entry["original"]:
            former = look(pathlib.Path(entry["original"])).text
            if former is not None and former.split() == text.encode(errors="surrogateescape").split():
                return now._replace(text=former)
        return now._replace(text=text.encode(errors="surrogateescape"))
    if entry["state"] == "absent":
        return Look()
    if entry["link"]:
        return Look(link=entry["link"])
    return Look(text=(entry["content"] or "").encode(), mode=int(entry["mode"], 8))


def changes(entries: list[dict[str, Any]]) -> list[Change]:
    """What differs, in the order of the entries."""
    found = []
    for entry in entries:
        path = pathlib.Path(entry["path"])
        path = path.resolve() if entry["interface"] else path
        now = look(path)
        if entry["interface"] and entry["original"]:
            kept = pathlib.Path(entry["original"])
            if entry["state"] == "present" and not look(kept).there() and now.there():
                former = with_stanza(now.raw(), {**entry, "state": "absent"})
                found.append(Change(kept, Look(), Look(text=former.encode(errors="surrogateescape"), mode=0o644)))
        change = Change(path, now, wanted(entry, now), entry["validate"], entry["errors"], entry["path"])
        if change.before != change.after:
            found.append(change)
        if entry["interface"] and entry["original"] and entry["state"] == "absent" and look(kept).there():
            found.append(Change(kept, look(kept), Look()))
    return found


def leftovers(entries: list[dict[str, Any]], exclusive: list[str]) -> list[Change]:
    """Files in folders of ours that no entry names."""
    named = {pathlib.Path(entry["path"]) for entry in entries}
    found = [path for folder in map(pathlib.Path, exclusive) if folder.is_dir() for path in sorted(folder.iterdir())]
    odd = [path for path in found if path not in named and not path.is_dir() and not path.name.endswith(NEW)]
    return [Change(path, look(path), Look()) for path in odd]


def words(found: list[Change]) -> list[str]:
    """The plan in words, a line for each folder and kind of change."""
    lines: dict[str, list[str]] = {}
    for change in found:
        kind = "new" if not change.before.there() else "changed" if change.after.there() else "removed"
        lines.setdefault(f"{kind} in {change.path.parent}", []).append(change.path.name)
    return [f"{where}: {', '.join(names)}" for where, names in lines.items()]


def validate(found: list[Change], *, lenient: bool) -> list[str]:
    """Refused for the first bad file; lenient: a tool that is not there yet gives a note instead."""
    notes = []
    with tempfile.TemporaryDirectory(prefix="glasslab-") as folder:
        for number, change in enumerate(found):
            if not change.validate or change.after.text is None:
                continue
            copy = pathlib.Path(folder) / str(number) / change.path.name
            copy.parent.mkdir()
            copy.write_bytes(change.after.text)
            command = [word.replace("%s", str(copy)) for word in shlex.split(change.validate)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", timeout=30, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                reason = getattr(error, "strerror", None) or "no answer within 30 s"
                if lenient and isinstance(error, FileNotFoundError):
                    notes.append(f"{change.path} was not validated: {command[0]} is not installed yet")
                    continue
                raise Refused(f"{change.path}: {command[0]} cannot be run ({reason}); nothing was changed") from error
            lines = (done.stderr or done.stdout).replace(str(copy), str(change.path)).splitlines()
            if change.errors:
                lines = [line for line in lines if re.search(change.errors, line)]
            if done.returncode and (lines or not change.errors):
                said = " ".join(" ".join(lines).split())[:400]
                raise Refused(
                    f"{change.path} is refused by {command[0]}: {said or done.returncode}; nothing was changed"
                )
    return notes


def sync(path: pathlib.Path) -> None:
    """What was written there survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare(change: Change) -> None:
    """Everything that can fail for want of space or rights, beside the target."""
    change.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = change.path.with_name(f".{change.path.name}{NEW}")
    new.unlink(missing_ok=True)
    if change.after.link is not None:
        new.symlink_to(change.after.link)
    elif change.after.text is not None:
        new.write_bytes(change.after.text)
        new.chmod(change.after.mode or 0o644)
        sync(new)


def place(change: Change) -> None:
    new = change.path.with_name(f".{change.path.name}{NEW}")
    if change.after.there():
        new.rename(change.path)
    else:
        change.path.unlink(missing_ok=True)


def put_back(change: Change) -> None:
    if not change.before.there():
        change.path.unlink(missing_ok=True)
        return
    prepare(change._replace(after=change.before))
    place(change._replace(after=change.before))


def install(found: list[Change]) -> None:
    """Put all into place; when one cannot be, those before it go back."""
    done: list[Change] = []
    change = found[0]
    try:
        for change in found:
            if change.after.there():
                prepare(change)
        for change in found:
            place(change)
            done.append(change)
        for parent in {change.path.parent for change in found if change.path.parent.is_dir()}:
            sync(parent)
    except OSError as error:
        for one in reversed(done):
            put_back(one)
        for one in found:
            with contextlib.suppress(OSError):
                one.path.with_name(f".{one.path.name}{NEW}").unlink(missing_ok=True)
        raise Refused(f"{change.path} cannot be written ({error.strerror}); nothing was changed") from error


def clear(entries: list[dict[str, Any]], folders: list[str]) -> None:
    """What a killed run left on its way, and folders of ours in which nothing is left."""
    for entry in entries:
        path = pathlib.Path(entry["path"])
        with contextlib.suppress(OSError):
            path.with_name(f".{path.name}{NEW}").unlink(missing_ok=True)
    for folder in map(pathlib.Path, folders):
        if folder.is_dir() and all(one.name == "__pycache__" for one in folder.iterdir()):
            shutil.rmtree(folder)


def shown(change: Change) -> dict[str, str]:
    """A diff as Ansible shows it; where only the mode differs, the mode."""
    before, after = change.before.shown(), change.after.shown()
    if before == after and change.before.there():
        before, after = (f"mode {one.mode or 0:04o}\n" for one in (change.before, change.after))
    return {
        "before": before,
        "after": after,
        "before_header": f"{change.path}{'' if change.before.there() else ' (absent)'}",
        "after_header": f"{change.path}{'' if change.after.there() else ' (absent)'}",
    }


def main() -> None:
    """Entry point of the module."""
    options = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "content": {"type": "str"},
        "link": {"type": "str"},
        "interface": {"type": "str"},
        "signature": {"type": "str"},
        "original": {"type": "path"},
        "mode": {"type": "str", "default": "0644"},
        "validate": {"type": "str"},
        "errors": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": options},
            "exclusive": {"type": "list", "elements": "path", "default": []},
            "folders": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    entries = module.params["files"]
    try:
        found = changes(entries) + leftovers(entries, module.params["exclusive"])
        notes = validate(found, lenient=module.check_mode)
        if found and not module.check_mode:
            install(found)
        if not module.check_mode:
            clear(entries, module.params["folders"])
    except Refused as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(found),
        changed_paths=[change.name or str(change.path) for change in found],
        plan=words(found),
        notes=notes,
        diff=[shown(change) for change in found],
    )


if __name__ == "__main__":
    main()
