"""Make the stand-in's package: build.py DIRECTORY VERSION [NAME] [ARCHITECTURE] prints the file's path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: Nobody <nobody@example.invalid>
Description: a stand-in for Splunk Enterprise, for tests
"""
# As the documentation says of the package: it makes the user.
POSTINST = """\
#!/bin/sh
set -e
getent passwd splunk >/dev/null || useradd --system --home-dir /opt/splunk --shell /bin/sh splunk
"""


def build(directory: Path, version: str, name: str = "splunk", architecture: str = "amd64") -> Path:
    """Return the package's path."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "root"
        home = root / "opt/splunk"
        for folder in ("bin", "etc/system/default", "etc/system/local", "etc/apps", "etc/auth", "var/log/splunk"):
            (home / folder).mkdir(parents=True)
        for program in ("splunk", "splunkd"):
            shutil.copy(HERE / program, home / "bin" / program)
            (home / "bin" / program).chmod(0o755)
        (home / "etc/splunk.version").write_text(f"VERSION={version}\n", encoding="utf-8")
        (home / "etc/system/default/web.conf").write_text(
            "[settings]\nmgmtHostPort = 127.0.0.1:8089\n", encoding="utf-8"
        )
        (root / "DEBIAN").mkdir()
        control = CONTROL.format(name=name, version=version, architecture=architecture)
        (root / "DEBIAN/control").write_text(control, encoding="utf-8")
        (root / "DEBIAN/postinst").write_text(POSTINST, encoding="utf-8")
        (root / "DEBIAN/postinst").chmod(0o755)
        target = directory / f"{name}-{version}-{architecture}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(target)],
            check=True,
            capture_output=True,
        )
        return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), *sys.argv[2:]))
