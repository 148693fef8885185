"""A tool's result as text: every kind of block, structured content, and the bound."""

from typing import Any

import mcp_types as types
import pytest

from glasslab.results import as_text, cap


def result(*content: dict[str, Any], **more: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": list(content), **more})


TEXT = {"type": "text", "text": "hello"}
LINK = {"type": "resource_link", "uri": "https://evil.example/x?y", "name": "a\u202eb"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "inside", "mimeType": "text/plain"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA", "mimeType": "image/png"}}


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (result(TEXT, TEXT), "hello\nhello"),
        (result(), ""),
        (result(structuredContent={"city": "Zürich", "n": 7}), '{"city": "Zürich", "n": 7}'),
        (result(TEXT, structuredContent={"city": "Zürich"}), "hello"),
        (result({"type": "image", "mimeType": "image/png", "data": "AAAA"}, structuredContent={"n": 1}),
         '[image, image/png, 4 characters of base64, not shown]\n{"n": 1}'),
        (result({"type": "audio", "mimeType": "audio/wav\nX", "data": "AAAA"}),
         "[audio, audio/wav X, 4 characters of base64, not shown]"),
        (result(LINK), "[resource link https://evil.example/x?y, a\\u202eb, not followed]"),
        (result(EMBEDDED), "[embedded resource file:///a.md]\ninside"),
        (result(BLOB), "[embedded resource file:///a.bin, image/png, 4 characters of base64, not shown]"),
    ],
)  # fmt: skip
def test_each_kind_of_block(got: types.CallToolResult, text: str) -> None:
    assert as_text(got, 1000) == text


def test_structured_content_is_bounded_too() -> None:
    text = as_text(result(structuredContent={"n": "é" * 1000}), 100)
    assert text.endswith("\n[cut: 99 of 2009 bytes shown]")


@pytest.mark.parametrize(
    ("text", "limit", "kept"), [("abc", 3, "abc"), ("aé", 2, "a"), ("éé", 3, "é"), ("x" * 9, 4, "xxxx")]
)
def test_cap_never_tears_a_character(text: str, limit: int, kept: str) -> None:
    size = len(text.encode())
    note = "" if size <= limit else f"\n[cut: {len(kept.encode())} of {size} bytes shown]"
    assert cap(text, limit) == kept + note
