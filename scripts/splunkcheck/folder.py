"""The app's folder: what Splunk would not read where it stands, or what is not the app's to bring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from splunkcheck.findings import Finding

# What an app's folder has, by Splunk; and the statements for SQLite that the embedded log's page runs.
_FOLDERS: Final = frozenset(("default", "metadata", "lookups", "bin", "static", "appserver", "README", "lib", "sqlite"))
_FILES: Final = frozenset(("README.md", "README.txt", "LICENSE", "LICENSE.txt", "app.manifest"))


def check(root: Path) -> Iterator[Finding]:
    """Return what is wrong with where an app's files stand."""
    for path in sorted(root.iterdir()):
        if path.name == "local":
            for inner in sorted(one for one in (path, *path.rglob("*")) if one.is_file() or one == path):
                yield Finding(
                    str(inner.relative_to(root)), 0, "is the user's, and wins over default/: an app brings none"
                )
        elif path.is_dir() and path.name not in _FOLDERS:
            yield Finding(path.name, 0, f"is no folder of an app; there is {', '.join(sorted(_FOLDERS))}")
        elif path.is_file() and path.name not in _FILES:
            where = "Splunk reads it in default/" if path.suffix == ".conf" else "is no file of an app's own folder"
            yield Finding(path.name, 0, where)
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.suffix == ".meta" and str(inside) != "metadata/default.meta":
            yield Finding(str(inside), 0, "an app brings metadata/default.meta, and no other")
        elif (
            path.suffix == ".conf"
            and len(inside.parts) > 1
            and inside.parts[0] not in ("sqlite", "local")
            and inside.parts[:-1] != ("default",)
        ):
            yield Finding(str(inside), 0, "Splunk reads it in default/ only")
        elif inside.parts[:4] == ("default", "data", "ui", "views") and path.is_file() and path.suffix != ".xml":
            yield Finding(str(inside), 0, "is no view: they are .xml, with their JSON inside")
        elif inside.parts[0] == "default" and path.is_file() and path.suffix not in (".conf", ".xml"):
            yield Finding(str(inside), 0, "is no file that Splunk reads in default/")
    if not (root / "metadata" / "default.meta").is_file():
        yield Finding("metadata/default.meta", 0, "is not there: nobody could see the app's views and searches")
