"""The agent's template as scripts/test_emulated.py keeps it, by what it was made of: each is built once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ["agent_src/glasslab", "agent_src/pyproject.toml", "requirements", "packer", "playbooks/template.yml"]
SOURCES += [f"roles/{name}" for name in ("agent", "runtime", "template", "template_cleaning")]


def place(base: Path, root: Path = ROOT) -> Path:
    """Where the template of exactly these sources on that base image is kept; it need not be there yet."""
    words = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--", *SOURCES]
    listed = subprocess.run(words, cwd=root, capture_output=True, check=True)
    digest = hashlib.sha256(base.name.encode())
    for name in sorted(one for one in listed.stdout.split(b"\0") if one):
        file = root / name.decode()
        digest.update(name + b"\0" + (file.read_bytes() if file.is_file() else b"") + b"\0")
    # `make destroy CACHE=1` removes what begins with `image-` there.
    return base.parent / f"image-template-{digest.hexdigest()[:12]}.qcow2"


def keep(built: Path, kept: Path) -> None:
    """Keep a template that was built, in the place of those of other sources."""
    for old in kept.parent.glob("image-template-*.qcow2"):
        old.unlink()
    shutil.move(built, kept)
