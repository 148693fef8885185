"""The templates under Debian's Packer 1.6: valid from each source, and each bad value refused with its remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import seeds
import template
from packertools import ENVIRONMENT, PACKER, ROOT, attributes, installed, packer

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfATest test"
TEMPLATES = ("agent", "splunk")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A run's directory as packer/template.py lays it out, with an image that is none."""
    installed("packer", programs=("packer",))
    seeds.key_pair(tmp_path)
    seeds.cloud_init(tmp_path / "seed", "x", "root", KEY)
    (tmp_path / "seed.iso").write_bytes(b"installer")
    subprocess.run("sha512sum seed.iso >seed.iso.sha512", shell=True, cwd=tmp_path, check=True)
    (tmp_path / "base.qcow2").touch()
    template.stage(tmp_path, (1, 6, 6))
    return tmp_path


def validate(place: Path, template_name: str = "agent", **given: str) -> subprocess.CompletedProcess[str]:
    """packer validate of all sources with these variables."""
    defaults = {
        "checkout": str(ROOT),
        "work": str(place),
        "output": str(place / "out"),
        "release": "0.1.0",
        "commit": "0123456789abcdef",
        "qemu_base": str(place / "base.qcow2"),
    }
    file = place / "given.pkrvars.json"
    file.write_text(json.dumps(defaults | given), encoding="utf-8")
    return packer(
        "validate", f"-var-file={PACKER / template_name}.pkrvars.hcl", f"-var-file={file}", str(place / "templates")
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_all_sources_are_valid(work: Path, name: str) -> None:
    done = validate(work, name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_strings_of_the_command_line_become_booleans_and_numbers(work: Path) -> None:
    done = validate(work, upgrade="false", canaries="true", cores="4", qemu_restrict="true", vm_id="9000")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("template", "mail", "must be agent or splunk"),
        ("splunk_deb", "splunk.deb", "The package must be an absolute path"),
        ("splunk_deb_checksum", "sha512:0", "The checksum must be sha512: with 128 hex digits"),
        ("checkout", "here", "must be an absolute path"),
        ("work", "", "must be an absolute path"),
        ("output", "out", "must be an absolute path"),
        ("release", "new", "must begin like 0.1.0"),
        ("commit", "HEAD", "git commit in hexadecimal"),
        ("cores", "0", "must be 1 to 64"),
        ("memory", "128", "must be 512 MB or more"),
        ("disk_size", "16", "in gigabytes, such as 16G"),
        ("ssh_username", "Root!", "small letters, digits and dashes"),
        ("ssh_timeout", "soon", "minutes or seconds"),
        ("proxmox_url", "https://pve.example:8006", "must be like https://pve.example:8006/api2/json"),
        ("proxmox_username", "root", "must carry its realm"),
        ("bridge", "the bridge", "name of an interface"),
        ("vlan_tag", "ten", "must be a number, or empty"),
        ("storage_type", "nfs", "must be lvm, lvm-thin"),
        ("vm_id", "7", "must be 100 or higher"),
        ("qemu_checksum", "sha512:abc", "with its digits, or none"),
        ("qemu_accelerator", "xen", "must be kvm or tcg"),
    ],
)
def test_a_bad_value_is_refused_with_its_remedy(work: Path, name: str, value: str, remedy: str) -> None:
    done = validate(work, **{name: value})
    assert done.returncode != 0
    assert remedy in " ".join((done.stdout + done.stderr).split())


def test_every_variable_is_described_and_used() -> None:
    text = (PACKER / "variables.pkr.hcl").read_text(encoding="utf-8")
    blocks = text.split('variable "')[1:]
    used = "".join((PACKER / name).read_text(encoding="utf-8") for name in ("sources.pkr.hcl", "build.pkr.hcl"))
    for block in blocks:
        name = block.split('"')[0]
        assert "description = " in block, name
        assert f"var.{name}" in used, name
    assert len(blocks) > 25


def test_no_secret_is_a_variable_or_an_attribute() -> None:
    """They would stand on a command line or in a file; Packer reads them from the environment by itself."""
    text = (PACKER / "variables.pkr.hcl").read_text(encoding="utf-8")
    assert 'variable "proxmox_password"' not in text
    for kind, names in attributes((PACKER / "sources.pkr.hcl").read_text(encoding="utf-8")).items():
        assert names & {"password", "token", "ssh_password", "insecure_skip_tls_verify"} == set(), kind


@pytest.mark.parametrize(
    "file", sorted(path.name for path in [*PACKER.glob("*.pkr.hcl"), *PACKER.glob("*.pkrvars.hcl")])
)
def test_files_are_in_packers_own_form(file: str) -> None:
    assert packer("fmt", "-check", str(PACKER / file)).returncode == 0


@pytest.mark.parametrize(("version", "plugins"), [((1, 6, 6), False), ((1, 7, 0), True), ((1, 14, 2), True)])
def test_required_plugins_are_for_those_that_take_them(version: tuple[int, ...], plugins: bool, tmp_path: Path) -> None:
    files = {path.name for path in template.stage(tmp_path, version).iterdir()}
    assert {"variables.pkr.hcl", "sources.pkr.hcl", "build.pkr.hcl"} <= files
    assert ("plugins.pkr.hcl" in files) == plugins


def test_required_plugins_stand_alone() -> None:
    holders = [path.name for path in PACKER.glob("*.pkr.hcl") if "required_plugins" in path.read_text(encoding="utf-8")]
    assert holders == ["plugins.pkr.hcl"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """packer/template.py as make calls it."""
    argv = [sys.executable, str(PACKER / "template.py"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def test_the_program_validates_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("packer", "qemu-system-x86", "qemu-utils", "xorriso", programs=("packer", "qemu-img", "xorriso"))
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))
    (tmp_path / "base.qcow2").touch()
    words = (
        "--source",
        "qemu",
        "--validate",
        "--base",
        str(tmp_path / "base.qcow2"),
        "--output",
        str(tmp_path / "out"),
    )
    done = run("agent", *words, "upgrade=false")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "template: agent from qemu is valid"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.qcow2", "out"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--source", "qemu", "--base", "no.qcow2"),
            "template: no disk image at 'no.qcow2': name a Debian 13 cloud image with --base",
        ),
        (
            ("--source", "proxmox-iso", "--netinst", "no.iso"),
            "template: no Debian netinst image at 'no.iso': download one and name it",
        ),
        (("--source", "proxmox-clone", "cores"), "template: 'cores' is no variable: write NAME=VALUE"),
        (
            ("--source", "proxmox-clone", "cores=0"),
            "template: the check of the templates failed: see Packer's message above",
        ),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    installed("packer", "qemu-system-x86", "qemu-utils", "xorriso", programs=("packer", "qemu-img", "xorriso"))
    done = run("agent", "--output", str(tmp_path), *words)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(line)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("version", "name", "enough"),
    [((1, 6, 6), "PROXMOX_TOKEN", False), ((1, 6, 6), "PROXMOX_PASSWORD", True), ((1, 14, 0), "PROXMOX_TOKEN", True)],
)
def test_a_build_on_a_node_needs_a_secret_that_its_packer_takes(
    version: tuple[int, ...], name: str, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for secret in ("PROXMOX_TOKEN", "PROXMOX_PASSWORD"):
        monkeypatch.delenv(secret, raising=False)
    template.need_secret("qemu", version)
    with pytest.raises(template.TemplateError, match="no secret in the environment: set PROXMOX_PASSWORD"):
        template.need_secret("proxmox-clone", version)
    monkeypatch.setenv(name, "x")
    if enough:
        template.need_secret("proxmox-clone", version)
    else:
        with pytest.raises(template.TemplateError, match="knows no API tokens"):
            template.need_secret("proxmox-clone", version)


def test_the_seed_lets_in_the_key_of_this_build_alone(tmp_path: Path) -> None:
    seeds.cloud_init(tmp_path / "root", "x", "root", KEY)
    seeds.cloud_init(tmp_path / "user", "x", "builder", KEY)
    root: dict[str, Any] = yaml.safe_load((tmp_path / "root/user-data").read_text(encoding="utf-8"))
    user: dict[str, Any] = yaml.safe_load((tmp_path / "user/user-data").read_text(encoding="utf-8"))
    assert root["disable_root"] is False
    assert root["ssh_authorized_keys"] == [KEY]
    assert user["disable_root"] is True
    assert user["users"][0]["ssh_authorized_keys"] == [KEY]
    assert not root["ssh_pwauth"]
    assert not user["ssh_pwauth"]
    assert "passw" not in str(root["users"]) + str({k: v for k, v in user["users"][0].items() if k != "lock_passwd"})


def test_the_installers_answers_have_no_password_and_this_key() -> None:
    answers = seeds.preseed("glasslab-template-agent", KEY)
    assert KEY in answers
    assert "@" not in answers.replace(KEY, "")
    assert "root-password-crypted password !" in answers
    assert "make-user boolean false" in answers
    with pytest.raises(seeds.SeedError, match="holds a quote"):
        seeds.preseed("x", "ssh-ed25519 AAAA it's")


def test_the_installer_image_holds_the_answers_and_starts_with_them(tmp_path: Path) -> None:
    installed("xorriso", programs=("xorriso",))
    place = tmp_path / "netinst"
    for name in ("isolinux/isolinux.cfg", "boot/grub/grub.cfg", "install.amd/vmlinuz", "install.amd/initrd.gz"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("Debian's", encoding="utf-8")
    netinst = tmp_path / "netinst.iso"
    subprocess.run(
        ["xorriso", "-as", "mkisofs", "-quiet", "-o", str(netinst), str(place)], check=True, capture_output=True
    )
    seed = seeds.installer(tmp_path, netinst, seeds.preseed("x", KEY))
    out = tmp_path / "read"
    subprocess.run(
        ["xorriso", "-osirrox", "on", "-indev", str(seed), "-extract", "/", str(out)], check=True, capture_output=True
    )
    assert KEY in (out / "preseed.cfg").read_text(encoding="utf-8")
    for menu in ("isolinux/isolinux.cfg", "boot/grub/grub.cfg"):
        assert "preseed/file=/cdrom/preseed.cfg" in (out / menu).read_text(encoding="utf-8")
    assert (out / "install.amd/vmlinuz").read_text(encoding="utf-8") == "Debian's"
    assert (
        subprocess.run(["sha512sum", "--check", "--quiet", "seed.iso.sha512"], cwd=tmp_path, check=False).returncode
        == 0
    )
