"""Tool definitions against the lock: what the model is offered is byte for byte what somebody looked at.

`tools.lock.json`: {server name: {"instructions": hash or null, "tools": {tool name: hash}, "files": {path: hash},
"shown": {"instructions": text or null, "tools": {tool name: definition}}}}. A tool's hash is the SHA-256 of the
canonical JSON of its whole definition as the server sent it: name, title, description, schemas, annotations and
`_meta`. Hashing the description alone would let poison through in a schema. The hashes decide; `shown` is what was
looked at when they were taken, so that a difference can be shown. `files` are those that a server on this machine is
started from; they are compared before it is started.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from glasslab.frames import canonical_json, recordable, sha256_hex, text_sha256
from glasslab.guardrails import hidden_characters, visible_line

_UNREADABLE: Final = "unreadable: "  # in the place of a hash
LOCK_FILE: Final = Path(__file__).parent / "tools.lock.json"
Lock = dict[str, Any]


class LockError(ValueError):
    """A lock file that cannot be read; the text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How a server differs from the lock; empty lists and False where it does not."""

    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    instructions_changed: bool = False
    refused_characters: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        names = self.changed or self.missing or self.extra or self.files
        return bool(names or self.instructions_changed or self.refused_characters)

    def __str__(self) -> str:
        parts = [
            f"{label} {', '.join(visible_line(name) for name in names)}"
            for label, names in (
                ("changed:", self.changed),
                ("missing:", self.missing),
                ("extra:", self.extra),
                ("files:", self.files),
                ("hidden characters:", self.refused_characters),
            )
            if names
        ]
        return "; ".join([*parts, *(["instructions changed"] if self.instructions_changed else [])])


def definition_sha256(definition: Mapping[str, Any]) -> str:
    """Return the hash of one whole tool definition."""
    return sha256_hex(_bytes(definition))


def description_sha256(definition: Mapping[str, Any]) -> str:
    """Return the hash of a definition's description alone, as text."""
    return text_sha256(definition.get("description") or "")


def lock_entry(
    definitions: Sequence[Mapping[str, Any]], instructions: str | None, files: Mapping[str, str] | None = None
) -> Lock:
    """Return what the lock holds for one server; `files` as from `file_hashes`."""
    tools = {name_of(definition): definition_sha256(definition) for definition in definitions}
    shown = {name_of(definition): recordable(definition) for definition in definitions}
    return {
        "instructions": _instructions_hash(instructions),
        "tools": dict(sorted(tools.items())),
        "shown": {"instructions": recordable(instructions), "tools": dict(sorted(shown.items()))},
        **({"files": dict(sorted(files.items()))} if files else {}),
    }


def file_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """Return path -> SHA-256 of the content; a file that cannot be read has no hash, so it is never the pinned one."""
    found = {}
    for path in paths:
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)  # of another kind there might be no end
                found[str(path)] = (
                    hashlib.file_digest(file, "sha256").hexdigest() if regular else f"{_UNREADABLE}no file"
                )
        except OSError as error:
            found[str(path)] = f"{_UNREADABLE}{error.strerror}"
    return found


def read_lock(path: Path = LOCK_FILE) -> Lock:
    """Return the lock. Raises LockError."""
    try:
        lock: Lock = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LockError(f"lock file {path}: {error.strerror}; make it with `glasslab pin`") from None
    except (ValueError, RecursionError):
        raise LockError(f"lock file {path} is not JSON; remove it, then pin anew with `glasslab pin`") from None
    entries = lock.values() if isinstance(lock, dict) else [None]
    if not all(_is_entry(entry) for entry in entries):
        raise LockError(f"lock file {path} is no lock of tools; remove it, then pin anew with `glasslab pin`")
    return lock


def write_lock(lock: Mapping[str, Any]) -> None:
    """Replace the lock, whole or not at all: what was pinned must not go with a disk that is full. Raises OSError."""
    path = LOCK_FILE.resolve()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(json.dumps(lock, indent=2, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def compare(
    lock: Mapping[str, Any], server: str, definitions: Sequence[Mapping[str, Any]], instructions: str | None
) -> Drift:
    """Return how the tools that a server listed differ from the lock. A server that the lock lacks is all extra."""
    entry = lock.get(server)
    pinned: Mapping[str, str] = entry.get("tools", {}) if isinstance(entry, dict) else {}
    listed = lock_entry(definitions, instructions)
    count = Counter(name_of(definition) for definition in definitions)
    hidden: set[str] = set()
    for text in [*texts(list(definitions)), instructions or "", server]:
        hidden.update(hidden_characters(text))
    return Drift(
        # A name listed twice is a change, whichever of the two is the pinned one.
        changed=sorted(n for n, sha in listed["tools"].items() if n in pinned and (sha != pinned[n] or count[n] > 1)),
        missing=sorted(set(pinned) - set(count)),
        extra=sorted(set(count) - set(pinned)),
        instructions_changed=isinstance(entry, dict) and listed["instructions"] != entry.get("instructions"),
        refused_characters=sorted(hidden),
    )


def compare_files(lock: Mapping[str, Any], server: str, files: Mapping[str, str]) -> Drift:
    """Return how the files that a server is about to be started from differ from the lock."""
    entry = lock.get(server)
    pinned: Mapping[str, str] = entry.get("files", {}) if isinstance(entry, dict) else {}
    names = sorted({*pinned, *files})
    unread = {name for name, found in files.items() if found.startswith(_UNREADABLE)}
    return Drift(files=[name for name in names if name in unread or pinned.get(name) != files.get(name)])


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("tools"), dict):
        return False
    return all(isinstance(entry.get(name, {}), dict) for name in ("files", "shown"))


def _bytes(value: object) -> bytes:
    try:
        return canonical_json(value)
    except (ValueError, RecursionError):  # it is never the pinned one, but it has to be recorded
        return canonical_json(recordable(value))


def name_of(definition: Mapping[str, Any]) -> str:
    """Return a tool's name as text, whatever it is."""
    return str(recordable(definition.get("name")))


def _instructions_hash(instructions: str | None) -> str | None:
    return None if instructions is None else text_sha256(instructions)


def texts(value: object) -> list[str]:
    """Return every text in a definition, keys included: the parsed text, since JSON escapes hide what it holds."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
    return found
