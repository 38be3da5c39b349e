"""Sandboxes, their files, snapshots and forks, for programs that wait for answers."""
# Written by scripts/generate-python-client.ts; changes here are lost.

from __future__ import annotations

import base64
from typing import Iterator, Iterable, Literal, NamedTuple, Unpack

from . import types as t
from .calls import Calls
from .endpoint import find_endpoint
from .errors import CoppiceError
from .transport import Transport

Command = str | list[str]
State = Literal["creating", "running", "stopped", "paused", "failed", "destroying"]


class Output(NamedTuple):
    """A part of what a command wrote."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


class Process:
    """A command at work: its output as it comes. Leaving the block ends it."""

    def __init__(self, calls: Calls, sandbox: str, body: t.ExecBody) -> None:
        self._events = calls.exec_events(sandbox, body)
        #: How it ended, once the output is over.
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.timed_out = False

    def __iter__(self) -> Iterator[Output]:
        for name, data in self._events:
            if name in ("stdout", "stderr"):
                packed = data["base64"]
                yield Output(name, base64.b64decode(packed) if packed is not None else data["text"].encode())
            elif name == "exit":
                self.exit_code, self.signal = data["exit_code"], data["signal"]
                self.timed_out = data["timed_out"]
            elif name == "error":
                raise CoppiceError(data.get("code", "internal"), data.get("detail", ""), hint=data.get("hint", ""))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()


class Files:
    """Files of one sandbox; relative paths start at the home directory."""

    def __init__(self, calls: Calls, sandbox: str) -> None:
        self._calls = calls
        self._sandbox = sandbox

    def read(self, path: str, *, offset: int | None = None, length: int | None = None) -> bytes:
        parts = self._calls.read_file(self._sandbox, path=path, offset=offset, length=length)
        return b"".join([part for part in parts])

    def read_text(self, path: str) -> str:
        return (self.read(path)).decode()

    def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes],
        *,
        mode: str | None = None,
        owner: str | None = None,
    ) -> t.WriteFileResult:
        data = content.encode() if isinstance(content, str) else content
        return self._calls.write_file(self._sandbox, data, path=path, mode=mode, owner=owner)

    def list(self, path: str, *, depth: int | None = None, limit: int | None = None) -> list[t.FileEntry]:
        found = self._calls.list_files(self._sandbox, path=path, depth=depth, limit=limit)
        return found["entries"]

    def stat(self, path: str) -> t.FileEntry:
        return self._calls.stat_file(self._sandbox, path=path)

    def edit(self, path: str, old: str, new: str, *, replace_all: bool = False) -> t.EditFileResult:
        body: t.EditFileBody = {"path": path, "old_string": old, "new_string": new, "replace_all": replace_all}
        return self._calls.edit_file(self._sandbox, body)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._calls.remove_file(self._sandbox, path=path, recursive="true" if recursive else "false")


class Snapshot:
    """A snapshot, and what grows from it."""

    def __init__(self, calls: Calls, info: t.Snapshot) -> None:
        self._calls = calls
        self.info = info
        self.id: str = info["id"]
        self.name: str = info["name"]

    def fork(self, **options: Unpack[t.ForkSnapshotBody]) -> list[Sandbox]:
        """New sandboxes, as many as ``count`` says. One that could not be made is an error, and the others are destroyed."""
        return _forked(self._calls, self._calls.fork_snapshot(self.id, options))

    def delete(self) -> None:
        self._calls.delete_snapshot(self.id)

    def export(self, **options: Unpack[t.ExportSnapshotBody]) -> Iterator[bytes]:
        """One file that ``import_snapshot`` takes in, here or on another machine."""
        return self._calls.export_snapshot(self.id, options)


class Sandbox:
    """One sandbox. As a context manager it is destroyed at the end of the block."""

    def __init__(self, calls: Calls, info: t.SandboxInfo | t.CreatedSandbox | t.SandboxDetail) -> None:
        self._calls = calls
        self.info = info
        self.id: str = info["id"]
        self.name: str = info["name"]
        self.files = Files(calls, self.id)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def inspect(self) -> t.SandboxDetail:
        self.info = self._calls.get_sandbox(self.id)
        return self.info

    def exec(self, command: Command, **options: Unpack[t.ExecOptions]) -> t.ExecResult:
        """Runs a command and collects its output. One that fails is an answer: look at ``exit_code``."""
        return self._calls.exec(self.id, {"command": command, **options})

    def exec_stream(self, command: Command, **options: Unpack[t.ExecOptions]) -> Process:
        """Runs a command with its output as it comes."""
        return Process(self._calls, self.id, {"command": command, **options})

    def start(self) -> None:
        self.info = self._calls.start_sandbox(self.id)

    def stop(self) -> None:
        self.info = self._calls.stop_sandbox(self.id)

    def pause(self) -> None:
        self.info = self._calls.pause_sandbox(self.id)

    def resume(self) -> None:
        self.info = self._calls.resume_sandbox(self.id)

    def destroy(self) -> None:
        self._calls.destroy_sandbox(self.id)

    def snapshot(self, **options: Unpack[t.CreateSnapshotBody]) -> Snapshot:
        return Snapshot(self._calls, self._calls.create_snapshot(self.id, options))

    def checkpoint(self, name: str) -> Snapshot:
        """A snapshot with the memory of every process."""
        return self.snapshot(name=name, memory=True)

    def snapshots(self) -> list[Snapshot]:
        found = self._calls.list_sandbox_snapshots(self.id)
        return [Snapshot(self._calls, info) for info in found["items"]]

    def restore(self, snapshot: Snapshot | str, *, discard: bool = False) -> t.RestoreSandboxResult:
        """By handle, id or name. The files as they were are a snapshot too, unless they are to be discarded."""
        ref = snapshot if isinstance(snapshot, str) else snapshot.id
        return self._calls.restore_sandbox(self.id, {"snapshot": ref, "discard": discard})

    def fork(self, **options: Unpack[t.ForkSandboxBody]) -> list[Sandbox]:
        """New sandboxes that go on from what this one is now."""
        return _forked(self._calls, self._calls.fork_sandbox(self.id, options))

    def diff(self, other: Sandbox | Snapshot | str, *, path: str | None = None) -> t.Diff:
        """Files that differ from here to there."""
        to = other if isinstance(other, str) else other.id
        return self._calls.diff(from_=self.id, to=to, path=path)

    def merge(
        self, other: Sandbox | str, *, prefer: Literal["ours", "theirs"] | None = None, dry_run: bool = False
    ) -> t.Merged:
        """Brings what changed in a fork into this sandbox. Conflicts are an error, and nothing is written."""
        body: t.MergeBody = {"from": other if isinstance(other, str) else other.id, "dry_run": dry_run}
        if prefer is not None:
            body["prefer"] = prefer
        return self._calls.merge(self.id, body)

    def wait_for_port(self, port: int, *, timeout_ms: int | None = None) -> None:
        """Until something inside takes connections there."""
        self._calls.wait_for_port(self.id, port, {} if timeout_ms is None else {"timeout_ms": timeout_ms})

    def forward_port(self, guest_port: int, *, host_port: int | None = None) -> t.PortForward:
        body: t.ForwardPortBody = {"guest_port": guest_port}
        if host_port is not None:
            body["host_port"] = host_port
        return self._calls.forward_port(self.id, body)


class Coppice:
    """A client of one daemon: by ``url`` and ``token``, by COPPICE_URL and COPPICE_TOKEN, or by its home on this machine.

    ``calls`` has every call of the HTTP API, one method each.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, home: str | None = None) -> None:
        self._transport = Transport(find_endpoint(url, token, home))
        self.calls = Calls(self._transport)

    def __enter__(self) -> Coppice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def create(self, **options: Unpack[t.CreateSandboxBody]) -> Sandbox:
        return Sandbox(self.calls, self.calls.create_sandbox(options))

    def get(self, ref: str) -> Sandbox:
        """By id or name."""
        return Sandbox(self.calls, self.calls.get_sandbox(ref))

    def sandboxes(self, *, label: str | None = None, state: State | None = None) -> list[Sandbox]:
        found = self.calls.list_sandboxes(label=label, state=state)
        return [Sandbox(self.calls, info) for info in found["items"]]

    def snapshots(self) -> list[Snapshot]:
        found = self.calls.list_snapshots()
        return [Snapshot(self.calls, info) for info in found["items"]]

    def import_snapshot(
        self, content: bytes | Iterable[bytes], *, name: str | None = None
    ) -> t.ImportSnapshotResult:
        return self.calls.import_snapshot(content, name=name)

    def events(self, *, after: int = 0, sandbox: str | None = None) -> Iterator[t.Event]:
        """What happened since, then each event as it comes, without end."""
        for _, data in self.calls.stream_events(after=after, sandbox=sandbox):
            yield data

    def health(self) -> t.Health:
        return self.calls.health()


def _forked(calls: Calls, forked: t.Forked) -> list[Sandbox]:
    sandboxes = [Sandbox(calls, info) for info in forked["forks"]]
    for failure in forked["failures"]:
        for sandbox in sandboxes:
            sandbox.destroy()
        raise CoppiceError(failure["code"], failure["message"], details=dict(failure))
    return sandboxes
