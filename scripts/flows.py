"""make flows: what the hypervisor saw of the network, against what the sessions say, read from the lab's log."""

import os
import sys

from lab import fail, need_lab, read_log, run


def main() -> None:
    """Compare the last HOURS (default: 24)."""
    if sys.argv[1:]:
        print(f"{__doc__}\nHOURS=24 in the environment says how far back.")
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    hours = os.environ.get("HOURS", "").strip()
    if hours and not hours.isdecimal():
        fail(f"HOURS={hours!r} is no number; give whole hours, as in HOURS=24")
    need_lab()
    sys.exit(read_log("flows", *(["--hours", hours] if hours else [])).returncode)


if __name__ == "__main__":
    run(main)
