"""The embedded stand-in for Splunk: HEC in, SQLite, one search out. Small, and not for production.

Rooms: `conf` reads Splunk's .conf files and `config` what is taken from them, `hec` is the HTTP Event Collector
protocol as pure functions, `ack` its acknowledgements, `store` keeps events as long as `retention` says, `search`
answers the one search, `server` puts HTTP around them, `command` is `glasslab collector`.

Where it is not as Splunk is: a 200 means on disk, so /ack is true at once; an index that no indexes.conf defines is
refused with code 7 instead of lost; a body holds at most 10 MB and has a Content-Length (no chunks); tokens come in
the Authorization header with the scheme Splunk only (no Basic); one search, over all time; maxTotalDataSizeMB is one
bound for the sum of all indexes, and the file never shrinks.
"""

from glasslab.collector.command import add_parser, run

__all__ = ["add_parser", "run"]
