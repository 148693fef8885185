"""A live Splunk by its REST API: events found by a text, the app's saved searches, the searches behind its views.

The one thing that makes anything there is a search job; each is run to its end and its answer read at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

import requests

from contract import Stored

SEARCH_SECONDS: Final = 120.0
BAD: Final = ("FATAL", "ERROR")
WARNING: Final = ("WARN",)
TOKEN: Final = re.compile(r"\$[A-Za-z_][\w.]*(?:\|[a-z])?\$")
FIELDS: Final = "when, _raw, host, source, sourcetype, index"


UNTRUSTED: Final = re.compile(r"certificate verify failed[^()]*")


class LiveError(Exception):
    """Splunk cannot be asked, or answers what it should not; the text is one line."""


def unreachable(error: requests.RequestException) -> str:
    """Return why a request brought no answer, in one line, with the remedy where there is one."""
    text = " ".join(str(error).split())
    if found := UNTRUSTED.search(text):
        return f"{found[0].strip()}; set HEC_CA to the CA (PEM) that signed the certificates there"
    return f"no answer: {text[-200:]}"


@dataclass(frozen=True)
class Search:
    """One search to run: whose it is, its text and its time range."""

    owner: str
    text: str
    earliest: str = "-24h"
    latest: str = "now"


@dataclass(frozen=True)
class Splunk:
    """The management interface, and the app that is looked at."""

    url: str
    token: str
    verify: str | bool
    app: str = "glasslab"

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        try:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(
                    method,
                    f"{self.url}{path}",
                    headers={"Authorization": f"Bearer {self.token}"},
                    timeout=SEARCH_SECONDS,
                    verify=self.verify,
                    allow_redirects=False,
                    **given,
                )
            said = answer.json()
        except requests.JSONDecodeError:
            raise LiveError(f"{path} answered {answer.status_code} and no JSON") from None
        except requests.RequestException as error:
            raise LiveError(f"{path}: {unreachable(error)}") from None
        bad = said_of(said, BAD)
        if answer.status_code == 401:
            raise LiveError(f"{path}: 401 {'; '.join(said_of(said))}: SPLUNK_TOKEN is not one of this Splunk's")
        if answer.status_code not in (200, 201) or bad:
            raise LiveError(f"{answer.status_code} {'; '.join(bad or said_of(said)) or answer.text[:200]}")
        return said

    def version(self) -> str:
        """Splunk's version and build."""
        path = "/services/server/info"
        content = next((one["content"] for one in self._listed(path, {"output_mode": "json"})), {})
        if "version" not in content:
            raise LiveError(f"{path} names no version: is that the management port of a Splunk?")
        return f"{content.get('product_type', 'splunk')} {content.get('version')} (build {content.get('build')})"

    def run(self, search: Search, app: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """Run a search in an app (the one looked at); return its results and what Splunk warns of.

        Raises LiveError, also for Splunk's errors.
        """
        text = search.text.strip()
        form = {
            "search": text if text.startswith(("|", "search ")) else f"search {text}",
            "earliest_time": search.earliest,
            "latest_time": search.latest,
            "exec_mode": "oneshot",
            "output_mode": "json",
            "count": "0",
        }
        found = self._ask("POST", f"/servicesNS/nobody/{quote(app or self.app)}/search/jobs", data=form)
        return list(found.get("results", [])), said_of(found, WARNING)

    def find(self, index: str, text: str) -> list[Stored]:
        """Return the events of an index that hold a text, whatever their time."""
        query = f'search index={index} "{text}" | eval when=printf("%.6f", _time) | table {FIELDS}'
        return [
            Stored(one["_raw"], float(one["when"]), one["host"], one["source"], one["sourcetype"], one["index"])
            for one in self.run(Search("", query, "1", "+10y"), "search")[0]  # Splunk's own app, which is always there
        ]

    def _listed(self, path: str, given: dict[str, str]) -> list[dict[str, Any]]:
        found = self._ask("GET", path, params=given)
        entries = found.get("entry", []) if isinstance(found, dict) else []
        return [one for one in entries if isinstance(one, dict) and {"name", "content"} <= one.keys()]

    def _entries(self, path: str) -> dict[str, dict[str, Any]]:
        given = {"output_mode": "json", "count": "0"}
        found = self._listed(f"/servicesNS/nobody/{quote(self.app)}/{path}", given)
        own = [entry for entry in found if entry.get("acl", {}).get("app", self.app) == self.app]
        return {entry["name"]: entry["content"] for entry in own}

    def saved_searches(self) -> dict[str, Search]:
        """The app's saved searches by name."""
        return {
            name: Search(
                name,
                TOKEN.sub("*", content.get("search", "")),
                content.get("dispatch.earliest_time") or "-24h",
                content.get("dispatch.latest_time") or "now",
            )
            for name, content in self._entries("saved/searches").items()
        }

    def views(self) -> dict[str, list[Search]]:
        """The app's views by name, each with the searches behind it."""
        found = self._entries("data/ui/views")
        return {name: list(searches_of(name, content.get("eai:data", ""))) for name, content in found.items()}


def said_of(answer: Any, kinds: tuple[str, ...] = (*BAD, *WARNING)) -> list[str]:
    """Return the messages of these kinds in one of Splunk's answers."""
    messages = answer.get("messages", []) if isinstance(answer, dict) else []
    return [f"{item.get('type')}: {item.get('text')}" for item in messages if item.get("type") in kinds]


def searches_of(view: str, source: str) -> Iterator[Search]:
    """Yield the searches in a view's source: Dashboard Studio's data sources, or Simple XML's queries.

    What a reader of the view would choose (`$token$`) stands for everything here: `*`. Raises LiveError.
    """
    try:
        root = ElementTree.fromstring(source)  # from the Splunk that is verified, by its own administrator
        definition = root.find("definition")
        if definition is not None:
            yield from _studio(view, json.loads(definition.text or ""))
            return
        for search in root.iter("search"):
            query = search.findtext("query")
            if query and not search.get("base"):
                earliest, latest = search.findtext("earliest", "-24h"), search.findtext("latest", "now")
                yield Search(view, TOKEN.sub("*", query), _time(earliest, "-24h"), _time(latest, "now"))
    except (ElementTree.ParseError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise LiveError(f"view {view} cannot be read: {type(error).__name__} {error}") from None


def _studio(view: str, definition: dict[str, Any]) -> Iterator[Search]:
    sources = definition.get("dataSources", {})
    for name, one in sources.items():
        parts, base = [one], one
        while base["type"] == "ds.chain":
            base = sources[base["options"]["extend"]]
            parts.append(base)
        if base["type"] != "ds.search":
            continue  # saved searches are run as such; test data has nothing to run
        text = " | ".join(part["options"]["query"].strip().strip("|").strip() for part in reversed(parts))
        text = f"| {text}" if base["options"]["query"].lstrip().startswith("|") else text
        times = base["options"].get("queryParameters", {})
        earliest, latest = _time(times.get("earliest", ""), "-24h"), _time(times.get("latest", ""), "now")
        yield Search(f"{view}: {one.get('name', name)}", TOKEN.sub("*", text), earliest, latest)


def _time(given: str, otherwise: str) -> str:
    return otherwise if not given or TOKEN.search(given) else given
