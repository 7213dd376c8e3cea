"""Joins: clean columns of one party, beside reports of another party's columns.

The rows of the two parts belong to the same people, in the same order. Labels are the first
party's own, or part of the reports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit.data import labels
from tacit.local.inference.neural import Network, Settings, fit_network
from tacit.local.inference.stored import Stored, parts_of, restored
from tacit.local.inhouse import TAUGHT, Protection, together
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors

Floats = npt.NDArray[np.float32]

CARRIED = (
    "The clean columns and labels beside the reports, of the same people: the model carries them."
)

MATCHED = (
    "Readers of the model have the guarantee of a single report: reports are matched to rows here, "
    "and do not hide each other."
)


class JoinClassifier(ClassifierMixin, Stored):  # type: ignore[misc]
    """A classifier learned from clean columns and reports together.

    If held-out rows are predicted better from the clean columns alone, the reports are not used.

    Parameters
    ----------
    hidden : tuple of int
        Hidden layers; none is a linear classifier.
    level : {"latent", "feature"}
        What is seen of a report: the latent (for a codebook, the probability of each codeword), or
        the decoded row.
    seed : int
        Seed of the initial weights and the held-out rows.
    device : str
        Where the network is fitted, as in `VLM.fit`; it is not saved.

    Attributes
    ----------
    guarantee_ : Guarantee
        Towards those who reported, about what they reported.
    inhouse_ : Protection
        About the clean columns and labels: none.

    Notes
    -----
    The clean columns and labels are the learner's own data: the model reveals them, and nothing
    protects them here. Towards those who reported, learning is post-processing.
    """

    kind: ClassVar[str] = "join"

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (50,),
        level: str = "latent",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.level = level
        self.seed = seed
        self.device = device

    def fit(self, reports: Reports, y: Any = None, *, clean: Any = None) -> Self:
        """Learn from reports, clean columns (n, p), and labels where the reports have none."""
        where = "JoinClassifier.fit"
        seed = errors.whole(where, "seed", self.seed, least=0)
        device = devices.resolve(where, self.device)
        if not isinstance(reports, Reports) or (y is None) != reports.labelled:
            raise errors.InvalidData(
                f"{where}: labels must come with the reports, or as y, and not both."
            )
        columns = _clean(where, clean, len(reports))
        self._forget_fit()
        if y is not None:
            values = np.unique(np.asarray(y))
            self.classes_ = values
            codes = labels.codes(where, y, tuple(values.tolist()))
            flip = np.eye(len(values))
        else:
            self.classes_ = np.asarray(reports.mechanism.classes)
            codes, flip = self._released_labels(reports)
        if len(codes) != len(reports):
            raise errors.InvalidData(f"{where}: labels must be one per report.")
        self.mechanism_, self.guarantee_ = reports.mechanism, reports.guarantee
        self.reports_, self.certificate_ = len(reports), reports.certify(CARRIED, MATCHED)
        self.inhouse_ = together([self.mechanism_.inhouse_, Protection.none(whose=TAUGHT)])
        settings = Settings(hidden=tuple(self.hidden))
        fits = [
            fit_network(inputs, codes, flip, settings, seed=seed, device=device)
            for inputs in (np.hstack([columns, self._seen(reports)]), columns)
        ]
        self.network_ = _better(*fits)
        return self

    def _released_labels(self, reports: Reports) -> tuple[Any, Any]:
        flip = reports.channel.flip
        if flip is None:
            raise errors.InvalidData(
                "JoinClassifier.fit: a codebook's label is part of its symbol. Release without "
                "labels, and pass y."
            )
        return reports.columns["label"], flip.matrix

    def _seen(self, rows: Any) -> Floats:
        if isinstance(rows, Reports):
            same = artifact.fingerprint(rows.mechanism.at(self.mechanism_.epsilon))
            if same != artifact.fingerprint(self.mechanism_):
                raise errors.InvalidData("predict: reports must be of the learned mechanism.")
            return np.asarray(rows.mechanism.released_features(rows, level=self.level))
        return np.asarray(self.mechanism_.clean_features(rows, level=self.level))

    def predict_proba(self, rows: Any, *, clean: Any = None) -> npt.NDArray[np.float64]:
        """Predict class probabilities of reports, or of clean rows, with the clean columns."""
        check_is_fitted(self, "network_")
        seen = self._seen(rows)
        return self.network_.predict_proba(np.hstack([_clean("predict", clean, len(seen)), seen]))

    def predict(self, rows: Any, *, clean: Any = None) -> npt.NDArray[Any]:
        """Predict the most probable label of each row."""
        best = self.predict_proba(rows, clean=clean).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(self, rows: Any, y: Any, *, clean: Any = None) -> float:
        """Compute the accuracy."""
        return float(np.mean(self.predict(rows, clean=clean) == np.asarray(y)))

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        return parts_of(self, self.network_)

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> JoinClassifier:
        """Rebuild what `parts` took apart."""
        return restored(cls, parameters, arrays)


def _better(both: Network, alone: Network) -> Network:
    """Choose by the likelihood of the same held-out rows: heavy noise can outweigh the reports."""
    if both.held_out >= alone.held_out:
        return both
    width, clean = both.weights[0].shape[0], alone.weights[0]
    blind = np.zeros((width - len(clean), clean.shape[1]), np.float32)
    return replace(
        alone,
        center=np.concatenate([alone.center, both.center[len(clean) :]]),
        spread=np.concatenate([alone.spread, both.spread[len(clean) :]]),
        weights=(np.concatenate([clean, blind]), *alone.weights[1:]),
    )


def _clean(where: str, clean: Any, count: int) -> Floats:
    if clean is None:
        errors.refuse(where, "clean", "given", None, "Pass the clean columns, one row per report.")
    columns = errors.reals(where, clean).astype(np.float32)
    if columns.ndim != 2 or len(columns) != count:
        raise errors.InvalidData(f"{where}: clean columns must be an array, one row per report.")
    return columns
