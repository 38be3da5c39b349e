"""The Python client of Coppice: sandboxes that can be snapshotted, restored, forked, compared and merged."""

from .client import Coppice, Files, Output, Process, Sandbox, Snapshot
from .client_async import AsyncCoppice, AsyncFiles, AsyncProcess, AsyncSandbox, AsyncSnapshot
from .errors import CoppiceError

__version__ = "0.1.0"
__all__ = [
    "AsyncCoppice",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSnapshot",
    "Coppice",
    "CoppiceError",
    "Files",
    "Output",
    "Process",
    "Sandbox",
    "Snapshot",
]
