"""Requests of a program that does other things while it waits, by asyncio alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import Any, AsyncGenerator, AsyncIterable, AsyncIterator, Iterable

from .endpoint import Endpoint
from .errors import CoppiceError, problem
from .messages import EventParser, Query, ServerEvent, headers, target

CHUNK = 65536
LONGEST_LINE = 64 * 1024 * 1024


class _Answer:
    """One answer as it comes: its head, then its body in chunks or in lines."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.status = 0
        self._length: int | None = None
        self._chunked = False

    async def head(self) -> None:
        self.status = int((await self._line()).split(" ", 2)[1])
        while line := await self._line():
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                self._length = int(value)
            elif name.lower() == "transfer-encoding":
                self._chunked = "chunked" in value.lower()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if not self._chunked:
            left = self._length
            while left is None or left > 0:
                data = await self._reader.read(CHUNK if left is None else min(CHUNK, left))
                if not data:
                    if left:
                        raise CoppiceError("unavailable", "the answer ended early")
                    return
                left = None if left is None else left - len(data)
                yield data
            return
        while size := int((await self._line()).split(";")[0], 16):
            while size > 0:
                data = await self._reader.readexactly(min(CHUNK, size))
                size -= len(data)
                yield data
            await self._line()

    async def lines(self) -> AsyncIterator[str]:
        rest = b""
        async for data in self.chunks():
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode().rstrip("\r")

    async def whole(self) -> bytes:
        return b"".join([data async for data in self.chunks()])

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise CoppiceError("unavailable", "the answer ended early")
        return line.decode("latin-1").rstrip("\r\n")


class AsyncTransport:
    """Each request has a connection of its own; a task that is cancelled closes it, which ends what it asked for."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def aclose(self) -> None:
        """Nothing is kept open between calls."""

    async def json(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None,
    ) -> Any:
        async with self._send(method, path, query, body, content, "application/json") as answer:
            return json.loads(await answer.whole() or b"null")

    async def text(self, method: str, path: str, query: Query | None = None) -> str:
        async with self._send(method, path, query, None, None, "*/*") as answer:
            return (await answer.whole()).decode()

    async def stream(
        self, method: str, path: str, query: Query | None = None, body: Any = None
    ) -> AsyncGenerator[bytes, None]:
        async with self._send(method, path, query, body, None, "*/*") as answer:
            async for data in answer.chunks():
                yield data

    async def events(
        self, method: str, path: str, query: Query | None = None, body: Any = None
    ) -> AsyncGenerator[ServerEvent, None]:
        parser = EventParser()
        async with self._send(method, path, query, body, None, "text/event-stream") as answer:
            async for line in answer.lines():
                for event in parser.feed(line):
                    yield event

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Any,
        content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None,
        accept: str,
    ) -> AsyncIterator[_Answer]:
        reader, writer = await self._connect()
        try:
            await self._write(writer, method, target(self._endpoint, path, query), body, content, accept)
            answer = _Answer(reader)
            await answer.head()
            if answer.status >= 400:
                text = await answer.whole()
                try:
                    document = json.loads(text)
                except ValueError:
                    document = None
                raise problem(answer.status, document)
            yield answer
        except (OSError, asyncio.IncompleteReadError) as error:
            raise CoppiceError("unavailable", f"the connection to the daemon ended: {error}") from error
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        at = self._endpoint
        try:
            if at.socket is not None:
                return await asyncio.open_unix_connection(at.socket, limit=LONGEST_LINE)
            context = ssl.create_default_context() if at.scheme == "https" else None
            return await asyncio.open_connection(at.host, at.port, ssl=context, limit=LONGEST_LINE)
        except OSError as error:
            raise CoppiceError(
                "unavailable", f"the daemon cannot be reached: {error}", hint="Start it with `coppice up`."
            ) from error

    async def _write(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        body: Any,
        content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None,
        accept: str,
    ) -> None:
        kind = "application/octet-stream" if content is not None else "application/json" if body is not None else None
        data = content if content is not None else b"" if body is None else json.dumps(body).encode()
        host = "localhost" if self._endpoint.socket is not None else f"{self._endpoint.host}:{self._endpoint.port}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers(self._endpoint, accept=accept, content=kind).items()]
        lines.append(f"Content-Length: {len(data)}" if isinstance(data, bytes) else "Transfer-Encoding: chunked")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if isinstance(data, bytes):
            writer.write(data)
        else:
            async for part in _parts(data):
                if part:
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
            writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _parts(data: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(data, AsyncIterable):
        async for part in data:
            yield part
    else:
        for part in data:
            yield part
