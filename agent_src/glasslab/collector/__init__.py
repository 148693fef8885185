"""The embedded stand-in for Splunk: HEC in, SQLite, one search out. Small, and not for production.

Rooms: `conf` reads Splunk's .conf files, `hec` is the HTTP Event Collector protocol as pure functions, `store` keeps
events, `search` answers the one search, `server` puts HTTP around them, `command` is `glasslab collector`.
"""

from glasslab.collector.command import add_parser, run

__all__ = ["add_parser", "run"]
