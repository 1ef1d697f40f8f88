"""The token that protects a server. It is stored in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from workbench.foundation.errors import ArgumentError

_FIELD = "--token-file"
_MIN_CHARS, _MAX_CHARS = 16, 4096


@dataclass(frozen=True)
class Token:
    """A token, and where it is kept."""

    secret: str = field(repr=False)
    path: Path
    is_new: bool

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request with this header has the token.

        Takes the same time for any wrong one.
        """
        scheme, _, given = (authorization or "").partition(" ")
        is_same = hmac.compare_digest(
            given.strip().encode("utf-8", "replace"), self.secret.encode()
        )
        return is_same and scheme.lower() == "bearer"


def token_path() -> Path:
    """Return where the token of a user's servers is kept, whether or not the file exists."""
    if home := os.environ.get("WORKBENCH_HOME"):
        return Path(home) / "serve-token"
    import platformdirs

    return platformdirs.user_data_path("workbench", appauthor=False) / "serve-token"


def read_or_make_token(path: Path) -> Token:
    """Read a token, or make one.

    Args:
        path: The file, which only its owner may be able to read.

    Raises:
        ArgumentError: If the file cannot be written or read, others can read it, or it contains no
            token.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            return _make(path)
    except OSError as error:
        raise ArgumentError(f"cannot use {path}: {error.strerror}", field=_FIELD) from error
    return read_token(path)


def read_token(path: Path) -> Token:
    """Read a token. Arguments and errors as in `read_or_make_token`."""
    try:
        with open(path, encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(_MAX_CHARS + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ArgumentError(f"cannot use {path}: {reason}", field=_FIELD) from error
    if mode & 0o077:
        raise ArgumentError(
            f"others can read or write {path} (mode {mode:04o})",
            field=_FIELD,
            allowed="a file that only its owner can read",
            next_step=f"Run: chmod 600 {path}",
        )
    if not (_MIN_CHARS <= len(secret) <= _MAX_CHARS and secret.isascii() and secret.isprintable()):
        raise ArgumentError(
            f"{path} contains no token",
            field=_FIELD,
            allowed=f"one line of {_MIN_CHARS} to {_MAX_CHARS} ASCII characters",
            next_step="Delete the file. The next server will create a token.",
        )
    return Token(secret, path, is_new=False)


def _make(path: Path) -> Token:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    secret = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret + "\n")
    return Token(secret, path, is_new=True)


def is_loopback_name(host: str) -> bool:
    """Return whether the host of a request or an address is this machine.

    Example:
        >>> is_loopback_name("127.0.0.1:8000"), is_loopback_name("example.org")
        (True, False)
    """
    name = host.rpartition(":")[0] if ":" in host and host != "::1" else host
    return name.lower() in ("localhost", "[::1]", "::1") or _is_loopback_number(name)


def _is_loopback_number(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
