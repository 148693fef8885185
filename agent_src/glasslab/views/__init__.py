"""A session to look at: `happened` says what a frame means, `table` draws it, `command` is `trace` and `verify`."""

from glasslab.views.command import add_parser

__all__ = ["add_parser"]
