"""OpenAI-compatible chat completions, by the openai SDK. One request a call: a failed one is reported, not repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from glasslab.models import Reply, Request
from glasslab.models.client import ModelClient
from glasslab.models.endpoint import Place, Response, http_client
from glasslab.models.openai_wire import Chunks, body_of, reply_of
from glasslab.models.streams import Stream

if TYPE_CHECKING:
    from openai import OpenAI


class OpenAIChat(ModelClient["OpenAI"]):
    """A model behind `BASE_URL/chat/completions`. Safe for several threads; the SDK is imported on first use."""

    def __init__(self, place: Place) -> None:
        """Open nothing yet."""
        super().__init__(place, "chat completions")

    def complete(self, request: Request, stop: threading.Event, seconds: float | None = None) -> Reply:
        """Make one call; see Model. The wait ends by the wall clock, or when `stop` is set."""
        body = body_of(request, self._place.max_tokens)
        stream = Stream(Chunks(), request.watch) if request.watch else None
        answer = self._endpoint.call(partial(self._send, self.open(), body), stop, seconds, stream)
        return self._reply(answer, request, reply_of)

    def _send(self, client: OpenAI, body: dict[str, Any], limit: float) -> AbstractContextManager[Response]:
        # As extra_body it is sent as it is; the SDK's own walk through typed arguments would cost 4 ms a call.
        return _opened(
            client.chat.completions.with_streaming_response.create(
                model=self._place.model, messages=(), extra_body=body, extra_headers=self._headers(), timeout=limit
            )
        )

    def _list(self, client: OpenAI, limit: float) -> AbstractContextManager[Response]:
        models = client.models
        return _opened(models.with_streaming_response.list(extra_headers=self._headers(), timeout=limit))

    def _headers(self) -> dict[str, Any]:
        from openai import Omit

        return {} if self._place.key else {"Authorization": Omit()}  # else the SDK would send what stands in for a key

    def _make_client(self) -> OpenAI:
        from openai import OpenAI

        client = OpenAI(
            base_url=self._place.base_url,
            api_key=self._place.key or "none",
            max_retries=0,  # each attempt is a frame: the loop makes the next one, when that is on record
            http_client=http_client(self._place),
            timeout=self._place.seconds,
        )
        _ = client.chat.completions  # the SDK imports it when it is touched first: here, not in the first call
        return client


@contextmanager
def _opened(response: AbstractContextManager[Any]) -> Iterator[Response]:
    """Open an answer of the SDK's; one that it raises for its HTTP status is an answer like the others."""
    from openai import APIStatusError

    try:
        with response as opened:
            yield opened
    except APIStatusError as error:
        yield error.response
