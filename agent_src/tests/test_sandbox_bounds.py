"""The sandbox's bounds by their values, its errors by their words, and that it leaves no descriptor behind."""

import contextlib
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from glasslab.servers import sandbox
from glasslab.servers.sandbox import PathCheck, RefusedError, Sandbox, SandboxError, _refusal, printable
from tool_servers import open_descriptors


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_the_bounds() -> None:
    bounds = (sandbox.MAX_READ_BYTES, sandbox.MAX_LISTED, sandbox.MAX_LISTED_BYTES, sandbox.MAX_DEPTH)
    assert bounds == (20_000, 1_000, 64_000, 8)
    assert os.pathconf("/", "PC_PATH_MAX") == sandbox.MAX_PATH_BYTES + 1


def test_what_the_kernel_is_asked_for() -> None:
    # linux/openat2.h: RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH.
    assert (sandbox._RESOLVE, sandbox._SYS_OPENAT2) == (0x02 | 0x04 | 0x08, 437)
    common = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    assert common | os.O_NONBLOCK | os.O_NOCTTY == sandbox._OPEN_FILE
    assert common | os.O_DIRECTORY == sandbox._OPEN_FOLDER


@pytest.mark.parametrize(
    ("name", "number"),
    [(b"..", errno.EXDEV), (b"/etc/passwd", errno.EXDEV), (b"link", errno.ELOOP), (b"sub/../../x", errno.EXDEV)],
)
def test_the_kernel_alone_refuses_what_no_name_check_has_seen(tmp_path: Path, name: bytes, number: int) -> None:
    touch(tmp_path, "docs/a", "docs/sub/b", "x")
    (tmp_path / "docs" / "link").symlink_to("a")
    box = Sandbox(tmp_path / "docs")
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        sandbox._openat2(box._folder, name, sandbox._OPEN_FILE)
    assert caught.value.errno == number


def test_a_descriptor_of_nought_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_libc", SimpleNamespace(syscall=lambda *_: 0))
    assert sandbox._openat2(5, b"a", 0) == 0


def test_what_is_shown_of_a_name() -> None:
    assert printable("a" * 200) == "a" * 200
    assert printable("a" * 201) == f"{'a' * 200}... (201 characters)"
    assert printable("a\nb\u202ec\x00") == "a\\nb\\u202ec\\x00"


@pytest.mark.parametrize(
    ("number", "text", "reason"),
    [
        (errno.ELOOP, "'n' is refused: it leads over a symbolic link", "it leads over a symbolic link"),
        (errno.EXDEV, "'n' is refused: it leads out of the documents", "it leads out of the documents"),
        (errno.EAGAIN, "'n' is refused: it leads out of the documents", "it leads out of the documents"),
        (errno.ENXIO, "'n' is refused: it is not a regular file", "it is not a regular file"),
        (errno.ENOENT, "'n' does not exist; list_files gives the names there are", ""),
        (errno.ENOTDIR, "'n' does not exist; list_files gives the names there are", ""),
        (errno.EACCES, "'n' cannot be read: Permission denied", ""),
    ],
)
def test_what_the_kernel_refuses_is_named(number: int, text: str, reason: str) -> None:
    refusal = _refusal("n", number)
    assert (str(refusal), refusal.reason) == (text, reason)


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        ("", "the path is empty"),
        ("a\0b", "it holds a NUL character"),
        ("\ud800", "it is not valid Unicode"),
        ("a" * 4_096, "the path is too long"),
        ("\u00e9" * 2_048, "the path is too long"),
    ],
)
def test_a_path_that_cannot_be_resolved_is_not(tmp_path: Path, requested: str, reason: str) -> None:
    assert Sandbox(tmp_path).check(requested) == PathCheck(printable(requested), "", False, reason)


def test_a_path_is_as_long_as_the_kernel_takes_it(tmp_path: Path) -> None:
    box, longest = Sandbox(tmp_path), "a/" * 2_047 + "a"
    assert len(longest) == 4_095
    assert box.check(longest) == PathCheck(printable(longest), f"{tmp_path}/{longest}", True, "")
    with pytest.raises(RefusedError, match="does not exist"):
        box.read(longest)


def test_where_a_path_leads_is_told_although_its_name_is_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(os.fsdecode(b"caf\xe9"))
    checked = Sandbox(tmp_path).check("link")
    assert checked == PathCheck("link", f"{tmp_path}/caf\\xe9", False, "it leads over a symbolic link")


def test_a_file_whose_size_nobody_tells_has_as_many_bytes_as_were_read() -> None:
    document = Sandbox(Path("/proc/self")).read("status")
    assert document.text.startswith("Name:")
    assert document.bytes_read == len(document.text.encode()) > 0
    assert (document.bytes_total, document.path) == (document.bytes_read, "status")


def test_a_file_is_read_to_its_end_in_however_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = os.read, list[int]()

    def in_parts(descriptor: int, size: int) -> bytes:
        asked.append(size)
        return read(descriptor, min(size, 9_000))

    monkeypatch.setattr(sandbox.os, "read", in_parts)
    (tmp_path / "a").write_bytes(b"x" * 25_000)
    document = Sandbox(tmp_path).read("a")
    assert (document.bytes_read, document.bytes_total, asked) == (20_000, 25_000, [20_000, 11_000, 2_000])
    (tmp_path / "b").write_bytes(b"x" * 9_001)
    assert Sandbox(tmp_path).read("b").bytes_read == 9_001


def test_a_file_that_cannot_be_read_is_refused_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a", "sub/b")
    os.link(tmp_path / "a", tmp_path / "hard")
    box, before = Sandbox(tmp_path), open_descriptors()
    for name in ("hard", "sub", "none", "sub/b"):
        with contextlib.suppress(RefusedError):
            box.read(name)

    def broken(descriptor: int, size: int) -> bytes:
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(sandbox.os, "read", broken)
    with pytest.raises(RefusedError) as caught:
        box.read("sub/b")
    assert (str(caught.value), caught.value.reason) == ("'sub/b' cannot be read: Input/output error", "")
    box.list_files()
    assert open_descriptors() == before
    box.close()
    assert open_descriptors() == before - 1


def test_no_child_inherits_what_it_holds_or_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a", "sub/b")
    box, opened = Sandbox(tmp_path), list[bool]()
    openat2 = sandbox._openat2

    def watched(folder: int, name: bytes, flags: int) -> int:
        descriptor = openat2(folder, name, flags)
        opened.append(os.get_inheritable(descriptor))
        return descriptor

    monkeypatch.setattr(sandbox, "_openat2", watched)
    box.read("a")
    box.list_files()
    assert [os.get_inheritable(box._folder), *opened] == [False, False, False]


def test_a_kernel_without_openat2_is_one_line_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(folder: int, name: bytes, flags: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(sandbox, "_openat2", missing)
    before = open_descriptors()
    with pytest.raises(SandboxError) as caught:
        Sandbox(tmp_path)
    assert str(caught.value) == (
        "openat2 is refused (Function not implemented): it takes Linux 5.6 or later, and no filter against it "
        "(systemd: RestrictSUIDSGID has one)"
    )
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("name", "cause"), [("none", "No such file or directory"), ("a\0b", "lstat: embedded null character in path")]
)
def test_a_folder_that_cannot_be_opened_says_why(tmp_path: Path, name: str, cause: str) -> None:
    with pytest.raises(SandboxError) as caught:
        Sandbox(tmp_path / name)
    said = str(caught.value)
    assert said.startswith(f"documents folder {str(tmp_path / name)!r} cannot be opened: {cause}")
    assert said.endswith("; give the server's user a folder it may read, or set LAB_DOCUMENTS")


# --- listings


def test_as_many_names_as_there_is_room_for(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number:03}{'x' * 252}" for number in range(251)))
    listing = Sandbox(tmp_path).list_files()
    assert (len(listing.files), listing.left_out) == (250, 1)  # with the line's end 256 bytes each
    assert listing.files == sorted(listing.files)
    (tmp_path / listing.files[0]).unlink()
    listing = Sandbox(tmp_path).list_files()
    assert (len(listing.files), listing.left_out) == (250, 0)


def test_as_many_names_as_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_LISTED", 3)
    touch(tmp_path, "a", "b", "c")
    assert (Sandbox(tmp_path).list_files().files, Sandbox(tmp_path).list_files().left_out) == (["a", "b", "c"], 0)
    touch(tmp_path, "d", "e")
    assert (Sandbox(tmp_path).list_files().files, Sandbox(tmp_path).list_files().left_out) == (["a", "b", "c"], 2)


def test_no_more_is_looked_at_than_twenty_times_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_LISTED", 1)
    touch(tmp_path, *(f"flat/{number}" for number in range(30)))
    flat = Sandbox(tmp_path / "flat").list_files()
    assert (len(flat.files), flat.left_out) == (1, 19)
    touch(tmp_path, *(f"deep/{folder}/{number}" for folder in range(10) for number in range(4)))
    deep = Sandbox(tmp_path / "deep").list_files()
    assert (len(deep.files), deep.left_out) == (1, 19), "five folders of four"


def test_folders_are_looked_into_eight_deep(tmp_path: Path) -> None:
    touch(tmp_path, "1/2/3/4/5/6/7/8/there", "1/2/3/4/5/6/7/8/9/not")
    assert Sandbox(tmp_path).list_files().files == ["1/2/3/4/5/6/7/8/there"]


def test_names_that_are_left_out_are_counted_in_folders_too(tmp_path: Path) -> None:
    touch(tmp_path, "one\nline", "sub/two\nlines", "sub/more/three\nlines", "sub/fine")
    listing = Sandbox(tmp_path).list_files()
    assert (listing.files, listing.left_out) == (["sub/fine"], 3)


def test_a_folder_that_cannot_be_looked_into_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a/1", "b/2", "c/3")
    box, openat2, scandir = Sandbox(tmp_path), sandbox._openat2, os.scandir

    def refused(folder: int, name: bytes, flags: int) -> int:
        if name == b"b":
            raise OSError(errno.EACCES, "x")
        return openat2(folder, name, flags)

    monkeypatch.setattr(sandbox, "_openat2", refused)
    assert box.list_files().files == ["a/1", "c/3"]
    monkeypatch.undo()

    def unreadable(folder: int) -> "os._ScandirIterator[str]":
        if folder != box._folder:
            raise OSError(errno.EIO, "x")
        return scandir(folder)

    monkeypatch.setattr(sandbox.os, "scandir", unreadable)
    assert box.list_files().files == []

    def broken(folder: int) -> "os._ScandirIterator[str]":
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(sandbox.os, "scandir", broken)
    with pytest.raises(SandboxError) as caught:
        box.list_files()
    assert str(caught.value) == "the documents cannot be listed: Input/output error"
