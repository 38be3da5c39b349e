"""What both transports share: requests as text, events as they come."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, NamedTuple
from urllib.parse import quote, urlencode

from .endpoint import Endpoint

Query = Mapping[str, Any]


class ServerEvent(NamedTuple):
    event: str
    data: Any


def target(endpoint: Endpoint, path: str, query: Query | None) -> str:
    given = {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"{endpoint.prefix}{path}" + (f"?{urlencode(given)}" if given else "")


def segment(value: str | int) -> str:
    """A value as one part of a path."""
    return quote(str(value), safe="")


def headers(endpoint: Endpoint, *, accept: str, content: str | None) -> dict[str, str]:
    found = {"Authorization": f"Bearer {endpoint.token}", "Accept": accept, "Connection": "close"}
    if content is not None:
        found["Content-Type"] = content
    return found


class EventParser:
    """Turns lines of a stream of server-sent events into events."""

    def __init__(self) -> None:
        self._event = "message"
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[ServerEvent]:
        if line == "":
            if self._data:
                yield ServerEvent(self._event, json.loads("\n".join(self._data)))
            self._event, self._data = "message", []
        elif line.startswith("event:"):
            self._event = line[6:].strip()
        elif line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
