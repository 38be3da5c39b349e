"""Sandboxes, their files, snapshots and forks, for programs of asyncio."""

from __future__ import annotations

import base64
from typing import AsyncIterable, AsyncIterator, Iterable, Literal, NamedTuple, Unpack

from . import types as t
from .calls_async import AsyncCalls
from .endpoint import find_endpoint
from .errors import CoppiceError
from .transport_async import AsyncTransport

Command = str | list[str]
State = Literal["creating", "running", "stopped", "paused", "failed", "destroying"]


class Output(NamedTuple):
    """A part of what a command wrote."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


class AsyncProcess:
    """A command at work: its output as it comes. Leaving the block ends it."""

    def __init__(self, calls: AsyncCalls, sandbox: str, body: t.ExecBody) -> None:
        self._events = calls.exec_events(sandbox, body)
        #: How it ended, once the output is over.
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.timed_out = False

    async def __aiter__(self) -> AsyncIterator[Output]:
        async for name, data in self._events:
            if name in ("stdout", "stderr"):
                packed = data["base64"]
                yield Output(name, base64.b64decode(packed) if packed is not None else data["text"].encode())
            elif name == "exit":
                self.exit_code, self.signal = data["exit_code"], data["signal"]
                self.timed_out = data["timed_out"]
            elif name == "error":
                raise CoppiceError(data.get("code", "internal"), data.get("detail", ""), hint=data.get("hint", ""))

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()


class AsyncFiles:
    """Files of one sandbox; relative paths start at the home directory."""

    def __init__(self, calls: AsyncCalls, sandbox: str) -> None:
        self._calls = calls
        self._sandbox = sandbox

    async def read(self, path: str, *, offset: int | None = None, length: int | None = None) -> bytes:
        parts = self._calls.read_file(self._sandbox, path=path, offset=offset, length=length)
        return b"".join([part async for part in parts])

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes] | AsyncIterable[bytes],
        *,
        mode: str | None = None,
        owner: str | None = None,
    ) -> t.WriteFileResult:
        data = content.encode() if isinstance(content, str) else content
        return await self._calls.write_file(self._sandbox, data, path=path, mode=mode, owner=owner)

    async def list(self, path: str, *, depth: int | None = None, limit: int | None = None) -> list[t.FileEntry]:
        found = await self._calls.list_files(self._sandbox, path=path, depth=depth, limit=limit)
        return found["entries"]

    async def stat(self, path: str) -> t.FileEntry:
        return await self._calls.stat_file(self._sandbox, path=path)

    async def edit(self, path: str, old: str, new: str, *, replace_all: bool = False) -> t.EditFileResult:
        body: t.EditFileBody = {"path": path, "old_string": old, "new_string": new, "replace_all": replace_all}
        return await self._calls.edit_file(self._sandbox, body)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self._calls.remove_file(self._sandbox, path=path, recursive="true" if recursive else "false")


class AsyncSnapshot:
    """A snapshot, and what grows from it."""

    def __init__(self, calls: AsyncCalls, info: t.Snapshot) -> None:
        self._calls = calls
        self.info = info
        self.id: str = info["id"]
        self.name: str = info["name"]

    async def fork(self, **options: Unpack[t.ForkSnapshotBody]) -> list[AsyncSandbox]:
        """New sandboxes, as many as ``count`` says. One that could not be made is an error, and the others are destroyed."""
        return await _forked(self._calls, await self._calls.fork_snapshot(self.id, options))

    async def delete(self) -> None:
        await self._calls.delete_snapshot(self.id)

    def export(self, **options: Unpack[t.ExportSnapshotBody]) -> AsyncIterator[bytes]:
        """One file that ``import_snapshot`` takes in, here or on another machine."""
        return self._calls.export_snapshot(self.id, options)


class AsyncSandbox:
    """One sandbox. As a context manager it is destroyed at the end of the block."""

    def __init__(self, calls: AsyncCalls, info: t.SandboxInfo | t.CreatedSandbox | t.SandboxDetail) -> None:
        self._calls = calls
        self.info = info
        self.id: str = info["id"]
        self.name: str = info["name"]
        self.files = AsyncFiles(calls, self.id)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.destroy()

    async def inspect(self) -> t.SandboxDetail:
        self.info = await self._calls.get_sandbox(self.id)
        return self.info

    async def exec(self, command: Command, **options: Unpack[t.ExecOptions]) -> t.ExecResult:
        """Runs a command and collects its output. One that fails is an answer: look at ``exit_code``."""
        return await self._calls.exec(self.id, {"command": command, **options})

    def exec_stream(self, command: Command, **options: Unpack[t.ExecOptions]) -> AsyncProcess:
        """Runs a command with its output as it comes."""
        return AsyncProcess(self._calls, self.id, {"command": command, **options})

    async def start(self) -> None:
        self.info = await self._calls.start_sandbox(self.id)

    async def stop(self) -> None:
        self.info = await self._calls.stop_sandbox(self.id)

    async def pause(self) -> None:
        self.info = await self._calls.pause_sandbox(self.id)

    async def resume(self) -> None:
        self.info = await self._calls.resume_sandbox(self.id)

    async def destroy(self) -> None:
        await self._calls.destroy_sandbox(self.id)

    async def snapshot(self, **options: Unpack[t.CreateSnapshotBody]) -> AsyncSnapshot:
        return AsyncSnapshot(self._calls, await self._calls.create_snapshot(self.id, options))

    async def checkpoint(self, name: str) -> AsyncSnapshot:
        """A snapshot with the memory of every process."""
        return await self.snapshot(name=name, memory=True)

    async def snapshots(self) -> list[AsyncSnapshot]:
        found = await self._calls.list_sandbox_snapshots(self.id)
        return [AsyncSnapshot(self._calls, info) for info in found["items"]]

    async def restore(self, snapshot: AsyncSnapshot | str, *, discard: bool = False) -> t.RestoreSandboxResult:
        """By handle, id or name. The files as they were are a snapshot too, unless they are to be discarded."""
        ref = snapshot if isinstance(snapshot, str) else snapshot.id
        return await self._calls.restore_sandbox(self.id, {"snapshot": ref, "discard": discard})

    async def fork(self, **options: Unpack[t.ForkSandboxBody]) -> list[AsyncSandbox]:
        """New sandboxes that go on from what this one is now."""
        return await _forked(self._calls, await self._calls.fork_sandbox(self.id, options))

    async def diff(self, other: AsyncSandbox | AsyncSnapshot | str, *, path: str | None = None) -> t.Diff:
        """Files that differ from here to there."""
        to = other if isinstance(other, str) else other.id
        return await self._calls.diff(from_=self.id, to=to, path=path)

    async def merge(
        self, other: AsyncSandbox | str, *, prefer: Literal["ours", "theirs"] | None = None, dry_run: bool = False
    ) -> t.Merged:
        """Brings what changed in a fork into this sandbox. Conflicts are an error, and nothing is written."""
        body: t.MergeBody = {"from": other if isinstance(other, str) else other.id, "dry_run": dry_run}
        if prefer is not None:
            body["prefer"] = prefer
        return await self._calls.merge(self.id, body)

    async def wait_for_port(self, port: int, *, timeout_ms: int | None = None) -> None:
        """Until something inside takes connections there."""
        await self._calls.wait_for_port(self.id, port, {} if timeout_ms is None else {"timeout_ms": timeout_ms})

    async def forward_port(self, guest_port: int, *, host_port: int | None = None) -> t.PortForward:
        body: t.ForwardPortBody = {"guest_port": guest_port}
        if host_port is not None:
            body["host_port"] = host_port
        return await self._calls.forward_port(self.id, body)


class AsyncCoppice:
    """A client of one daemon: by ``url`` and ``token``, by COPPICE_URL and COPPICE_TOKEN, or by its home on this machine.

    ``calls`` has every call of the HTTP API, one method each.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, home: str | None = None) -> None:
        self._transport = AsyncTransport(find_endpoint(url, token, home))
        self.calls = AsyncCalls(self._transport)

    async def __aenter__(self) -> AsyncCoppice:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def create(self, **options: Unpack[t.CreateSandboxBody]) -> AsyncSandbox:
        return AsyncSandbox(self.calls, await self.calls.create_sandbox(options))

    async def get(self, ref: str) -> AsyncSandbox:
        """By id or name."""
        return AsyncSandbox(self.calls, await self.calls.get_sandbox(ref))

    async def sandboxes(self, *, label: str | None = None, state: State | None = None) -> list[AsyncSandbox]:
        found = await self.calls.list_sandboxes(label=label, state=state)
        return [AsyncSandbox(self.calls, info) for info in found["items"]]

    async def snapshots(self) -> list[AsyncSnapshot]:
        found = await self.calls.list_snapshots()
        return [AsyncSnapshot(self.calls, info) for info in found["items"]]

    async def import_snapshot(
        self, content: bytes | Iterable[bytes] | AsyncIterable[bytes], *, name: str | None = None
    ) -> t.ImportSnapshotResult:
        return await self.calls.import_snapshot(content, name=name)

    async def events(self, *, after: int = 0, sandbox: str | None = None) -> AsyncIterator[t.Event]:
        """What happened since, then each event as it comes, without end."""
        async for _, data in self.calls.stream_events(after=after, sandbox=sandbox):
            yield data

    async def health(self) -> t.Health:
        return await self.calls.health()


async def _forked(calls: AsyncCalls, forked: t.Forked) -> list[AsyncSandbox]:
    sandboxes = [AsyncSandbox(calls, info) for info in forked["forks"]]
    for failure in forked["failures"]:
        for sandbox in sandboxes:
            await sandbox.destroy()
        raise CoppiceError(failure["code"], failure["message"], details=dict(failure))
    return sandboxes
