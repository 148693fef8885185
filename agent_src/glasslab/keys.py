"""Ed25519 keys of the writers: made on first use, read from files, never sent anywhere."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from glasslab.jsonfiles import read_bounded

if TYPE_CHECKING:  # see frames.py: cryptography is imported where it is used
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


MAX_KEY_BYTES: Final = 65_536


class KeyFileError(ValueError):
    """A key file that cannot be read, made or used; the text names the file and the remedy."""


def load_signing_key(path: Path, *, make: bool) -> Ed25519PrivateKey:
    """Return the private key in a PEM file; with `make`, a missing one is made first (0600, `.pub` beside it).

    Raises KeyFileError when the file is missing (without `make`), unreadable, or no Ed25519 private key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if make and not path.exists():
            _make_key_pair(path)
        pem = _read(f"signing key {path}", path, secret=True)
        key = load_pem_private_key(pem, password=None)
        if make and isinstance(key, Ed25519PrivateKey) and not path.with_suffix(".pub").exists():
            with suppress(OSError):  # of a key that was there before: `verify` says what it lacks
                _write_public(path, key)
    except OSError as error:
        raise KeyFileError(f"signing key {path}: {error.strerror}; give a readable Ed25519 key in PEM form") from None
    except KeyFileError:
        raise
    except (ValueError, TypeError):
        raise KeyFileError(f"signing key {path} is no PEM private key; make one with openssl genpkey") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"signing key {path} is not Ed25519; make one: openssl genpkey -algorithm ed25519")
    return key


def is_folder(path: Path) -> bool:
    """Return whether it is a folder; False also where one may not look, where Path.is_dir raises."""
    try:
        return path.is_dir()
    except OSError:
        return False


def load_public_keys(path: Path) -> dict[str, Ed25519PublicKey]:
    """Return the public keys to verify with, by writer: every `WRITER.pub` (PEM) of a folder, or one such file.

    Raises KeyFileError when there is none, or one is no Ed25519 public key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    files = sorted(path.glob("*.pub")) if is_folder(path) else [path]
    if not files:
        raise KeyFileError(f"VERIFY_KEYS: no *.pub file in {path}; put the writers' public keys there")
    keys: dict[str, Ed25519PublicKey] = {}
    for file in files:
        try:
            key = load_pem_public_key(_read(f"VERIFY_KEYS: {file}", file, secret=False))
        except OSError as error:
            raise KeyFileError(f"VERIFY_KEYS: {file}: {error.strerror}; give a folder of WRITER.pub files") from None
        except KeyFileError:
            raise
        except ValueError:
            raise KeyFileError(f"VERIFY_KEYS: {file} is no PEM public key; copy the writer's .pub file") from None
        if not isinstance(key, Ed25519PublicKey):
            raise KeyFileError(f"VERIFY_KEYS: {file} is not Ed25519; copy the writer's .pub file")
        keys[file.stem] = key
    return keys


def _read(what: str, path: Path, *, secret: bool) -> bytes:
    try:
        return read_bounded(path, MAX_KEY_BYTES, secret=secret)
    except ValueError as error:
        raise KeyFileError(f"{what} {error}") from None


def _make_key_pair(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The link is atomic and refuses an existing name: of two first uses at once, both go on with the one key that won.
    _write_once(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    made = load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(made, Ed25519PrivateKey)
    _write_public(path, made)


def _write_public(path: Path, key: Ed25519PrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write_once(path.with_suffix(".pub"), public, 0o644)


def _write_once(path: Path, data: bytes, mode: int) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mkstemp gives 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(mode)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        Path(temporary).unlink()
