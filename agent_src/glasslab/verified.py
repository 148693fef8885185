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
from glasslab.recorder import Recorder
from glasslab.search import forward
from glasslab.settings import VerifierSettings
from glasslab.verify import Report

MAX_FOUND: Final = 50  # findings that are recorded by their text; `found` counts them all


def verified(report: Report) -> Frame:
    """Return the frame that says what was found."""
    found = [f"{writer.name}: {problem}" for writer in report.writers for problem in map(str, writer.problems)]
    found += [str(problem) for problem in report.problems]
    writers: dict[str, Any] = {
        writer.name: {"frames": writer.frames, "signatures": writer.signatures, "problems": len(writer.problems)}
        for writer in report.writers
    }
    return frame(
        "session.verified",
        step=0,
        verified_session=report.session_id,
        whole=report.whole,
        writers=writers,
        found=len(found),
        problems=found[:MAX_FOUND],
    )


def index(report: Report, settings: VerifierSettings) -> str:
    """Record what was found; return the session id of that record. Raises LoggingError, SearchError, KeyFileError."""
    hec = settings.hec()
    parts = urlsplit(hec.url)
    ssh = shlex.split(settings.splunk_ssh) if settings.splunk_ssh else None
    with forward(ssh, parts.hostname or "", parts.port or 443) if ssh else nullcontext() as port:
        if port is not None:
            hec.url = f"{parts.scheme}://127.0.0.1:{port}"
        recorder = Recorder(hec, VERIFIER, settings.key())
        log = recorder.open(f"{VERIFIER_PREFIX}{uuid.uuid4().hex}")
        try:
            log.commit(verified(report))
        finally:
            log.close()
            recorder.close()
        return log.session_id
