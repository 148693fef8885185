"""What the clients of all APIs have in common: one for several threads, made once, and asked whether it works."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from glasslab.models import ModelError, Reply, Request
from glasslab.models.endpoint import LIST_SECONDS, Answer, Endpoint, Place, Response
from glasslab.models.replies import Unusable
from glasslab.models.usage import estimated


class Closable(Protocol):
    """A client of an SDK's, or of HTTP."""

    def close(self) -> None:
        """Close its connections."""


class ModelClient[C: Closable](ABC):
    """A model at a place. Safe for several threads; what it needs is imported on first use."""

    def __init__(self, place: Place, speaks: str) -> None:
        """Open nothing yet. `speaks` names the API, for the remedies."""
        self._place = place
        self._endpoint = Endpoint(place, speaks)
        self._client: C | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _make_client(self) -> C:
        """Import what is needed, and make the client."""

    @abstractmethod
    def _list(self, client: C, limit: float) -> AbstractContextManager[Response]:
        """Ask for the list of models, within `limit` seconds."""

    def open(self) -> C:
        """Make the client, once."""
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
        except ModelError as error:
            return str(error)
        return None

    def _list_models(self) -> None:
        client = self.open()  # before the clock starts: importing takes longer than asking
        self._endpoint.call(partial(self._list, client), threading.Event(), LIST_SECONDS, None)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _reply(self, answer: Answer, request: Request, read: Callable[[Mapping[str, Any], float], Reply]) -> Reply:
        """Return the reply in an answer, read by its API's rules. Raises ModelError."""
        data = self._endpoint.json(answer)
        try:
            return estimated(read(data, answer.latency_ms), request)
        except Unusable as unusable:
            self._endpoint.unusable(unusable, unusable.reply and estimated(unusable.reply, request))
