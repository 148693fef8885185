"""The app as one file, for whoever may install it: app_package.py APP FILE INDEX

The same app gives the same bytes. Prints `written`, or nothing when the file is as it would be written.
"""

import gzip
import io
import sys
import tarfile
from pathlib import Path

INDEX = b"index=agents"


def packed(app: Path, index: str) -> bytes:
    """The app's files below one folder `glasslab`; its macro names the index."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(path for path in app.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if path.name == "macros.conf":
                content = content.replace(INDEX, f"index={index}".encode())
            entry = tarfile.TarInfo(f"glasslab/{path.relative_to(app)}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def main() -> None:
    """Write it where it is not."""
    app, target, index = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    content = packed(app, index)
    if target.is_file() and target.read_bytes() == content:
        return
    target.write_bytes(content)
    print("written")


if __name__ == "__main__":
    main()
