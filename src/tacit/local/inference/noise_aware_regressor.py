"""Regressors learned from reports of codewords and outcomes alone."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tacit.local.channels import SymbolChannel
from tacit.local.inference import finite, moments
from tacit.local.inference.finite import Evidence
from tacit.local.inference.moments_regressor import must_hold_outcomes, unscaled
from tacit.local.inference.noise_aware import SIGNIFICANCE, must_be_mine, must_be_none
from tacit.local.inference.stored import Stored, parts_of, restored
from tacit.local.outcome_channels import RoundedChannel
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

Reals = npt.NDArray[np.float64]


class NoiseAwareRegressor(RegressorMixin, Stored):  # type: ignore[misc]
    """The mean outcome of each codeword, learned from reports; no in-house rows are needed.

    The means are estimated without bias and shrunk towards the overall mean, as far as the reports
    ask for (`tacit.inference.moments`): at small ε, or with few people, predictions hardly differ.

    Attributes
    ----------
    means_ : array, (codewords,)
        The mean outcome of each codeword.
    shares_ : array, (codewords,)
        The estimated shares of the codewords.
    outcome_ : Numeric
        The bounds of the outcome.
    shift_ : ShiftTest
        A test of whether the people look like the in-house rows. If they do not, the in-house
        shares of codewords are ignored.
    guarantee_ : Guarantee
        Towards those who reported: learning is post-processing.
    inhouse_ : Protection
        Towards the in-house rows: that of the mechanism, for the same reason.
    """

    kind: ClassVar[str] = "noise-aware-regressor"

    def fit(self, reports: Reports, y: None = None) -> Self:
        """Learn from reports with outcomes, through a codebook."""
        where = "NoiseAwareRegressor.fit"
        must_be_none(where, y)
        must_hold_outcomes(where, [reports])
        channel = reports.channel
        if not isinstance(channel, RoundedChannel) or not isinstance(channel.inner, SymbolChannel):
            raise errors.InvalidData(
                f"{where}: reports must come from a codebook. Use Collection.learn or "
                "MomentsRegressor."
            )
        self._forget_fit()
        reports = reports.as_multiset()
        self.mechanism_, self.outcome_ = reports.mechanism, channel.outcome
        self.inhouse_ = reports.mechanism.inhouse_
        self.certificate_ = reports.certify(readers=reports.readers())
        self.guarantee_, self.reports_ = reports.guarantee, len(reports)
        self._fit(Evidence(reports.columns["symbols"], channel.inner.law, channel.levels))
        return self

    def _fit(self, evidence: Evidence) -> None:
        counts = self.mechanism_.counts_
        self.shift_ = finite.shift_test(evidence, counts, self.mechanism_.count_variance_)
        trusted = self.shift_.p_value >= SIGNIFICANCE
        shares = finite.maximum_likelihood(evidence, counts.astype(np.float64) * trusted)
        grid, codewords = np.linspace(-1.0, 1.0, evidence.classes), np.arange(evidence.codewords)
        found = moments.of_cells(codewords, evidence.sets, evidence.channel, grid, shares)
        self.shares_ = shares.sum(axis=1)
        indicators = np.eye(evidence.codewords)
        scaled = moments.averaged(*found.whitened(), indicators)
        self.means_ = unscaled(self.outcome_, scaled[:-1] + scaled[-1])

    def predict(self, rows: Any) -> Reals:
        """Predict the outcome of clean rows, or of `Reports` without outcomes at any ε."""
        check_is_fitted(self, "means_")
        if isinstance(rows, Reports):
            must_be_mine(rows, self.mechanism_)
            return np.asarray(rows.mechanism.posterior(rows, self.shares_) @ self.means_)
        return np.asarray(self.means_[self.mechanism_.encode(rows)])

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        parameters, arrays = parts_of(self)
        shift = self.shift_
        parameters["shift"] = [shift.statistic, shift.degrees, shift.p_value]
        return parameters, {**arrays, "means": self.means_, "shares": self.shares_}

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> NoiseAwareRegressor:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays, network=False)
        made.outcome_ = made.mechanism_.outcome
        made.means_, made.shares_ = arrays["means"], arrays["shares"]
        if made.means_.shape != (made.mechanism_.codewords_,) or not np.isfinite(made.means_).all():
            raise ValueError("regressor: means must be one finite number per codeword")
        made.shift_ = finite.ShiftTest(*parameters["shift"])
        return made
