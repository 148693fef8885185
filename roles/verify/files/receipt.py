"""Judge what the probes saw, and write the receipt.

Usage: receipt.py DIRECTORY < JSON {"lab_id", "places": what probe.py printed, of all places}. Writes TIME.json and
latest.json there, prints one line a probe that differs from what is expected and a summary. Exit 0 as expected, 1 not,
2 when the receipt cannot be written.
"""

import collections
import datetime
import json
import os
import pathlib
import sys

REACHED = ("open", "refused")


MOMENT = 10.0  # seconds: a target that answered its control longer ago or later may have been down at the agent's knock


def doubt(probe: dict, control: dict | None, carrying: set[str]) -> str:
    """Why a probe's silence proves nothing; empty when it does."""
    if control is None:
        return f"{probe['control']} did not knock"
    if control["answer"] not in REACHED:
        return "the target did not answer its control either"
    if (apart := abs(control["time"] - probe["time"])) > MOMENT:
        return f"its control knocked {apart:.0f} s apart: look at the clocks, and take the receipt again"
    if probe["hop"] not in carrying:
        return f"no needed flow got through by the same way ({probe['hop']})"
    return ""


def verdict(probe: dict, control: dict | None, carrying: set[str]) -> tuple[str, str]:
    """blocked, reachable or unproven, and for the last one why."""
    if probe["answer"] == "open":
        return "reachable", ""
    if probe["answer"] == "refused":
        # The packet arrived, so nothing blocked it; but nobody serves there, so a needed flow is not proven either.
        return ("reachable", "") if probe["expected"] == "blocked" else ("unproven", "nobody serves there")
    if probe["answer"] != "silent":
        return "unproven", "the probe could not be made"
    why = doubt(probe, control, carrying)
    return ("unproven" if why else "blocked"), why


def door(probe: dict) -> tuple:
    return probe["address"], probe["protocol"], probe["port"]


def judge(places: dict[str, list[dict]]) -> list[dict]:
    """The agent's probes with what the control saw and the verdict on each."""
    controls = {place: {door(probe): probe for probe in seen} for place, seen in places.items()}
    # Somebody whose own cable is out, or who has no route, is not isolated: without a needed flow open by the same
    # first hop, no silence proves anything.
    needed = [probe for probe in places["agent"] if probe["expected"] == "reachable"]
    carrying = {probe["hop"] for probe in needed if probe["answer"] == "open"}
    rows = []
    for probe in places["agent"]:
        control = controls.get(probe["control"], {}).get(door(probe))
        observed, why = verdict(probe, control, carrying)
        rows.append(
            {
                "target": probe["target"],
                "address": probe["address"],
                "protocol": probe["protocol"],
                "port": probe["port"],
                "expected": probe["expected"],
                "observed": observed,
                **({"why": why} if why else {}),
                "answer": probe["answer"],
                "control": {"from": probe["control"], "answer": control and control["answer"]},
            }
        )
    return rows


def receipt(lab_id: str, places: dict[str, list[dict]]) -> dict:
    rows = judge(places)
    counts = collections.Counter(row["observed"] for row in rows)
    return {
        "lab_id": lab_id,
        "time": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "as_expected": bool(rows) and all(row["observed"] == row["expected"] for row in rows),
        "counts": {verdict: counts[verdict] for verdict in ("blocked", "reachable", "unproven")},
        "probes": rows,
    }


def line(row: dict) -> str:
    port = "" if row["port"] is None else f" {row['port']}"
    control = f"{row['control']['from']} got {row['control']['answer'] or 'nothing'}"
    where = f"{row['target']}: {row['address']} {row['protocol']}{port}"
    why = f": {row['why']}" if "why" in row else ""
    return (
        f"{where}: expected {row['expected']}, observed {row['observed']} (agent got {row['answer']}, {control}){why}"
    )


def write(directory: pathlib.Path, result: dict) -> pathlib.Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{result['time'].replace(':', '').replace('-', '')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    new = directory / f".latest.{os.getpid()}"
    new.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    new.rename(directory / "latest.json")
    return path


def main() -> int:
    order = json.load(sys.stdin)
    result = receipt(order["lab_id"], order["places"])
    try:
        path = write(pathlib.Path(sys.argv[1]), result)
    except OSError as error:
        print(
            f"glasslab: the receipt cannot be written to {sys.argv[1]} ({error.strerror}): free or name another place"
        )
        return 2
    for row in result["probes"]:
        if row["observed"] != row["expected"]:
            print(line(row))
    counts = ", ".join(f"{number} {name}" for name, number in result["counts"].items())
    outcome = "as expected" if result["as_expected"] else "NOT as expected"
    print(f"{len(result['probes'])} probes: {counts}: {outcome}; {path}")
    return 0 if result["as_expected"] else 1


if __name__ == "__main__":
    sys.exit(main())
