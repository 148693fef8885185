"""The runner of mutants: which changes it makes, and that a module that is loaded gets them, whoever holds it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

import mutants  # noqa: E402  (found by the line above)

SOURCE = """
from dataclasses import dataclass
from functools import cache

MOST = 3

def small(n: int) -> bool:
    return n < MOST

@cache
def twice(n):
    return n * 2

class Wrong(ValueError):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

@dataclass(frozen=True, slots=True)
class Limit:
    turns: int = 6

    @property
    def over(self):
        return self.turns > 5

    @staticmethod
    def none():
        return 0

    def left(self, taken, least=1):
        if not taken:
            raise ValueError
        return self.turns - taken
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "subject_of_mutants.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("subject_of_mutants")
    del sys.modules["subject_of_mutants"]


def tree_of(change: str) -> ast.Module:
    (found,) = [tree for name, tree in mutants.mutants(SOURCE) if name == change]
    return found


def test_each_kind_of_change_is_made_once() -> None:
    names = [name for name, _ in mutants.mutants(SOURCE)]
    assert len(set(names)) == len(names)
    for change in (
        "`MOST = 3`: `3` -> `4`",
        "`return n < MOST`: `n < MOST` -> `n <= MOST`",
        "`return n < MOST`: `return n < MOST` -> `return None`",
        "`if not taken:`: `not taken` -> `taken`",
        "`raise ValueError`: `raise ValueError` -> `pass`",
        "`return self.turns - taken`: `self.turns - taken` -> `self.turns + taken`",
        "`turns: int = 6`: `6` -> `7`",
    ):
        assert change in names
    assert not [name for name in names if "frozen" in name], "what only describes is left as it is"


def test_who_holds_a_part_of_the_module_sees_the_mutant(module: ModuleType) -> None:
    small, limit = module.small, module.Limit
    mutants.put(module, tree_of("`return n < MOST`: `n < MOST` -> `n <= MOST`"))
    assert small(3)
    assert not small(4)
    mutants.put(module, tree_of("`if not taken:`: `not taken` -> `taken`"))
    assert limit().left(0) == 6
    mutants.put(module, tree_of("`turns: int = 6`: `6` -> `7`"))
    assert (limit().turns, module.Limit is limit) == (7, True)
    mutants.put(module, tree_of("`return self.turns > 5`: `self.turns > 5` -> `self.turns >= 5`"))
    assert limit(5).over
    mutants.put(module, tree_of("`return 0`: `0` -> `1`"))
    assert limit.none() == 1
    mutants.put(module, tree_of("`return n * 2`: `n * 2` -> `n + 2`"))
    assert module.twice(5) == 7
    mutants.put(module, tree_of("`def left(self, taken, least=1):`: `1` -> `2`"))
    assert limit.left.__defaults__ == (2,)
    wrong = module.Wrong
    mutants.put(module, tree_of("`super().__init__(text)`: `super().__init__(text)` -> `pass`"))
    assert (str(wrong(1, "a")), wrong(1, "a").code) == ("(1, 'a')", 1)


def test_a_value_that_another_module_holds_is_the_mutants_there_too(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ModuleType("holder_of_mutants")
    vars(other)["MOST"] = module.MOST
    monkeypatch.setitem(sys.modules, other.__name__, other)
    mutants.put(module, tree_of("`MOST = 3`: `3` -> `4`"))
    assert (vars(other)["MOST"], module.small(3)) == (4, True)


def test_what_changes_nothing_is_told(module: ModuleType) -> None:
    with pytest.raises(mutants.Unchanged):
        mutants.put(module, ast.parse(SOURCE))


def test_the_list_is_read_by_module_and_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "mutants.md"
    page.write_text("| module | change | reason |\n|---|---|---|\n| glasslab.policy | `a \\| b`: `1` -> `2` | why |\n")
    monkeypatch.setattr(mutants, "LISTED", page)
    assert mutants.listed() == {"glasslab.policy: `a | b`: `1` -> `2`"}


def test_the_soak_runs_them() -> None:
    scripts_test = importlib.import_module("test")
    assert [command[1:] for _, command in scripts_test.soak_steps()] == [["tests/mutants.py"]]
