"""Every attribute of the templates is one of Packer 1.6.6 and of the current plugins; what is deprecated is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from packertools import PACKER, attributes, packer

LISTS: dict[str, Any] = yaml.safe_load((PACKER / "attributes.yml").read_text(encoding="utf-8"))
SOURCES = attributes((PACKER / "sources.pkr.hcl").read_text(encoding="utf-8"))
KINDS = sorted(LISTS)


def known(kind: str, *columns: str) -> set[str]:
    """The attributes of a builder, as the templates' are written: of one or both columns."""
    lists = LISTS[kind]
    names = {name for column in columns for name in lists[column]}
    for block, inner in lists["blocks"].items():
        if "current" in columns or "since" not in inner:
            names.add(f"{block}{{}}")
        names |= {f"{block}.{name}" for column in columns for name in inner[column]}
    return names


def test_the_three_sources_are_read() -> None:
    assert set(SOURCES) == set(LISTS) == {"proxmox-clone", "proxmox-iso", "qemu"}
    assert "network_adapters.bridge" in SOURCES["proxmox-clone"]
    assert "disks{}" in SOURCES["proxmox-iso"]
    assert "qemuargs" in SOURCES["qemu"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_attribute_is_one_of_old_and_current_packer(kind: str) -> None:
    assert SOURCES[kind] - known(kind, "both") == set()
    assert SOURCES[kind] - known(kind, "both", "current") == set()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deprecated_is_named_with_its_reason(kind: str) -> None:
    used = SOURCES[kind] & set(LISTS[kind]["deprecated"])
    assert used == set(LISTS[kind]["deprecated_but_used"])
    assert set(LISTS[kind]["deprecated"]) <= known(kind, "both", "current")


def test_an_attribute_of_neither_is_found() -> None:
    lines = ["disk_imagee = true", "qemu_img_args {", "creat = []", "}", "qemuargs = [", "[]", "]", "}"]
    text = "\n".join(['source "qemu" "x" {', *lines])
    assert attributes(text)["qemu"] - known("qemu", "both", "current") == {"disk_imagee", "qemu_img_args.creat"}


def refused(kind: str, names: set[str], place: Path) -> set[str]:
    """Of these attributes and blocks, those that the installed Packer does not know. Null is a value of every type."""
    lines = [
        f'source "{kind}" "x" {{',
        *(f"  {name} = null" for name in sorted(names) if "{" not in name and "." not in name),
    ]
    for block in sorted({name.split(".")[0].rstrip("{}") for name in names if "{" in name or "." in name}):
        lines += [
            f"  {block} {{",
            *(f"    {n.split('.')[1]} = null" for n in sorted(names) if n.startswith(f"{block}.")),
            "  }",
        ]
    lines += ["}", f'build {{ sources = ["source.{kind}.x"] }}', ""]
    (place / "x.pkr.hcl").write_text("\n".join(lines), encoding="utf-8")
    done = packer("validate", str(place))
    blocks = re.findall(r'Blocks of type "(\w+)" are not expected', done.stdout + done.stderr)
    names_ = re.findall(r'argument named "(\w+)" is not expected', done.stdout + done.stderr)
    return {f"{block}{{}}" for block in blocks} | set(names_)


@pytest.mark.parametrize("kind", KINDS)
def test_the_column_of_1_6_is_what_the_installed_packer_takes(kind: str, tmp_path: Path) -> None:
    assert packer("version").stdout.startswith("Packer v1.6.")
    assert refused(kind, known(kind, "both"), tmp_path) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_column_is_what_it_does_not_take(kind: str, tmp_path: Path) -> None:
    newer = known(kind, "current") - known(kind, "both")
    plain = {name for name in newer if "." not in name} - {f"{block}{{}}" for block in LISTS[kind]["blocks"]}
    blocks = {f"{block}{{}}" for block, inner in LISTS[kind]["blocks"].items() if "since" in inner}
    assert refused(kind, plain | blocks, tmp_path) == plain | blocks
