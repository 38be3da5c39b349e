"""What a call fails with."""

from __future__ import annotations

from typing import Any, Mapping


class CoppiceError(Exception):
    """A call that failed: ``code`` says of what kind, ``hint`` what to do next."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{message} ({code})" + (f"\n{hint}" if hint else ""))
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.retryable = retryable
        self.details: Mapping[str, Any] = details or {}


def problem(status: int, document: Any) -> CoppiceError:
    """An answer that is no success, as an error."""
    if not isinstance(document, dict) or "code" not in document:
        return CoppiceError("internal", f"the daemon answered with status {status}", status=status)
    return CoppiceError(
        document["code"],
        document.get("detail", ""),
        hint=document.get("hint", ""),
        status=status,
        retryable=bool(document.get("retryable")),
        details=document.get("details"),
    )
