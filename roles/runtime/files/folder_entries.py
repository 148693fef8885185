"""Prints a folder as put_files.py takes it: folder_entries.py SOURCE DEST OWNER GROUP [FOLDER ...]

FOLDER: one in it, by its name, where nothing else may lie.
"""

import base64
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Walk the folder, links followed, in an order that does not change; a folder comes before what is in it."""
    source, dest = Path(sys.argv[1]), Path(sys.argv[2])
    who = {"owner": sys.argv[3], "group": sys.argv[4]}
    found = []
    for place, folders, names in os.walk(source, followlinks=True):
        folders.sort()
        below = Path(place).relative_to(source)
        alone = {"alone": True} if below.parts and below.parts[0] in sys.argv[5:] else {}
        found.append({"dest": str(dest / below), "mode": "0750", **who, **alone})
        for name in sorted(names):
            data = base64.b64encode((Path(place) / name).read_bytes()).decode("ascii")
            found.append({"dest": str(dest / below / name), "mode": "0640", **who, "data": data})
    json.dump(found, sys.stdout)


main()
