"""Show a receipt as a small table: the agent's machine row by row, other places summed up.

Usage: isolation_table.py RECEIPT
"""

import collections
import json
import pathlib
import sys

WIDE = 28  # letters of a column at most, so that the table fits into 100
HEAD = ("from", "target", "probed", "expected", "observed")
PROTOCOLS = ("tcp", "udp", "dns", "tls", "ping", "frame")


def groups(probes: list[dict]) -> dict[tuple, list[dict]]:
    """Rows of the table: a target each for the first place, what is expected for the others; what differs, alone."""
    found: dict[tuple, list[dict]] = {}
    places = list(dict.fromkeys(row["place"] for row in probes))
    for row in sorted(probes, key=lambda row: places.index(row["place"])):
        differs = row["observed"] != row["expected"]
        single = row["place"] == places[0] or differs
        found.setdefault((row["place"], row["target"] if single else None, row["expected"], differs), []).append(row)
    return found


def table(result: dict) -> str:
    """The table, with a last line that sums it up."""
    lines = [HEAD]
    before = None
    for (place, target, expected, differs), rows in groups(result["probes"]).items():
        names = list(dict.fromkeys(row["target"] for row in rows))
        where = ", ".join(names) if len(", ".join(names)) < WIDE else f"{len(names)} targets"
        probed = doors(rows) if target else ""
        probed = probed if 0 < len(probed) <= WIDE else counted(len(rows), "probe")
        seen = collections.Counter(row["observed"] for row in rows)
        observed = ", ".join(f"{number} {name}" for name, number in sorted(seen.items()))
        mark = "  <- accepted" if all("accepted" in row for row in rows) else "  <- differs"
        lines.append(("" if place == before else place, where, probed, expected, observed + (mark if differs else "")))
        before = place
    widths = [max(len(one[column]) for one in lines) for column in range(len(HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip() for one in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    counts = ", ".join(f"{number} {name}" for name, number in result["counts"].items())
    outcome = "as expected" if result["as_expected"] else "NOT as expected"
    problems = [f"! {problem}" for problem in result.get("problems", [])]
    last = f"{len(result['probes'])} probes, {counts}: {outcome} ({result['time'][:16]}Z, {result['mode']})"
    return "\n".join([*text, *problems, last])


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def doors(rows: list[dict]) -> str:
    """tcp 22, tcp 80, ping -> tcp 22 80, ping"""
    ports: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: (PROTOCOLS.index(row["protocol"]), row["port"] or 0)):
        numbers = ports.setdefault(row["protocol"], [])
        if row["port"] is not None and row["port"] not in numbers:
            numbers.append(row["port"])
    if "frame" in ports:
        return counted(len(rows), "frame")
    return ", ".join(" ".join([protocol, *map(str, numbers)]) for protocol, numbers in ports.items())


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: isolation_table.py RECEIPT", file=sys.stderr)
        return 2
    try:
        print(table(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))))
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(
            f"isolation_table: {sys.argv[1]} is no readable receipt ({error}): run playbooks/verify.yml",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
