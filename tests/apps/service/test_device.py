"""What pages are told: laws in whole numbers, JSON that browsers read exactly."""

from __future__ import annotations

import base64
import hashlib
import json
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tacit.apps.service import device
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.votes import Ballot
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy import artifact

TABLE = TableSchema(
    (
        Continuous("age", 18, 90),
        Continuous("income", 0, 100, missing="indicate"),
        Categorical("zone", ("p", "q"), unseen="other"),
        Categorical("only", ("x",)),
    )
)


@pytest.fixture(scope="module", name="mechanism")
def _mechanism():
    images, _ = load_digits(return_X_y=True)
    made = Codebook(epsilon=4, people=500, classes=10, codewords=16)
    return made.fit(images[:300], image=(8, 8), inhouse_public=True)


def exact(value):
    """Every number in it survives a browser."""
    if isinstance(value, dict):
        return all(map(exact, value.values()))
    if isinstance(value, list):
        return all(map(exact, value))
    return not isinstance(value, int) or abs(value) < 2**53


def test_a_codebook_is_described_in_whole_numbers(mechanism):
    encoder = mechanism.onnx()
    told = device.describe(mechanism, mechanism.channel(True), encoder)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert exact(told)
    event = mechanism.channel(True).event
    assert told["channel"] == {
        "kind": "subset-selection",
        "categories": 160,
        "size": event.size,
        "inclusion": str(event.inclusion),
    }
    assert told["artifact"] == artifact.fingerprint(mechanism)
    assert told["encoder"] == hashlib.sha256(encoder).hexdigest()
    assert told["classes"] == list(range(10))
    prototypes = np.frombuffer(base64.b64decode(told["prototypes"]), np.uint8).reshape(16, 64)
    assert np.abs(prototypes / 255 - mechanism.prototypes_).max() <= 0.5 / 255 + 1e-6
    # Digits of 8 × 8 fill their frame from top to bottom.
    assert told["frame"] == 1


def test_without_a_label_the_channel_is_another(mechanism):
    told = device.describe(mechanism, mechanism.channel(False), mechanism.onnx())
    assert told["channel"]["categories"] == 16
    assert told["classes"] is None


def test_without_an_encoder_pages_have_no_channel(mechanism):
    assert device.describe(mechanism, mechanism.channel(True), None)["channel"] is None


def test_pictures_with_a_margin_keep_it():
    """A 12 × 12 ink in a frame of 16 × 16."""
    mean = np.zeros((16, 16))
    mean[2:14, 4:10] = 1
    assert device._frame(ArraySchema(256, 0, 1, (16, 16)), mean.ravel()) == 0.75


def test_direct_noise_states_every_share():
    mechanism = Direct(epsilon=3, classes=2).fit(None, schema=TABLE)
    told = device.describe(mechanism, mechanism.channel(True), None)
    assert exact(json.loads(json.dumps(told, allow_nan=False)))
    channel = told["channel"]
    assert channel["indicated"] == [1]
    assert channel["places"] == [2, 3, 1]
    assert [flip is None for flip in channel["flips"]] == [False, False, True]
    noise = mechanism.channel(True).noise
    assert Fraction("/".join(channel["noise"]["scale"])) == noise.event.scale


def test_gaussian_noise_is_left_to_the_command_line():
    vlm = pytest.importorskip("tacit.local.learned.vlm")
    mechanism = vlm.VLM(epsilon=1, noise="gaussian", delta=1e-5, classes=2)
    assert device._channel(mechanism, mechanism.channel(True), b"encoder") is None
    mechanism = vlm.VLM(epsilon=1, classes=2)
    law = device._channel(mechanism, mechanism.channel(True), b"encoder")
    assert law["kind"] == "latent"
    assert law["noise"]["kind"] == "discrete-laplace"


def test_a_ballot_answers_as_its_model_does(mechanism):
    images, digits = load_digits(return_X_y=True)
    model = NoiseAwareClassifier(prior="inhouse").fit(mechanism.release(images[300:], digits[300:]))
    ballot = Ballot(epsilon=1)
    told = device.ballot(model, ballot)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert exact(told)
    answers = np.array(told["answers"])[np.array(told["codewords"])]
    assert np.array_equal(answers[mechanism.encode(images)], model.predict(images))
    event = ballot.event
    assert told["channel"]["keep"] == str(event.keep)
    assert told["channel"]["other"] == str(event.other)
    assert told["model"] == artifact.fingerprint(model)
    by_class = device.ballot(model, Ballot(epsilon=1, classes=10))
    assert by_class["channel"]["categories"] == 20
    assert by_class["classes"] == list(range(10))
