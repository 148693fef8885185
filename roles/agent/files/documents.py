"""Prints a folder as roles/runtime's put_files.py takes it: documents.py SOURCE DEST GROUP."""

import base64
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Walk the folder, links followed, in an order that does not change; a folder comes before what is in it."""
    source, dest, group = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    found = []
    for place, folders, names in os.walk(source, followlinks=True):
        folders.sort()
        there = dest / Path(place).relative_to(source)
        found.append({"dest": str(there), "mode": "0750", "group": group})
        for name in sorted(names):
            data = base64.b64encode((Path(place) / name).read_bytes()).decode("ascii")
            found.append({"dest": str(there / name), "mode": "0640", "group": group, "data": data})
    json.dump(found, sys.stdout)


main()
