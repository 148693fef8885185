"""Settings of the approvals, and of the lab's servers that do more than read its documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from glasslab import allowlist
from glasslab.approval_rules import parse_classes, user_ids
from glasslab.keys import is_folder
from glasslab.settings_sources import AnyPath, LabSettings, path_to


def _classes(text: str) -> str:
    parse_classes(text)
    return text


def _users(text: str) -> str:
    user_ids(allowlist.split(text))
    return text


ServerPlace = Annotated[str, Field(pattern=r"^(off|stdio|unix:/.+)$")]


class ApprovalFields(LabSettings):
    """A part of `Settings`: what waits for a person, who decides, and the servers that this is about."""

    approvals: Literal["acting", "everything"] = Field("acting", description="everything: a person is asked for reads")
    approval_seconds: float = Field(300.0, gt=0, le=3600, description="seconds to wait for a person; then it is denied")
    approval_rules: AnyPath | None = Field(None, description="file of rules by caller and argument (docs/approvals.md)")
    approvers: Annotated[str, AfterValidator(_users)] = Field(
        "", description="users that may approve at the service, beside root and its own"
    )
    tool_classes: Annotated[str, AfterValidator(_classes)] = Field(
        "", description="SERVER/TOOL=CLASS, ...: read, write, send, delete, pay or publish"
    )

    outbox_server: ServerPlace = Field("off", description="lab-outbox: off, stdio, or unix:/PATH of a running one")
    lab_outbox: AnyPath | None = Field(None, description="folder that lab-outbox writes messages to")
    outbox_recipients: str = Field("", description="who may be written to, e.g. *@lab.example; none: nobody")
    weather_server: ServerPlace = Field("off", description="weather: off, stdio, or unix:/PATH of a running one")

    @property
    def approver_ids(self) -> frozenset[int]:
        """The users that may approve at the service."""
        return user_ids(allowlist.split(self.approvers)) | {0, os.getuid()}

    def outbox_problems(self) -> list[str]:
        """Return what is missing for the lab-outbox that a checkout starts."""
        if self.outbox_server != "stdio" or (self.lab_outbox is not None and is_folder(self.lab_outbox)):
            return []
        what = "is not set" if self.lab_outbox is None else f"{str(self.lab_outbox)!r} is no folder"
        return [f"LAB_OUTBOX: {what}; lab-outbox writes messages there: name a folder that exists"]

    def outbox_environment(self) -> dict[str, str]:
        """Return the environment of the lab-outbox that a checkout starts: what OutboxSettings reads, no more."""
        return {"LAB_OUTBOX": str(self.lab_outbox or ""), "OUTBOX_RECIPIENTS": self.outbox_recipients}


class OutboxSettings(LabSettings):
    """What lab-outbox reads, from the environment alone."""

    reads_files: ClassVar[bool] = False

    lab_outbox: Annotated[Path, path_to("folder")] = Field(description="folder that messages are written to")
    outbox_recipients: str = Field("", description="who may be written to; none: nobody")
