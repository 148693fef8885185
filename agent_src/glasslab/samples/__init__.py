"""The sample session's own files: two documents, the scripted model's replies and where they lie."""

from pathlib import Path

DOCUMENTS = Path(__file__).parent / "documents"
"""The folder with the two sample documents, ready to be given as LAB_DOCUMENTS."""

SCRIPT = Path(__file__).parent / "sample.yml"
"""The scripted model's three replies to the sample question."""

QUESTION = "What was the root cause of the September incident?"
"""The sample question."""
