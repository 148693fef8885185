"""A session as a table for the terminal, and a verification as lines."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import IO, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glasslab.search import StoredEvent
from glasslab.verify import Report
from glasslab.views.happened import happened, visible
from glasslab.views.shown import frames_shown

NARROWEST: Final = 80
WITHOUT_TERMINAL: Final = 120
HEADINGS: Final = ("#", "seconds", "component", "event", "what happened")


def rows(stored: Sequence[StoredEvent]) -> list[tuple[str, str, str, str, str]]:
    """Return a table's rows: #, seconds since the first, component, event, what happened."""
    shown = frames_shown(stored)
    first = shown[0].time if shown else 0.0
    return [
        (
            str(number),
            f"{item.time - first:.3f}",
            visible(item.event.get("component"), 12),
            visible(item.event.get("kind"), 24),
            happened(item.event),
        )
        for number, item in enumerate(shown, start=1)
    ]


def print_table(stored: Sequence[StoredEvent], file: IO[str], width: int | None = None) -> None:
    """Print a session, one line a frame. `width` in columns (default: the terminal's, else 120; at least 80)."""
    columns = max(width or shutil.get_terminal_size((WITHOUT_TERMINAL, 24)).columns, NARROWEST)
    console = Console(file=file, width=columns, highlight=False, emoji=False, markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    lines = rows(stored)
    left = columns
    for number, name in enumerate(HEADINGS[:-1]):
        # A fixed width, so that only the last column gives way in a narrow terminal.
        broadest = max([cell_len(row[number]) for row in lines] + [len(name)])
        table.add_column(name, justify="right" if number < 2 else "left", width=broadest, no_wrap=True)
        left -= broadest + 1
    table.add_column(HEADINGS[-1], width=max(left, 20), no_wrap=True, overflow="ellipsis")
    for row in lines:
        style = "red" if row[4].startswith(("REFUSED", "ERROR")) else ""
        # Text, not str: nothing in a frame is read as markup.
        table.add_row(*(Text(cell, style=style) for cell in row))
    with console.capture() as captured:
        console.print(table)
    # rich fills every line up with blanks, which a log or a copied text has no use for.
    file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def report_lines(report: Report) -> list[str]:
    """Return a verification as lines: one for each writer, with what is wrong with it, and those on the session."""
    lines = []
    for writer in report.writers:
        about = f"{visible(writer.name, 20)}: {writer.frames} frames, {writer.signatures} signatures"
        faults = "; ".join(
            (f"seq {visible(problem.seq, 20)} " if problem.seq is not None else "") + visible(problem.text)
            for problem in writer.problems[:5]
        )
        more = f"; and {len(writer.problems) - 5} more" if len(writer.problems) > 5 else ""
        lines.append(f"{about}: BROKEN: {faults}{more}" if faults else f"{about}: unbroken")
    lines += [f"session: BROKEN: {visible(problem.text)}" for problem in report.problems]
    return lines


def report_object(report: Report) -> dict[str, Any]:
    """Return a verification as an object for JSON."""
    return {
        "session_id": report.session_id,
        "whole": report.whole,
        "writers": [
            {
                "component": writer.name,
                "frames": writer.frames,
                "signatures": writer.signatures,
                "began": writer.began,
                "problems": [{"seq": problem.seq, "problem": problem.text} for problem in writer.problems],
            }
            for writer in report.writers
        ],
        "problems": [problem.text for problem in report.problems],
    }
