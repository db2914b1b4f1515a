"""Where the keys of a storage come from. Everything here blocks.

A file has 64 hexadecimal digits. A command or a service wraps a key that is made here once, and unwraps it at
each start: it is given, on its standard input or as the body of a POST, `{"action": "wrap" or "unwrap", "id":
..., "key": ...}`, and answers `{"key": ...}`; both keys are Base64.
"""

import base64
import binascii
import json
import string
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config import limits
from config.settings import EncryptionKeySettings
from storage.errors import StorageError
from storage.sealing.sealed_blocks import SECRET_BYTES

_HEX_DIGITS: Final = frozenset(string.hexdigits)


def read_key(settings: EncryptionKeySettings) -> bytes:
    """Return the key in a file. Raises StorageError."""
    text = _read_text(settings.id, settings.file)
    if len(text) != 2 * SECRET_BYTES or not _HEX_DIGITS.issuperset(text):
        raise _refusal(
            settings.id,
            f"{settings.file} does not hold {2 * SECRET_BYTES} hexadecimal digits, as `openssl rand -hex"
            f" {SECRET_BYTES}` writes them",
        )
    return bytes.fromhex(text)


def wrap_key(settings: EncryptionKeySettings, secret: bytes) -> bytes:
    """Have a key wrapped. Raises StorageError."""
    return _ask(settings, "wrap", secret)


def unwrap_key(settings: EncryptionKeySettings, wrapped: bytes) -> bytes:
    """Have a key unwrapped. Raises StorageError."""
    secret = _ask(settings, "unwrap", wrapped)
    if len(secret) != SECRET_BYTES:
        raise _refusal(settings.id, f"what unwraps it gave {len(secret)} bytes, not {SECRET_BYTES}")
    return secret


def _ask(settings: EncryptionKeySettings, action: str, key: bytes) -> bytes:
    question = {"action": action, "id": settings.id, "key": base64.b64encode(key).decode()}
    ask: Callable[[EncryptionKeySettings, bytes], bytes] = _run if settings.command else _post
    answer = ask(settings, json.dumps(question).encode())
    try:
        found = base64.b64decode(json.loads(answer)["key"], validate=True)
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise _refusal(settings.id, f"the answer to {action} is not a key as JSON and Base64") from None
    if not found:
        raise _refusal(settings.id, f"the answer to {action} is an empty key")
    return found


def _run(settings: EncryptionKeySettings, question: bytes) -> bytes:
    try:
        done = subprocess.run(
            settings.command, input=question, capture_output=True, timeout=limits.KEY_HOOK_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise _refusal(
            settings.id, f"{settings.command[0]} has not ended in {limits.KEY_HOOK_TIMEOUT_S} s"
        ) from None
    except OSError as error:
        raise _refusal(settings.id, f"{settings.command[0]}: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise _refusal(settings.id, f"{settings.command[0]} ended with {done.returncode}: {lines[-1][:200]}")
    return done.stdout[: limits.KEY_HOOK_ANSWER_BYTES_MAX]


def _post(settings: EncryptionKeySettings, question: bytes) -> bytes:
    headers = {"Content-Type": "application/json"}
    if settings.token_file:
        headers["Authorization"] = f"Bearer {_read_text(settings.id, settings.token_file)}"
    request = urllib.request.Request(settings.url, question, headers)  # noqa: S310 - checked: https, or local
    try:
        with urllib.request.build_opener(_NoRedirect).open(
            request, timeout=limits.KEY_HOOK_TIMEOUT_S
        ) as answer:
            found: bytes = answer.read(limits.KEY_HOOK_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        raise _refusal(settings.id, f"{settings.url} answers {error.code}") from None
    except (OSError, ValueError) as error:
        raise _refusal(settings.id, f"{settings.url}: {getattr(error, 'reason', error)}") from None
    return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else with a key."""

    def redirect_request(self, *arguments: object) -> None:
        """Return no request: the answer counts as it is."""


def _read_text(key_id: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(limits.SEALING_KEY_FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise _refusal(key_id, f"{path}: {error.strerror}") from None


def _refusal(key_id: str, why: str) -> StorageError:
    return StorageError(f"opening: storage.encryption: key {key_id}: {why}")
