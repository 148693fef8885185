"""Assert, check, heal or remove the lab's walls on a hypervisor.

apply   load the rules of /etc/glasslab/network (replacing ours, touching nobody else's), then let the bridge route;
        run before the bridge exists, after each time it comes up, and by the role
check   say what differs from the rules last loaded; exit 1 when anything does
heal    put right what differs; what cannot be put right shuts the guests in
watch   heal at once, whenever something changes; runs until it is stopped
remove  take our chains, tables, routes and settings away and put back what was there before
backup, arm, activate, confirm, rollback, withdraw, status: see change.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import change, state, walls, watch
from .kernel import Failure
from .settings import Settings


def check() -> int:
    """Print what differs."""
    differs = walls.differences()
    print("\n".join(differs) or "as loaded")
    return 1 if differs else 0


def heal() -> int:
    """Print what was found."""
    print("\n".join(walls.heal()) or "as loaded")
    if record := state.loaded():
        walls.start_services(Settings.of(record["settings"]))
    return 0


# Called with the lock held; the exit code is what they return (None: 0).
VERBS: dict[str, Callable[[], int | None]] = {
    "apply": walls.apply,
    "check": check,
    "heal": heal,
    "remove": walls.remove,
}
# These take the lock themselves.
LONG_VERBS: dict[str, Callable[[], int | None]] = {"watch": watch.watch}


def main(arguments: list[str]) -> int:
    """Run one verb; the exit code. Every failure is one line."""
    if arguments[:1] and arguments[0] in change.VERBS:
        return change.main(arguments)
    verb = arguments[0] if len(arguments) == 1 else ""
    usage = f"usage: glasslab-network {' | '.join([*VERBS, *LONG_VERBS, *change.VERBS])}"
    if verb in ("-h", "--help"):
        print(f"{usage}\n\n{__doc__.strip()}")
        return 0
    if verb not in VERBS | LONG_VERBS:
        print(usage, file=sys.stderr)
        return 2
    try:
        # A change that nobody has confirmed goes back before its rules are asserted once more.
        if verb in ("apply", "heal") and change.honour():
            return 0
        if verb in LONG_VERBS:
            return LONG_VERBS[verb]() or 0
        with state.lock():
            return VERBS[verb]() or 0
    except Failure as error:
        print(f"glasslab-network: {verb}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"glasslab-network: {verb}: {error.filename or state.RUN}: {error.strerror}: mend that", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
