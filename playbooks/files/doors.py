"""Which doors are open from here: a JSON list of {"name", "address", "ports"} in, a line an open one out."""

import json
import socket
import sys

for door in json.loads(sys.argv[1]):
    try:
        socket.getaddrinfo(door["name"], None, socket.AF_INET)
        print(f"{door['name']} has an address")
    except socket.gaierror:
        pass
    for port in door["ports"] if door["address"] else []:
        try:
            socket.create_connection((door["address"], port), 1).close()
            print(f"{door['address']} port {port} is open")
        except OSError:
            pass
