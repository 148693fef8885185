"""Mutation testing of what must not fail: one small change at a time, and some test has to notice it.

`tests/mutants.py [MODULE ...]` changes each operator, constant, condition, call and return of the modules in SUBJECTS
and runs their tests on it, in a fork of a process that has loaded and collected them already. A survivor is a change
that no test noticed; each has to stand in docs/mutants.md with its reason, and each that stands there has to survive.
First the tests run on each module as it is: what they fail of then is no change's doing. MUTANTS_AT_ONCE=1 keeps it to
one processor.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LISTED: Final = ROOT / "docs" / "mutants.md"
TESTS: Final = ROOT / "agent_src" / "tests"
SECONDS: Final = 600  # a mutant that never ends is noticed too; the machine may be busy
AT_ONCE: Final = int(os.environ.get("MUTANTS_AT_ONCE", "2"))
# module -> the tests that are to notice
SUBJECTS: Final = {
    "glasslab.arguments": ["test_arguments.py"],
    "glasslab.policy": ["test_policy.py"],
    "glasslab.recorder": ["test_recorder_parts.py"],
    "glasslab.servers.sandbox": ["test_sandbox.py", "test_sandbox_bounds.py"],
}
COMPARE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BINARY: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Each node that can stand in the place of this one."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARE:
            new.ops = [COMPARE[type(op)]()]
            yield new
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.Not()):
            yield new.operand
        case ast.BinOp() if type(node.op) in BINARY:
            new.op = BINARY[type(node.op)]()
            yield new
        case ast.Constant(value=bool()):
            new.value = not node.value
            yield new
        case ast.Constant(value=int() | float()):
            new.value = node.value + 1  # type: ignore[operator]  # a number, as the pattern says
            yield new
        case ast.Return(value=ast.expr()):
            new.value = ast.Constant(None)
            yield new
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()


class _Put(ast.NodeTransformer):
    def __init__(self, number: int, node: ast.AST) -> None:
        self.number, self.node, self.seen = number, node, -1

    def generic_visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        return self.node if self.seen == self.number else super().generic_visit(node)


def mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """Each mutant of a module: its name (the line, what was there, what is there now) and its tree."""
    tree, lines = ast.parse(source), source.splitlines()
    numbers = _numbered(tree)
    for number, node in numbers:
        for new in changed(node):
            if ast.dump(new) == ast.dump(node):
                continue
            was, now = (re.sub(r"\s+", " ", ast.unparse(item))[:90] for item in (node, new))
            whole = _Put(number, ast.copy_location(new, node)).visit(copy.deepcopy(tree))
            line = lines[getattr(node, "lineno", 1) - 1].strip()[:70]
            yield f"`{line}`: `{was}` -> `{now}`", ast.fix_missing_locations(whole)


def _numbered(tree: ast.Module) -> list[tuple[int, ast.AST]]:
    """The nodes by the order in which _Put sees them; those that only describe (types, decorators) are left out."""
    found: list[tuple[int, ast.AST]] = []
    count = -1

    def visit(node: ast.AST, described: bool) -> None:
        nonlocal count
        count += 1
        if not described:
            found.append((count, node))
        for name, field in ast.iter_fields(node):
            typed = described or name in ("annotation", "returns", "type_params", "decorator_list")
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST):
                    visit(child, typed)

    visit(tree, False)
    return found


class Unchanged(Exception):
    """A mutant that cannot be put into a module that is loaded."""


def put(module: ModuleType, tree: ast.Module) -> None:
    """Make a loaded module the mutant. Raises Unchanged.

    Others hold its functions and classes: these stay what they are, and get the mutant's code, defaults and values.
    """
    made = ModuleType(module.__name__)
    made.__file__ = module.__file__
    sys.modules[module.__name__] = made  # dataclasses look there for the module that they are made in
    try:
        exec(compile(tree, str(module.__file__), "exec", dont_inherit=True), made.__dict__)
    except Exception:
        os._exit(1)  # it cannot even be imported
    finally:
        sys.modules[module.__name__] = module
    if not sum(_put(module, name, value) for name, value in list(vars(made).items())):
        raise Unchanged


def _put(owner: Any, name: str, new: Any) -> bool:
    """Give what an owner has by this name the code or the value of its mutant; whether that changed anything."""
    old = vars(owner).get(name)
    pairs = [(old, new)]
    if isinstance(new, property):
        pairs = [(old.fget, new.fget), (old.fset, new.fset)]
    elif isinstance(new, staticmethod | classmethod):
        pairs = [(old.__func__, new.__func__)]
    elif hasattr(new, "cache_clear"):
        pairs = [(old.__wrapped__, new.__wrapped__)]
    if isinstance(new, FunctionType) and len(old.__code__.co_freevars) > len(new.__code__.co_freevars) == 0:
        # Nothing asks for its class any more (`super`): no code for the function that is there, so another function.
        setattr(owner, name, FunctionType(new.__code__, old.__globals__, name, new.__defaults__))
        return True
    if isinstance(new, FunctionType) or pairs[0][1] is not new:
        return sum(_put_code(*pair) for pair in pairs if isinstance(pair[1], FunctionType)) > 0
    if isinstance(new, type) and new.__module__ == getattr(old, "__module__", None) and owner is not old:
        names = [key for key in vars(new) if not key.startswith("__") or isinstance(vars(new)[key], FunctionType)]
        return sum(_put(old, key, vars(new)[key]) for key in names if key in vars(old)) > 0
    plain = type(new) in (bool, int, float, str, bytes, tuple, list, dict, frozenset)
    if name.startswith("__") or isinstance(new, ModuleType) or not (plain or isinstance(owner, ModuleType)):
        return False
    if new == old and type(new) is type(old):
        return False
    for module in [owner, *list(sys.modules.values())] if isinstance(owner, ModuleType) else []:
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)
    if not isinstance(owner, ModuleType):
        setattr(owner, name, new)
    return True


def _put_code(old: FunctionType, new: FunctionType) -> bool:
    same = (old.__code__, old.__defaults__, old.__kwdefaults__) == (new.__code__, new.__defaults__, new.__kwdefaults__)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return not same


class Loop:
    """In the place of pytest's loop: the tests are collected once, and run in a fork for each mutant."""

    def __init__(self, name: str) -> None:
        """`survivors`, `slow` (noticed by time alone) and `failed` (without any change) are there afterwards."""
        self.name, self.count = name, 0
        self.survivors: list[str] = []
        self.slow: list[str] = []
        self.failed = False

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run all of it."""
        source = file_of(self.name).read_text(encoding="utf-8")
        with tempfile.TemporaryFile("w+") as times:
            pid = self._begin(session, None, times)
            self.failed = os.waitpid(pid, 0)[1] != 0
            if self.failed:
                return True
            times.seek(0)
            took = json.load(times)
        # The quick ones first: most mutants are noticed by one of them.
        session.items.sort(key=lambda item: took[item.nodeid])
        running: dict[int, str] = {}
        found = list(mutants(source))
        self.count = len(found)
        for what, tree in [*found, *[("", None)] * AT_ONCE]:
            if len(running) == AT_ONCE or tree is None:
                if not running:
                    break
                self._ended(running, *os.wait())
            if tree is not None:
                running[self._begin(session, tree)] = what
        return True

    def _ended(self, running: dict[int, str], pid: int, status: int) -> None:
        what = running.pop(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if status == 0:
            self.survivors.append(f"{self.name}: {what}")
            print(f"    survived: {what}", flush=True)
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            self.slow.append(what)
            print(f"    noticed by its time: {what}", flush=True)

    def _begin(self, session: Any, tree: ast.Module | None, times: IO[str] | None = None) -> int:
        """Run the tests on a mutant, in a fork; its process id. It ends with 0 when none of them noticed.

        `times` gets the seconds that each test took.
        """
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)  # what its tests start goes with it
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                signal.alarm(SECONDS)
                try:
                    if tree is not None:
                        put(sys.modules[self.name], tree)
                except Exception:  # Unchanged, too: what cannot be tried must not pass for noticed
                    os._exit(0)
                items, took = session.items, {}
                for item, following in zip(items, [*items[1:], None], strict=True):
                    began = time.monotonic()
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    took[item.nodeid] = time.monotonic() - began
                    if session.testsfailed:
                        os._exit(1)
                if times is not None:
                    json.dump(took, times)
                    times.flush()
                os._exit(0)
            except BaseException:
                os._exit(1)
        return pid


def survivors_of(name: str) -> tuple[list[str], int]:
    """The mutants of a module that no test noticed, and how many there are. Ends here when its tests fail without."""
    import pytest

    loop = Loop(name)
    tests = [str(TESTS / test) for test in SUBJECTS[name]]
    pytest.main(["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[loop])
    if loop.failed or not loop.count:
        sys.exit(f"mutants.py: {name}: {' '.join(SUBJECTS[name])} fail on it as it is; mend that first")
    if loop.slow:
        print(f"    {len(loop.slow)} of them were noticed by their time alone ({SECONDS} s)", flush=True)
    return loop.survivors, loop.count


def file_of(name: str) -> Path:
    """The module's file."""
    return ROOT / "agent_src" / (name.replace(".", "/") + ".py")


def listed() -> set[str]:
    """The survivors that docs/mutants.md gives a reason for, in its table: module, change, reason."""
    rows = re.findall(r"^\| (glasslab\.\S+) \| (.*?) \| .+ \|$", LISTED.read_text(encoding="utf-8"), re.MULTILINE)
    return {f"{module}: {change}".replace("\\|", "|") for module, change in rows}


def main() -> None:
    """Try every mutant; exit 1 when the survivors are not those that are listed."""
    chosen = sys.argv[1:] or list(SUBJECTS)
    if unknown := [name for name in chosen if name not in SUBJECTS]:
        sys.exit(f"mutants.py: {', '.join(unknown)}: not among {', '.join(SUBJECTS)}")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("GLASSLAB_SOAK", None)  # the long forms would take days
    sys.path.insert(0, str(TESTS))
    survivors: set[str] = set()
    total = 0
    with tempfile.TemporaryDirectory() as place:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = place  # each fork makes folders of its own there, and removes none
        for name in chosen:
            began = time.monotonic()
            left, count = survivors_of(name)
            took = time.monotonic() - began
            print(f"{name}: {count} mutants, {len(left)} survived, {took:.0f} s", flush=True)
            survivors |= set(left)
            total += count
    known = {item for item in listed() if item.split(":")[0] in chosen}
    for item in sorted(survivors - known):
        print(f"FAILED survived, and not in docs/mutants.md: {item}")
    for item in sorted(known - survivors):
        print(f"FAILED in docs/mutants.md, and noticed: {item}")
    print(f"{total - len(survivors)} noticed, {len(survivors)} survived of {total}")
    sys.exit(survivors != known)


if __name__ == "__main__":
    main()
