"""Talks to a running QEMU, and to the agent in its guest: JSON lines over UNIX sockets."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

Values = dict[str, Any]


class NoAnswer(Exception):
    """Nobody is there, or nobody answered in time, or the answer was a refusal."""


async def _read(reader: asyncio.StreamReader, until: float) -> Values:
    while True:
        try:
            line = await asyncio.wait_for(reader.readline(), until)
        except (TimeoutError, ValueError) as error:
            raise NoAnswer("got timeout") from error
        if not line:
            raise NoAnswer("connection closed")
        # The agent's answer to a reset begins with a byte that is in no JSON.
        text = line.lstrip(b"\xff").strip()
        if text:
            answer: Values = json.loads(text)
            return answer


async def command(socket: Path, execute: str, timeout: float = 10.0, **arguments: Any) -> Any:
    """One QMP command; what it returns."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError as error:
        raise NoAnswer(f"no monitor: {error.strerror}") from error
    try:
        await _read(reader, timeout)
        for call, given in (("qmp_capabilities", {}), (execute, arguments)):
            writer.write(json.dumps({"execute": call, "arguments": given}).encode() + b"\n")
            await writer.drain()
            answer = await _read(reader, timeout)
            while "return" not in answer and "error" not in answer:
                answer = await _read(reader, timeout)  # an event
            if "error" in answer:
                raise NoAnswer(answer["error"].get("desc", "refused"))
        return answer["return"]
    except ConnectionError as error:
        raise NoAnswer("connection closed") from error
    finally:
        writer.close()


async def agent(socket: Path, execute: str, timeout: float = 5.0, **arguments: Any) -> Any:
    """One command of the guest agent; what it returns."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError as error:
        raise NoAnswer(f"no agent: {error.strerror}") from error
    try:
        # Whatever an earlier caller left in the line ends here: only this answer carries this number.
        number = secrets.randbelow(1 << 31)
        sync = json.dumps({"execute": "guest-sync-delimited", "arguments": {"id": number}})
        writer.write(b"\xff" + sync.encode() + b"\n")
        await writer.drain()
        while (await _read(reader, timeout)).get("return") != number:
            pass
        writer.write(json.dumps({"execute": execute, "arguments": arguments}).encode() + b"\n")
        await writer.drain()
        answer = await _read(reader, timeout)
    except ConnectionError as error:
        raise NoAnswer("connection closed") from error
    finally:
        writer.close()
    if "error" in answer:
        raise NoAnswer(answer["error"].get("desc", "refused"))
    return answer["return"]
