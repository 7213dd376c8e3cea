"""The result of a run as a folder: the global model, its certificate and the history.

`model.safetensors` has the arrays under the names of the parameters, `certificate.json` the
guarantee, `history.json` the job and its rounds. If rows were normalised with statistics of silos,
mean and standard deviation are among the arrays, as `input.mean` and `input.deviation`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tacit.federated.app.job import Job
from tacit.federated.app.questions import Questions
from tacit.federated.coordinator import Coordinator
from tacit.federated.payload import Layout
from tacit.federated.rounds import Round, RunResult
from tacit.privacy import errors, events, files
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, NotPrivate, Unit

MODEL, CERTIFICATE, HISTORY = "model.safetensors", "certificate.json", "history.json"
_SERVER_ONLY = ("asked", "counted", "rejected", "bytes_up", "bytes_down")
_NOTHING = (
    "What clients sent was averaged without noise: the model may reveal rows that it was trained "
    "on.",
)


def save(
    outcome: RunResult,
    job: Job,
    layout: Layout,
    coordinator: Coordinator,
    path: Path,
    questions: Questions | None = None,
) -> Path:
    """Write the folder atomically; an existing one is refused."""
    answered = Questions() if questions is None else questions
    if path.exists():
        errors.refuse("save", "path", "new", str(path), "Remove it or choose another path.")
    with files.folder(path) as partial:
        (partial / MODEL).write_bytes(_tensors(outcome, layout, answered))
        certificate = certify(coordinator, partial / MODEL)
        certificate.save(partial / CERTIFICATE)
        written = history(outcome, job, answered)
        written["guarantee"] = str(certificate.guarantee)
        (partial / HISTORY).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return path


def certify(coordinator: Coordinator, artifact: Path) -> Certificate:
    """Issue the certificate of the global model, which may state that there is no guarantee."""
    own = getattr(coordinator, "certificate", None)
    if own is not None:
        certificate: Certificate = own(artifact)
        return certificate
    nothing = NotPrivate(adjacency=Adjacency.ZERO_OUT, unit=Unit.CLIENT)
    return Certificate.issue(events.Declared(nothing), artifact=artifact, not_protected=_NOTHING)


def history(outcome: RunResult, job: Job, questions: Questions) -> dict[str, Any]:
    """Return the job and its rounds, to print and to save.

    With a guarantee for records it includes the number of silos whose budgets ended.
    """
    entries: dict[str, Any] = {
        "job": json.loads(job.to_json()),
        "rounds": [plain(one, job, questions) for one in outcome.history],
        "stopped": outcome.stopped,
    }
    if job.unit == "record":
        entries["ended_budgets"] = len(questions.ended)
    if (scale := questions.normalisation) is not None:
        entries["input"] = {
            "mean": scale.mean.tolist(),
            "deviation": scale.deviation.tolist(),
        }
    return entries


def plain(one: Round, job: Job, questions: Questions) -> dict[str, Any]:
    """Return a round as names and values; numbers that are not finite become None.

    Under a guarantee for clients, which clients were asked and which replied stays with the server:
    the guarantee relies on a secret sample, so no file may contain it. Scores on rows that silos
    held out are stated as `silos`.
    """
    left_out = _SERVER_ONLY if job.unit == "client" else ()
    entry = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in vars(one).items()
        if name not in left_out
    }
    if one.number in questions.scores:
        entry["silos"] = questions.scores[one.number]._asdict()
    return entry


def line(one: Round, job: Job, coordinator: Coordinator, questions: Questions) -> dict[str, Any]:
    """Return a line of progress: a round, and ε spent so far."""
    return {**plain(one, job, questions), "epsilon": getattr(coordinator, "spent", None)}


def _tensors(outcome: RunResult, layout: Layout, questions: Questions) -> bytes:
    try:
        from safetensors.numpy import save as tensors
    except ImportError:
        raise errors.TacitError(
            "federation: the safetensors package must be installed. pip install 'tacit[collect]'."
        ) from None
    named = dict(layout.unflatten(np.ascontiguousarray(outcome.model)))
    if (scale := questions.normalisation) is not None:
        named |= {"input.mean": scale.mean, "input.deviation": scale.deviation}
    return bytes(tensors({name: np.ascontiguousarray(array) for name, array in named.items()}))
