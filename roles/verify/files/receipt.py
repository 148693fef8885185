"""Judge what was seen, and write the receipt.

Usage: receipt.py judge DIRECTORY < JSON     an order; writes TIME.json and latest.json there and prints the receipt
       receipt.py indexed DIRECTORY < JSON   {hypervisor: {"rc", "stdout", "stderr", "msg"} of `glasslab-witness submit`
                                             there}: notes where it is in the logs; then a line for each finding, and a
                                             summary
       receipt.py show DIRECTORY             the same lines

An order: {"lab_id", "nodes": {hypervisor: {"policy", "begun": what watch.py printed there}...}, "planned": what plan.py
printed, "knocked": {machine: what places.py printed there}, "again": the same of the controls that knocked a second
time, "ended": {machine: what watch.py printed}, "questions":
{hypervisor: {"asked": what `glasslab ask --json` printed, "found": what `glasslab verify --json` printed, "said": by
either of them on stderr} or null}, "accepted": [{reason, and fields of rows}...], "checkout"}. What is printed is text.

Exit 0 as expected, 1 not, 2 when the receipt cannot be written.
"""

from __future__ import annotations

import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import forged
import judge
from heard import believed, parsed, places

Receipt = dict[str, Any]
FIELDS = ("hypervisor", "place", "target", "address", "protocol", "port", "name")
LOADED, AGAIN = "as loaded", "take it again"
CLOCKS = 2.0  # seconds that the clocks of control node and machines may differ


def accept(rows: list[dict], accepted: list[dict]) -> list[str]:
    """Mark the rows that the inventory lists; return what is wrong with the list itself."""
    problems = []
    for entry in accepted:
        wanted = {field: entry[field] for field in FIELDS if field in entry}
        said = " ".join(str(value) for value in wanted.values())
        if not wanted or not entry.get("reason"):
            problems.append(f"verify_accepted: {said or entry}: give some of {', '.join(FIELDS)}, and a reason")
            continue
        rows_of_it = [row for row in rows if all(row.get(field) == value for field, value in wanted.items())]
        if not rows_of_it:
            problems.append(f"verify_accepted: no probe is {said}: take the entry out, or mend it")
        for row in rows_of_it:
            row["accepted"] = entry["reason"]
    return problems


def ruled(began: dict, ended: dict, mode: str) -> list[str]:
    """What is wrong with the rules on the hypervisor, beside what the probes say."""
    if not began.get("rules") or not ended.get("rules"):
        return ["the hypervisor did not say which rules it holds"]
    checks = dict.fromkeys([began["rules"]["check"], ended["rules"]["check"]])
    problems = [f"glasslab-network check: {' / '.join(check.splitlines())}" for check in checks if check != LOADED]
    if (held := ended["rules"]["mode"]) != mode:
        problems.append(f"the hypervisor holds mode {held}, the inventory says {mode}: run playbooks/network.yml")
    if began["rules"]["kernel"] != ended["rules"]["kernel"]:
        problems.append(f"the hypervisor's rules changed while the receipt was taken: {AGAIN}")
    return problems


def asked(question: dict | None) -> tuple[dict | None, list[str]]:
    """The session of the question, as the log gives it back, and what is wrong with it."""
    if question is None:
        return None, []
    answer, report = parsed(question.get("asked")), parsed(question.get("found"))
    word = " ".join(question.get("said", "").split())
    session = {"id": answer.get("session_id"), "status": answer.get("status")}
    if answer.get("status") != "answered":
        return session, [f"the question was not answered: {answer.get('status') or word or 'no word'}"]
    writers = {writer["component"]: writer["frames"] for writer in report.get("writers", [])}
    session |= {"frames": sum(writers.values()), "writers": writers, "whole": bool(report.get("whole"))}
    asked_at = question.get("asked_at")
    begun = [writer.get("began") for writer in report.get("writers", [])]
    if session["whole"] and len(writers) > 1:
        # A session that was there before the question is no answer to it, however whole: both writers have begun since.
        if asked_at is None or all(began is not None and began >= float(asked_at) - CLOCKS for began in begun):
            return session, []
        return session, [f"the agent answered with session {session['id']}, which had begun before it was asked"]
    found = [problem["problem"] for writer in report.get("writers", []) for problem in writer["problems"]]
    found += report.get("problems", [])
    said = "; ".join(found[:3]) or word or "its chains were not found in the log"
    return session, [f"the question's session {session['id']} is not whole in the log: {said}"]


def stamp(seconds: float) -> str:
    """A moment as the receipt writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def version(checkout: str) -> str:
    """The checkout's commit."""
    command = ["git", "-c", "safe.directory=*", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def of_places(said: dict[str, str], name: str, machine_of: dict[str, str], nodes: dict) -> dict[str, Any]:
    """What the places of one hypervisor's plan got; the other hypervisors are places of it, by their names."""
    texts = {machine: said.get(name if machine == "hypervisor" else machine, "") for machine in machine_of.values()}
    found = places(texts, machine_of)
    others = {other: places({other: said.get(other, "")}, {"hypervisor": other}) for other in nodes if other != name}
    return found | {other: got.get("hypervisor", {}) for other, got in others.items()}


def of_node(order: dict, name: str, planned: dict, ends: dict) -> tuple[list[dict], list[str], list[float]]:
    """One hypervisor's rows, what is wrong with its rules, and when was knocked."""
    node, plan = order["nodes"][name], planned[name]
    policy, ended = node["policy"], ends.get(name, {})
    machines = {*plan["machine_of"].values()}
    heard = of_places(order["knocked"], name, plan["machine_of"], order["nodes"])
    again = of_places(order.get("again", {}), name, plan["machine_of"], order["nodes"])
    entries = {guest["address"]: guest["entries"] for guest in policy["guests"]}
    evidence = judge.Evidence(heard, ended.get("seen"), ended.get("own", []), policy["bridge"], entries, again)
    rows = judge.judge(plan, evidence, plan["kinds"])
    false = {machine: believed(end) for machine, end in ends.items() if machine in (name, *machines)}
    for place, frames in plan["forged"].items():
        sent = heard.get(f"{place}, forging") or {"error": "nothing was sent"}
        seen = {"sent": sent, "tags": ended.get("tags", [])}
        own = next((guest["entries"] for guest in policy["guests"] if guest["name"] == place), [])
        rows += forged.judge(frames, place, {**seen, "believed": false}, own)
    times = [door["time"] for doors in heard.values() if isinstance(doors, list) for door in doors]
    # What left meanwhile may be among them: then nothing that was not seen is known to be blocked.
    lost = [f"the watch on the hypervisor missed {ended['lost']} packets: {AGAIN}"] if ended.get("lost") else []
    return rows, [*ruled(parsed(node["begun"]), ended, policy["mode"]), *lost], times


def receipt(order: dict) -> Receipt:
    """The receipt of an order: the rows of all hypervisors; mode, rules, versions and session are the first one's."""
    planned = json.loads(parsed(order["planned"])["nodes"])
    ends = {machine: parsed(text) for machine, text in order["ended"].items()}
    names = list(order["nodes"])
    rows: list[dict] = []
    problems: list[str] = []
    times: list[float] = []
    for name in names:
        its_rows, wrong, knocked = of_node(order, name, planned, ends)
        rows += [{"hypervisor": name, **row} for row in its_rows] if len(names) > 1 else its_rows
        problems += [f"{name}: {one}" for one in wrong] if len(names) > 1 else wrong
        times += knocked
    first = order["nodes"][names[0]]
    problems = [*accept(rows, order.get("accepted") or []), *problems]
    sessions = {}
    for name in names:
        sessions[name], wrong = asked((order.get("questions") or {}).get(name))
        problems += [f"{name}: {one}" for one in wrong] if len(names) > 1 else wrong
    counts = collections.Counter(row["observed"] for row in rows)
    differing = [row for row in rows if row["observed"] != row["expected"] and "accepted" not in row]
    return {
        "lab_id": order["lab_id"],
        "began": stamp(min(times, default=time.time())),
        "time": stamp(time.time()),
        "as_expected": bool(rows) and not differing and not problems,
        "mode": first["policy"]["mode"],
        "counts": {verdict: counts[verdict] for verdict in ("blocked", "reachable", "unproven")},
        "problems": problems,
        "rules": ends.get(names[0], {}).get("rules"),
        "versions": {"glasslab": version(order.get("checkout", ".")), **parsed(first["begun"]).get("versions", {})},
        **({"hypervisors": hypervisors(order, ends, sessions)} if len(names) > 1 else {}),
        "session": sessions[names[0]],
        "disruptive": any(planned[name]["forged"] for name in names),
        "probes": rows,
    }


def hypervisors(order: dict, ends: dict, sessions: dict) -> dict[str, dict]:
    """What each of several hypervisors holds."""
    return {
        name: {
            "mode": node["policy"]["mode"],
            "rules": ends.get(name, {}).get("rules"),
            "versions": parsed(node["begun"]).get("versions", {}),
            "session": sessions[name],
        }
        for name, node in order["nodes"].items()
    }


def indexed(result: Receipt, done: dict[str, dict]) -> None:
    """Note what became of it on its way into the logs; without an acknowledgement it is not as expected."""
    several = result.get("hypervisors", {})
    for number, (name, its) in enumerate(done.items()):
        said = parsed(its.get("stdout"))
        if said.get("acknowledged"):
            where = {field: said[field] for field in ("session_id", "seq", "event_id") if field in said}
            if name in several:
                several[name]["indexed"] = where
            if number == 0:
                result["indexed"] = where
            continue
        words = its.get("stderr") or (said.get("queued") and "not acknowledged in time") or its.get("msg") or "no word"
        last = words.strip().splitlines()[-1]
        result["problems"].append(
            f"{name + ': ' if several else ''}the receipt is not in the log: {last}: is the witness installed there "
            "(playbooks/witness.yml)? `-e verify_index=false` does without"
        )
        result["as_expected"] = False


def findings(result: Receipt) -> list[str]:
    """One line for each thing that is not as expected, or accepted and no more so than others."""
    lines = [row_line(row) for row in result["probes"] if row["observed"] != row["expected"]]
    reasons = {row["accepted"] for row in result["probes"] if "accepted" in row}
    still = {row["accepted"] for row in result["probes"] if "accepted" in row and row["observed"] != row["expected"]}
    lines += [
        f"accepted ({reason}) and no longer different: take it out of verify_accepted"
        for reason in sorted(reasons - still)
    ]
    return lines + result["problems"]


def row_line(row: dict) -> str:
    """A row in words."""
    port = "" if row["port"] is None else f" {row['port']}"
    name = f" {row['name'] or 'without a name'}" if "name" in row else ""
    control = row["control"] or {"from": "nobody", "answer": "nothing"}
    where = f"{row['place']} to {row['target']}: {(row['address'] or '') + ' ' + row['protocol']}{port}{name}"
    why = f": {row['why']}" if "why" in row else ""
    known = f"; accepted: {row['accepted']}" if "accepted" in row else ""
    heard = f"({row['place']} got {row['answer'] or 'nothing'}, {control['from']} got {control['answer'] or 'nothing'})"
    return f"{where}: expected {row['expected']}, observed {row['observed']} {heard}{why}{known}".replace(":  ", ": ")


def summary(result: Receipt) -> str:
    """One line about all of it."""
    counts = ", ".join(f"{number} {name}" for name, number in result["counts"].items())
    outcome = "as expected" if result["as_expected"] else "NOT as expected"
    return f"{len(result['probes'])} probes: {counts}: {outcome}"


def write(directory: pathlib.Path, result: Receipt) -> pathlib.Path:
    """Write the receipt under its time and as the latest one. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{result['time'].replace(':', '').replace('-', '')}.json"
    text = json.dumps(result, separators=(",", ":")).replace('{"place":', '\n{"place":') + "\n"
    for final in (path, directory / "latest.json"):
        new = directory / f".new.{os.getpid()}"
        new.write_text(text, encoding="utf-8")
        new.rename(final)
    return path


def latest(directory: pathlib.Path) -> Receipt:
    """The receipt taken last."""
    result: Receipt = json.loads((directory / "latest.json").read_text(encoding="utf-8"))
    return result


def main() -> int:
    verb, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    try:
        if verb == "judge":
            result = receipt(json.load(sys.stdin))
            write(directory, result)
            print(json.dumps(result))
            return 0
        result = latest(directory)
        if verb == "indexed":
            indexed(result, json.load(sys.stdin))
            write(directory, result)
    except OSError as error:
        print(f"glasslab: the receipt cannot be kept in {directory} ({error.strerror}): free or name another place")
        return 2
    print("\n".join([*findings(result), f"{summary(result)}; {directory}/latest.json"]))
    return 0 if result["as_expected"] else 1


if __name__ == "__main__":
    sys.exit(main())
