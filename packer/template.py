"""Builds a template with Packer: `make template TEMPLATE=agent SOURCE=qemu`, or packer/template.py --help.

It lays out what Packer needs for one run (the templates without what its version does not know, an SSH key, the seed),
starts it, and says where the result is. Secrets come from the environment: PROXMOX_PASSWORD or PROXMOX_TOKEN.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import seeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TEMPLATES = ("agent", "splunk")
SOURCES = ("proxmox-clone", "proxmox-iso", "qemu")
# Packer -> the first release that takes required_plugins
WITH_PLUGINS = (1, 7)
BOOT_SECONDS = 10
TOOLS = {"packer": "packer", "ssh-keygen": "openssh-client"}
TOOLS_OF = {
    "proxmox-clone": {},
    "proxmox-iso": {"xorriso": "xorriso"},
    "qemu": {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "xorriso": "xorriso"},
}


class TemplateError(Exception):
    """The build cannot begin, or has failed; the message is one line with its remedy."""


def packer_version() -> tuple[int, ...]:
    """The version of the Packer on PATH. Raises TemplateError when it does not say one."""
    shown = subprocess.run(["packer", "version"], capture_output=True, text=True, check=False, env=environment())
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", shown.stdout)
    if not found:
        raise TemplateError(
            "packer version prints no version: is it HashiCorp's Packer? (another program has that name)"
        )
    return tuple(int(part) for part in found.groups())


def environment() -> dict[str, str]:
    """Packer's environment: it asks nobody for news and keeps its cache in the checkout."""
    return os.environ | {"CHECKPOINT_DISABLE": "1", "PACKER_CACHE_DIR": str(HERE / "build/cache"), "LC_ALL": "C.UTF-8"}


def require(source: str) -> None:
    """Raise TemplateError when a program is missing."""
    tools = TOOLS | TOOLS_OF[source]
    missing = sorted({package for tool, package in tools.items() if not shutil.which(tool)})
    if missing:
        raise TemplateError(f"tools are missing: install the Debian packages: apt-get install {' '.join(missing)}")
    if not (ROOT / ".venv/bin/ansible-playbook").exists():
        raise TemplateError("there is no .venv in this checkout: make setup")


def need_secret(source: str, version: tuple[int, ...]) -> None:
    """Raise TemplateError when a build on a node has nothing to log in with."""
    names = ("PROXMOX_PASSWORD", "PROXMOX_TOKEN") if version >= WITH_PLUGINS else ("PROXMOX_PASSWORD",)
    if source != "qemu" and not any(os.environ.get(name) for name in names):
        old = "" if version >= WITH_PLUGINS else "; this Packer knows no API tokens: a password, or a newer Packer"
        raise TemplateError(f"no secret in the environment: set {' or '.join(names)}{old}")


def release() -> str:
    """Glasslab's version."""
    with (ROOT / "agent_src/pyproject.toml").open("rb") as project:
        return str(tomllib.load(project)["project"]["version"])


def commit() -> str:
    """The commit of the checkout, with -dirty when files differ from it; unknown outside of git."""
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]
    changed = subprocess.run(status, capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


def stage(work: Path, version: tuple[int, ...]) -> Path:
    """A directory with the templates that this Packer takes."""
    place = work / "templates"
    place.mkdir()
    for file in sorted(HERE.glob("*.pkr.hcl")):
        if file.name != "plugins.pkr.hcl" or version >= WITH_PLUGINS:
            shutil.copy(file, place)
    return place


def seconds_of_a_boot(accelerator: str) -> float:
    """How long a machine takes until its first instruction has run; infinite when none ever does.

    Its boot sector ends QEMU through the debug-exit device, with the code 33.
    """
    # mov al, 0x10; out 0xf4, al; hlt
    sector = bytes.fromhex("b010e6f4f4").ljust(510, b"\0") + b"\x55\xaa"
    with tempfile.NamedTemporaryFile(suffix=".img") as disk:
        disk.write(sector)
        disk.flush()
        argv = ["qemu-system-x86_64", "-accel", accelerator, "-m", "32", "-display", "none", "-nic", "none"]
        argv += ["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-drive", f"file={disk.name},format=raw,if=ide"]
        began = time.monotonic()
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=BOOT_SECONDS, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return math.inf
    return time.monotonic() - began if done.returncode == 33 else math.inf


def kvm_works() -> bool:
    """Whether /dev/kvm is worth using: there are machines where it opens and is slower than software emulation."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    return seconds_of_a_boot("kvm") < 2 * seconds_of_a_boot("tcg")


def values(options: argparse.Namespace, work: Path, output: Path) -> dict[str, Any]:
    """The variables of this run, those of the command line last."""
    cache = Path("/var/cache/glasslab")
    given: dict[str, Any] = {
        "checkout": str(ROOT),
        "work": str(work),
        "output": str(output),
        "cache": str(cache if os.access(cache, os.W_OK) or os.geteuid() == 0 else HERE / "build/cache"),
        "release": release(),
        "commit": commit(),
    }
    if options.source == "qemu":
        given["qemu_base"] = str(options.base.resolve())
        if not kvm_works():
            given |= {"qemu_accelerator": "tcg", "qemu_cpu": "Nehalem"}
    for word in options.variables:
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            raise TemplateError(f"{word!r} is no variable: write NAME=VALUE, with a name of packer/variables.pkr.hcl")
        given[name] = value
    return given


def build(options: argparse.Namespace, work: Path) -> Path:
    """Run Packer; return the directory of the results. Raises TemplateError or SeedError."""
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    given = values(options, work, output)
    user = str(given.get("ssh_username", "root"))
    public_key = seeds.key_pair(work)
    name = f"glasslab-template-{options.template}"
    version = packer_version()
    need_secret(options.source, version)
    if options.source == "qemu":
        if not options.base.is_file():
            raise TemplateError(f"no disk image at {str(options.base)!r}: name a Debian 13 cloud image with --base")
        seeds.cloud_init(work / "seed", name, user, public_key)
    if options.source == "proxmox-iso":
        seeds.installer(work, options.netinst, seeds.preseed(name, public_key, options.proxy))
    place = stage(work, version)
    # Strings also for numbers and booleans: Packer turns them into a variable's type, as it does with -var.
    (work / "given.pkrvars.json").write_text(json.dumps(given, indent=1), encoding="utf-8")
    files = [f"-var-file={HERE / options.template}.pkrvars.hcl", f"-var-file={work / 'given.pkrvars.json'}"]
    files += [f"-var-file={path.resolve()}" for path in options.var_file]
    finished = output / f"{options.template}-qemu"
    building = finished.with_name(f"{finished.name}.new")
    shutil.rmtree(building, ignore_errors=True)  # of a build that was killed
    only = f"-only=template.{options.source}.template"
    if version >= WITH_PLUGINS:
        packer(["init", str(place)], "fetching the plugins")
    packer(["validate", only, *files, str(place)], "the check of the templates")
    if not options.validate:
        packer(["build", "-color=false", "-timestamp-ui", only, *files, str(place)], "the build")
        if options.source == "qemu":
            shutil.rmtree(finished, ignore_errors=True)
            building.rename(finished)
    return output


def packer(words: list[str], what: str) -> None:
    """Run it in the foreground. Raises TemplateError when it fails; its own messages are above that line."""
    done = subprocess.run(["packer", *words], check=False, env=environment(), stdin=subprocess.DEVNULL)
    if done.returncode:
        raise TemplateError(f"{what} failed: see Packer's message above, and docs/packer.md")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("template", choices=TEMPLATES)
    parser.add_argument("--source", choices=SOURCES, required=True, help="what it is built from")
    parser.add_argument(
        "--base", type=Path, default=Path("debian-13-genericcloud-amd64.qcow2"), help="qemu: disk image"
    )
    parser.add_argument("--netinst", type=Path, default=Path("debian-13-amd64-netinst.iso"), help="proxmox-iso: image")
    parser.add_argument("--proxy", default="", help="proxmox-iso: the installer's HTTP proxy")
    parser.add_argument("--output", type=Path, default=HERE / "build", help="directory of the results")
    parser.add_argument("--var-file", type=Path, action="append", default=[], help="a file of your variables")
    parser.add_argument("--validate", action="store_true", help="check only; nothing is built")
    parser.add_argument("--keep", action="store_true", help="keep this run's directory, its SSH key and console")
    parser.add_argument("variables", nargs="*", metavar="NAME=VALUE", help="variables of packer/variables.pkr.hcl")
    return parser.parse_intermixed_args()


def main() -> None:
    """Lay out, build, say where the result is."""
    options = arguments()
    work = Path(tempfile.mkdtemp(prefix="glasslab-template-"))
    try:
        require(options.source)
        output = build(options, work)
    except (TemplateError, seeds.SeedError) as error:
        sys.exit(f"template: {error}")
    except KeyboardInterrupt:
        sys.exit("template: interrupted")
    finally:
        if options.keep:
            print(f"template: this run's directory is {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    if options.validate:
        print(f"template: {options.template} from {options.source} is valid")
        return
    print(f"template: {options.template} is built; manifest, bill of materials and disk image are in {output}")


if __name__ == "__main__":
    main()
