"""What `glasslab verify` found, put into the log as an event of its own: `session.verified`, by a writer of its own.

The checked session is only named in it: a frame in that session's own chain would change what the next check finds.
"""

from __future__ import annotations

import shlex
import uuid
from contextlib import nullcontext
from typing import Any, Final
from urllib.parse import urlsplit

from glasslab.frames import VERIFIER, VERIFIER_PREFIX, Frame, frame
from glasslab.guardrails import visible_line
from glasslab.recorder import Recorder
from glasslab.search import forward
from glasslab.settings import VerifierSettings
from glasslab.verify import WRITERS, Report

MAX_FOUND: Final = 50  # findings that are recorded by their text; `found` counts them all
MAX_TEXT: Final = 300  # characters of one
MAX_WRITERS: Final = 10
MAX_NAME: Final = 40  # characters of a writer's name


def verified(report: Report) -> Frame:
    """Return the frame that says what was found.

    It is bounded whatever the events hold that are quoted in it: the log must take the record of a forgery, too.
    """
    found = [f"{writer.name}: {problem}" for writer in report.writers for problem in map(str, writer.problems)]
    found += [str(problem) for problem in report.problems]
    known_first = sorted(report.writers, key=lambda writer: writer.name not in WRITERS)[:MAX_WRITERS]
    writers: dict[str, Any] = {
        _clipped(writer.name, MAX_NAME): {
            "frames": writer.frames,
            "signatures": writer.signatures,
            "problems": len(writer.problems),
        }
        for writer in known_first
    }
    return frame(
        "session.verified",
        step=0,
        verified_session=report.session_id,
        whole=report.whole,
        writers=writers,
        found=len(found),
        problems=[_clipped(text, MAX_TEXT) for text in found[:MAX_FOUND]],
    )


def _clipped(text: str, most: int) -> str:
    """Return the beginning of a text, with what no frame can hold (lone surrogates) as escapes."""
    return visible_line(text[:most]) + ("…" if len(text) > most else "")


def index(report: Report, settings: VerifierSettings) -> str:
    """Record what was found; return the session id of that record. Raises LoggingError, SearchError, KeyFileError."""
    hec = settings.hec()
    parts = urlsplit(hec.url)
    ssh = shlex.split(settings.splunk_ssh) if settings.splunk_ssh else None
    with forward(ssh, parts.hostname or "", parts.port or 443) if ssh else nullcontext() as port:
        if port is not None:
            hec.forward = f"{parts.scheme}://127.0.0.1:{port}"
        recorder = Recorder(hec, VERIFIER, settings.key())
        log = recorder.open(f"{VERIFIER_PREFIX}{uuid.uuid4().hex}")
        try:
            log.commit(verified(report))
        finally:
            log.close()
            recorder.close()
        return log.session_id
