"""MCP server `weather`: `get_current_weather(city)`, from two hosts of Open-Meteo: one knows places, one the weather.

What goes out is the name of a city, and nothing else fits into it; what comes back is read as numbers and one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import requests
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from glasslab.guardrails import visible_line
from glasslab.servers.plain import PlainServer, text_tool

NAME: Final = "weather"
GEOCODING: Final = "https://geocoding-api.open-meteo.com"
FORECAST: Final = "https://api.open-meteo.com"
SECONDS: Final = 10.0  # to connect, and again between two pieces of an answer
MAX_ANSWER_BYTES: Final = 100_000
_CITY: Final = re.compile(r"[^\W\d_]+([ .,'\u2019()-]{1,2}[^\W\d_]+)*[.)]?")  # words of letters, of any alphabet
_DESCRIPTION: Final = "Get the current weather of a city: temperature in degrees Celsius and conditions."
_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "city": {"description": "The city's name, e.g. London.", "maxLength": 60}
}
# WMO code 4677 as the forecast's host uses it.
CONDITIONS: Final = {
    0: "clear sky", 1: "mainly clear", 2: "partly cloudy", 3: "overcast",
    45: "fog", 48: "rime fog",
    51: "light drizzle", 53: "drizzle", 55: "dense drizzle",
    56: "light freezing drizzle", 57: "freezing drizzle",
    61: "light rain", 63: "rain", 65: "heavy rain",
    66: "light freezing rain", 67: "freezing rain",
    71: "light snowfall", 73: "snowfall", 75: "heavy snowfall", 77: "snow grains",
    80: "light rain showers", 81: "rain showers", 82: "violent rain showers",
    85: "light snow showers", 86: "snow showers",
    95: "thunderstorm", 96: "thunderstorm with light hail", 99: "thunderstorm with hail",
}  # fmt: skip


class Weather(PlainServer):
    """The server. Each call asks the two hosts anew."""

    def __init__(self, geocoding: str = GEOCODING, forecast: str = FORECAST, ca: str | None = None) -> None:
        """`geocoding` and `forecast` are the hosts' base URLs; `ca` a CA file in place of the public ones."""
        self._geocoding, self._forecast, self._ca = geocoding, forecast, ca
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=True)
        super().__init__(NAME, [text_tool(self.get_current_weather, _DESCRIPTION, _ARGUMENTS, reads)])

    def get_current_weather(self, city: str) -> str:
        """Return city, temperature_c and conditions as JSON. Raises ToolError."""
        name = city.strip()
        if not _CITY.fullmatch(name):
            raise ToolError(f"Unknown city: {visible_line(city)[:60]}")
        places = self._get(f"{self._geocoding}/v1/search", {"name": name, "count": "1", "language": "en"}).get(
            "results"
        )
        if not isinstance(places, list) or not places:
            raise ToolError(f"Unknown city: {name}")
        latitude, longitude = (_number(places[0], key, 180.0) for key in ("latitude", "longitude"))
        now = self._get(
            f"{self._forecast}/v1/forecast",
            {"latitude": str(latitude), "longitude": str(longitude), "current": "temperature_2m,weather_code"},
        ).get("current")
        found = {
            "city": visible_line(str(places[0].get("name") or name))[:60],
            "temperature_c": _number(now, "temperature_2m", 100.0),
            "conditions": CONDITIONS.get(int(_number(now, "weather_code", 99.0)), "unknown"),
        }
        return json.dumps(found, ensure_ascii=False)

    def _get(self, url: str, query: dict[str, str]) -> dict[str, Any]:
        """Return the object that a host answers with. Raises ToolError, whose text is this server's own."""
        with requests.Session() as session:
            session.trust_env = False  # neither a proxy nor a credential of the environment
            try:
                with session.get(
                    url, params=query, timeout=SECONDS, verify=self._ca or True, allow_redirects=False, stream=True
                ) as answer:
                    if answer.status_code != 200:
                        raise ToolError(f"the weather service answered with HTTP {answer.status_code}; try again later")
                    value = json.loads(_bounded(answer))
            except (requests.RequestException, ValueError, RecursionError) as error:
                raise ToolError(
                    f"the weather service gave no answer ({type(error).__name__}); try again later"
                ) from None
        if not isinstance(value, dict):
            raise ToolError("the weather service gave no answer (no object); try again later")
        return value


def _bounded(answer: requests.Response) -> bytes:
    data = b""
    for piece in answer.iter_content(8_192):
        data += piece
        if len(data) > MAX_ANSWER_BYTES:
            raise ValueError(f"more than {MAX_ANSWER_BYTES} bytes")
    return data


def _number(values: object, key: str, most: float) -> float:
    value = values.get(key) if isinstance(values, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -most <= value <= most:
        raise ToolError(f"the weather service gave no {key}; try again later")
    return value
