"""The cryptography of secure sums: key agreement, derived keys, keystreams, sealing, signatures.

Everything is a standard, from the `cryptography` package: X25519 (RFC 7748), HKDF-SHA256 (RFC
5869), AES-256 in counter mode (NIST SP 800-38A), AES-256-GCM (SP 800-38D), Ed25519 (RFC 8032) and
ECDSA on P-256 and P-384 with SHA-256 and SHA-384 (FIPS 186-5). Tests compare each with the
published vectors.

Notes
-----
A derived key is used for one purpose in one session: `derive` takes a label and a context, and
both go into the key. So keys, nonces and counters never repeat, and the counter of a keystream and
the nonce of a sealed box are zero.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.privacy import errors

KEY = 32
"""Bytes of a seed, a key or a public key."""
TAG = 16
"""Bytes that sealing adds."""
LARGEST_SIGNATURE = 160
_DOMAIN = b"tacit secure sum 1\x00"

SigningKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
VerifyKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey


class Refused(errors.TacitError):
    """A client or the server refuses a message or a step of the protocol."""


def digest(label: str, *parts: bytes) -> bytes:
    """Hash a label and parts, each with its length, so that no two lists have one hash."""
    sha256 = hashlib.sha256(_DOMAIN + _framed(label.encode()))
    for part in parts:
        sha256.update(_framed(part))
    return sha256.digest()


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part


def derive(secret: bytes, label: str, context: bytes) -> bytes:
    """Derive a key of 32 bytes for one purpose (`label`) in one session (`context`)."""
    return hkdf(secret, _DOMAIN + _framed(label.encode()) + _framed(context))


def hkdf(secret: bytes, info: bytes, length: int = KEY) -> bytes:
    """Derive bytes from a secret, without salt."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of a private key."""
    return x25519.X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """Return the X25519 shared secret.

    Raises
    ------
    Refused
        For a public key of small order, with which the secret would not depend on the private key.
    """
    try:
        own = x25519.X25519PrivateKey.from_private_bytes(private)
        return own.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Refused("secure sum: a public key must be a point of large order.") from None


def keystream(key: bytes, size: int) -> bytearray:
    """Return the first bytes of AES-256 in counter mode under this key, from counter zero."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    stream = bytearray(size + 15)  # `update_into` asks for room for one more block, less a byte
    encryptor.update_into(bytes(size), stream)
    del stream[size:]
    return stream


def seal(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate under a key that seals once; `about` is authenticated too."""
    return AESGCM(key).encrypt(bytes(12), plain, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """Decrypt what `seal` made.

    Raises
    ------
    Refused
        If it was made under another key, about something else, or was changed.
    """
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, about)
    except (InvalidTag, ValueError):
        raise Refused("secure sum: an encrypted share must be authentic.") from None


def new_seed() -> bytes:
    """Draw 32 bytes from the operating system."""
    return os.urandom(KEY)


def new_identity() -> ed25519.Ed25519PrivateKey:
    """Create a long-term key of a client."""
    return ed25519.Ed25519PrivateKey.generate()


def sign(key: SigningKey, message: bytes) -> bytes:
    """Sign with a long-term key."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ec.ECDSA(_hash_of(key.curve)))


def verified(key: VerifyKey, signature: bytes, message: bytes) -> bool:
    """Return whether the signature is that of the owner of the key on this message."""
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ec.ECDSA(_hash_of(key.curve)))
    except InvalidSignature:
        return False
    return True


def key_bytes(key: VerifyKey) -> bytes:
    """Return a long-term public key in its standard form (DER, SubjectPublicKeyInfo)."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)


def load_identity(content: bytes) -> SigningKey:
    """Read a long-term private key from an unencrypted PEM or OpenSSH file."""
    load: Any = serialization.load_pem_private_key
    if b"OPENSSH" in content:
        load = serialization.load_ssh_private_key
    try:
        private: SigningKey = _known(load(content, password=None))
        return private
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Refused("secure sum: a private key must be an unencrypted PEM file.") from None


def load_public(content: bytes) -> VerifyKey:
    """Read a long-term public key from a PEM, OpenSSH or DER file."""
    loads: tuple[Any, ...] = (
        serialization.load_pem_public_key,
        serialization.load_ssh_public_key,
        serialization.load_der_public_key,
    )
    for load in loads:
        try:
            public: VerifyKey = _known(load(content))
            return public
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
    raise Refused("secure sum: a public key must be an Ed25519 or ECDSA key in PEM or OpenSSH.")


def _known(key: Any) -> Any:
    kinds = (ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey)
    curved = (ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey)
    if isinstance(key, kinds) or (isinstance(key, curved) and _hash_of(key.curve)):
        return key
    raise ValueError


def _hash_of(curve: ec.EllipticCurve) -> hashes.HashAlgorithm:
    """Return the hash of a curve's strength; other curves raise `ValueError`."""
    if isinstance(curve, ec.SECP256R1):
        return hashes.SHA256()
    if isinstance(curve, ec.SECP384R1):
        return hashes.SHA384()
    raise ValueError
