"""Settings of the conversation: how large it may grow, how it is shortened, notes, and what a delegate may do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from glasslab.keys import is_folder
from glasslab.settings_sources import AnyPath, LabSettings, path_to


def _names(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("is no list of names, each once, with commas between; for example list_files,read_file")
    return ",".join(names)


class ContextFields(LabSettings):
    """A part of `Settings`."""

    # The largest one keeps a request within what a log takes in one POST: each is recorded whole.
    context_tokens: int = Field(100_000, ge=1_000, le=600_000, description="tokens that a model call may send")
    compaction: Literal["model", "list"] = Field("model", description="who sums up what no longer fits")

    delegate_tools: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="tools of a delegate, with commas between; there is none without"
    )
    delegate_turns: int = Field(4, ge=1, le=100, description="model calls that a delegate may take")
    delegate_tool_calls: int = Field(10, ge=0, le=1000, description="tool calls that a delegate may take")

    notes_server: Annotated[str, Field(pattern=r"^(off|stdio|unix:/.+)$")] = Field(
        "off", description="lab-notes: off, stdio, or unix:/PATH of a running one"
    )
    lab_notes: AnyPath | None = Field(None, description="folder of the notes, outside LAB_DOCUMENTS")

    def notes_problems(self, documents: Path) -> list[str]:
        """Return what is wrong with the folder of the lab-notes that a checkout starts."""
        if self.notes_server != "stdio":
            return []
        if self.lab_notes is None or not is_folder(self.lab_notes):
            what = "is not set" if self.lab_notes is None else f"{str(self.lab_notes)!r} is no folder"
            return [f"LAB_NOTES: {what}; lab-notes keeps {NOTES} there: name a folder that exists"]
        return overlap(self.lab_notes, documents)

    def notes_environment(self, documents: Path) -> dict[str, str]:
        """Return the environment of the lab-notes that a checkout starts: what NotesSettings reads, no more."""
        return {"LAB_NOTES": str(self.lab_notes or ""), "LAB_DOCUMENTS": str(documents)}


NOTES = "NOTES.md"


def overlap(notes: Path, documents: Path) -> list[str]:
    """Return what is wrong when one of two folders is inside the other: notes would be read as documents."""
    inner, outer = notes.resolve(), documents.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        return [f"LAB_NOTES: {str(notes)!r} and LAB_DOCUMENTS overlap; keep notes in a folder of their own"]
    return []


class NotesSettings(LabSettings):
    """What lab-notes reads, from the environment alone."""

    reads_files: ClassVar[bool] = False

    lab_notes: Annotated[Path, path_to("folder")] = Field(description="folder of the notes")
    lab_documents: AnyPath | None = Field(None, description="folder of the documents, which the notes are not in")

    def problems(self) -> list[str]:
        """Return what does not fit together."""
        return overlap(self.lab_notes, self.lab_documents) if self.lab_documents else []
