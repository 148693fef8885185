"""The sandbox: which names are read, what a refusal says, and that nothing outruns the open."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from glasslab.servers.sandbox import MAX_LISTED, MAX_READ_BYTES, RefusedError, Sandbox, SandboxError

SECRET = "the secret beside the documents"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder of documents with a secret and a prefix sibling beside it, and every kind of trap in it."""
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "report.md").write_text("a report")
    (root / "sub" / "deep.md").write_text("deeper")
    (tmp_path / ".env").write_text(SECRET)
    sibling = tmp_path / "docs-secret"
    sibling.mkdir()
    (sibling / "key.md").write_text(SECRET)
    (root / "link.md").symlink_to(tmp_path / ".env")
    (root / "inner-link.md").symlink_to("report.md")
    (root / "folder-link").symlink_to(sibling)
    (root / "sub" / "chain").symlink_to("../folder-link")
    (root / "proc").symlink_to("/proc/self/root")
    (root / "loop").symlink_to("loop")
    (root / "dangling.md").symlink_to(tmp_path / "not-there")
    os.mkfifo(root / "pipe")
    (tmp_path / "outside.md").write_text(SECRET)
    os.link(tmp_path / "outside.md", root / "hard.md")
    return root


@pytest.fixture
def sandbox(docs: Path) -> Iterator[Sandbox]:
    box = Sandbox(docs)
    yield box
    box.close()


# name, whether the check already refuses it, words of the refusal
ATTACKS = [
    ("../.env", True, "leads out"),
    ("../../../etc/passwd", True, "leads out"),
    ("/etc/passwd", True, "absolute"),
    ("link.md", True, "symbolic link"),
    ("inner-link.md", True, "symbolic link"),
    ("folder-link/key.md", True, "symbolic link"),
    ("sub/chain/key.md", True, "symbolic link"),
    ("proc/etc/passwd", True, "symbolic link"),
    ("/proc/self/root/etc/passwd", True, "absolute"),
    ("/proc/self/cwd/report.md", True, "absolute"),
    ("dangling.md", True, "symbolic link"),
    ("loop", False, "symbolic link"),
    ("../docs-secret/key.md", True, "leads out"),
    ("../docs/report.md", True, "leads out"),
    ("sub/../report.md", True, "leads out"),
    ("sub/../../.env", True, "leads out"),
    ("..", True, "leads out"),
    (".", False, "not a regular file"),
    ("sub", False, "not a regular file"),
    ("hard.md", False, "hard link"),
    ("", True, "empty"),
    ("report.md\0.txt", True, "NUL"),
    ("\ud800.md", True, "not valid Unicode"),
    ("a" * 5000, True, "too long"),
    ("a" * 300, False, "cannot be read"),
    ("d/" * 2000 + "x", False, "does not exist"),
    ("..%2f.env", False, "does not exist"),
    ("%2e%2e/.env", False, "does not exist"),
    ("..\\.env", False, "does not exist"),
    ("\uff0e\uff0e/.env", False, "does not exist"),  # fullwidth full stops
    ("\u2025/.env", False, "does not exist"),  # two dot leader
    ("..\u2215.env", False, "does not exist"),  # division slash
    ("~/.env", False, "does not exist"),
    ("file:report.md", False, "does not exist"),
    ("report.md/", False, "does not exist"),
    ("report.md/x", False, "does not exist"),
    ("REPORT.MD", False, "does not exist"),
]


@pytest.mark.parametrize(("name", "refused", "words"), ATTACKS, ids=[ascii(name)[:30] for name, _, _ in ATTACKS])
def test_attack_is_refused_and_named(sandbox: Sandbox, docs: Path, name: str, refused: bool, words: str) -> None:
    check = sandbox.check(name)
    assert check.inside is not refused
    with pytest.raises(RefusedError) as caught:
        sandbox.read(name)
    message = str(caught.value)
    assert words in message
    assert SECRET not in message
    assert str(docs.parent) not in message, "a refusal never tells the real path"
    assert message.startswith("'" + name[:10].replace("\0", "\\x00").replace("\ud800", "\\ud800"))
    assert len(message) < 500
    assert "\n" not in message


def test_a_device_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        box, name = Sandbox(Path("/dev")), "null"
    else:
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
        box, name = Sandbox(tmp_path), "null"
    with pytest.raises(RefusedError, match="not a regular file"):
        box.read(name)


def test_a_fifo_does_not_hang(sandbox: Sandbox) -> None:
    refusals: list[str] = []

    def read() -> None:
        try:
            sandbox.read("pipe")
        except RefusedError as error:
            refusals.append(str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(2)
    assert refusals == ["'pipe' is refused: it is not a regular file"]


@pytest.mark.parametrize("name", ["report.md", "./report.md", "sub/deep.md", "sub//deep.md"])
def test_documents_are_read(sandbox: Sandbox, name: str) -> None:
    assert sandbox.check(name).inside
    assert sandbox.read(name).text in ("a report", "deeper")


def test_a_check_tells_where_an_escape_leads(sandbox: Sandbox, docs: Path) -> None:
    check = sandbox.check("link.md")
    assert (check.requested, check.resolved, check.inside) == ("link.md", str(docs.parent / ".env"), False)


def test_the_first_20_000_bytes_of_a_gigabyte(sandbox: Sandbox, docs: Path) -> None:
    with (docs / "big.md").open("wb") as big:
        big.write(b"x" * MAX_READ_BYTES + b"y")
        big.truncate(1_000_000_000)
    document = sandbox.read("big.md")
    assert (document.text, document.bytes_read) == ("x" * 20_000, 20_000)
    assert document.bytes_total == 1_000_000_000


def test_what_is_not_utf8_is_replaced(sandbox: Sandbox, docs: Path) -> None:
    (docs / "latin.md").write_bytes(b"caf\xe9")
    assert sandbox.read("latin.md").text == "caf\ufffd"


def test_only_regular_files_are_listed_sorted(sandbox: Sandbox) -> None:
    listing = sandbox.list_files()
    assert listing.files == ["hard.md", "report.md", "sub/deep.md"]
    assert listing.left_out == 0
    assert sandbox.list_files() == listing, "a second listing starts at the beginning again"


def test_names_that_cannot_be_shown_are_counted(sandbox: Sandbox, docs: Path) -> None:
    for name in (b"caf\xe9.md", b"two\nlines.md", "turned\u202e.md".encode()):
        os.close(os.open(os.fsencode(docs) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    listing = sandbox.list_files()
    assert listing.files == ["hard.md", "report.md", "sub/deep.md"]
    assert listing.left_out == 3


def test_a_listing_is_bounded(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 5):
        (tmp_path / f"{number:05}.md").touch()
    listing = Sandbox(tmp_path).list_files()
    assert len(listing.files) == MAX_LISTED
    assert listing.left_out == 5


@pytest.mark.parametrize("what", ["missing", "file", "empty name"])
def test_a_folder_that_is_none_is_one_clear_line(tmp_path: Path, what: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match="cannot be opened") as caught:
        Sandbox(tmp_path / what)
    assert "\n" not in str(caught.value)


def test_a_symlinked_root_is_followed_once(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "current").symlink_to(docs)
    box = Sandbox(tmp_path / "current")
    assert box.check("report.md").inside
    assert box.read("report.md").text == "a report"
