"""A parent that has imported everything and forks a `glasslab collector` for each line it reads: no start of Python's.

python fork_parent.py HOME   # prints each child's pid, and waits for its end before it reads the next line
"""

import os
import sys

from glasslab.cli import main
from glasslab.collector import command

if __name__ == "__main__":
    arguments = ["collector", "--splunk-home", sys.argv[1], "--host", "127.0.0.1"]
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.stdout = sys.stderr  # what the collector says is not for the pipe that pids go through
            os._exit(main(arguments) if command else 1)
        print(child, flush=True)
        os.waitpid(child, 0)
