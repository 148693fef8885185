"""The template's bill of materials: from dpkg and the wheelhouse, the same bytes for the same content."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packertools import ROOT

DPKG = """\
installed|openssl|3.5.1-1+deb13u1|amd64|openssl|3.5.1-1+deb13u1
config-files|gone|1|amd64|gone|1
installed|bsdutils|1:2.41-5|amd64|util-linux|2.41-5
"""


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    place = tmp_path / "wheelhouse.tar"
    with tarfile.open(place, "w") as tar:
        for name in ("requirements.txt", "wheels/pydantic_core-2.1-cp313-x.whl", "own/glasslab-0.1.0-py3-none-any.whl"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return place


def run(wheelhouse: Path, output: Path, listing: str = DPKG) -> subprocess.CompletedProcess[str]:
    program = str(ROOT / "roles/template/files/sbom.py")
    argv = [sys.executable, program, "--name=t", "--release=0.1.0", f"--wheelhouse={wheelhouse}", f"--output={output}"]
    return subprocess.run(argv, input=listing, capture_output=True, text=True, check=False)


def test_installed_packages_and_wheels_are_in_it(wheelhouse: Path, tmp_path: Path) -> None:
    out = tmp_path / "new/sbom.json"
    assert run(wheelhouse, out).returncode == 0
    bill = json.loads(out.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    purls = {component["purl"]: component for component in bill["components"]}
    assert set(purls) == {
        "pkg:deb/debian/openssl@3.5.1-1%2Bdeb13u1?arch=amd64&distro=debian-13",
        "pkg:deb/debian/bsdutils@1%3A2.41-5?arch=amd64&distro=debian-13",
        "pkg:pypi/pydantic-core@2.1",
        "pkg:pypi/glasslab@0.1.0",
    }
    digest = hashlib.sha256(b"own/glasslab-0.1.0-py3-none-any.whl").hexdigest()
    assert purls["pkg:pypi/glasslab@0.1.0"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    source = purls["pkg:deb/debian/bsdutils@1%3A2.41-5?arch=amd64&distro=debian-13"]["properties"]
    assert source == [{"name": "debian:source", "value": "util-linux 2.41-5"}]
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references))


def test_it_is_the_same_for_the_same_and_another_for_another(wheelhouse: Path, tmp_path: Path) -> None:
    for name, listing in (("a", DPKG), ("b", DPKG), ("c", DPKG.replace("3.5.1", "3.5.2"))):
        assert run(wheelhouse, tmp_path / name, listing).returncode == 0
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again
    assert json.loads(first)["serialNumber"] != json.loads(other)["serialNumber"]


@pytest.mark.parametrize(
    ("listing", "line"), [("", "no Debian package"), ("openssl 3.5\n", "not a line of dpkg-query")]
)
def test_a_listing_that_is_none_is_one_line(wheelhouse: Path, tmp_path: Path, listing: str, line: str) -> None:
    done = run(wheelhouse, tmp_path / "out", listing)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sbom: {line}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
