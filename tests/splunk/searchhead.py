"""What stands for a search head before two indexers: searchhead.py PORT INDEXER_PORT...

A search is put to each of the indexers, and their answers are one. Plain HTTP on 127.0.0.1: a proxy is before it.
"""

from __future__ import annotations

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """One search."""

    def log_message(self, *arguments: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        """The same request to each; the worst status of all."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kept = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
        found = []
        for port in sys.argv[2:]:
            indexer = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            indexer.request("POST", self.path, body, kept)
            answer = indexer.getresponse()
            found.append((answer.status, answer.read()))
            indexer.close()
        content = b"\n".join(text.rstrip(b"\n") for _, text in found) + b"\n"
        self.send_response(max(status for status, _ in found))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
