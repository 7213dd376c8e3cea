"""Every primitive beside its published vectors, and shares beside interpolation by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tacit.federated.secure import primitives, residues, shamir
from tacit.federated.secure.primitives import Refused

hexed = bytes.fromhex
ALICE = hexed("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = hexed("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def test_agreement_is_that_of_rfc_7748() -> None:
    """RFC 7748, section 6.1."""
    publics = [primitives.public_key(one) for one in (ALICE, BOB)]
    assert publics[0].hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert publics[1].hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = primitives.agree(ALICE, publics[1])
    assert shared.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert primitives.agree(BOB, publics[0]) == shared


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31), bytes(31)])
def test_points_of_small_order_are_refused(point: bytes) -> None:
    with pytest.raises(Refused, match="large order"):
        primitives.agree(ALICE, point)


def test_derivation_is_that_of_rfc_5869() -> None:
    """RFC 5869, test case 3: no salt, no info."""
    found = primitives.hkdf(b"\x0b" * 22, b"", 42)
    assert found.hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


def test_keys_of_other_purposes_and_sessions_differ() -> None:
    pairs = [("a", b"bc"), ("ab", b"c"), ("abc", b""), ("a", b"cb"), ("", b"abc")]
    assert len({primitives.derive(ALICE, *pair) for pair in pairs}) == len(pairs)
    assert len({primitives.digest(*pair) for pair in pairs}) == len(pairs)
    assert primitives.digest("x", b"a", b"b") != primitives.digest("x", b"ab")


def test_keystream_and_seal_are_aes_256() -> None:
    """The first three blocks under the key of zeros, from test cases 13 and 14 of GCM (NIST)."""
    blocks = (
        "dc95c078a2408989ad48a21492842087"
        "530f8afbc74536b9a963b4f1c4cb738b"
        "cea7403d4d606b6e074ec5d3baf39d18"
    )
    for size in (0, 1, 15, 16, 17, 47, 48):
        assert primitives.keystream(bytes(32), size).hex() == blocks[: 2 * size]
    sealed = primitives.seal(bytes(32), bytes(16), b"")
    assert sealed.hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    assert primitives.unseal(bytes(32), sealed, b"") == bytes(16)
    for key, box, about in (
        (b"\1" + bytes(31), sealed, b""),
        (bytes(32), sealed[:-1] + b"\0", b""),
        (bytes(32), sealed, b"x"),
        (bytes(32), b"", b""),
    ):
        with pytest.raises(Refused, match="authentic"):
            primitives.unseal(key, box, about)


def test_ed25519_is_that_of_rfc_8032() -> None:
    """RFC 8032, section 7.1, test 1."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(
        hexed("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    signature = primitives.sign(key, b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert primitives.verified(key.public_key(), signature, b"")
    assert not primitives.verified(key.public_key(), signature, b"x")
    assert not primitives.verified(key.public_key(), b"", b"")


def test_ecdsa_is_that_of_rfc_6979() -> None:
    """RFC 6979, appendix A.2.6: P-384, SHA-384, "sample"; the nodes' own kind of key."""
    secret = int(
        "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D8"
        "96D5724E4C70A825F872C9EA60D2EDF5",
        16,
    )
    key = ec.derive_private_key(secret, ec.SECP384R1())
    r = int(
        "94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C"
        "81A648152E44ACF96E36DD1E80FABE46",
        16,
    )
    s = int(
        "99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94F"
        "A329C145786E679E7B82C71A38628AC8",
        16,
    )
    signature = encode_dss_signature(r, s)
    assert primitives.verified(key.public_key(), signature, b"sample")
    assert not primitives.verified(key.public_key(), signature, b"samples")
    assert primitives.verified(key.public_key(), primitives.sign(key, b"x"), b"x")
    assert len(primitives.sign(key, b"x")) <= primitives.LARGEST_SIGNATURE


def test_long_term_keys_are_read_from_the_files_of_nodes() -> None:
    private = ec.generate_private_key(ec.SECP384R1())
    openssh = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    read = primitives.load_identity(openssh)
    known = primitives.load_public(public)
    assert primitives.verified(known, primitives.sign(read, b"x"), b"x")
    again = primitives.load_public(primitives.key_bytes(known))
    assert primitives.key_bytes(again) == primitives.key_bytes(known)


def test_other_keys_are_refused() -> None:
    strange = rsa.generate_private_key(65537, 1024).public_key()
    weak = ec.generate_private_key(ec.SECP224R1()).public_key()
    for key in (strange, weak):
        with pytest.raises(Refused, match="public key must be"):
            primitives.load_public(primitives.key_bytes(key))
    for content in (b"", b"ssh-ed25519 x", b"-----BEGIN OPENSSH PRIVATE KEY-----"):
        with pytest.raises(Refused):
            primitives.load_public(content)
        with pytest.raises(Refused):
            primitives.load_identity(content)


def test_shares_are_points_of_a_polynomial() -> None:
    """Against interpolation in rationals: 7 + 3x + 5x² at 1, 2, 3, 4."""
    coefficients = iter((5, 3))
    secret = (7).to_bytes(32, "big")
    shares = shamir.share(secret, range(4), 3, lambda _: next(coefficients))
    values = {k: int.from_bytes(one, "big") for k, one in shares.items()}
    assert values == {0: 15, 1: 33, 2: 61, 3: 99}
    for chosen in itertools.combinations(range(4), 3):
        by_hand = sum(
            values[i]
            * np.prod([Fraction(j + 1, j - i) for j in chosen if j != i], initial=Fraction(1))
            for i in chosen
        )
        assert by_hand == 7
        assert shamir.combine({k: shares[k] for k in chosen}) == secret


@pytest.mark.parametrize(("holders", "threshold"), [(3, 3), (5, 3), (101, 67)])
def test_enough_shares_restore_the_secret_and_fewer_do_not(holders: int, threshold: int) -> None:
    secret = shamir.new_secret()
    shares = shamir.share(secret, range(holders), threshold)
    assert shamir.combine(dict(list(shares.items())[-threshold:])) == secret
    assert shamir.combine(dict(list(shares.items())[: threshold - 1])) != secret


def test_a_share_alone_is_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the field of seven elements: whatever the secret is, each share comes once."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    for secret in range(7):
        seen: Counter[bytes] = Counter()
        for coefficient in range(7):
            shares = shamir.share(secret.to_bytes(32, "big"), [3], 2, lambda _, c=coefficient: c)
            seen[shares[3]] += 1
        assert set(seen.values()) == {1}
        assert len(seen) == 7


def test_what_is_no_element_is_not_shared() -> None:
    with pytest.raises(ValueError, match="element of the field"):
        shamir.share(b"\xff" * 32, [0], 2)


@pytest.mark.parametrize("bits", residues.WIDTHS)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_residues_survive_the_wire(bits: int, size: int) -> None:
    drawn = np.random.default_rng(bits).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), size)
    packed = residues.pack(residues.residues(drawn, bits), bits)
    assert len(packed) == residues.packed_size(size, bits) == -(-size // 2) * bits // 4
    assert np.array_equal(residues.centred(residues.unpack(packed, size, bits), bits), drawn)
    with pytest.raises(Refused, match="stated length"):
        residues.unpack(packed + b"\0", size, bits)


@pytest.mark.parametrize("bits", [4, 16, 20, 32])
def test_masks_are_uniform_and_cancel(bits: int) -> None:
    size = 20_000
    values = np.arange(-size // 2, size // 2) % 2 ** (bits - 1)
    hidden = residues.residues(values, bits) + residues.mask(ALICE, size, bits)
    shown = hidden.astype(np.int64) & (2**bits - 1)
    counts = np.bincount(shown >> (bits - 4), minlength=16)
    # Sixteen equal cells: a chi-square of 15 degrees is above 60 once in three million.
    assert ((counts - size / 16) ** 2 / (size / 16)).sum() < 60
    freed = hidden - residues.mask(ALICE, size, bits)
    assert np.array_equal(residues.centred(freed, bits), values)
