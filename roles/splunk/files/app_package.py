"""The app as one file, for whoever may install it: app_package.py APP FILE [INDEX]

The same app gives the same bytes. Prints `written`, or nothing when the file is as it would be written. With `-` for
the file: the archive itself, not compressed, in base64.
"""

import base64
import gzip
import io
import sys
import tarfile
from pathlib import Path

INDEX = b"index=agents"


def packed(app: Path, index: str) -> bytes:
    """The app's folders and files below one folder `glasslab`; its macro names the index."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in [app, *sorted(app.rglob("*"))]:
            if path.is_dir():
                folder = tarfile.TarInfo(f"glasslab/{path.relative_to(app)}".removesuffix("/."))
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(folder)
                continue
            content = path.read_bytes()
            if path.name == "macros.conf":
                content = content.replace(INDEX, f"index={index}".encode())
            entry = tarfile.TarInfo(f"glasslab/{path.relative_to(app)}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def main() -> None:
    """Write it where it is not, or print it."""
    app, target, *index = sys.argv[1:]
    archive = packed(Path(app), index[0] if index else "agents")
    if target == "-":
        print(base64.b64encode(archive).decode())
        return
    content, file = gzip.compress(archive, mtime=0), Path(target)
    if file.is_file() and file.read_bytes() == content:
        return
    file.write_bytes(content)
    print("written")


if __name__ == "__main__":
    main()
