"""What decides whether the conformance suites passed, and that list and lock say what is run."""

from __future__ import annotations

import json
from typing import Any

import conformance
import pytest


def check(status: str, name: str = "some-check") -> dict[str, Any]:
    """One check as a suite writes it down."""
    return {"id": name, "status": status, "errorMessage": f"{name} went wrong"}


@pytest.mark.parametrize(
    ("checks", "wrong"),
    [
        ([check("SUCCESS")], []),
        ([check("SUCCESS"), check("WARNING", "should"), check("INFO")], []),
        ([check("SUCCESS"), check("FAILURE", "must")], ["must: must went wrong"]),
        ([check("SUCCESS"), check("FAILURE", "excused")], []),
        ([], ["no check succeeded"]),
        ([check("FAILURE", "excused")], ["no check succeeded"]),
    ],
)
def test_what_counts_as_passed(checks: list[dict[str, Any]], wrong: list[str]) -> None:
    assert conformance.problems(checks, ["excused"]) == wrong


def test_the_page_says_what_is_run() -> None:
    page = conformance.docs(conformance.plan())
    assert page == conformance.DOCS.read_text(encoding="utf-8"), "make it anew: tests/conformance/conformance.py --docs"
    assert "| 2026-07-28 | 0.2.0-alpha.12 | server-stateless," in page


def test_no_scenario_is_both_run_and_left_out() -> None:
    given = conformance.plan()
    run = {name for entry in given["suites"] for name in entry["applies"]}
    left_out = [name for reason in given["reasons"] for name in reason["scenarios"]]
    assert not run & set(left_out)
    assert len(left_out) == len(set(left_out))


def test_the_lock_holds_exact_versions_and_hashes_and_no_address_of_a_registry() -> None:
    versions = json.loads((conformance.HERE / "package.json").read_text())["dependencies"]
    packages = json.loads((conformance.HERE / "package-lock.json").read_text())["packages"]
    for name, wanted in versions.items():
        assert packages[f"node_modules/{name}"]["version"] == wanted.rpartition("@")[2]
    locked = [entry for name, entry in packages.items() if name]
    assert all(entry["integrity"].startswith("sha512-") for entry in locked)
    assert not any("resolved" in entry for entry in locked)
