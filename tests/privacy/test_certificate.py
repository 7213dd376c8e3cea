"""Certificates: any changed byte, any other guarantee, any other artifact or key is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tacit import Certificate
from tacit.privacy import events, gaussian, guarantees, mechanisms, plain
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Artifact, public_key_of
from tacit.privacy.errors import CertificateError, TacitError
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    Guarantee,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
)
from tacit.privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Geometric,
    GroupedMean,
    IntegerTable,
    Laplace,
    LatticeGeometric,
    LocalGaussian,
    LocalLaplace,
    LocalMean,
    LocalVector,
    MemoizedResponse,
    PermuteAndFlip,
    ProjectiveGeometryResponse,
    RandomizedResponse,
    SmoothLaplace,
    SparseVector,
    SubsetSelection,
)
from tacit.privacy.randomness import Seeded

SCOPE: dict[str, Any] = {"adjacency": "replace-one", "unit": "record"}
ADD: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}
LAPLACE = events.Laplace(Fraction(1), Fraction(2), **SCOPE)
SMOOTH = events.SmoothLaplace(Fraction(1, 2), Fraction(1, 100), 1e-6, **SCOPE)
GAUSSIAN = events.Gaussian(Fraction(1), Fraction(4), **SCOPE)
SAMPLED = events.PoissonSampled(0.01, events.Gaussian(Fraction(1), Fraction(1), **ADD))

MECHANISMS: list[Any] = [
    DiscreteLaplace(epsilon=0.1, sensitivity=3, adjacency="replace-one"),
    Geometric(epsilon=1 / 3, lower=0, upper=10, adjacency="replace-one"),
    Laplace(epsilon=0.7, sensitivity=0.3, adjacency="replace-one"),
    LocalLaplace(epsilon=4.0, radius=1.5),
    DiscreteGaussian(epsilon=1.0, delta=1e-5, sensitivity=1, dimension=1, adjacency="replace-one"),
    DiscreteGaussian(epsilon=0.3, delta=1e-9, sensitivity=2, adjacency="replace-one"),
    DiscreteGaussian(sigma=3.3, sensitivity=2, adjacency="replace-one"),
    Gaussian(epsilon=1.0, delta=1e-5, sensitivity=0.5, adjacency="replace-one"),
    Gaussian(sigma=2.5, sensitivity=1, adjacency="replace-one"),
    LocalGaussian(epsilon=2.0, delta=1e-6, radius=1.0),
    RandomizedResponse(categories=7, epsilon=1.0),
    SubsetSelection(categories=20, epsilon=2.0),
    ProjectiveGeometryResponse(categories=20, epsilon=2.0),
    LocalMean(lower=0, upper=10, epsilon=2.0),
    GroupedMean(groups=3, epsilon=2.0),
    LocalVector(dimension=9, lower=0, upper=10, epsilon=2.0),
    MemoizedResponse(categories=9, cells=3, epsilon=2.0, permanent_epsilon=1.0, reports=4),
    Exponential(epsilon=0.9, sensitivity=0.25, adjacency="replace-one"),
    PermuteAndFlip(epsilon=0.9, sensitivity=0.25, adjacency="replace-one"),
    SparseVector(epsilon=1.0, threshold=5, positives=3, numeric=True, adjacency="replace-one"),
    SmoothLaplace(epsilon=1.0, delta=1e-6, adjacency="replace-one"),
    LatticeGeometric(epsilon=0.5, categories=3, total=9),
    IntegerTable([[2, 1], [1, 2]], [(0, 1)], epsilon=0.7, adjacency="replace-one"),
]


def test_every_mechanism_has_a_certificate() -> None:
    """Protocols aside, whatever the package exports."""
    exported = {getattr(mechanisms, name) for name in mechanisms.__all__}
    kinds = {
        one for one in exported if isinstance(one, type) and not getattr(one, "_is_protocol", 0)
    }
    assert {type(one) for one in MECHANISMS} == kinds


DECLARED: list[Guarantee] = [
    PureDP(epsilon=0.5, **SCOPE),
    ApproxDP(epsilon=0.5, delta=1e-6, **SCOPE),
    guarantees.ConcentratedDP(mu=0.1, tau=0.4, **SCOPE),
    ZCDP(xi=0.0, rho=0.1, **SCOPE),
    RenyiDP(orders=(2.0, 4.0), epsilons=(0.1, math.inf), **SCOPE),
    NotPrivate(**SCOPE),
    Unproven(reason="the encoder saw every record", **SCOPE),
]

TREES: list[tuple[events.Event, float | None]] = [
    (events.Composed((LAPLACE, LAPLACE)), None),
    (events.Composed((LAPLACE, SMOOTH)), None),
    (events.Repeated(GAUSSIAN, 10), None),
    (events.Repeated(GAUSSIAN, 10), 1e-5),
    (events.Parallel((LAPLACE, events.Repeated(LAPLACE, 3))), None),
    (events.PoissonSampled(0.5, events.Laplace(Fraction(1), Fraction(2), **ADD)), None),
    (
        events.Composed(
            (
                events.Repeated(events.Composed((LAPLACE, events.Parallel((LAPLACE, LAPLACE)))), 2),
                events.Declared(PureDP(epsilon=0.25, **SCOPE)),
            )
        ),
        None,
    ),
    (events.Composed((LAPLACE, events.Declared(NotPrivate(**SCOPE)))), None),
    (events.Composed((LAPLACE, events.Declared(Unproven(reason="no proof", **SCOPE)))), None),
]


def checked(content: bytes | str, artifact: Path | None = None, key: str | None = None) -> None:
    """All that `tacit account verify` and `tacit account explain` do with a file."""
    certificate = Certificate.from_json(content)
    certificate.verify(artifact, key)
    certificate.explain()


def canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def forged(certificate: Certificate, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """What someone writes who changes the body and recomputes the digest; a signature stays."""
    body = json.loads(certificate.to_json())
    body.pop("digest")
    signature = body.pop("signature", None)
    change(body)
    added = body.pop("signature", signature)
    text = canonical(body).encode("utf-8", "surrogatepass")
    body["digest"] = hashlib.sha256(text).hexdigest()
    if added is not None:
        body["signature"] = added
    return canonical(body).encode("utf-8", "surrogatepass")


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        for name in path[:-1]:
            body = body[name]
        body[path[-1]] = value

    return change


def key_pair() -> tuple[bytes, bytes]:
    """A fresh private and public key, in PEM."""
    key = ed25519.Ed25519PrivateKey.generate()
    return private_pem(key), public_pem(key)


def private_pem(key: Any, password: bytes | None = None) -> bytes:
    encryption: Any = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )


def public_pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


@pytest.fixture(name="artifact")
def _artifact(tmp_path: Path) -> Path:
    path = tmp_path / "counts.json"
    path.write_bytes(b'{"counts": [1, 2, 3]}\n')
    return path


@pytest.fixture(name="certificate")
def _certificate(artifact: Path) -> Certificate:
    return Certificate.issue(LAPLACE, artifact=artifact, assumptions=("Ödipus – said so.",))


# --- round trip ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_round_trip_of_every_mechanism(mechanism: Any, artifact: Path, tmp_path: Path) -> None:
    certificate = Certificate.issue(
        mechanism.event, guarantee=mechanism.guarantee, artifact=artifact
    )
    assert certificate.guarantee == mechanism.guarantee
    path = certificate.save(tmp_path / "c.json")
    loaded = Certificate.load(path)
    assert loaded == certificate
    assert path.read_text(encoding="utf-8") == loaded.to_json()
    loaded.verify(artifact)
    assert not loaded.seeded


@pytest.mark.parametrize("guarantee", DECLARED, ids=lambda one: type(one).__name__)
def test_round_trip_of_what_is_declared(guarantee: Guarantee) -> None:
    certificate = Certificate.issue(events.Declared(guarantee))
    assert certificate.guarantee == guarantee
    assert Certificate.from_json(certificate.to_json()) == certificate
    checked(certificate.to_json())
    promised = not isinstance(guarantee, NotPrivate | Unproven)
    assert any("declared" in line for line in certificate.assumptions) == promised


@pytest.mark.parametrize("number", range(len(TREES)))
def test_round_trip_of_nested_events(number: int) -> None:
    event, delta = TREES[number]
    certificate = Certificate.issue(event, delta=delta)
    assert certificate.guarantee == guarantee_of(event, delta)
    loaded = Certificate.from_json(certificate.to_json())
    assert loaded.event == event
    checked(certificate.to_json())


@pytest.mark.parametrize(
    "event",
    [
        events.Repeated(SMOOTH, 50),
        events.Repeated(events.Declared(ApproxDP(epsilon=0.1, delta=1e-6, **SCOPE)), 100),
        events.Parallel((events.Repeated(LAPLACE, 3), SMOOTH)),
        events.Parallel((SMOOTH, dataclasses.replace(SMOOTH, delta=1e-5))),
        events.Repeated(SAMPLED.event, 3),
    ],
    ids=["fifty smooth", "hundred declared", "parallel", "two deltas", "Gaussians"],
)
def test_what_was_issued_verifies(event: events.Event) -> None:
    # A natural statement with a δ of its own may be looser than what accounting finds at that δ.
    checked(Certificate.issue(event).to_json())


@pytest.mark.slow
def test_a_training_run_is_verified() -> None:
    certificate = Certificate.issue(events.Repeated(SAMPLED, 1000), delta=1e-5)
    assert certificate.guarantee.epsilon == pytest.approx(1.83, abs=0.02)  # type: ignore[attr-defined]
    checked(certificate.to_json())


def test_nested_events_add_up() -> None:
    assert Certificate.issue(TREES[0][0]).guarantee == PureDP(epsilon=1.0, **SCOPE)
    assert Certificate.issue(TREES[6][0]).guarantee == PureDP(epsilon=2.25, **SCOPE)
    assert isinstance(Certificate.issue(TREES[7][0]).guarantee, NotPrivate)
    assert isinstance(Certificate.issue(TREES[8][0]).guarantee, Unproven)


def test_deep_events_come_back() -> None:
    event: events.Event = LAPLACE
    for _ in range(60):
        event = events.Composed((event,))
    checked(Certificate.issue(event).to_json())


def test_extra_sentences_are_kept() -> None:
    certificate = Certificate.issue(LAPLACE, assumptions=("A.", "B."), not_protected=("C.",))
    loaded = Certificate.from_json(certificate.to_json())
    assert loaded.assumptions[-2:] == ("A.", "B.")
    assert loaded.not_protected[-1] == "C."
    assert len(loaded.assumptions) > 2
    assert len(loaded.not_protected) > 1


def test_a_certificate_says_when_and_by_what() -> None:
    body = json.loads(Certificate.issue(LAPLACE).to_json())
    assert body["library"].startswith("tacit ")
    assert body["issued"].endswith("+00:00")
    assert body["schema"] == "tacit-certificate/2"
    assert body["artifact"] is None


@pytest.mark.parametrize(
    ("rng", "seeded"), [(None, False), (Seeded(1), True), (np.random.default_rng(1), True)]
)
def test_seeded_releases_are_marked(rng: Any, seeded: bool) -> None:
    certificate = Certificate.issue(LAPLACE, rng=rng)
    assert certificate.seeded is seeded
    loaded = Certificate.from_json(certificate.to_json())
    assert loaded.seeded is seeded
    assert ("SEEDED" in loaded.explain()) is seeded
    assert json.loads(certificate.to_json())["randomness"] == (
        "seeded" if seeded else "operating system"
    )


def test_the_mark_of_a_seed_cannot_be_removed_from_a_signed_certificate() -> None:
    private, _ = key_pair()
    signed = Certificate.issue(LAPLACE, rng=Seeded(1)).sign(private)
    with pytest.raises(CertificateError):
        checked(forged(signed, put("randomness", value="operating system")))


# --- what may not be issued ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "guarantee",
    [
        PureDP(epsilon=0.4, **SCOPE),
        PureDP(epsilon=0.5 - 1e-6, **SCOPE),
        PureDP(epsilon=0.5, **ADD),
        PureDP(epsilon=0.5, adjacency="replace-one", unit="person"),
        ZCDP(xi=0.0, rho=0.001, **SCOPE),
        ApproxDP(epsilon=0.1, delta=1e-6, **SCOPE),
        Unproven(reason="x", **SCOPE),
    ],
)
def test_a_guarantee_that_does_not_follow_is_not_issued(guarantee: Guarantee) -> None:
    with pytest.raises(CertificateError):
        Certificate.issue(LAPLACE, guarantee=guarantee)


@pytest.mark.parametrize("guarantee", [NotPrivate(**SCOPE), Unproven(reason="x", **SCOPE)])
def test_what_is_not_private_cannot_be_called_private(guarantee: Guarantee) -> None:
    with pytest.raises(CertificateError):
        Certificate.issue(events.Declared(guarantee), guarantee=PureDP(epsilon=1.0, **SCOPE))


@pytest.mark.parametrize("delta", [math.nan, -0.1, 1.0])
def test_a_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(TacitError):
        Certificate.issue(GAUSSIAN, delta=delta)


@pytest.mark.parametrize("sentences", [("two\nlines",), ("\x1b[2J",), (5,), (None,), "not a tuple"])
def test_sentences_are_lines_of_text(sentences: Any) -> None:
    with pytest.raises(TacitError):
        Certificate.issue(LAPLACE, assumptions=sentences)
    with pytest.raises(TacitError):
        Certificate.issue(LAPLACE, not_protected=sentences)


def test_an_artifact_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(CertificateError):
            Certificate.issue(LAPLACE, artifact=path)


# --- any changed byte ---------------------------------------------------------------------------


def unnoticed(content: bytes, artifact: Path, changes: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Where each of the changed files was read and verified all the same."""
    checked(content, artifact)
    survived = []
    for position, changed in changes:
        if changed == content:
            continue
        try:
            Certificate.from_json(changed).verify(artifact)
        except CertificateError:
            continue
        survived.append(changed[max(position - 30, 0) : position + 10])
    return survived


def replacements(content: bytes, others: Callable[[int], set[int]]) -> Iterator[tuple[int, bytes]]:
    for position, byte in enumerate(content):
        for other in others(byte):
            yield position, content[:position] + bytes([other]) + content[position + 1 :]


def insertions(content: bytes, extras: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    """With a byte lost, with one added, and cut off."""
    for position in range(len(content) + 1):
        yield position, content[:position] + content[position + 1 :]
        for extra in extras:
            yield position, content[:position] + extra + content[position:]


def two_bytes(byte: int) -> set[int]:
    """The last bit flipped, and the case of a letter."""
    return {byte ^ 1, byte ^ 32}


def many_bytes(byte: int) -> set[int]:
    """Every single-bit flip, and characters that JSON and people may take for the same."""
    return {byte ^ (1 << bit) for bit in range(8)} | set(b"0 9aA\n\t")


@pytest.fixture(name="content", params=["plain", "signed"])
def _content(request: pytest.FixtureRequest, certificate: Certificate) -> bytes:
    if request.param == "signed":
        certificate = certificate.sign(key_pair()[0])
    return certificate.to_json().encode()


def test_any_changed_byte_fails(content: bytes, artifact: Path) -> None:
    assert unnoticed(content, artifact, replacements(content, two_bytes)) == []


def test_any_lost_or_added_byte_fails(content: bytes, artifact: Path) -> None:
    assert unnoticed(content, artifact, insertions(content, (b" ",))) == []


def test_a_certificate_that_is_cut_off_fails(content: bytes, artifact: Path) -> None:
    cut = ((position, content[:position]) for position in range(0, len(content), 5))
    assert unnoticed(content, artifact, cut) == []


@pytest.mark.slow
def test_any_change_of_any_byte_fails(content: bytes, artifact: Path) -> None:
    assert unnoticed(content, artifact, replacements(content, many_bytes)) == []
    assert unnoticed(content, artifact, insertions(content, (b"\n", b"0", b"a", b"\t"))) == []


@pytest.mark.parametrize("ending", [b"\r\n", b"", b"\n\n", b"\n\0", b"\n{}"])
def test_other_line_endings_fail(certificate: Certificate, artifact: Path, ending: bytes) -> None:
    content = certificate.to_json().encode()
    with pytest.raises(CertificateError):
        checked(content[:-1] + ending, artifact)
    with pytest.raises(CertificateError):
        checked(content.replace(b"\n", b"\r\n"), artifact)


@pytest.mark.parametrize("coding", ["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])
def test_other_encodings_fail(certificate: Certificate, artifact: Path, coding: str) -> None:
    with pytest.raises(CertificateError):
        checked(certificate.to_json().encode(coding), artifact)


def test_other_ways_to_write_the_same_json_fail(certificate: Certificate, artifact: Path) -> None:
    body = json.loads(certificate.to_json())
    for text in (
        json.dumps(body),
        json.dumps(body, indent=2, sort_keys=True) + "\n",  # escapes instead of letters
        json.dumps(dict(reversed(body.items())), indent=2, ensure_ascii=False) + "\n",
    ):
        with pytest.raises(CertificateError):
            checked(text, artifact)


# --- tampering with the digest recomputed -------------------------------------------------------

TAMPERING: dict[str, Callable[[dict[str, Any]], Any]] = {
    "smaller epsilon": put("guarantee", "epsilon", value=0.1),
    "slightly smaller epsilon": put("guarantee", "epsilon", value=0.4999),
    "larger epsilon": put("guarantee", "epsilon", value=5.0),
    "other adjacency": put("guarantee", "adjacency", value="add-remove"),
    "other unit": put("guarantee", "unit", value="person"),
    "other scale": put("event", "scale", value="20"),
    "other sensitivity": put("event", "l1_sensitivity", value="1/10"),
    "other event": put("event", value=plain.to_plain(SMOOTH)),
    "another notion": put("guarantee", value=plain.to_plain(ZCDP(xi=0.0, rho=0.125, **SCOPE))),
    "unproven event": put(
        "event", value=plain.to_plain(events.Declared(Unproven(reason="x", **SCOPE)))
    ),
    "not private event": put("event", value=plain.to_plain(events.Declared(NotPrivate(**SCOPE)))),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_events_that_give_another_guarantee_are_caught(
    certificate: Certificate, artifact: Path, name: str
) -> None:
    content = forged(certificate, TAMPERING[name])
    loaded = Certificate.from_json(content)  # its digest fits
    with pytest.raises(CertificateError, match="events give"):
        loaded.verify(artifact)


def both_scales(body: dict[str, Any]) -> None:
    body["event"]["scale"] = "20"
    body["guarantee"]["epsilon"] = 0.05


@pytest.mark.parametrize(
    "change",
    [
        both_scales,
        put("assumptions", value=[]),
        put("not_protected", value=["Nothing."]),
        put("issued", value="1999-01-01T00:00:00+00:00"),
        put("library", value="tacit 9"),
        put("artifact", value=None),
        put("artifact", "sha256", value="0" * 64),
        *TAMPERING.values(),
    ],
)
def test_a_consistent_forgery_is_caught_by_the_signature(
    certificate: Certificate, artifact: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    private, public = key_pair()
    signed = certificate.sign(private)
    checked(signed.to_json(), artifact, public_key_of(public))
    with pytest.raises(CertificateError):
        checked(forged(signed, change), artifact, public_key_of(public))


def test_a_consistent_forgery_passes_without_a_signature(
    certificate: Certificate, artifact: Path
) -> None:
    # Which is why signatures exist; the documentation says so.
    checked(forged(certificate, both_scales), artifact)


# --- the artifact -------------------------------------------------------------------------------


def test_the_artifact_is_compared(certificate: Certificate, artifact: Path) -> None:
    content = artifact.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        artifact.write_bytes(bytes(changed))
        with pytest.raises(CertificateError, match="artifact"):
            certificate.verify(artifact)
    for other in (content[:-1], content + b"\n", b"", content * 2):
        artifact.write_bytes(other)
        with pytest.raises(CertificateError, match="artifact"):
            certificate.verify(artifact)
    artifact.write_bytes(content)
    certificate.verify(artifact)
    certificate.verify(artifact.rename(artifact.with_name("renamed.json")))


def test_a_missing_artifact_is_an_error(certificate: Certificate, tmp_path: Path) -> None:
    for path in (tmp_path / "nope", tmp_path):
        with pytest.raises(CertificateError, match="readable file"):
            certificate.verify(path)


def test_what_is_about_an_artifact_is_not_verified_without_it(certificate: Certificate) -> None:
    with pytest.raises(CertificateError, match="artifact"):
        certificate.verify()


def test_an_artifact_that_was_never_certified_is_an_error(artifact: Path) -> None:
    with pytest.raises(CertificateError, match="names no artifact"):
        Certificate.issue(LAPLACE).verify(artifact)


def test_only_the_name_of_the_artifact_is_kept(artifact: Path) -> None:
    described = Artifact.of(artifact)
    assert described.name == "counts.json"
    assert described.bytes == 22
    assert described.sha256 == hashlib.sha256(artifact.read_bytes()).hexdigest()


# --- signatures ---------------------------------------------------------------------------------


def test_sign_and_verify(certificate: Certificate, artifact: Path, tmp_path: Path) -> None:
    private, public = key_pair()
    signed = certificate.sign(private)
    assert certificate.signature is None
    assert dataclasses.replace(signed, signature=None) == certificate
    assert signed.signature is not None
    assert signed.signature[0] == public_key_of(public)
    loaded = Certificate.load(signed.save(tmp_path / "signed.json"))
    assert loaded == signed
    loaded.verify(artifact, public_key_of(public))
    loaded.verify(artifact)


def test_the_wrong_key_is_refused(certificate: Certificate, artifact: Path) -> None:
    private, public = key_pair()
    _, other = key_pair()
    signed = certificate.sign(private)
    with pytest.raises(CertificateError, match="not signed with the given key"):
        signed.verify(artifact, public_key_of(other))
    with pytest.raises(CertificateError, match="not signed with the given key"):
        certificate.verify(artifact, public_key_of(public))


def test_swapped_signatures_are_refused(certificate: Certificate, artifact: Path) -> None:
    (private, public), (other_private, _) = key_pair(), key_pair()
    signed = certificate.sign(private)
    other_signer = certificate.sign(other_private)
    other_body = Certificate.issue(GAUSSIAN).sign(private)
    assert signed.signature is not None
    assert other_signer.signature is not None
    assert other_body.signature is not None
    for signature in (
        (signed.signature[0], other_signer.signature[1]),
        (other_signer.signature[0], signed.signature[1]),
        other_body.signature,
        (signed.signature[0], ""),
        ("", ""),
        (signed.signature[0], signed.signature[1][:-2]),
        (signed.signature[0], "0" * 128),
    ):
        swapped = dataclasses.replace(signed, signature=signature)
        with pytest.raises(CertificateError):
            swapped.verify(artifact)
        with pytest.raises(CertificateError):
            swapped.verify(artifact, public_key_of(public))


def test_a_key_of_small_order_is_not_the_given_key(
    certificate: Certificate, artifact: Path
) -> None:
    # Ed25519 takes all zeros for a signature by the key of all zeros, one time in four.
    forged_by_nobody = dataclasses.replace(certificate, signature=("0" * 64, "0" * 128))
    with pytest.raises(CertificateError, match="not signed with the given key"):
        forged_by_nobody.verify(artifact, public_key_of(key_pair()[1]))


def test_signing_again_replaces_the_signature(certificate: Certificate, artifact: Path) -> None:
    (first, _), (second, public) = key_pair(), key_pair()
    certificate.sign(first).sign(second).verify(artifact, public_key_of(public))


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"garbage",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        private_pem(ed25519.Ed25519PrivateKey.generate(), b"secret"),
        private_pem(ec.generate_private_key(ec.SECP256R1())),
        private_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        public_pem(ed25519.Ed25519PrivateKey.generate()),
        b"\xff" * 100,
    ],
    ids=["empty", "garbage", "broken", "encrypted", "elliptic", "rsa", "public", "binary"],
)
def test_other_private_keys_are_refused(certificate: Certificate, pem: bytes) -> None:
    with pytest.raises(CertificateError) as refusal:
        certificate.sign(pem)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"garbage",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        public_pem(ec.generate_private_key(ec.SECP256R1())),
        private_pem(ed25519.Ed25519PrivateKey.generate()),
        b"\xff" * 100,
    ],
    ids=["empty", "garbage", "broken", "elliptic", "private", "binary"],
)
def test_other_public_keys_are_refused(pem: bytes) -> None:
    with pytest.raises(TacitError):
        public_key_of(pem)


def test_public_key_of_is_the_raw_key() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    assert public_key_of(public_pem(key)) == key.public_key().public_bytes_raw().hex()


# --- hostile files ------------------------------------------------------------------------------

GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "newline": b"\n",
    "null": b"null",
    "list": b"[]",
    "number": b"5",
    "text": b'"tacit-certificate/2"',
    "empty object": b"{}",
    "only schema": b'{"schema": "tacit-certificate/2"}',
    "other schema": b'{"schema": "tacit-certificate/2"}',
    "schema of another type": b'{"schema": ["tacit-certificate/2"]}',
    "half": b'{"schema": "tacit-cer',
    "deep lists": b"[" * 200_000,
    "deep closed lists": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 200_000,
    "long number": b'{"schema": ' + b"1" * 100_000 + b"}",
    "huge exponent": b'{"schema": 1e999999999}',
    "NaN": b"NaN",
    "not UTF-8": b'{"schema": "\xff\xfe"}',
    "every byte": bytes(range(256)),
    "zeros": b"\0" * 1000,
    "HTML": b"<!doctype html><title>404</title>",
    "too large": b" " * (17 * 2**20),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(GARBAGE[name])
    with pytest.raises(CertificateError):
        Certificate.load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nope.json", tmp_path):
        with pytest.raises(CertificateError):
            Certificate.load(path)


def test_text_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(CertificateError):
        Certificate.from_json("\ud800")


def test_duplicate_keys_are_refused(certificate: Certificate, artifact: Path) -> None:
    text = certificate.to_json()
    for name in ("issued", "guarantee", "artifact"):
        doubled = text.replace(f'  "{name}":', f'  "{name}": null,\n  "{name}":', 1)
        assert doubled != text
        with pytest.raises(CertificateError):
            checked(doubled, artifact)


FIELDS = (
    *("artifact", "assumptions", "digest", "event", "guarantee"),
    *("issued", "library", "not_protected", "randomness", "schema"),
)


@pytest.mark.parametrize("name", FIELDS)
def test_missing_and_surplus_fields_are_refused(
    certificate: Certificate, artifact: Path, name: str
) -> None:
    body = json.loads(certificate.to_json())
    del body[name]
    with pytest.raises(CertificateError):
        checked(canonical(body), artifact)
    with pytest.raises(CertificateError):
        checked(forged(certificate, lambda body: body.update({name + "x": 1})), artifact)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    # Where a value of another type is.
    "signature {}": put("signature", value={}),
    "signature []": put("signature", value=[]),
    "signature ''": put("signature", value=""),
    "signature 0": put("signature", value=0),
    "signature false": put("signature", value=False),
    "signature text": put("signature", value="x"),
    "signature of numbers": put(
        "signature", value={"algorithm": "Ed25519", "public_key": 5, "value": 6}
    ),
    "signature of nulls": put(
        "signature", value={"algorithm": "Ed25519", "public_key": None, "value": None}
    ),
    "signature of letters": put(
        "signature", value={"algorithm": "Ed25519", "public_key": "é", "value": "x"}
    ),
    "issued is a number": put("issued", value=5),
    "library is null": put("library", value=None),
    "assumptions are numbers": put("assumptions", value=[1]),
    "assumptions are nested": put("assumptions", value=[["a"]]),
    "assumptions are text": put("assumptions", value="abc"),
    "assumptions are null": put("assumptions", value=None),
    "limits are an object": put("not_protected", value={"a": 1}),
    "artifact is text": put("artifact", value="counts.json"),
    "artifact is false": put("artifact", value=False),
    "artifact is empty": put("artifact", value={}),
    "name is a number": put("artifact", "name", value=5),
    "length is text": put("artifact", "bytes", value="22"),
    "hash is null": put("artifact", "sha256", value=None),
    "randomness is a list": put("randomness", value=[]),
    "event is a list": put("event", value=[]),
    "kind is a list": put("event", value={"kind": ["Laplace"]}),
    "kind is unknown": put("event", "kind", value="Exact"),
    "guarantee is an event": put("guarantee", value=plain.to_plain(LAPLACE)),
    # Numbers that are none, or too large.
    "issued is NaN": put("issued", value=math.nan),
    "length is infinite": put("artifact", "bytes", value=math.inf),
    "epsilon is NaN": put("guarantee", "epsilon", value=math.nan),
    "epsilon is infinite": put("guarantee", "epsilon", value="inf"),
    "epsilon is negative": put("guarantee", "epsilon", value=-1.0),
    "epsilon is text": put("guarantee", "epsilon", value="0.5"),
    "epsilon is true": put("guarantee", "epsilon", value=True),
    "epsilon is beyond floats": put("guarantee", "epsilon", value=10**400),
    "scale is nan": put("event", "scale", value="nan"),
    "scale is 0": put("event", "scale", value="0"),
    "scale is negative": put("event", "scale", value="-2"),
    "scale is 1/0": put("event", "scale", value="1/0"),
    "scale is 1e5000": put("event", "scale", value="1e5000"),
    "scale is beyond floats": put("event", "scale", value=str(10**400)),
    "sensitivity is beyond floats": put("event", "l1_sensitivity", value=str(10**400)),
    "Exponential beyond floats": put(
        "event", value={"kind": "Exponential", "epsilon": str(10**400), **SCOPE}
    ),
    "DiscreteGaussian beyond floats": put(
        "event",
        value={
            "kind": "DiscreteGaussian",
            "squared_sensitivity": str(10**700),
            "variance": str(10**700),
            "dimension": 1,
            **SCOPE,
        },
    ),
    "SmoothLaplace beyond floats": put("event", value=plain.to_plain(SMOOTH) | {"beta": "10000"}),
    "SmoothLaplace repeated for ever": put(
        "event", value={"kind": "Repeated", "count": 2**52, "event": plain.to_plain(SMOOTH)}
    ),
    "too many digits": put("event", "scale", value="1" * 5000),
    # Trees without a statement.
    "sampled Gaussian without a delta": put("event", value=plain.to_plain(SAMPLED)),
    "a sum of two notions": put(
        "event",
        value={"kind": "Composed", "events": [plain.to_plain(GAUSSIAN), plain.to_plain(SMOOTH)]},
    ),
    "sampled and not private": put(
        "event",
        value={
            "kind": "PoissonSampled",
            "probability": 0.1,
            "event": plain.to_plain(events.Declared(NotPrivate(**ADD))),
        },
    ),
    "an empty list of events": put("event", value={"kind": "Composed", "events": []}),
    "two adjacencies": put(
        "event",
        value={
            "kind": "Composed",
            "events": [plain.to_plain(LAPLACE), plain.to_plain(LAPLACE) | {"unit": "person"}],
        },
    ),
    # Text that is none.
    "half a character": put("issued", value="\ud800"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_refused_cleanly(
    certificate: Certificate, artifact: Path, name: str
) -> None:
    # Someone who recomputes the digest can write anything: no other exception may come of it.
    with pytest.raises(CertificateError):
        checked(forged(certificate, HOSTILE[name]), artifact)


def test_an_escaped_half_character_is_refused(certificate: Certificate, artifact: Path) -> None:
    text = certificate.to_json().replace('"issued": "', '"issued": "\\ud800')
    with pytest.raises(CertificateError):
        checked(text, artifact)


@pytest.mark.parametrize("depth", [150, 190, 230, 300, 390])
@pytest.mark.parametrize("kind", ["Composed", "Repeated"])
def test_deep_trees_are_verified_or_refused(kind: str, depth: int) -> None:
    certificate = Certificate.issue(LAPLACE)

    def nest(body: dict[str, Any]) -> None:
        for _ in range(depth):
            inner = body["event"]
            if kind == "Composed":
                body["event"] = {"kind": kind, "events": [inner]}
            else:
                body["event"] = {"kind": kind, "count": 1, "event": inner}

    with contextlib.suppress(CertificateError):
        checked(forged(certificate, nest))


def test_a_large_exponent_does_not_take_for_ever(certificate: Certificate) -> None:
    # e^ε of randomized response is compared in integers; ε = 700 is the most that a mechanism
    # takes, and what is beyond it should be refused before e^ε is written out.
    event = RandomizedResponse(categories=2, epsilon=1.0).event
    content = forged(certificate, put("event", value=plain.to_plain(event) | {"epsilon": "701"}))
    with pytest.raises(CertificateError):
        Certificate.from_json(content)


@pytest.mark.parametrize(
    "mechanism",
    [
        Exponential(epsilon=1.0, sensitivity=2.0, adjacency="replace-one"),
        SparseVector(epsilon=1.0, threshold=0, numeric=True, adjacency="replace-one"),
        SmoothLaplace(epsilon=1.0, delta=1e-6, adjacency="replace-one"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_epsilon_follows_from_sensitivity_and_scale(mechanism):
    """What the noise was is on record: with less of it, or a larger sensitivity, ε is larger."""
    stored = plain.to_plain(mechanism.event)
    assert "epsilon" not in " ".join(stored)
    stated = guarantee_of(mechanism.event).epsilon
    for name in ("sensitivity", "alpha", "beta"):
        if name in stored:
            more = plain.event_from_plain(stored | {name: str(2 * Fraction(stored[name]))})
            assert guarantee_of(more).epsilon > 1.2 * stated
            with pytest.raises(CertificateError):
                Certificate.issue(more, guarantee=mechanism.guarantee)
    for name in (name for name in stored if name.endswith("scale")):
        less = plain.event_from_plain(stored | {name: str(Fraction(stored[name]) / 2)})
        assert guarantee_of(less).epsilon > 1.1 * stated


# What a hostile reader found: nothing below what the events give is issued, or verified.


@pytest.mark.parametrize("less", [1e-15, 9.9e-12, 1e-9])
def test_nothing_below_what_the_events_give_is_certified(less):
    scope = {"adjacency": "add-remove", "unit": "record"}
    event = events.Laplace(1, 1, **scope)
    low = PureDP(epsilon=1 - less, **scope)
    with pytest.raises(CertificateError, match="its events give"):
        Certificate.issue(event, guarantee=low)
    certificate = dataclasses.replace(Certificate.issue(event), guarantee=low)
    with pytest.raises(CertificateError, match="its events give"):
        Certificate.from_json(certificate.to_json()).verify()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_a_calibrated_gaussian_is_certified_by_its_profile_and_nothing_below_it(epsilon):
    """The search for ε may stop a digit above the target, at which the profile itself holds."""
    scope = {"adjacency": "replace-one", "unit": "record"}
    z = gaussian.noise_multiplier_for(epsilon, 1e-6)
    event = events.Gaussian(Fraction(1), Fraction(repr(z)), **scope)
    met = ApproxDP(epsilon=epsilon, delta=1e-6, **scope)
    Certificate.issue(event, guarantee=met).verify()
    for less in (1e-9, 1e-11):
        low = dataclasses.replace(met, epsilon=epsilon * (1 - less))
        assert not event.proves(low.epsilon, low.delta)
        with pytest.raises(CertificateError, match="its events give"):
            Certificate.issue(event, guarantee=low)


def test_digits_of_other_machines_are_let_through_for_numerical_accounting_alone():
    scope = {"adjacency": "add-remove", "unit": "record"}
    leaf = events.Gaussian(1, 2, **scope)
    for event, numerical in ((leaf, False), (events.Repeated(leaf, 50), True)):
        issued = Certificate.issue(event, delta=1e-6)
        found = issued.guarantee
        low = dataclasses.replace(found, epsilon=found.epsilon * (1 - 5e-12))
        with pytest.raises(CertificateError, match="its events give"):
            Certificate.issue(event, guarantee=low)
        other = dataclasses.replace(issued, guarantee=low)
        if numerical:
            other.verify()
        else:
            with pytest.raises(CertificateError, match="its events give"):
                other.verify()
