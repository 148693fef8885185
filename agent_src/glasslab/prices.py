"""What a model's tokens cost: a small table in the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ANY_MODEL: Final = "*"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens, sent and received."""

    prompt: float
    completion: float


Prices = Mapping[str, Price]


def parse_prices(text: str) -> dict[str, Price]:
    """Return the table in `MODEL=IN/OUT, MODEL=IN/OUT`; `*` is any other model. Raises ValueError with the remedy."""
    table = {}
    for part in filter(str.strip, text.split(",")):
        name, _, numbers = part.strip().rpartition("=")
        sent, _, received = numbers.partition("/")
        try:
            price = Price(float(sent), float(received))
        except ValueError:
            price = Price(math.nan, math.nan)
        if not name.strip() or not all(math.isfinite(each) and each >= 0 for each in (price.prompt, price.completion)):
            raise ValueError(f"has {part.strip()[:80]!r}; give MODEL=IN/OUT, in US dollars for a million tokens each")
        table[name.strip()] = price
    return table


def cost(prices: Prices, model: str, prompt: int, completion: int) -> float | None:
    """Return the US dollars that these tokens cost, None when the table does not say."""
    price = prices.get(model) or prices.get(ANY_MODEL)
    if price is None:
        return None
    return round((prompt * price.prompt + completion * price.completion) / 1_000_000, 9)
