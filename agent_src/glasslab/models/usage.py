"""What a call took: tokens estimated where the provider gave no counts, cost from the reply or from the price table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from glasslab.frames import canonical_json, recordable
from glasslab.models import Reply, Request, Usage
from glasslab.prices import Prices, cost

BYTES_A_TOKEN: Final = 3  # fewer than English or JSON take: an estimate that is too low would let a limit be passed


def estimated(reply: Reply, request: Request) -> Reply:
    """Return the reply with the token counts that the provider left out estimated from the sizes, and marked so."""
    usage = reply.usage
    said = "".join([reply.content or "", *(call.name + call.arguments for call in reply.tool_requests)])
    # A count of 0 that cannot be is one that was not made: gateways send it, and with it no limit is ever reached.
    received_none = usage.completion == 0 and bool(said)
    usage = replace(usage, prompt=usage.prompt or None, completion=None if received_none else usage.completion)
    if usage.prompt is not None and usage.completion is not None:
        return reply
    sent = len(canonical_json(recordable([*request.messages, *request.tools])))
    received = len(said.encode("utf-8", "surrogatepass"))
    prompt = usage.prompt if usage.prompt is not None else math.ceil(sent / BYTES_A_TOKEN)
    completion = usage.completion if usage.completion is not None else math.ceil(received / BYTES_A_TOKEN)
    return replace(reply, usage=replace(usage, prompt=prompt, completion=completion, estimated=True))


def priced(usage: Usage, model: str, prices: Prices) -> Usage:
    """Return the usage with its cost: the reply's own word, else by the table; without either as it is.

    A reply that says 0 is priced by the table where that knows a price: gateways say 0 of what is billed elsewhere.
    """
    if usage.cost or usage.prompt is None or usage.completion is None:
        return usage
    found = cost(prices, model, usage.prompt, usage.completion)
    return usage if found is None else replace(usage, cost=found, cost_from="prices")


def cost_of(value: object) -> float | None:
    """Return the US dollars that a reply says it cost; None when it says nothing usable."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e9 else None
