"""What the role installs on the hypervisor is enough to start: it takes a few modules of the glasslab package alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITNESS = ROOT / "roles/witness"


def test_the_modules_that_are_installed_import_no_other(tmp_path: Path) -> None:
    text = (WITNESS / "vars/main.yml").read_text(encoding="utf-8")
    listed = re.search(r"for name in \[('__init__'[^\]]*)\]", text)
    assert listed is not None
    (tmp_path / "glasslab").mkdir()
    for name in re.findall(r"'(\w+)'", listed[1]):
        shutil.copy(ROOT / f"agent_src/glasslab/{name}.py", tmp_path / "glasslab")
    shutil.copytree(WITNESS / "files/glasslab_witness", tmp_path / "glasslab_witness")
    modules = sorted(path.stem for path in (tmp_path / "glasslab_witness").glob("*.py") if path.stem != "__init__")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + "".join(
        f"import glasslab_witness.{name}\n" for name in modules
    )
    code += "import glasslab\nassert glasslab.__file__.startswith(sys.path[0]), glasslab.__file__"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
