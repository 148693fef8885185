"""The template that test_emulated keeps is the one of these very sources."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "scripts" / "kept_template.py"
SPEC = importlib.util.spec_from_file_location("kept_template", FILE)
assert SPEC is not None
assert SPEC.loader is not None
kept_template = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kept_template)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("agent_src/glasslab/agent.py", "roles/agent/tasks/main.yml", "docs/packer.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("as it was")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    return root


def test_it_is_another_one_for_other_sources_and_another_base(checkout: Path, tmp_path: Path) -> None:
    base = tmp_path / "image-vm-1.qcow2"
    first = kept_template.place(base, checkout)
    assert first.name.startswith("image-template-")
    (checkout / "docs" / "packer.md").write_text("no part of it")
    assert kept_template.place(base, checkout) == first
    (checkout / "roles" / "agent" / "tasks" / "main.yml").write_text("changed and not committed")
    second = kept_template.place(base, checkout)
    assert second != first
    (checkout / "roles" / "agent" / "tasks" / "main.yml").unlink()
    assert kept_template.place(base, checkout) not in (first, second)
    assert kept_template.place(tmp_path / "image-vm-2.qcow2", checkout) != first


def test_one_is_kept(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "built").write_text(str(number))
        kept_template.keep(tmp_path / "built", tmp_path / f"image-template-{number}.qcow2")
    assert [path.read_text() for path in tmp_path.glob("image-template-*")] == ["2"]


def test_each_source_that_it_is_made_of_is_there() -> None:
    assert [name for name in kept_template.SOURCES if not (kept_template.ROOT / name).exists()] == []
