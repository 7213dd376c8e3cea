"""Directories and bytes: every changed byte is refused, and nothing half-written stays."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.learned.codebook import Codebook
from tacit.privacy import artifact, errors
from tacit.privacy.artifact import ArtifactError
from tacit.privacy.certificate import Certificate

ROWS = np.random.default_rng(0).random((120, 3))
FILES = ("mechanism.json", "weights.safetensors", "encoder.onnx")
FLIPS = 48


@pytest.fixture(scope="module")
def mechanism():
    made = Codebook(epsilon=1, codewords=4, classes=["é", "no"])
    return made.fit(ROWS, schema=ArraySchema(3, 0, 1))


@pytest.fixture(scope="module")
def model(mechanism):
    reports = mechanism.release(ROWS, np.full(120, "no"), rng=tacit.Seeded(0))
    return tacit.NoiseAwareClassifier(prior="inhouse").fit(reports)


@pytest.fixture
def stored(mechanism, tmp_path):
    pytest.importorskip("onnx")
    return mechanism.save(tmp_path / "stored")


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(path: Path) -> str:
    with pytest.raises(ArtifactError) as error:
        tacit.load(path)
    message = str(error.value)
    assert "\n" not in message
    return message


def resealed(body: dict) -> bytes:
    """A document whose digest fits, as somebody would write who knows the format."""
    body = {name: value for name, value in body.items() if name != "digest"}
    digest = hashlib.sha256(artifact._canonical(body)).hexdigest()
    return artifact._canonical({**body, "digest": digest})


def rewritten(path: Path, **changes) -> Path:
    title = path / "mechanism.json"
    title.write_bytes(resealed({**json.loads(title.read_bytes()), **changes}))
    return path


# --- what is written -----------------------------------------------------------------------------


def test_a_directory_holds_three_files_and_says_what_they_are(mechanism, stored):
    assert listing(stored) == sorted(FILES)
    body = json.loads((stored / "mechanism.json").read_bytes())
    assert body["format"] == "tacit-artifact/1"
    assert body["kind"] == "codebook"
    assert body["parameters"]["schema"] == mechanism.schema.to_plain()
    assert body["certificate"]["guarantee"]["epsilon"] == 1.0
    assert any("in-house rows" in sentence for sentence in body["certificate"]["not_protected"])
    for name in FILES[1:]:
        content = (stored / name).read_bytes()
        assert body["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert body["files"][name]["bytes"] == len(content)


def test_a_mechanism_comes_back(mechanism, stored):
    loaded = tacit.load(stored)
    assert isinstance(loaded, Codebook)
    assert np.array_equal(loaded.encode(ROWS), mechanism.encode(ROWS))
    assert artifact.fingerprint(loaded) == artifact.fingerprint(mechanism)


def test_a_model_comes_back(model, tmp_path):
    path = model.save(tmp_path / "model")
    assert (path / "model.json").is_file()
    assert not (path / "mechanism.json").exists()
    loaded = tacit.load(path)
    assert np.array_equal(loaded.predict_proba(ROWS), model.predict_proba(ROWS))
    assert loaded.certificate.seeded


def test_the_same_mechanism_gives_the_same_weights(mechanism, tmp_path):
    first, second = mechanism.save(tmp_path / "a"), mechanism.save(tmp_path / "b")
    for name in FILES[1:]:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_without_onnx_the_rest_is_written(mechanism, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.local.learned.codebook.find_spec", lambda name: None)
    path = mechanism.save(tmp_path / "light")
    assert listing(path) == ["mechanism.json", "weights.safetensors"]
    assert np.array_equal(tacit.load(path).encode(ROWS), mechanism.encode(ROWS))


def test_an_empty_directory_is_filled_and_a_missing_folder_is_not_made(mechanism, tmp_path):
    (tmp_path / "empty").mkdir()
    assert tacit.load(mechanism.save(tmp_path / "empty")).epsilon == 1
    with pytest.raises(errors.InvalidParameter, match="folder must be an existing one"):
        mechanism.save(tmp_path / "new" / "sub")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_exists_is_left_alone(mechanism, tmp_path, what):
    target = tmp_path / "here"
    if what == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(errors.InvalidParameter, match="path must be new or an empty directory"):
        mechanism.save(target)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("failing", ["second file", "rename", "chmod"])
def test_a_failure_midway_leaves_nothing_behind(mechanism, tmp_path, monkeypatch, failing):
    written = []

    def write_bytes(self, content):
        written.append(self)
        if failing == "second file" and len(written) == 2:
            raise OSError(28, "No space left on device", str(self))
        return original(self, content)

    def broken(*arguments, **options):
        raise OSError(5, "Input/output error", "disk")

    original = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    if failing == "rename":
        monkeypatch.setattr(os, "replace", broken)
    if failing == "chmod":
        monkeypatch.setattr(Path, "chmod", broken)
    with pytest.raises(OSError, match=r"No space|Input/output"):
        mechanism.save(tmp_path / "out")
    assert len(written) >= 2
    assert listing(tmp_path) == []


def test_an_encoder_that_fails_leaves_nothing_behind(mechanism, tmp_path, monkeypatch):
    def broken(self):
        raise ValueError("no graph")

    monkeypatch.setattr(Codebook, "onnx", broken)
    with pytest.raises(ValueError, match="no graph"):
        mechanism.save(tmp_path / "out")
    assert listing(tmp_path) == []


def test_an_interrupt_leaves_nothing_behind(mechanism, tmp_path, monkeypatch):
    def interrupted(self, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mechanism.save(tmp_path / "out")
    assert listing(tmp_path) == []


# --- one byte ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("bit", [0, 5, 7])
def test_one_changed_byte_is_refused(stored, name, bit):
    """At forty-eight places over the whole file, the first and the last byte among them."""
    file = stored / name
    content = file.read_bytes()
    for place in np.unique(np.linspace(0, len(content) - 1, FLIPS).astype(int)):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        file.write_bytes(changed)
        message = refused(stored)
        assert str(stored) in message
    file.write_bytes(content)
    assert tacit.load(stored).epsilon == 1


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change", [lambda c: c[:-1], lambda c: c + b"\n", lambda c: b"", lambda c: c * 2]
)
def test_another_length_is_refused(stored, name, change):
    (stored / name).write_bytes(change((stored / name).read_bytes()))
    assert name in refused(stored)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(stored, name):
    (stored / name).unlink()
    assert name in refused(stored)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_directory_in_place_of_a_file_is_named(stored, name):
    (stored / name).unlink()
    (stored / name).mkdir()
    assert name in refused(stored)


def test_what_is_no_artifact_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", Path(__file__)):
        assert str(path) in refused(path)


# --- foreign documents ---------------------------------------------------------------------------


def test_a_rewritten_document_with_a_right_digest_still_loads(stored):
    """The other tests change one thing each: this one shows that they fail for that reason."""
    assert tacit.load(rewritten(stored)).epsilon == 1


@pytest.mark.parametrize("version", ["tacit-artifact/2", "tacit-artifact/0", "", None, 1])
def test_another_format_is_refused(stored, version):
    assert "tacit-artifact/1" in refused(rewritten(stored, format=version))


@pytest.mark.parametrize("kind", ["pickle", "os:system", "__main__", "", None, 3, ["codebook"], {}])
def test_a_foreign_kind_is_refused(stored, kind):
    assert "kind must be one of codebook" in refused(rewritten(stored, kind=kind))


@pytest.mark.parametrize("kind", ["direct", "noise-aware", "student"])
def test_another_kind_than_its_parameters_is_refused(stored, kind):
    assert "does not match this version" in refused(rewritten(stored, kind=kind))


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": None},
        {"parameters": {}},
        {"parameters": []},
        {"certificate": None},
        {"certificate": {}},
        {"files": []},
        {"files": {}},
        {"files": {"weights.safetensors": None}},
        {"files": {"../../secret": {"bytes": 1, "sha256": "0"}}},
        {"files": {"/etc/hostname": {"bytes": 1, "sha256": "0"}}},
        {"surplus": 1},
        {"library": None, "kind": "x"},
    ],
)
def test_documents_of_another_form_are_refused(stored, change):
    refused(rewritten(stored, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": "2"},
        {"epsilon": "0"},
        {"epsilon": "inf"},
        {"epsilon": "1/0"},
        {"epsilon": None},
        {"classes": ["a", "b", "c"]},
        {"classes": "ab"},
        {"subset_size": 3},
        {"subset_size": 99},
        {"schema": {"kind": "array"}},
        {"features": {"kind": "scattering", "settings": {}}},
        {"features": {"kind": "pickle", "settings": {}}},
        {"features": 5},
    ],
)
def test_parameters_that_the_certificate_is_not_about_are_refused(stored, change):
    body = json.loads((stored / "mechanism.json").read_bytes())
    refused(rewritten(stored, parameters={**body["parameters"], **change}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"3",
        b"\xff\xfe\x00",
        b'{"digest": 1, "format": "tacit-artifact/1"}',
        b"[" * 100_000,
        b'{"a": NaN}',
    ],
)
def test_files_that_are_no_document_are_refused(stored, content):
    (stored / "mechanism.json").write_bytes(content)
    assert "mechanism.json" in refused(stored)


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"\\ud800"', "1e999"])
def test_numbers_and_texts_that_json_cannot_write_again_are_refused(stored, value):
    title = stored / "mechanism.json"
    text = title.read_text(encoding="utf-8")
    assert '"people": null' in text
    title.write_text(text.replace('"people": null', f'"people": {value}'), encoding="utf-8")
    assert "mechanism.json" in refused(stored)


class Trap:
    """Unpickled, it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("name", FILES)
def test_a_pickle_is_never_loaded(stored, name, tmp_path):
    """Not even where the document describes it rightly."""
    trace = tmp_path / "trace"
    content = pickle.dumps(Trap(trace))
    pickle.loads(content)  # the trap works
    assert trace.exists()
    trace.unlink()
    (stored / name).write_bytes(content)
    if name == "weights.safetensors":
        body = json.loads((stored / "mechanism.json").read_bytes())
        files = {**body["files"], name: artifact._described(content)}
        rewritten(stored, files=files)
    refused(stored)
    with pytest.raises(ArtifactError):
        artifact.unpack(content)
    assert not trace.exists()


def test_no_module_of_the_path_can_unpickle():
    import tacit.local.reports

    for module in (artifact, tacit.local.reports):
        text = Path(module.__file__).read_text(encoding="utf-8")
        for word in ("import pickle", "joblib", "allow_pickle", "torch.load", "eval("):
            assert word not in text


# --- one run of bytes ----------------------------------------------------------------------------


def test_packed_and_back(mechanism):
    content = artifact.pack(mechanism)
    assert artifact.fingerprint(artifact.unpack(content)) == artifact.fingerprint(mechanism)


@pytest.mark.parametrize("bit", [0, 5, 7])
def test_one_changed_byte_of_a_packed_mechanism_is_refused(mechanism, bit):
    content = artifact.pack(mechanism)
    for place in np.unique(np.linspace(0, len(content) - 1, 60).astype(int)):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        with pytest.raises(ArtifactError, match=r"^here: "):
            artifact.unpack(bytes(changed), "here")


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100, b"\xff" * 100])
def test_bytes_that_are_no_mechanism_are_refused(content):
    with pytest.raises(ArtifactError, match=r"^here: "):
        artifact.unpack(content, "here")


def test_weights_without_a_mechanism_are_refused():
    import safetensors.numpy

    for metadata in (None, {"other": "x"}, {"tacit": "{}"}):
        content = safetensors.numpy.save({"a": np.zeros(3)}, metadata)
        with pytest.raises(ArtifactError, match=r"^here: "):
            artifact.unpack(content, "here")


def test_a_fingerprint_tells_channels_apart(mechanism):
    mark = artifact.fingerprint(mechanism)
    assert artifact.fingerprint(mechanism.at(1)) == mark
    assert artifact.fingerprint(mechanism.at(2)) != mark
    other = Codebook(epsilon=1, codewords=4, classes=["é", "no"])
    assert artifact.fingerprint(other.fit(ROWS[:100], schema=ArraySchema(3, 0, 1))) != mark
    assert artifact.fingerprint(other.fit(ROWS, schema=ArraySchema(3, 0, 2))) != mark


def test_a_table_with_foreign_letters_comes_back(tmp_path):
    given = TableSchema((Continuous("größe", 0, 1), Categorical("Ort", ("Köln", "東京"))))
    rows = {"größe": ROWS[:, 0], "Ort": np.array(["Köln", "東京"])[(ROWS[:, 1] > 0.5).astype(int)]}
    made = Codebook(epsilon=1, codewords=4).fit(rows, schema=given)
    assert tacit.load(made.save(tmp_path / "m")).schema == given


def test_a_certificate_towards_in_house_rows_is_about_one_artifact(stored):
    """One of another fit is refused, and so is one that names nothing, however it is hashed."""
    document = json.loads((stored / "mechanism.json").read_text())
    (inhouse,) = document["parameters"]["inhouse"]["parts"]
    own = Certificate.from_json(inhouse["certificate"])
    assert own.artifact.sha256 == artifact.fingerprint(tacit.load(stored))
    assert tacit.load(stored).inhouse_.certificate.artifact is None
    other = dataclasses.replace(own, artifact=dataclasses.replace(own.artifact, sha256="0" * 64))
    for wrong in (other, dataclasses.replace(own, artifact=None)):
        changed = {**inhouse, "certificate": wrong.to_json()}
        parameters = {**document["parameters"], "inhouse": {"parts": [changed]}}
        line = refused(rewritten(stored, parameters=parameters))
        assert "certificate towards in-house rows is about another one" in line
