"""What a tool's result is to the model: text. Everything else is said in words, and all of it is bounded."""

import json
from collections.abc import Sequence
from typing import Final

import mcp_types as types

from glasslab.guardrails import visible_line

_SHOWN: Final = 200  # characters of a name or address that a server gives


def as_text(result: types.CallToolResult, limit: int) -> str:
    """Return a result as text within `limit` bytes.

    Structured content stands there only when no text block does: a server that gives both says the same twice.
    """
    blocks: Sequence[types.ContentBlock] = result.content
    parts = [_block(block) for block in blocks]
    if result.structured_content is not None and not any(isinstance(block, types.TextContent) for block in blocks):
        parts.append(_clean(json.dumps(result.structured_content, ensure_ascii=False)))
    return cap("\n".join(parts), limit)


def cap(text: str, limit: int) -> str:
    """Return `text` within `limit` bytes of UTF-8, with a note of what was cut; never a torn character."""
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    kept = data[:limit].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(kept.encode('utf-8'))} of {len(data)} bytes shown]"


def resource_text(result: types.ReadResourceResult | types.InputRequiredResult) -> str:
    """Return a resource as text; of what is no text, what it is."""
    contents = [] if isinstance(result, types.InputRequiredResult) else result.contents
    return "\n".join(_contents(item) for item in contents)


def prompt_text(result: types.GetPromptResult | types.InputRequiredResult) -> str:
    """Return a prompt's messages as one text; what it puts into the model's mouth is marked so."""
    messages = [] if isinstance(result, types.InputRequiredResult) else result.messages
    spoken = {"user": "", "assistant": "[assistant] "}
    return "\n\n".join(f"{spoken[message.role]}{_block(message.content)}" for message in messages)


def _contents(contents: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(contents, types.TextResourceContents):
        return _clean(contents.text)
    kind = visible_line(contents.mime_type or "binary")[:_SHOWN]
    return f"[{_shown(contents.uri)}, {kind}, {len(contents.blob)} characters of base64, not shown]"


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return _clean(block.text)
        case types.ImageContent() | types.AudioContent():
            kind = _shown(block.mime_type)
            return f"[{block.type}, {kind}, {len(block.data)} characters of base64, not shown]"
        case types.ResourceLink():
            return f"[resource link {_shown(block.uri)}, {_shown(block.name)}, not followed]"
        case _ if isinstance(block.resource, types.TextResourceContents):
            return f"[embedded resource {_shown(block.resource.uri)}]\n{_clean(block.resource.text)}"
        case _:
            return f"[embedded resource {_contents(block.resource)[1:]}"


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _shown(text: object) -> str:
    return visible_line(str(text))[:_SHOWN]
