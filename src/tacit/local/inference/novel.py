"""Detection of a class that in-house data lacks, from reports of people who have it.

Everybody who is invited has the new class, so a report holds no label. Taking part reveals the
class, and the certificate says so.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit.local.inference import proportions
from tacit.local.inference.noise_aware import evidence_of, must_be_mine, must_be_none
from tacit.local.inference.stored import TaughtOnRows, parts_of, restored
from tacit.local.inhouse import TAUGHT, Protection, together
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

CARRIED = "The in-house rows that the model was taught on: it carries their likeness."
KNOWN_BY_TAKING_PART = "That someone who reported has the new class: all who were invited have it."


class NovelClassClassifier(ClassifierMixin, TaughtOnRows):  # type: ignore[misc]
    """A classifier of a new class (1) against in-house ones (0).

    Parameters
    ----------
    inhouse : rows
        Clean in-house rows of the other classes.
    share : float
        The share of the new class among the rows to be classified.
    penalty : float
        Ridge penalty of the log odds; see `tacit.inference.proportions`.
    inhouse_public : bool
        State that these in-house rows are public; certificates say so.

    Attributes
    ----------
    guarantee_ : Guarantee
        Towards those who reported.
    inhouse_ : Protection
        Towards the in-house rows: none, as it is taught on them without noise.
    """

    kind: ClassVar[str] = "novel-class"

    def __init__(
        self,
        *,
        inhouse: Any = None,
        share: float = 0.5,
        penalty: float = proportions.PENALTY,
        inhouse_public: bool = False,
    ) -> None:
        self.inhouse = inhouse
        self.inhouse_public = inhouse_public
        self.share = share
        self.penalty = penalty

    def fit(self, reports: Reports, y: None = None) -> Self:
        """Learn from unlabelled reports of people who have the new class."""
        where = "NovelClassClassifier"
        errors.probability(where, "share", self.share, zero=False)
        errors.positive(where, "penalty", self.penalty)
        must_be_none(f"{where}.fit", y)
        if self.inhouse is None:
            errors.refuse(where, "inhouse", "given", None, "Pass in-house rows of other classes.")
        if not isinstance(reports, Reports) or reports.labelled:
            raise errors.InvalidData(f"{where}.fit: it must get reports without labels.")
        if reports.channel.symbols is None:
            raise errors.InvalidData(f"{where}.fit: reports must come from a codebook.")
        self._forget_fit()
        reports = reports.as_multiset()
        self.mechanism_, self.guarantee_ = reports.mechanism, reports.guarantee
        self.certificate_ = reports.certify(
            CARRIED, KNOWN_BY_TAKING_PART, readers=reports.readers()
        )
        self.reports_ = len(reports)
        self.classes_ = np.array([0, 1])
        own = Protection.none(self.inhouse_public, TAUGHT)
        self.inhouse_ = together([self.mechanism_.inhouse_, own])
        vectors = self.mechanism_.vectors(self.inhouse)
        codes = self.mechanism_.quantizer_.of_vectors(vectors)
        rows = proportions.Inhouse.of(vectors, codes)
        evidence = evidence_of(reports)
        self.network_, self.shares_ = proportions.fit_tilt(rows, evidence, self.penalty)
        return self

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """Predict the probabilities of in-house and new, for clean rows or reports."""
        check_is_fitted(self, "network_")
        if isinstance(rows, Reports):
            must_be_mine(rows, self.mechanism_)
            odds = self._of_reports(rows)
        else:
            odds = self.network_.predict_proba(self.mechanism_.vectors(rows))
        odds = odds * [1 - self.share, self.share]
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _of_reports(self, reports: Reports) -> npt.NDArray[np.float64]:
        """Compute P(report | class) up to a factor: the posterior over an even mixture."""
        mixture = self.shares_.sum(axis=1)
        posterior = reports.mechanism.posterior(reports, mixture)
        return np.asarray(posterior @ (self.shares_ / np.maximum(mixture, 1e-300)[:, None]))

    def predict(self, rows: Any) -> npt.NDArray[np.int64]:
        """Predict 1 where the new class is more probable, else 0."""
        best = self.predict_proba(rows).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        parameters, arrays = parts_of(self, self.network_)
        return parameters, {**arrays, "shares": self.shares_}

    @classmethod
    def from_parts(
        cls, parameters: dict[str, Any], arrays: artifact.Arrays
    ) -> NovelClassClassifier:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays)
        made.shares_ = arrays["shares"]
        return made
