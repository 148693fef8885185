"""`glasslab-witness submit`: a receipt into the log, and the word that it is there."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import time
from pathlib import Path

from glasslab_witness.spool import LARGEST, SPOOL


def submit(source: Path | None, seconds: float, spool: Path = SPOOL) -> int:
    """Drop a JSON file (None: stdin) into the spool and wait for the log's acknowledgement.

    Prints one JSON line: `acknowledged` true with session_id, seq and event_id, or false when the log has not taken it
    within the seconds: then it stays queued. Return 0, 1 when it is not acknowledged, 2 when it cannot be recorded.
    """
    name = f"receipt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}.json"
    try:
        text = sys.stdin.read(LARGEST + 1) if source is None else source.read_text(encoding="utf-8")
        part = spool / f"{name}.part"
        part.touch(mode=0o640)
        part.write_text(text, encoding="utf-8")
        part.replace(spool / name)
    except (OSError, ValueError) as error:
        print(f"glasslab-witness: cannot submit {source or 'stdin'}: {error}", file=sys.stderr)
        return 2
    answer = spool / "done" / name
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            said = json.loads(answer.read_text(encoding="utf-8"))
            answer.unlink()
            if "refused" in said:
                print(f"glasslab-witness: {said['refused']}", file=sys.stderr)
                return 2
            print(json.dumps(said))
            return 0
        time.sleep(0.05)
    print(json.dumps({"acknowledged": False, "queued": name}))
    return 1
