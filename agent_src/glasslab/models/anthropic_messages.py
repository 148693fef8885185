"""Anthropic Messages, over plain HTTP: one POST, sent and read as it is, for which the vendor's SDK would be 19 MB."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from glasslab.models import Reply, Request
from glasslab.models.anthropic_wire import Events, body_of, reply_of
from glasslab.models.client import ModelClient
from glasslab.models.endpoint import Place, Response, http_client
from glasslab.models.streams import Stream

if TYPE_CHECKING:
    import httpx2

VERSION: Final = "2023-06-01"  # of the API; it has kept this one, and adds to it
MAX_TOKENS: Final = 8192  # of a reply; this API wants a number


class AnthropicMessages(ModelClient["httpx2.Client"]):
    """A model behind `BASE_URL/messages`. Safe for several threads; the HTTP library is imported on first use."""

    def __init__(self, place: Place) -> None:
        """Open nothing yet. The base URL may be with or without its /v1."""
        super().__init__(place, "Anthropic Messages")
        self._root = place.base_url if place.base_url.endswith("/v1") else f"{place.base_url}/v1"

    def _make_client(self) -> httpx2.Client:
        return http_client(self._place)

    def complete(self, request: Request, stop: threading.Event, seconds: float | None = None) -> Reply:
        """Make one call; see Model. The wait ends by the wall clock, or when `stop` is set."""
        body = body_of(request, self._place.model, self._place.max_tokens or MAX_TOKENS)
        stream = Stream(Events(), request.watch) if request.watch else None
        answer = self._endpoint.call(partial(self._send, self.open(), body), stop, seconds, stream)
        return self._reply(answer, request, reply_of)

    def _send(self, client: httpx2.Client, body: dict[str, Any], limit: float) -> AbstractContextManager[Response]:
        content = json.dumps(body, ensure_ascii=False).encode()
        headers = self._headers() | {"content-type": "application/json"}
        return client.stream("POST", f"{self._root}/messages", content=content, headers=headers, timeout=limit)

    def _list(self, client: httpx2.Client, limit: float) -> AbstractContextManager[Response]:
        return client.stream("GET", f"{self._root}/models", headers=self._headers(), timeout=limit)

    def _headers(self) -> dict[str, str]:
        key = {"x-api-key": self._place.key} if self._place.key else {}
        return {"anthropic-version": VERSION, **key}
