"""Storages: images that the node downloads itself, with their checksum; and what a version lets a storage hold."""

from __future__ import annotations

import hashlib
import posixpath
import re
import struct
import urllib.parse
from pathlib import Path
from typing import Any

from fakepve.model import TaskError
from fakepve.routing import die, param_error, split_list
from fakepve.server import USER, ok, params

Values = dict[str, Any]
#: What a file's name must end in, by the kind of content.
ENDINGS = {
    "iso": r"\.(?:iso|img)",
    "vztmpl": r"\.tar\.(?:gz|xz|zst|bz2)",
    "import": r"\.(?:ova|qcow2|raw|vmdk)",
}
#: The version since which a directory holds images to import; an assumption: public reports show it on 8.4 and 9.
IMPORT_SINCE = (8, 3)


def virtual_size(path: Path) -> int:
    """The size of the disk in an image: what a qcow2 says of itself, a raw file's own length."""
    with path.open("rb") as image:
        head = image.read(32)
    if head[:4] == b"QFI\xfb" and len(head) == 32:
        return int(struct.unpack(">Q", head[24:32])[0])
    return path.stat().st_size


class DownloadApi:
    """Mixin of the double: files that a node fetches by URL stand in a folder of this machine, by their names."""

    images: Path

    def _routes_download(self) -> list[tuple[str, str, Any]]:
        return [("GET", "/nodes/{node}/query-url-metadata", self._url_metadata)]

    def _file_of(self, url: str) -> Path:
        return self.images / posixpath.basename(urllib.parse.urlsplit(url).path)

    async def _url_metadata(self, v: Values, user: str) -> Values:
        found = self._file_of(v["url"])
        if not found.is_file():
            raise die("invalid server response: '404 Not Found'")
        return {"filename": found.name, "size": found.stat().st_size, "mimetype": "application/octet-stream"}

    async def _download_url(self, request: Any) -> Any:
        p = await params(request)
        name, store = self._file_storage(request, "download")
        p = self._verify(request, p)
        self._need_file_storage(store, "can't upload to storage type '{0}', not a file based storage!")
        content, filename = p["content"], p["filename"]
        if content == "import" and self.version_pair < IMPORT_SINCE:
            raise param_error(content="value 'import' does not have a value in the enumeration 'iso, vztmpl'")
        if content not in split_list(store.get("content")):
            raise die(f"storage '{name}' is not configured for content-type '{content}'")
        if not re.fullmatch(r"[\w.-]+" + ENDINGS[content], filename, re.IGNORECASE):
            raise param_error(filename="invalid filename or wrong extension")
        upid = await self.task(
            request.match_info["node"],
            "download",
            filename,
            request[USER],
            lambda: self._download(name, store, p),
            log=[f"downloading {p['url']} to {filename}"],
        )
        return ok(upid)

    async def _download(self, name: str, store: Values, p: Values) -> str:
        source, content, filename = self._file_of(p["url"]), p["content"], p["filename"]
        volume = store.setdefault("volumes", {}).get(f"{content}/{filename}")
        expected, algorithm = str(p.get("checksum") or "").lower(), p.get("checksum-algorithm")
        if volume is not None:
            kept = Path(volume["file"]) if volume.get("file") else None
            if kept and algorithm and _digest(kept, algorithm) == expected:
                return "OK, got correct file already, no need to download"
            raise TaskError(f"refusing to override existing file '{filename}'")
        if not source.is_file():
            raise TaskError(f"download failed: command '/usr/bin/wget ... {p['url']}' failed: exit code 8")
        if algorithm:
            got = _digest(source, algorithm)
            if got != expected:
                raise TaskError(f"checksum mismatch: got '{got}' != expect '{p['checksum']}'")
        self.store_file(name, filename, source.stat().st_size, content)
        stored = store["volumes"][f"{content}/{filename}"]
        stored.update(file=str(source), virtual=virtual_size(source), format=filename.rsplit(".", 1)[-1])
        return f"download of '{p['url']}' to '{filename}' finished"

    def _decode_content(self, spec: Values, value: Any) -> str:
        """Before there was content to import, a storage dropped the word."""
        if self.version_pair < IMPORT_SINCE:
            value = ",".join(kind for kind in split_list(value) if kind != "import")
        decoded: str = super()._decode_content(spec, value)
        return decoded

    def store_file(self, storage: str, name: str, size: int, content: str = "iso") -> None:
        """Note a file on a storage; one that was uploaded is kept beside those that can be downloaded."""
        super().store_file(storage, name, size, content)
        given = self.uploaded or {}
        if given.get("filename") == name and "data" in given:
            kept = self.images / "uploaded" / name
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(given["data"])
            self.storages[storage]["volumes"][f"{content}/{name}"]["file"] = str(kept)
            self.uploaded = None


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
