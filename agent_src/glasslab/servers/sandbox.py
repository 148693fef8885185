"""One folder, and nothing but its files: names checked for the record, opened without a race.

Two separate jobs, on purpose:

* `Sandbox.check` says what a requested path would mean. It is for the record (frame `server.path_check`) and for a
  clear refusal. It walks the path as text and `realpath`, so it can be outrun by somebody who swaps a directory.
* `Sandbox.read` opens. It never uses what `check` found: the kernel itself resolves the requested name beneath the
  folder's descriptor (`openat2` with RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS), so a swap between
  the two gains nothing.

Symbolic links are refused wherever they lead, also back into the folder: a document is a file, and a folder of
documents in which no link is ever followed needs no reasoning about where links lead.
"""

import ctypes
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_READ_BYTES = 20_000
MAX_LISTED = 1_000
MAX_LISTED_BYTES = 64_000
MAX_DEPTH = 8
# One below PATH_MAX, which counts the closing NUL; a longer path could not be opened anyway.
MAX_PATH_BYTES = 4_095
_SHOWN_CHARACTERS = 200

_SYS_OPENAT2 = 437  # the same number on every architecture Debian 13 supports
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS
# O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer, for ever.
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class SandboxError(Exception):
    """The folder itself cannot be used: missing, no folder, unreadable, or a kernel without openat2."""


class RefusedError(Exception):
    """A requested file is not read. The text names what was asked for and never a real path.

    `reason` is a fixed text when a rule of the sandbox refused it, and empty when there is simply no such file.
    """

    def __init__(self, name: str, reason: str, *, by_rule: bool = True) -> None:
        super().__init__(f"'{name}' is refused: {reason}" if by_rule else f"'{name}' {reason}")
        self.reason = reason if by_rule else ""


@dataclass(frozen=True)
class PathCheck:
    """What a requested path means. `inside` is the verdict: False whenever the name itself is refused."""

    requested: str
    resolved: str
    inside: bool
    reason: str = ""


@dataclass(frozen=True)
class Document:
    """The text of a file, at most MAX_READ_BYTES of it, with the file's name as it was asked for."""

    path: str
    text: str
    bytes_read: int
    bytes_total: int


@dataclass(frozen=True)
class Listing:
    """Names of the regular files, sorted; `left_out` counts those that the bounds or their encoding kept out."""

    files: list[str]
    left_out: int


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, name: bytes, flags: int) -> int:
    how = _OpenHow(flags=flags, mode=0, resolve=_RESOLVE)
    descriptor = int(_libc.syscall(_SYS_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how)))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor


def printable(text: str) -> str:
    """Return `text` with everything that is not plain printable text escaped, bounded, fit for one line of a log."""
    cut = text[:_SHOWN_CHARACTERS]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return safe if len(text) <= _SHOWN_CHARACTERS else f"{safe}... ({len(text)} characters)"


class Sandbox:
    """A folder of documents, held open by its descriptor."""

    def __init__(self, root: Path) -> None:
        """Open `root`; raises SandboxError with one clear line when that cannot be done."""
        try:
            self.root = Path(os.path.realpath(root))
            self._folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            remedy = "give the server's user a folder it may read, or set LAB_DOCUMENTS"
            raise SandboxError(f"documents folder {str(root)!r} cannot be opened: {cause}; {remedy}") from error
        try:
            os.close(_openat2(self._folder, b".", _OPEN_FOLDER))
        except OSError as error:
            os.close(self._folder)
            remedy = "it takes Linux 5.6 or later, and no filter against it (systemd: RestrictSUIDSGID has one)"
            raise SandboxError(f"openat2 is refused ({error.strerror}): {remedy}") from error

    def close(self) -> None:
        """Give the folder's descriptor back."""
        os.close(self._folder)

    def check(self, requested: str) -> PathCheck:
        """Say what `requested` means, without opening it. Never raises, whatever the text is."""
        reason = _refused_by_name(requested)
        if reason in _UNRESOLVABLE:
            return PathCheck(requested=printable(requested), resolved="", inside=False, reason=reason)
        where = os.path.realpath(self.root / requested)
        if not reason and where != os.path.normpath(self.root / requested):
            reason = "it leads over a symbolic link"
        shown = os.fsencode(where).decode("utf-8", "backslashreplace")
        return PathCheck(requested=printable(requested), resolved=shown, inside=not reason, reason=reason)

    def read(self, requested: str) -> Document:
        """Read at most MAX_READ_BYTES of one regular file; raises RefusedError. Safe against swapped directories."""
        name = printable(requested)
        reason = _refused_by_name(requested)
        if reason:
            raise RefusedError(name, reason)
        try:
            descriptor = _openat2(self._folder, requested.encode("utf-8"), _OPEN_FILE)
        except OSError as error:
            raise _refusal(name, error.errno or 0) from None
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise RefusedError(name, "it is not a regular file")
            if facts.st_nlink > 1:
                # The other name may lie outside the folder; which of the two is "the" file cannot be told.
                raise RefusedError(name, "the file has more than one name (hard link)")
            content = _read_capped(descriptor)
        except OSError as error:
            raise RefusedError(name, f"cannot be read: {os.strerror(error.errno or 0)}", by_rule=False) from None
        finally:
            os.close(descriptor)
        return Document(
            path=requested,
            text=content.decode("utf-8", "replace"),
            bytes_read=len(content),
            bytes_total=max(facts.st_size, len(content)),
        )

    def list_files(self) -> Listing:
        """List the regular files, subfolders included, sorted; raises SandboxError when the folder cannot be read.

        Names that are not printable UTF-8 are counted, not shown: such a name in an answer would end the connection.
        """
        found: list[str] = []
        left_out = _walk(self._folder, b"", 0, found)
        found.sort()
        size = 0
        for number, name in enumerate(found):
            size += len(name.encode()) + 1
            if number >= MAX_LISTED or size > MAX_LISTED_BYTES:
                return Listing(files=found[:number], left_out=left_out + len(found) - number)
        return Listing(files=found, left_out=left_out)


_UNRESOLVABLE = ("the path is empty", "it holds a NUL character", "it is not valid Unicode", "the path is too long")


def _refused_by_name(requested: str) -> str:
    """Return why the text alone already rules the path out, or nothing."""
    if not requested:
        return "the path is empty"
    if "\0" in requested:
        return "it holds a NUL character"
    try:
        size = len(requested.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > MAX_PATH_BYTES:
        return "the path is too long"
    if requested.startswith("/"):
        return "only paths as list_files gives them are read, not absolute ones"
    if ".." in requested.split("/"):
        return "'..' leads out of the documents"
    return ""


def _refusal(name: str, number: int) -> RefusedError:
    """Return the refusal for an error of openat2."""
    match number:
        case errno.ELOOP:
            return RefusedError(name, "it leads over a symbolic link")
        case errno.EXDEV | errno.EAGAIN:  # EAGAIN: something above the file was moved while the kernel looked
            return RefusedError(name, "it leads out of the documents")
        case errno.ENXIO:
            return RefusedError(name, "it is not a regular file")
        case errno.ENOENT | errno.ENOTDIR:
            return RefusedError(name, "does not exist; list_files gives the names there are", by_rule=False)
        case _:
            return RefusedError(name, f"cannot be read: {os.strerror(number)}", by_rule=False)


def _read_capped(descriptor: int) -> bytes:
    parts: list[bytes] = []
    left = MAX_READ_BYTES
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _walk(folder: int, prefix: bytes, depth: int, found: list[str]) -> int:
    """Append the names beneath `folder` to `found`, links never followed; return how many had to be left out."""
    left_out = 0
    try:
        with os.scandir(folder) as entries:
            # Bounded before sorting: a folder with a million files must not cost a million names in memory.
            names = [
                (os.fsencode(entry.name), entry) for entry, _ in zip(entries, range(20 * MAX_LISTED), strict=False)
            ]
            for name, entry in names:
                if entry.is_file(follow_symlinks=False):
                    path = (prefix + name).decode("utf-8", "replace")
                    # A name with a line break or a direction mark in it would read as something else than it is.
                    if path.isprintable() and path.encode("utf-8") == prefix + name:
                        found.append(path)
                    else:
                        left_out += 1
                elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH and len(found) < 20 * MAX_LISTED:
                    try:
                        inner = _openat2(folder, name, _OPEN_FOLDER)
                    except OSError:
                        continue  # swapped or unreadable by now: no file of it can be read either
                    try:
                        left_out += _walk(inner, prefix + name + b"/", depth + 1, found)
                    finally:
                        os.close(inner)
    except OSError as error:
        if depth == 0:
            raise SandboxError(f"the documents cannot be listed: {os.strerror(error.errno or 0)}") from None
    return left_out
