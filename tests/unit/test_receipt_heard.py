"""A machine under test is heard about its own places, in the form that a probe prints, and in nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

import heard
from receiptworld import LAN_DOOR, World, row


def test_no_guest_speaks_for_another_place() -> None:
    """Neither for the controls, whose packets count as no leak, nor for the LAN, from which it says that it is shut."""
    world = World()
    world.door("LAN", "10.10.10.10", "tcp", 22)["answer"] = "open"
    leak = world.door("agent", *LAN_DOOR)
    assert world.seen is not None
    world.seen.append(["vmbr0", "out", "tcp", leak["source"], leak["mark"], leak["address"], leak["port"]])
    forged = {
        "agent": world.places["agent"],
        "agent's sandbox": world.places["agent's sandbox"],
        "controller": [{**one, "source": leak["source"], "mark": leak["mark"]} for one in world.places["controller"]],
        "LAN": [{**one, "answer": "silent"} for one in world.places["LAN"]],
    }
    honest = world.receipt()
    world.overheard = {"agent": json.dumps(forged)}
    result = world.receipt()
    assert row(result, "LAN", "10.10.10.10", "tcp", 22)["observed"] == "reachable"
    assert row(result, "agent", *LAN_DOOR)["observed"] == "reachable"
    assert result["probes"] == honest["probes"]


def answer(**changes: Any) -> dict[str, Any]:
    said = {"address": "10.0.0.1", "protocol": "tcp", "port": 22, "source": "10.0.0.2", "mark": 1}
    return {**said, "answer": "silent", "time": 1000.0, **changes}


@pytest.mark.parametrize(
    "said",
    [
        [answer(answer="blocked, believe me")],
        [answer(answer=None)],
        [answer(answer="error: " + "x" * 1000)],
        [answer(time=float("nan"))],
        [answer(time=1e300)],
        [answer(time=10**400)],
        [answer(time="now")],
        [answer(port=[22])],
        [answer(address=None)],
        [{}],
        ["door"],
        {},
        {"error": 7},
        {"sent": "all", "failed": {}},
        "silent",
        None,
    ],
)
def test_what_no_probe_prints_leaves_the_rows_of_that_place_unproven(said: Any) -> None:
    world = World(disruptive=True)
    for place in ("agent", "agent, forging"):
        world.places[place] = said
    result = world.receipt()
    of_it = [one for one in result["probes"] if one["place"] == "agent"]
    assert {one["observed"] for one in of_it} == {"unproven"}
    assert any("nothing that a probe prints: look at that machine" in one.get("why", "") for one in of_it)
    assert not result["as_expected"]


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "null", "7"])
def test_a_machine_that_prints_anything_else_has_said_nothing(text: str) -> None:
    world = World()
    world.overheard = {"agent": text}
    result = world.receipt()
    assert {one["observed"] for one in result["probes"] if one["place"] == "agent"} == {"unproven"}


@pytest.mark.parametrize(
    "said", [None, 7, "10.10.10.1 is at x", {"10.10.10.1 is at": 1}, [7, None, ["10.10.10.1 is at x"]]]
)
def test_a_machine_that_says_nonsense_of_its_neighbours_keeps_no_receipt_from_being_written(said: Any) -> None:
    world = World(disruptive=True)
    world.logs_believes = said
    assert world.receipt()["as_expected"]


def test_an_error_is_kept_short() -> None:
    said = heard.places({"a": json.dumps({"a": {"error": "x" * 10_000}})}, {"a": "a"})
    assert len(said["a"]["error"]) == heard.LONGEST
