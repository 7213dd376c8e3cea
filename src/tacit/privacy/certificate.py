"""A certificate: guarantee, events, and the hash of what was released, as JSON.

`verify` derives the guarantee from the events again and refuses any difference, and any changed
byte: the file must be the canonical form of its content, and its digest must match. To protect it
against someone who also rewrites the digest, sign it (Ed25519, needs `pip install tacit[sign]`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from tacit.privacy import canonical, errors, events, files, guarantees, plain, shown, wording
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Account
from tacit.privacy.accounting.outsiders import Outsiders
from tacit.privacy.accounting.readers import Readers
from tacit.privacy.errors import CertificateError
from tacit.privacy.randomness import Randomness, source

SCHEMA = "tacit-certificate/2"
_CALIBRATION = 1e-8
"""How much more than its events give a certificate may state: calibration errs on the safe side."""
_PLATFORMS = 1e-11
"""How much less, if ε was computed by Fourier transforms, which machines round differently.

Each machine adds a bound on its own error, so the ε that either states is an upper bound.
"""
_LARGEST_FILE = 16 * 2**20
_INDENT = 2

_OF_ACCOUNTS = (
    "Everything that was released about these data was charged to the account.",
    "Each release ran the event of its charge, with operating-system randomness, under the "
    "assumptions of its own certificate; the ledger records neither.",
    "A declared part is the amount of a charge that is not its event's natural guarantee, or the "
    "rest of a budget, which counts as spent.",
)
"""What holds of the releases behind the charges is beyond what a ledger can see."""

T = TypeVar("T")


@dataclass(frozen=True)
class Artifact:
    """What was released: a plain file name, its length and its SHA-256."""

    name: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Artifact:
        """Describe a file."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CertificateError(
                f"artifact: {path} must be a readable file ({error.strerror}). Check the path."
            ) from None
        return cls(path.name, len(content), canonical.sha256(content))


@dataclass(frozen=True, repr=False)
class Certificate:
    """The guarantee of a release, and why it holds. Make one with `issue`, read one with `load`."""

    guarantee: guarantees.Guarantee
    event: events.Event
    artifact: Artifact | None
    assumptions: tuple[str, ...]
    not_protected: tuple[str, ...]
    seeded: bool
    issued: str
    library: str
    signature: tuple[str, str] | None = None
    """Public key and Ed25519 signature, in hexadecimal."""
    readers: Readers | Outsiders | None = None
    """What readers of the result learn, who never see what it was learned from."""
    about: tuple[str, ...] = ()
    """What people were asked, and what was answered from it: public sentences."""

    @classmethod
    def issue(
        cls,
        event: events.Event,
        *,
        guarantee: guarantees.Guarantee | None = None,
        delta: float | None = None,
        artifact: str | Path | None = None,
        assumptions: tuple[str, ...] = (),
        not_protected: tuple[str, ...] = (),
        rng: Randomness | None = None,
        about: tuple[str, ...] = (),
    ) -> Certificate:
        """Certify what an event released.

        Parameters
        ----------
        event
            What ran, e.g. `mechanism.event`.
        guarantee, delta
            The guarantee to state (it must follow from the event), or the δ to state it at. By
            default, the natural guarantee of the event.
        artifact
            The file that was released.
        assumptions, not_protected
            Sentences to add to the standard sentences.
        rng
            The generator that the release used; a seeded one is recorded as such.
        about
            Public sentences on what people were asked.
        """
        if guarantee is None:
            guarantee = guarantee_of(event, delta)
        _must_follow(event, guarantee, elsewhere=False)
        seeded = not source(rng).secure
        return cls(
            guarantee=guarantee,
            event=event,
            artifact=None if artifact is None else Artifact.of(Path(artifact)),
            assumptions=(
                *wording.standard_assumptions(event, seeded=seeded),
                *_sentences(assumptions),
            ),
            not_protected=(*wording.standard_limits(event), *_sentences(not_protected)),
            seeded=seeded,
            issued=datetime.now(UTC).isoformat(timespec="seconds"),
            library=f"tacit {version('tacit')}",
            about=_sentences(about),
        )

    @classmethod
    def of_account(cls, account: Account) -> Certificate:
        """Certify everything that was charged to a ledger's account, by whichever process.

        The guarantee is `Account.guarantee`: what holds for all charges together, though each may
        depend on earlier releases.

        Parameters
        ----------
        account
            The account as `Ledger.show` returns it.
        """
        return cls.issue(account.event, assumptions=_OF_ACCOUNTS)

    def to_json(self) -> str:
        """Return the canonical form: sorted keys, two spaces, one newline at the end."""
        body = self._body()
        body["digest"] = _digest(body)
        if self.signature is not None:
            key, signature = self.signature
            body["signature"] = {"algorithm": "Ed25519", "public_key": key, "value": signature}
        return canonical.lines(body, _INDENT).decode()

    def save(self, path: str | Path) -> Path:
        """Write the certificate."""
        path = Path(path)
        files.replace(path, self.to_json().encode())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate; refuse anything but its canonical form with the right digest."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise CertificateError(
                f"certificate: {path} must be a readable file ({error.strerror}). Check the path."
            ) from None
        return cls.from_json(content)

    @classmethod
    def from_json(cls, content: bytes | str) -> Certificate:
        """Parse a certificate, byte for byte."""
        try:
            raw = content.encode() if isinstance(content, str) else content
            if len(raw) > _LARGEST_FILE:
                raise CertificateError("certificate: file must be smaller than 16 MiB.")
            certificate = _parse(json.loads(raw))
            unchanged = certificate.to_json().encode() == raw
        except (errors.InvalidParameter, errors.IncompatibleGuarantees) as error:
            raise CertificateError(f"certificate: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CertificateError(
                f"certificate: file must hold a {SCHEMA} document. Was it damaged, or made by "
                "another version?"
            ) from None
        if not unchanged:
            raise CertificateError(
                "certificate: a byte was changed: content and digest do not agree."
            )
        return certificate

    def verify(
        self, artifact: str | Path | Artifact | None = None, public_key: str | None = None
    ) -> None:
        """Derive the guarantee again, compare the artifact and check the signature, or raise.

        If the certificate names an artifact, pass it: the path of a file, or its description.
        """
        _must_follow(self.event, self.guarantee, elsewhere=True)
        if self.readers is not None:
            self.readers.must_follow(self.event)
        self._must_say_all()
        if artifact is not None:
            if not isinstance(artifact, Artifact):
                artifact = Artifact.of(Path(artifact))
            self._verify_artifact(artifact)
        elif self.artifact is not None:
            raise CertificateError(
                f"verify: artifact must be given, as the certificate is about "
                f"{self.artifact.name!r}. Pass its path."
            )
        if public_key is not None and (self.signature is None or self.signature[0] != public_key):
            raise CertificateError("certificate: it is not signed with the given key.")
        if self.signature is not None:
            self._verify_signature(*self.signature)

    def sign(self, key_pem: bytes) -> Certificate:
        """Return a copy with an Ed25519 signature, from the content of an unencrypted PEM file."""
        _must_follow(self.event, self.guarantee, elsewhere=True)
        ed25519, serialization, _ = _cryptography()
        try:
            key = serialization.load_pem_private_key(key_pem, password=None)
        except (ValueError, TypeError):
            raise CertificateError("sign: key must be an unencrypted PEM private key.") from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise CertificateError("sign: key must be an Ed25519 key.")
        value = key.sign(_digest(self._body()).encode()).hex()
        public = key.public_key().public_bytes_raw().hex()
        return dataclasses.replace(self, signature=(public, value))

    def __repr__(self) -> str:
        """Show guarantee, artifact and date in one line; `explain` and `to_json` show all."""
        return shown.line("Certificate", self._about(), self.guarantee)

    def _repr_html_(self) -> str:
        sentences = {
            "assumes": " ".join(self.assumptions),
            "does not protect": " ".join(self.not_protected),
        }
        rows = {"guarantee": self.guarantee, **self._about(), **sentences}
        return shown.table("Certificate", rows)

    def _about(self) -> dict[str, Any]:
        name = {} if self.artifact is None else {"artifact": self.artifact.name}
        if self.readers is not None:
            name["readers"] = str(self.readers.guarantee)
        return {**name, "issued": self.issued, "seeded": self.seeded}

    def explain(self) -> str:
        """Explain in plain words who is protected from whom, how well, why, and what is not."""
        name = f" for {self.artifact.name}" if self.artifact else ""
        return wording.explain(
            self.guarantee,
            self.event,
            title=f"Certificate{name}, issued {self.issued}, {self._signed()}",
            assumptions=self.assumptions,
            not_protected=self.not_protected,
            seeded=self.seeded,
            readers=[] if self.readers is None else self.readers.lines(),
            about=self.about,
        )

    def _signed(self) -> str:
        return f"signed with key {self.signature[0][:16]}…" if self.signature else "not signed"

    def _body(self) -> dict[str, Any]:
        more: dict[str, Any] = {"about": list(self.about)} if self.about else {}
        if self.readers is not None:
            more["readers"] = self.readers.to_plain()
        return {
            **more,
            "schema": SCHEMA,
            "library": self.library,
            "issued": self.issued,
            "guarantee": plain.to_plain(self.guarantee),
            "event": plain.to_plain(self.event),
            "artifact": self.artifact and dataclasses.asdict(self.artifact),
            "assumptions": list(self.assumptions),
            "not_protected": list(self.not_protected),
            "randomness": "seeded" if self.seeded else "operating system",
        }

    def _must_say_all(self) -> None:
        needed = (
            *wording.standard_assumptions(self.event, seeded=self.seeded),
            *wording.standard_limits(self.event),
        )
        stated = {*self.assumptions, *self.not_protected}
        if missing := [line for line in needed if line not in stated]:
            raise CertificateError(
                f"certificate: it omits a sentence that its events require: {missing[0]}"
            )

    def _verify_artifact(self, given: Artifact) -> None:
        if self.artifact is None:
            raise CertificateError("certificate: it names no artifact to compare with.")
        if (given.sha256, given.bytes) != (self.artifact.sha256, self.artifact.bytes):
            raise CertificateError(
                f"certificate: {given.name} is not the certified artifact: its SHA-256 differs."
            )

    def _verify_signature(self, key: str, signature: str) -> None:
        ed25519, _, invalid = _cryptography()
        try:
            public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
            public.verify(bytes.fromhex(signature), _digest(self._body()).encode())
        except (ValueError, invalid):
            raise CertificateError("certificate: the signature does not match.") from None


def public_key_of(pem: bytes) -> str:
    """Return a PEM public key in the hexadecimal form of certificates."""
    ed25519, serialization, _ = _cryptography()
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError:
        raise errors.InvalidParameter(
            "verify: public key must be a PEM file of a public key, not of a private one."
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise CertificateError("verify: public key must be an Ed25519 key.")
    return str(key.public_bytes_raw().hex())


def _parse(data: Any) -> Certificate:
    """Build a certificate from parsed JSON; a value of the wrong type raises `TypeError`."""
    if data["schema"] != SCHEMA:
        errors.refuse("certificate", "schema", SCHEMA, data["schema"], "Use a matching version.")
    artifact = data["artifact"]
    if artifact is not None:
        artifact = Artifact(
            _text(artifact["name"]), _is(int, artifact["bytes"]), _text(artifact["sha256"])
        )
    signature = None
    if "signature" in data:
        signature = (
            _hexadecimal(data["signature"]["public_key"], 64),
            _hexadecimal(data["signature"]["value"], 128),
        )
    return Certificate(
        guarantee=plain.guarantee_from_plain(data["guarantee"]),
        event=plain.event_from_plain(data["event"]),
        artifact=artifact,
        assumptions=tuple(map(_text, _is(list, data["assumptions"]))),
        not_protected=tuple(map(_text, _is(list, data["not_protected"]))),
        seeded=_text(data["randomness"]) == "seeded",
        issued=_text(data["issued"]),
        library=_text(data["library"]),
        signature=signature,
        readers=_readers(data["readers"]) if "readers" in data else None,
        about=tuple(map(_text, _is(list, data.get("about", [])))),
    )


def _readers(body: dict[str, Any]) -> Readers | Outsiders:
    return Outsiders.from_plain(body) if "of" in body else Readers.from_plain(body)


def _digest(body: dict[str, Any]) -> str:
    return canonical.sha256(canonical.lines(body, _INDENT))


def from_plain(body: Any) -> Certificate:
    """Build a certificate from its parsed JSON, as other documents hold it."""
    return Certificate.from_json(canonical.lines(body, _INDENT))


def _is(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError
    return value


def _text(value: Any) -> str:
    # Printable: an explanation must not send control characters to the reader's terminal.
    if not _is(str, value).isprintable():
        raise ValueError
    return str(value)


def _hexadecimal(value: Any, digits: int) -> str:
    if not re.fullmatch(f"[0-9a-f]{{{digits}}}", _text(value)):
        raise ValueError
    return _text(value)


def _sentences(texts: tuple[str, ...]) -> tuple[str, ...]:
    sentences = tuple(texts) if isinstance(texts, tuple | list) else (None,)
    for text in sentences:
        if not isinstance(text, str) or not text.isprintable():
            errors.refuse("certificate", "sentences", "a tuple of lines of text", texts)
    return tuple(map(str, sentences))


def _must_follow(event: events.Event, stated: guarantees.Guarantee, *, elsewhere: bool) -> None:
    """Refuse a guarantee other than the event's own: the natural one, or the one at the stated δ.

    It must not state less. The last digits may differ only if the guarantee may have been derived
    on another machine, by numerical accounting.
    """
    outcome = "nothing"
    for delta in {0.0, getattr(stated, "delta", 0.0)}:
        try:
            derived = guarantee_of(event, delta)
        except errors.TacitError as error:
            outcome = str(error)
            continue
        numerical = elsewhere and delta > 0 and not isinstance(event, events.Single)
        if _agree(derived, stated, _PLATFORMS if numerical else 0.0):
            return
        if _agree(derived, stated, _CALIBRATION) and _proved(event, stated):
            return
        outcome = str(derived)
    raise CertificateError(f"certificate: it states {stated}, but its events give: {outcome}")


def _proved(event: events.Event, stated: guarantees.Guarantee) -> bool:
    """Check whether the event's own profile proves the statement, without a search for ε."""
    return (
        isinstance(event, events.Single)
        and isinstance(stated, guarantees.ApproxDP)
        and event.proves(stated.epsilon, stated.delta)
    )


def _agree(derived: guarantees.Guarantee, stated: guarantees.Guarantee, less: float) -> bool:
    """Check whether both are the same, apart from the small safety margin of calibration."""
    if type(derived) is not type(stated):
        return False
    first, second = plain.to_plain(derived), plain.to_plain(stated)
    return all(_close(first[name], second[name], less) for name in first)


def _close(first: Any, second: Any, less: float) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_close(a, b, less) for a, b in pairs)
    if isinstance(first, float) and isinstance(second, float):
        return -less * abs(first) <= second - first <= _CALIBRATION * abs(first)
    return bool(first == second)


def _cryptography() -> tuple[Any, Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CertificateError(
            "certificate: signatures need the cryptography package. pip install 'tacit[sign]'."
        ) from None
    return ed25519, serialization, InvalidSignature
