"""The APIs that a model can speak, by the name that MODEL_PROVIDER gives. Nothing else asks which one it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from glasslab.models import Model
from glasslab.models.anthropic_messages import AnthropicMessages
from glasslab.models.endpoint import Place
from glasslab.models.openai_chat import OpenAIChat

PROVIDERS: Final[Mapping[str, Callable[[Place], Model]]] = {
    "openai": OpenAIChat,
    "anthropic": AnthropicMessages,
}


def make_model(provider: str, place: Place) -> Model:
    """Return the client of a model; nothing is opened yet."""
    return PROVIDERS[provider](place)
