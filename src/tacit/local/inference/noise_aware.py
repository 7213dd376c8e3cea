r"""Classifiers learned from reports alone, through the known noise.

For a codebook the shares of all (codeword, label) pairs are estimated by maximum likelihood through
the channel; for the other mechanisms a network is fitted by
:math:`\log \sum_y p(\tilde y \mid y)\,p_\psi(y \mid \tilde x)`. Either way the classifier predicts
clean rows, and rows that are themselves reported.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tacit.local.channels import PartitionedChannel
from tacit.local.inference import finite
from tacit.local.inference.decisions import ConstantAnswerWarning, Deciding
from tacit.local.inference.finite import Evidence
from tacit.local.inference.neural import fit_network, settings_for
from tacit.local.inference.stored import parts_of, restored
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors
from tacit.privacy.guarantees import Guarantee

Reals = npt.NDArray[np.float64]

PRIORS = ("inhouse", "auto", "none")
SIGNIFICANCE = 0.001


class ShiftWarning(UserWarning):
    """The people who reported do not look like the in-house rows."""


class NoiseAwareClassifier(Deciding):
    """A classifier learned from labelled reports; it predicts clean or released rows.

    Parameters
    ----------
    prior : {"auto", "inhouse", "none"}
        Codebooks: whether the in-house counts of the codewords help. "auto" tests whether the
        people look like the in-house rows; if they do not, it warns and ignores the counts.
    level : {"latent", "feature"}
        Other mechanisms: learn from released latents, or from decoded rows.
    hidden : tuple of int, optional
        Other mechanisms: hidden layers of the network; by default those of
        `tacit.inference.neural.settings_for`, a fixed rule of ε.
    output_bias : bool, optional
        Other mechanisms: whether the network may learn that classes differ in frequency; by default
        by the same rule, not where the noise is heavy.
    seed : int
        Seed of initial weights, held-out reports and resampling; privacy does not depend on it.
    device : str
        Other mechanisms: where the network is fitted, as in `VLM.fit`; it is not saved.
    priors, costs, threshold
        How probabilities become answers: see `tacit.inference.decisions`. `priors` are the class
        shares among those who will be classified, in the order of the classes or by class;
        `costs` a matrix (true class, answer), or the costs of some errors by (true class, answer)
        where all others cost 1; `threshold`, for two classes, the least probability of the second
        at which it is the answer. `deciding` changes them without a new fit.

    Attributes
    ----------
    classes_ : array
        Label values.
    table_ : array, (codewords, classes)
        Codebooks: estimated shares, summing to 1.
    main_ : array, (codewords, classes)
        Linked codewords: the probability of each one's main label.
    assumed_shares_, answer_shares_ : array, (classes,)
        The class shares that the probabilities assume without `priors`, and the shares of the
        answers, both on what the model was fitted on.
    shift_ : ShiftTest
        Codebooks: a test of whether the people look like the in-house rows.
    network_ : Network
        Other mechanisms: what was fitted.
    guarantee_ : Guarantee
        Towards those who reported: learning is post-processing.
    inhouse_ : Protection
        Towards the in-house rows: that of the mechanism, for the same reason.
    """

    kind: ClassVar[str] = "noise-aware"

    def __init__(
        self,
        *,
        prior: str = "auto",
        level: str = "latent",
        hidden: tuple[int, ...] | None = None,
        output_bias: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
        priors: Any = None,
        costs: Any = None,
        threshold: float | None = None,
    ) -> None:
        self.prior = prior
        self.level = level
        self.hidden = hidden
        self.output_bias = output_bias
        self.seed = seed
        self.device = device
        self.priors = priors
        self.costs = costs
        self.threshold = threshold

    def fit(self, reports: Reports, y: None = None) -> Self:
        """Learn from labelled reports; `y` must be None and is there for scikit-learn."""
        if not isinstance(reports, Reports) or not reports.labelled:
            raise errors.InvalidData(
                "NoiseAwareClassifier.fit: it must get reports with labels. Release with labels=…."
            )
        if isinstance(reports.channel, PartitionedChannel):
            raise errors.InvalidData(
                "NoiseAwareClassifier.fit: reports must not come from partitions. "
                "Use Collection.learn or ProportionsClassifier."
            )
        errors.choice("NoiseAwareClassifier", "prior", self.prior, PRIORS)
        must_be_none("NoiseAwareClassifier.fit", y)
        self._rule_for(reports.mechanism.classes)
        by_table = reports.channel.symbols is not None
        device = devices.resolve("NoiseAwareClassifier", self.device, used=not by_table)
        self._forget_fit()
        reports = reports.as_multiset()
        for name in ("_evidence", "_prior"):
            self.__dict__.pop(name, None)
        self.mechanism_ = reports.mechanism
        self.inhouse_ = reports.mechanism.inhouse_
        self.classes_ = np.asarray(reports.mechanism.classes)
        self.certificate_ = reports.certify(readers=reports.readers())
        self.guarantee_: Guarantee = reports.guarantee
        self.reports_ = len(reports)
        if by_table:
            self._fit_table(reports)
        else:
            self._fit_network(reports, device)
        return self

    def _fit_table(self, reports: Reports) -> None:
        self._evidence = evidence_of(reports)
        counts = self.mechanism_.counts_
        self.shift_ = finite.shift_test(self._evidence, counts, self.mechanism_.count_variance_)
        trusted = self.prior == "inhouse" or (
            self.prior == "auto" and self.shift_.p_value >= SIGNIFICANCE
        )
        if self.prior == "auto" and not trusted:
            warnings.warn(
                f"The people's codewords differ from the in-house ones (p = "
                f"{self.shift_.p_value:.2g}): their shares are estimated from reports alone.",
                ShiftWarning,
                stacklevel=3,
            )
        self._prior = counts.astype(np.float64) * float(trusted)
        self.table_ = finite.maximum_likelihood(self._evidence, self._prior)
        if self.mechanism_.links_ is not None:
            shares = self.table_.sum(axis=1)
            self.main_ = finite.main_labels(self._evidence, shares, self.mechanism_.links_)
        self._settle(self.given_codeword(), self.table_.sum(axis=1))

    def _fit_network(self, reports: Reports, device: str) -> None:
        inputs = self.mechanism_.released_features(reports, level=self.level)
        flip = reports.channel.flip
        assert flip is not None
        hidden = None if self.hidden is None else tuple(self.hidden)
        self.network_ = fit_network(
            inputs,
            reports.columns["label"],
            flip.matrix,
            settings_for(self.mechanism_.epsilon, hidden, self.output_bias),
            seed=errors.whole("NoiseAwareClassifier", "seed", self.seed, least=0),
            device=device,
        )
        self._settle(self.network_.predict_proba(inputs))

    # --- predictions ---------------------------------------------------------------------------

    def predict_proba(self, rows: Any) -> Reals:
        """Predict class probabilities of clean rows, or of unlabelled `Reports` at any ε."""
        check_is_fitted(self, "mechanism_")
        return self.rule.reweighed(self._learned_proba(rows), self.assumed_shares_)

    def _learned_proba(self, rows: Any) -> Reals:
        """Predict probabilities under the class shares of those who reported."""
        if isinstance(rows, Reports):
            must_be_mine(rows, self.mechanism_)
            if hasattr(self, "table_"):
                return self._of_posterior(rows)
            inputs = rows.mechanism.released_features(rows, level=self.level)
        elif hasattr(self, "table_"):
            return np.asarray(self.given_codeword()[self.mechanism_.encode(rows)])
        else:
            inputs = self.mechanism_.clean_features(rows, level=self.level)
        return self.network_.predict_proba(inputs)

    def given_codeword(self) -> Reals:
        """Return P(label | codeword); for codewords without information, the shares of the labels.

        Linked codewords have a main label, which noise may hide in the table of a small codeword:
        they get nine tenths of the main label's probability (`finite.main_labels`) and a tenth of
        the table.
        """
        mass = self.table_.sum(axis=1, keepdims=True)
        overall = self.table_.sum(axis=0)
        known = self.table_ / np.maximum(mass, 1e-300)
        given = np.asarray(np.where(mass > 1e-12, known, overall / overall.sum()))
        if not hasattr(self, "main_"):
            return given
        return finite.MAIN_SHARE * self.main_ + (1 - finite.MAIN_SHARE) * given

    def codeword_answers(self) -> npt.NDArray[np.int64]:
        """Return the index of the answer for each codeword."""
        check_is_fitted(self, "table_")
        return self._answers(self.given_codeword())

    def _answers(self, learned: Reals) -> npt.NDArray[np.int64]:
        return self.rule.places(self.rule.reweighed(learned, self.assumed_shares_))

    def for_private_points(self, epsilon: float) -> NoiseAwareClassifier:
        """Adapt the classifier to people who show only a report of their row, at this ε.

        Codewords with the same answer are merged, and a report names a single one:
        randomized response over the labels, which no ε-DP channel beats (see `tacit.ceilings`).
        """
        check_is_fitted(self, "table_")
        answer = self.codeword_answers()
        used = np.unique(answer)
        made = NoiseAwareClassifier(**self.get_params())
        made.mechanism_ = self.mechanism_.regrouped(answer, subset_size=1).at(epsilon)
        made.classes_, made.reports_ = self.classes_, self.reports_
        made.guarantee_, made.certificate_ = self.guarantee_, self.certificate_
        made.inhouse_ = self.inhouse_
        made.shift_ = self.shift_
        made.table_ = np.stack([self.table_[answer == label].sum(axis=0) for label in used])
        if hasattr(self, "main_"):
            made.main_ = np.eye(len(self.classes_))[used]
        made.assumed_shares_, made.answer_shares_ = self.assumed_shares_, None
        made._warn_if_constant()
        return made

    def _warn_if_constant(self) -> None:
        """Warn if some label is so frequent that no single report outweighs it."""
        mass, odds = (
            self.table_.sum(axis=1),
            np.exp(self.mechanism_.channel(False).symbols.log_odds),
        )
        each = mass * (1 + (odds - 1) * np.eye(len(mass)))
        given = each @ self.given_codeword()
        answers = self._answers(given / given.sum(axis=1, keepdims=True))
        if len(np.unique(answers)) == 1:
            warnings.warn(
                f"At ε = {float(self.mechanism_.epsilon):g} the answer is "
                f"{self.classes_[answers[0]]!r} whatever is reported: a report cannot outweigh "
                "the shares of the labels. Raise epsilon.",
                ConstantAnswerWarning,
                stacklevel=3,
            )

    def _of_posterior(self, reports: Reports) -> Reals:
        mass = self.table_.sum(axis=1)
        posterior = reports.mechanism.posterior(reports, mass)
        return np.asarray(posterior @ self.given_codeword())

    # --- estimates -----------------------------------------------------------------------------

    def class_shares(self, confidence: float = 0.95, repeats: int = 100) -> tuple[Reals, Reals]:
        """Estimate the shares of the labels, and their intervals (classes, 2)."""
        ends = self._interval(0, confidence, repeats)
        return self.table_.sum(axis=0), ends

    def codeword_shares(self, confidence: float = 0.95, repeats: int = 100) -> tuple[Reals, Reals]:
        """Estimate the shares of the codewords, and their intervals (codewords, 2)."""
        ends = self._interval(1, confidence, repeats)
        return self.table_.sum(axis=1), ends

    def _interval(self, axis: int, confidence: float, repeats: int) -> Reals:
        """Join two intervals: a bootstrap of the estimate, and that of the unbiased estimate."""
        check_is_fitted(self, "table_")
        if not hasattr(self, "_evidence"):
            raise errors.InvalidParameter(
                "intervals: the classifier must hold its reports, as after fit. Fit it again."
            )
        draws = finite.bootstrap(self._evidence, self._prior, self.table_, repeats, self.seed)
        ends = finite.interval(draws.sum(axis=axis + 1), confidence)
        linear = finite.share_interval(self._evidence, axis, confidence)
        lower = np.minimum(ends[:, 0], linear[:, 0])
        return np.stack([lower, np.maximum(ends[:, 1], linear[:, 1])], axis=-1)

    # --- storage -------------------------------------------------------------------------------

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        if not hasattr(self, "table_"):
            return parts_of(self, self.network_)
        parameters, arrays = parts_of(self)
        shift = self.shift_
        parameters["shift"] = [shift.statistic, shift.degrees, shift.p_value]
        main = {"main": self.main_} if hasattr(self, "main_") else {}
        return parameters, {**arrays, **main, "table": self.table_}

    @classmethod
    def from_parts(
        cls, parameters: dict[str, Any], arrays: artifact.Arrays
    ) -> NoiseAwareClassifier:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays, network="table" not in arrays)
        if "table" in arrays:
            made.table_ = arrays["table"]
            if "main" in arrays:
                made.main_ = arrays["main"]
            statistic, degrees, p_value = parameters["shift"]
            made.shift_ = finite.ShiftTest(statistic, degrees, p_value)
        return made


def must_be_none(where: str, y: Any) -> None:
    """Refuse labels beside the reports: they would be ignored."""
    if y is not None:
        errors.refuse(where, "y", "None: labels are part of the reports", type(y).__name__)


def must_be_mine(reports: Reports, mechanism: Any) -> None:
    """Refuse reports of another mechanism or with labels, whose law is not the learned one."""
    same = artifact.fingerprint(reports.mechanism.at(mechanism.epsilon))
    if reports.labelled or same != artifact.fingerprint(mechanism):
        raise errors.InvalidData(
            "predict: reports must be without labels and of the classifier's own mechanism. "
            "Release them with classifier.mechanism_."
        )


def evidence_of(reports: Reports) -> Evidence:
    """Return the reports of a codebook in the form that the likelihood takes."""
    law = reports.channel.symbols
    assert law is not None
    return Evidence(reports.columns["symbols"], law, reports.channel.class_count)
