"""Rings and configurations to test with."""

from pathlib import Path

from config.settings import EncryptionKeySettings, EncryptionSettings, StorageSettings
from storage.sealing.sealed_blocks import Ring, Secret

MARK = bytes.fromhex("1122334455667788")
STORE_ID = bytes(range(16))
SALT = b"s" * 14
SECRETS = {"2026": "aa" * 32, "2025": "bb" * 32, "2024": "cc" * 32}
MARKER = b"MARKER-which-nobody-may-find"


def ring(*numbers: int, has_plain: bool = False, salt: bytes = SALT) -> Ring:
    """A ring of the keys with these numbers, the first of which seals."""
    keys = [Secret(number, f"key{number}", bytes([number]) * 32) for number in numbers]
    return Ring(MARK, STORE_ID, keys, lambda size: salt[:size], has_plain=has_plain)


def key_file(directory: Path, key_id: str, text: str = "") -> EncryptionKeySettings:
    """A key in a file."""
    path = directory / f"{key_id}.key"
    path.write_text(text or SECRETS[key_id] + "\n")
    return EncryptionKeySettings(id=key_id, file=str(path))


def encrypted(root: Path, *key_ids: str, url: str = "", sync: str = "always") -> StorageSettings:
    """Settings of a storage below `root`, whose keys lie there, too; without any: not encrypted."""
    root.mkdir(exist_ok=True)
    keys = tuple(key_file(root, key_id) for key_id in key_ids)
    encryption = EncryptionSettings(keys=keys) if keys else None
    return StorageSettings.model_validate(
        {"url": url or str(root / "data"), "sync": sync, "encryption": encryption}
    )


def found_in(directory: Path, what: bytes = MARKER) -> list[str]:
    """The files in which the bytes stand."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [str(path) for path in files if what in path.read_bytes()]
