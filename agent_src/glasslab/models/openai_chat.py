"""OpenAI-compatible chat completions, by the openai SDK. One request a call: a failed one is reported, not repeated."""

from __future__ import annotations

import contextlib
import json
import queue
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

from glasslab.models import Message, ModelError, Reply, Stopped, ToolDefinition, ToolRequest, Usage

if TYPE_CHECKING:
    from openai import OpenAI

CALL_SECONDS: Final = 120.0  # by the wall clock: a model that drips its reply is not waited for longer
STOP_POLL_SECONDS: Final = 0.05
KEEPALIVE_SECONDS: Final = 30.0
LIST_SECONDS: Final = 5.0
# What a reply may hold is recorded up to four times over in one POST, and that has to pass the log's own limit (10 MB).
MAX_REPLY_BYTES: Final = 1_500_000
MAX_TOOL_REQUESTS: Final = 128
MAX_FINISH_REASON: Final = 64
SHOWN: Final = 200

HTTP_REMEDIES: Final = {
    400: "check MODEL and that this model takes tools",
    401: "check MODEL_API_KEY",
    402: "the account has no credit left",
    403: "check what MODEL_API_KEY may use",
    404: "check MODEL_BASE_URL and MODEL",
    413: "the conversation is too long for this model",
    429: "rate limit or quota reached: wait, or check the account",
}


class OpenAIChat:
    """A model behind `BASE_URL/chat/completions`. Safe for several threads; the SDK is imported on first use."""

    def __init__(
        self, base_url: str, model: str, api_key: str | None, ca: Path | None, seconds: float = CALL_SECONDS
    ) -> None:
        """`ca` None trusts the public CAs; `seconds` is the wall-clock limit of a call."""
        self._base_url, self._model, self._key, self._ca, self._seconds = base_url, model, api_key, ca, seconds
        self._host = urlsplit(base_url).netloc
        self._client: OpenAI | None = None
        self._lock = threading.Lock()

    def open(self) -> OpenAI:
        """Import the SDK and make the client, once."""
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def warm(self) -> None:
        """Open the connection ahead, by asking for the list of models; an answer of any kind will do. Never raises."""
        with contextlib.suppress(Exception):  # only a head start: the first call will say what is wrong
            self._list_models()

    def problem(self) -> str | None:
        """Ask for the list of models; return why that failed, as one line, or None."""
        try:
            self._list_models()
        except Exception as error:
            try:
                self._explain(error)
            except ModelError as explained:
                return str(explained)
        return None

    def _list_models(self) -> None:
        self.open().models.with_raw_response.list(extra_headers=self._headers(), timeout=LIST_SECONDS)

    def _headers(self) -> dict[str, Any]:
        from openai import Omit

        return {} if self._key else {"Authorization": Omit()}  # else the SDK would send what stands in for a key

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _make_client(self) -> OpenAI:
        import httpx2
        from openai import DefaultHttpxClient, OpenAI

        from glasslab.models.bounds import BoundedTransport

        context = ssl.create_default_context(cafile=str(self._ca) if self._ca else None)
        limits = httpx2.Limits(keepalive_expiry=KEEPALIVE_SECONDS)
        # trust_env: no proxy that a variable names; the way to the model is the one that is configured
        transport = BoundedTransport(MAX_REPLY_BYTES, verify=context, trust_env=False, limits=limits)
        http = DefaultHttpxClient(transport=transport, trust_env=False, follow_redirects=False)
        client = OpenAI(
            base_url=self._base_url,
            api_key=self._key or "none",
            max_retries=0,
            http_client=http,
            timeout=self._seconds,
        )
        _ = client.chat.completions  # the SDK imports it when it is touched first: here, not in the first call
        return client

    def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
        stop: threading.Event,
        seconds: float | None = None,
    ) -> Reply:
        """Make one call; see Model. The wait ends by the wall clock, or when `stop` is set."""
        client = self.open()
        limit = self._seconds if seconds is None else min(self._seconds, seconds)
        results: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()
        began = time.monotonic()
        threading.Thread(
            target=self._request, args=(client, messages, tools, limit, stop, results), name="model", daemon=True
        ).start()
        while True:
            left = began + limit - time.monotonic()
            if stop.is_set():
                raise Stopped
            if left <= 0:
                self._fail("model_unreachable", "timeout", f"no reply within {limit:g} s; check the model server")
            try:
                result = results.get(timeout=min(STOP_POLL_SECONDS, left))
                break
            except queue.Empty:
                continue
        if isinstance(result, Exception):
            self._explain(result)
        status, body = result
        return self._read(status, body, round((time.monotonic() - began) * 1000, 3))

    def _request(
        self,
        client: OpenAI,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
        limit: float,
        stop: threading.Event,
        results: queue.SimpleQueue[tuple[int, bytes] | Exception],
    ) -> None:
        deadline = time.monotonic() + limit
        try:
            # As extra_body they are sent as they are, and as recorded; the SDK's own walk through typed arguments would
            # cost 4 ms a call.
            body_fields = {"messages": list(messages), **({"tools": list(tools)} if tools else {})}
            with client.chat.completions.with_streaming_response.create(
                model=self._model,
                messages=(),
                extra_body=body_fields,
                extra_headers=self._headers(),
                timeout=limit,
            ) as response:
                body = b""
                for chunk in response.iter_bytes():
                    body += chunk
                    if time.monotonic() > deadline or stop.is_set():
                        return  # nobody waits any more; leaving the block closes the connection
                results.put((response.status_code, body))
        except Exception as error:
            results.put(error)

    def _fail(self, status: str, reason: str, text: str, reply: Reply | None = None) -> NoReturn:
        if self._key:
            text = text.replace(self._key, "[key]")
        text = "".join(character if character.isprintable() else " " for character in text)
        raise ModelError(status, reason, f"model {self._model} at {self._host}: {text}", reply)

    def _said(self, body: object) -> str:
        """Return what an error body says, in brackets; the key goes first, so that no cut can leave a part of it."""
        inner = body.get("error", body) if isinstance(body, dict) else body
        text = inner.get("message") if isinstance(inner, dict) else inner
        if not isinstance(text, str) or not text.strip():
            return ""
        return f" ({(text.replace(self._key, '[key]') if self._key else text)[:SHOWN].strip()})"

    def _explain(self, error: Exception) -> NoReturn:
        """Turn what the SDK raised into one line."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            code = error.status_code
            said = self._said(error.body)
            otherwise = "see the provider's status page" if code >= 500 else "check MODEL_BASE_URL"
            remedy = HTTP_REMEDIES.get(code, otherwise)
            status = "model_unreachable" if code >= 500 or code < 400 else "model_refused"
            self._fail(status, f"http_{code}", f"HTTP {code}{said}; {remedy}")
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            self._fail("model_unreachable", "timeout", f"no reply within {self._seconds:g} s; check the model server")
        cause: BaseException = error
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__ or cause
        if isinstance(cause, ssl.SSLError):
            text = getattr(cause, "verify_message", "") or cause.reason or "handshake failed"
            self._fail("model_unreachable", "tls", f"TLS: {text}; set MODEL_CA, and use a name in the certificate")
        if isinstance(cause, ConnectionRefusedError):
            self._fail(
                "model_unreachable", "connection_refused", "connection refused; start it or check MODEL_BASE_URL"
            )
        if isinstance(error, openai.APIConnectionError | httpx2.HTTPError | OSError):
            self._fail("model_unreachable", "connection_failed", f"{cause or 'no connection'}; check MODEL_BASE_URL")
        self._fail("model_invalid", "not_readable", f"{error}; check that MODEL_BASE_URL speaks chat completions")

    def _read(self, status: int, body: bytes, latency_ms: float) -> Reply:
        """Return the reply in a body; nothing of its form is taken for granted."""
        speaks = "check that MODEL_BASE_URL speaks chat completions"
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            self._fail("model_invalid", "not_json", f"HTTP {status} with a body that is not JSON; {speaks}")
        choices = data.get("choices") if isinstance(data, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            said = self._said(data.get("error") if isinstance(data, dict) else None)
            self._fail("model_invalid", "no_choices", f"the reply has no choices{said}; try again or another MODEL")
        message, finish = choices[0].get("message"), choices[0].get("finish_reason")
        if not isinstance(message, dict):
            self._fail("model_invalid", "no_message", f"the reply has no message; {speaks}")
        calls = message.get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        reply = Reply(
            content=_text(message.get("content")),
            tool_requests=[_tool_request(item) for item in calls[:MAX_TOOL_REQUESTS]],
            finish_reason=finish[:MAX_FINISH_REASON] if isinstance(finish, str) else None,
            usage=_usage(data.get("usage")),
            latency_ms=latency_ms,
            refusal=_text(message.get("refusal")),
        )
        if reply.finish_reason == "content_filter":
            self._fail(
                "model_refused", "content_filter", "the provider's content filter stopped the reply; rephrase", reply
            )
        if reply.refusal:
            self._fail("model_refused", "refusal", "the model refused to answer; rephrase", reply)
        if reply.finish_reason == "length":
            self._fail("model_invalid", "length", "the reply was cut at the model's token limit; ask for less", reply)
        if len(calls) > MAX_TOOL_REQUESTS:
            text = f"the reply asks for {len(calls)} tool calls; at most {MAX_TOOL_REQUESTS} at once: ask for less"
            self._fail("model_invalid", "too_many_calls", text, reply)
        if not reply.tool_requests and not (reply.content and reply.content.strip()):
            self._fail("model_invalid", "empty_reply", "the reply has neither text nor a tool call; try again", reply)
        return reply


def _text(value: object) -> str | None:
    """Return a content as text: providers send a string, nothing, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def _tool_request(item: object) -> ToolRequest:
    """Return a call as sent. One without a name keeps an empty one, which the loop answers as an unknown tool."""
    call = item if isinstance(item, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments, id_ = function.get("name"), function.get("arguments"), call.get("id")
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = json.dumps(arguments)
    return ToolRequest(
        id=id_ if isinstance(id_, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=arguments if isinstance(arguments, str) else "",
    )


def _usage(value: object) -> Usage:
    usage: dict[str, Any] = value if isinstance(value, dict) else {}
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None

    def count(number: object) -> int | None:
        return number if type(number) is int and 0 <= number < 1 << 53 else None

    return Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), count(reasoning))
