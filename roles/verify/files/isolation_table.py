"""Show a receipt as a small table, one row a target. Usage: isolation_table.py RECEIPT"""

import collections
import json
import pathlib
import sys


def table(result: dict) -> str:
    """The table, with a last line that sums it up."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in result["probes"]:
        groups.setdefault((row["target"], row["expected"]), []).append(row)
    lines = [("target", "probed", "expected", "observed")]
    for (target, expected), rows in groups.items():
        doors = sorted({f"{row['protocol']} {row['port'] or ''}".strip() for row in rows}, key=order)
        addresses = len({row["address"] for row in rows})
        where = target + (f" ({addresses} addresses)" if addresses > 1 else "")
        seen = collections.Counter(row["observed"] for row in rows)
        observed = ", ".join(f"{number} {name}" for name, number in sorted(seen.items()))
        lines.append((where, merge(doors), expected, observed + ("" if set(seen) == {expected} else "  <- differs")))
    widths = [max(len(one[column]) for one in lines) for column in range(4)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip() for one in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    counts = ", ".join(f"{number} {name}" for name, number in result["counts"].items())
    outcome = "as expected" if result["as_expected"] else "NOT as expected"
    return "\n".join([*text, f"{len(result['probes'])} probes, {counts}: {outcome} ({result['time'][:16]}Z)"])


def order(door: str) -> tuple[int, int]:
    protocol, _, port = door.partition(" ")
    return ["tcp", "udp", "dns", "ping"].index(protocol), int(port or 0)


def merge(doors: list[str]) -> str:
    """tcp 22, tcp 80, ping -> tcp 22 80, ping"""
    ports: dict[str, list[str]] = {}
    for door in doors:
        protocol, _, port = door.partition(" ")
        ports.setdefault(protocol, []).append(port)
    return ", ".join(f"{protocol} {' '.join(numbers)}".strip() for protocol, numbers in ports.items())


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: isolation_table.py RECEIPT", file=sys.stderr)
        return 2
    try:
        print(table(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(
            f"isolation_table: {sys.argv[1]} is no readable receipt ({error}): run playbooks/verify.yml",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
