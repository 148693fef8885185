"""Measure how long it takes from a place to open a verified TLS connection. Fed to a machine's python3.

The first argument is JSON: {"address", "port", "name", "ca" (PEM text), "n"}. Prints the milliseconds of each
connection as a JSON list.
"""

import json
import socket
import ssl
import sys
import time


def main() -> None:
    order = json.loads(sys.argv[1])
    context = ssl.create_default_context(cadata=order["ca"])
    times = []
    for _ in range(order["n"] + 3):  # the first few warm up
        began = time.perf_counter()
        with (
            socket.create_connection((order["address"], order["port"]), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=order["name"]),
        ):
            times.append((time.perf_counter() - began) * 1000)
    print(json.dumps(times[3:]))


if __name__ == "__main__":
    main()
