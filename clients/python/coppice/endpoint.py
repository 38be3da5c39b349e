"""Where a daemon listens, and the token that opens it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import CoppiceError

DEFAULT_HOME = "/var/lib/coppice"


@dataclass(frozen=True)
class Endpoint:
    scheme: str
    host: str
    port: int
    prefix: str
    socket: str | None
    token: str


def find_endpoint(url: str | None = None, token: str | None = None, home: str | None = None) -> Endpoint:
    """COPPICE_URL and COPPICE_TOKEN, or the daemon of a home on this machine."""
    socket: str | None = None
    if url is None and home is None:
        url = os.environ.get("COPPICE_URL") or None
        token = token or os.environ.get("COPPICE_TOKEN") or None
        if url is not None and token is None:
            raise CoppiceError("unauthenticated", "COPPICE_URL is set and COPPICE_TOKEN is not")
    if url is None:
        directory = Path(home or os.environ.get("COPPICE_HOME") or DEFAULT_HOME)
        record = json.loads(_read(directory / "daemon.json"))
        url, socket = str(record["url"]), record.get("socket")
        token = token or _read(directory / "token").strip()
    if token is None:
        raise CoppiceError("unauthenticated", "there is no token", hint="Give token, or set COPPICE_TOKEN.")
    parts = urlsplit(str(url))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Endpoint(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"), socket, token)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise CoppiceError(
            "unavailable",
            f"no daemon runs for {path.parent}",
            hint="Start it with `coppice up`, or set COPPICE_URL and COPPICE_TOKEN.",
        ) from None
    except PermissionError:
        raise CoppiceError(
            "forbidden",
            f"{path} may not be read by this user",
            hint="Run as the user that runs the daemon, or set COPPICE_URL and COPPICE_TOKEN.",
        ) from None
