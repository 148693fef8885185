"""What a newcomer without the right to or the means for a lab is told: one line, with the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def shim(folder: Path, name: str, text: str) -> None:
    """A program of that name, found first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(command: list[str], cwd: Path, path: str, **options: int) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(cwd), "PYENV_ROOT": str(cwd / "none"), "UV_OFFLINE": "1", "LC_ALL": "C"}
    passed = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_CERT_FILE")}
    return subprocess.run(
        command,
        cwd=cwd,
        env=passed | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def copy_of_the_makefile(tmp_path: Path) -> Path:
    place = tmp_path / "checkout"
    place.mkdir()
    shutil.copy(ROOT / "Makefile", place)
    for folder in (place, *list(tmp_path.parents)[:3], tmp_path):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    return place


def test_neither_root_nor_sudo(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("id", "bash", "sh", "make", "python3"):
        (tools / name).symlink_to(shutil.which(name) or "")
    done = run(["make", "demo"], place, str(tools), user=NOBODY, group=NOBODY)
    lines = [line for line in done.stderr.splitlines() if "***" not in line]
    assert done.returncode != 0
    assert lines == ["make: the lab needs root, and sudo is not installed; run this as root"]


def test_sudo_that_does_not_let_us(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    shim(tmp_path / "tools", "sudo", "exit 1")
    done = run(["make", "demo"], place, f"{tmp_path / 'tools'}:/usr/bin:/bin", user=NOBODY, group=NOBODY)
    lines = [line for line in done.stderr.splitlines() if "***" not in line]
    assert done.returncode != 0
    assert len(lines) == 1
    assert "may not use sudo here" in lines[0]
    assert lines[0].endswith("run this as root")


def test_no_python_to_be_had(tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    place.mkdir()
    for name in ("scripts/setup.sh", "requirements", ".python-version", "agent_src/pyproject.toml"):
        source, target = ROOT / name, place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    real = shutil.which("python3", path="/usr/bin:/bin") or shutil.which("python3") or "python3"
    old = f'case "$*" in *version_info*) exit 1;; esac\nexec {real} "$@"'
    for name in ("python3", "python3.12", "python3.13", "python3.14"):
        shim(tmp_path / "tools", name, old)
    done = run(["sh", "scripts/setup.sh"], place, f"{tmp_path / 'tools'}:/usr/bin:/bin")
    assert done.returncode == 2, done.stdout + done.stderr
    (last,) = done.stderr.strip().splitlines()
    assert last.startswith("setup: no Python 3.12 or later is on this machine")
    assert "Debian 12" in last
    assert not (place / ".venv" / ".complete").exists()


def test_a_checkout_that_is_not_ours(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    shutil.copytree(ROOT / "scripts", place / "scripts")
    shutil.copytree(ROOT / "requirements", place / "requirements")
    (place / "agent_src").mkdir()
    shutil.copy(ROOT / "agent_src" / "pyproject.toml", place / "agent_src")
    done = run(["sh", "scripts/setup.sh"], place, "/usr/bin:/bin", user=NOBODY, group=NOBODY)
    assert done.returncode == 2
    assert done.stderr.startswith(f"setup: {place} belongs to root")
    assert len(done.stderr.splitlines()) == 1
    (place / ".venv").mkdir()
    done = run(["sh", "scripts/setup.sh"], place, "/usr/bin:/bin", user=NOBODY, group=NOBODY)
    assert done.stderr.startswith(f"setup: {place}/.venv belongs to root")


def test_packages_that_we_may_not_install(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    shutil.copytree(ROOT / "scripts", place / "scripts")
    shim(tmp_path / "tools", "sudo", "exit 1")
    shim(tmp_path / "tools", "dpkg-query", "exit 1")
    shim(tmp_path / "tools", "apt-get", "echo apt-get was started >&2; exit 1")
    path = f"{tmp_path / 'tools'}:/usr/bin:/bin"
    done = run(["sh", "scripts/setup.sh", "--with-lab"], place, path, user=NOBODY, group=NOBODY)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "may not install them" in line
    assert "apt-get install mmdebstrap " in line


def test_uv_takes_packages_from_where_pip_takes_them(tmp_path: Path) -> None:
    place = tmp_path / "a check out"
    place.mkdir()
    for name in ("scripts", "requirements", "agent_src"):
        (place / name).mkdir()
    for name in ("scripts/setup.sh", ".python-version", "agent_src/pyproject.toml"):
        shutil.copy(ROOT / name, place / name)
    for name in ("bootstrap", "control"):
        shutil.copy(ROOT / "requirements" / f"{name}.txt", place / "requirements")
    tools = place / ".venv" / ".bootstrap" / "bin"
    tools.mkdir(parents=True)
    settings = [
        ":env:.index-url='https://env.test/simple'",
        "global.cert='/etc/ssl/own.pem'",
        "global.extra-index-url='\\nhttps://b.test/simple\\nhttps://c.test/simple'",
        "global.find-links='/opt/a\\n/opt/b'",
        "global.index-url='https://global.test/simple'",
    ]
    shim(tools, "pip", "cat <<'EOF'\n" + "\n".join(settings) + "\nEOF")
    shim(tools, "uv", f'[ "$1" = venv ] || {{ env >"{tmp_path}/env"; exit 1; }}')
    done = run(["env", "SSL_CERT_FILE=", "sh", "scripts/setup.sh"], place, os.environ["PATH"])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "mirror" in line
    given = dict(text.split("=", 1) for text in (tmp_path / "env").read_text().splitlines() if "=" in text)
    assert given["UV_DEFAULT_INDEX"] == "https://env.test/simple"
    assert given["UV_INDEX"] == "https://b.test/simple https://c.test/simple"
    assert given["UV_FIND_LINKS"] == "/opt/a,/opt/b"
    assert given["SSL_CERT_FILE"] == "/etc/ssl/own.pem"
    assert given["UV_SYSTEM_CERTS"] == "true"


@pytest.fixture
def fake_checkout(tmp_path: Path) -> Path:
    """A checkout in a path with a space, whose set-up does nothing and whose Python shows what it was started with."""
    place = tmp_path / "a check out"
    place.mkdir()
    shutil.copy(ROOT / "Makefile", place)
    shim(place / "scripts", "setup.sh", "exit 0")
    (place / ".venv").mkdir()
    shim(place / ".venv" / "bin", "python", 'printf "%s\\n" "$*" "$QUESTION" "$MODEL_API_KEY" "$LAB_ID"')
    return place


def test_a_question_is_taken_as_typed(fake_checkout: Path, tmp_path: Path) -> None:
    never = tmp_path / "never"
    question = f"""What costs $5? "$(shell touch {never})" `touch {never}` $$ '#'\nSecond line"""
    for command in (["make", "ask", f"QUESTION={question}"], ["env", f"QUESTION={question}", "make", "ask"]):
        done = run([*command, "MODEL_API_KEY=sk$a"], fake_checkout, "/usr/bin:/bin")
        assert done.stdout == f"scripts/ask.py\n{question}\nsk$a\nglasslab\n", done.stderr
    assert not never.exists()


def test_what_root_is_given_of_the_users_environment(fake_checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    shim(tools, "sudo", '[ "$1" = -n ] || printf "%s\\n" "$@"')
    shim(tools, "id", '[ "$1" = -un ] && echo tester || echo 1000')
    command = ["env", "https_proxy=http://proxy.test:3128", "PIP_TIMEOUT=60", "OTHER=1", "MODEL_API_KEY=sk-secret"]
    done = run([*command, "make", "demo"], fake_checkout, f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    kept, *rest = done.stdout.splitlines()
    names = kept.removeprefix("--preserve-env=").split(",")
    assert {"HOME", "LC_ALL", "LAB_ID", "https_proxy", "PIP_TIMEOUT", "MODEL_API_KEY"} <= set(names)
    assert "OTHER" not in names
    assert "sk-secret" not in done.stdout
    # nothing that only root could remove stays in the user's checkout or home
    assert {"ANSIBLE_HOME", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX"} <= {word.split("=")[0] for word in rest}
    assert rest[-2:] == [".venv/bin/python", "scripts/demo.py"]


@pytest.mark.parametrize("verb", ["demo", "ask", "trace", "verify", "bench"])
def test_every_verb_sets_itself_up(fake_checkout: Path, verb: str) -> None:
    shim(fake_checkout / "scripts", "setup.sh", "echo set up; exit 2")
    done = run(["make", verb, "QUESTION=x"], fake_checkout, "/usr/bin:/bin")
    assert done.stdout == "set up\n"
    assert done.returncode != 0
