"""make flows: what the hypervisor saw of the network, against what the sessions say, read from the lab's log."""

import sys

import given
from lab import need_lab, read_log, run


def main() -> None:
    """Compare the last HOURS (default: 24)."""
    if sys.argv[1:]:
        print(f"{__doc__}\nHOURS=24 in the environment says how far back.")
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    hours = given.number("HOURS", 24, 24 * 366, "whole hours")
    need_lab()
    sys.exit(read_log("flows", "--hours", str(hours)).returncode)


if __name__ == "__main__":
    run(main)
