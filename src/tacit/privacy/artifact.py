r"""Saved mechanisms and models: a directory, or the same content as bytes. No pickle anywhere.

A directory holds `mechanism.json` (or `model.json`): kind, parameters, public bounds, certificate
and the hash of every other file; `weights.safetensors`: arrays; and `encoder.onnx` if the encoder
has such a form. Loading checks every byte, and builds objects of a few known kinds only.
Certificates towards in-house rows name the fingerprint of the mechanism or model that was learned
from them, and are refused for any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit.privacy import canonical, errors, files
from tacit.privacy.certificate import Artifact, Certificate, from_plain
from tacit.privacy.codec import Arrays as Arrays

FORMAT = "tacit-artifact/1"
WEIGHTS, ENCODER = "weights.safetensors", "encoder.onnx"
_TITLES = ("mechanism.json", "model.json")
_HOMES = {
    "codebook": "tacit.local.learned.codebook:Codebook",
    "partitions": "tacit.local.learned.partitions:Partitions",
    "vlm": "tacit.local.learned.vlm:VLM",
    "direct": "tacit.local.learned.direct:Direct",
    "survey": "tacit.local.surveys.survey:Survey",
    "noise-aware": "tacit.local.inference.noise_aware:NoiseAwareClassifier",
    "student": "tacit.local.inference.student:StudentClassifier",
    "proportions": "tacit.local.inference.proportions_classifier:ProportionsClassifier",
    "moments": "tacit.local.inference.moments_regressor:MomentsRegressor",
    "noise-aware-regressor": "tacit.local.inference.noise_aware_regressor:NoiseAwareRegressor",
    "novel-class": "tacit.local.inference.novel:NovelClassClassifier",
    "join": "tacit.local.inference.join:JoinClassifier",
    "anonymizing-encoder": "tacit.anonymize.encoder:AnonymizingEncoder",
    "estimator": "tacit.central.estimators.base:PrivateEstimator",
}
_LARGEST_JSON = 64 * 2**20


class Storable(Protocol):
    """An object that can be split into parameters and arrays, and built from them again."""

    @property
    def kind(self) -> str: ...
    @property
    def certificate(self) -> Certificate: ...
    def parts(self) -> tuple[dict[str, Any], Arrays]: ...


class ArtifactError(errors.TacitError):
    """A stored mechanism or model is damaged, of another kind, or of another version."""


def save(thing: Storable, path: str | Path) -> Path:
    """Write a directory completely or not at all; refuse one that exists and is not empty."""
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        errors.refuse("save", "path", "new or an empty directory", str(path), "Choose another.")
    content = {WEIGHTS: _safetensors(thing.parts()[1])}
    if (encoder := getattr(thing, "onnx", lambda: None)()) is not None:
        content[ENCODER] = encoder
    title = _TITLES[0] if hasattr(thing, "release") else _TITLES[1]
    content[title] = _document(thing, content)
    if not path.parent.is_dir():
        errors.refuse("save", "folder", "an existing one", str(path.parent), "Make it first.")
    with files.folder(path) as partial:
        for name, one in content.items():
            (partial / name).write_bytes(one)
    return path


def load(path: str | Path) -> Any:
    """Read a mechanism or a model; refuse it if any byte was changed."""
    path = Path(path)
    title = next((path / name for name in _TITLES if (path / name).is_file()), None)
    if title is None:
        raise ArtifactError(f"load: {path} must be a directory with {' or '.join(_TITLES)}.")
    body = _read_document(title.read_bytes(), str(title))
    content = {}
    for name, described in body["files"].items():
        content[name] = _read_file(path, name, described)
    return _build(body, _arrays(content.get(WEIGHTS, b""), str(path / WEIGHTS)), str(path))


def pack(thing: Storable) -> bytes:
    """Return all content as bytes (a safetensors file), without the encoder's ONNX form."""
    weights = _safetensors(thing.parts()[1])
    return _safetensors(thing.parts()[1], {"tacit": _document(thing, {WEIGHTS: weights}).decode()})


def unpack(content: bytes, where: str = "unpack") -> Any:
    """Read the bytes that `pack` returned."""
    arrays = _arrays(content, where)
    try:
        length = int.from_bytes(content[:8], "little")
        document = json.loads(content[8 : 8 + length])["__metadata__"]["tacit"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArtifactError(f"{where}: it must contain a mechanism.") from None
    body = _read_document(document, where)
    weights = _safetensors(arrays)
    if body["files"] != {WEIGHTS: _described(weights)}:
        raise ArtifactError(f"{where}: its weights differ from their recorded SHA-256.")
    return _build(body, arrays, where)


def fingerprint(thing: Storable) -> str:
    """Return the SHA-256 of kind, parameters and weights: equal channels have equal ones."""
    parameters, arrays = thing.parts()
    # The guarantee towards in-house rows is no part of the channel, and its certificate has a date.
    parameters = {name: value for name, value in parameters.items() if name != "inhouse"}
    head = _canonical({"kind": thing.kind, "parameters": parameters})
    return canonical.sha256(head + _safetensors(arrays))


def bound(certificate: Certificate, thing: Storable) -> Certificate:
    """Return the certificate with this mechanism or model as its artifact."""
    size = sum(array.nbytes for array in thing.parts()[1].values())
    return replace(certificate, artifact=Artifact(thing.kind, size, fingerprint(thing)))


def _rebound(plain: Any, change: Callable[[Certificate], Certificate]) -> Any:
    """Apply a change to every certificate about in-house rows."""
    if isinstance(plain, list):
        return [_rebound(one, change) for one in plain]
    if not isinstance(plain, dict):
        return plain
    return {
        name: change(Certificate.from_json(value)).to_json()
        if name == "certificate" and isinstance(value, str)
        else _rebound(value, change)
        for name, value in plain.items()
    }


def _document(thing: Storable, contents: dict[str, bytes]) -> bytes:
    parameters = dict(thing.parts()[0])
    if "inhouse" in parameters:
        parameters["inhouse"] = _rebound(parameters["inhouse"], lambda one: bound(one, thing))
    body = {
        "format": FORMAT,
        "library": f"tacit {version('tacit')}",
        "kind": thing.kind,
        "parameters": parameters,
        "certificate": json.loads(thing.certificate.to_json()),
        "files": {name: _described(content) for name, content in contents.items()},
    }
    return _canonical({**body, "digest": canonical.sha256(_canonical(body))})


def _read_document(content: bytes, where: str) -> dict[str, Any]:
    if len(content) > _LARGEST_JSON:
        raise ArtifactError(f"{where}: it must be smaller than 64 MiB.")
    try:
        body = json.loads(content)
        digest = body.pop("digest")
        if body["format"] != FORMAT:
            raise ArtifactError(f"{where}: its format must be {FORMAT}. Use a matching version.")
        names = ("kind", "parameters", "certificate", "files", "library", "format")
        if sorted(body) != sorted(names) or not isinstance(body["files"], dict):
            raise KeyError
        unchanged = _canonical({**body, "digest": digest}) == content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{where}: it must be a {FORMAT} document. Was it damaged?") from None
    if not unchanged or canonical.sha256(_canonical(body)) != digest:
        raise ArtifactError(f"{where}: a byte was changed: content and digest do not agree.")
    return dict(body)


def _read_file(directory: Path, name: str, described: Any) -> bytes:
    if name not in (WEIGHTS, ENCODER):
        raise ArtifactError(f"{directory}: it names an unknown file.")
    try:
        content = (directory / name).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{directory / name}: {error.strerror}. Copy it again.") from None
    if _described(content) != described:
        raise ArtifactError(f"{directory / name}: its SHA-256 differs from the recorded one.")
    return content


def rebuild(kind: str, parameters: dict[str, Any], arrays: Arrays) -> Any:
    """Build an object of a known kind from its parts."""
    home = _HOMES.get(str(kind))
    if home is None:
        raise ArtifactError(f"load: its kind must be one of {', '.join(_HOMES)}.")
    module, name = home.split(":")
    return getattr(import_module(module), name).from_parts(parameters, arrays)


def _build(body: dict[str, Any], arrays: Arrays, where: str) -> Any:
    named: list[Artifact | None] = []

    def freed(one: Certificate) -> Certificate:
        """Verify a certificate, and remove what only a stored one has: artifact and signature."""
        one.verify(one.artifact)
        named.append(one.artifact)
        return replace(one, artifact=None, signature=None)

    try:
        parameters = dict(body["parameters"])
        if "inhouse" in parameters:
            parameters["inhouse"] = _rebound(parameters["inhouse"], freed)
        thing = rebuild(body["kind"], parameters, arrays)
        mark = fingerprint(thing) if named else None
        stated = from_plain(body["certificate"])
        stated.verify()
        about = thing.certificate
    except (
        errors.TacitError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        kind = type(error).__name__
        reason = str(error) if isinstance(error, errors.TacitError) else f"{kind} while reading"
        raise ArtifactError(f"{where}: it does not match this version: {reason}") from None
    if any(one is None or one.sha256 != mark for one in named):
        raise ArtifactError(f"{where}: its certificate towards in-house rows is about another one.")
    # A model keeps the certificate of its reports. A mechanism issues a new one, with another time:
    # there only the events are compared.
    kept = hasattr(thing, "certificate_")
    if about.event != stated.event or (kept and about.to_json() != stated.to_json()):
        raise ArtifactError(f"{where}: its certificate is about another mechanism.")
    return thing


def _canonical(body: Any) -> bytes:
    return canonical.lines(body, indent=1)


def _described(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": canonical.sha256(content)}


def _safetensors(arrays: Arrays, metadata: dict[str, str] | None = None) -> bytes:
    tensors = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return bytes(_library().save(tensors, metadata))


def _arrays(content: bytes, where: str) -> Arrays:
    library = _library()
    try:
        return dict(library.load(content))
    except Exception:  # the library's own error type has no stable home
        raise ArtifactError(f"{where}: it must be a safetensors file. Was it damaged?") from None


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise errors.TacitError(
            "artifact: weights need the safetensors package. pip install 'tacit[collect]'."
        ) from None
    return safetensors.numpy
