"""Requests of a program that waits for their answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any, Generator, Iterable

from .endpoint import Endpoint
from .errors import CoppiceError, problem
from .messages import EventParser, Query, ServerEvent, headers, target

CHUNK = 65536


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


class Transport:
    """Each request has a connection of its own, so that one client serves many threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def json(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
    ) -> Any:
        with self._send(method, path, query, body, content, "application/json") as response:
            return json.loads(response.read() or b"null")

    def text(self, method: str, path: str, query: Query | None = None) -> str:
        with self._send(method, path, query, None, None, "*/*") as response:
            return response.read().decode()

    def stream(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Generator[bytes, None, None]:
        with self._send(method, path, query, body, None, "*/*") as response:
            while chunk := response.read(CHUNK):
                yield chunk

    def events(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Generator[ServerEvent, None, None]:
        parser = EventParser()
        with self._send(method, path, query, body, None, "text/event-stream") as response:
            while line := response.readline():
                yield from parser.feed(line.decode().rstrip("\r\n"))

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Any,
        content: bytes | Iterable[bytes] | None,
        accept: str,
    ) -> http.client.HTTPResponse:
        kind = "application/octet-stream" if content is not None else "application/json" if body is not None else None
        data = content if content is not None else None if body is None else json.dumps(body).encode()
        connection = self._connect()
        try:
            connection.request(
                method,
                target(self._endpoint, path, query),
                data,
                headers(self._endpoint, accept=accept, content=kind),
                encode_chunked=data is not None and not isinstance(data, bytes),
            )
            response = connection.getresponse()
        except OSError as error:
            connection.close()
            raise CoppiceError(
                "unavailable", f"the daemon cannot be reached: {error}", hint="Start it with `coppice up`."
            ) from error
        if response.status < 400:
            return response
        with response:
            text = response.read()
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        raise problem(response.status, document)

    def _connect(self) -> http.client.HTTPConnection:
        at = self._endpoint
        if at.socket is not None:
            return _SocketConnection(at.socket)
        if at.scheme == "https":
            return http.client.HTTPSConnection(at.host, at.port, context=ssl.create_default_context())
        return http.client.HTTPConnection(at.host, at.port)
