"""Students: models of clean rows, taught by in-house rows and the estimated table.

A student predicts better than the table, as it sees more of a row than its codeword. It reveals the
in-house rows it was taught on: it must stay in-house, unless it was taught with DP-Adam over a
codebook that is itself private towards them. Without in-house rows it is taught on the centres of
the codebook's own cells, and reveals what the codebook reveals.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tacit.local.inference import exported, proportions
from tacit.local.inference.decisions import ConstantAnswerWarning, Deciding
from tacit.local.inference.neural import Network
from tacit.local.inference.noise_aware import NoiseAwareClassifier, evidence_of, must_be_none
from tacit.local.inference.stored import TaughtOnRows, parts_of, restored
from tacit.local.inhouse import TAUGHT, Protection, Target, together
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors
from tacit.privacy.randomness import Randomness

CARRIED = f"{TAUGHT}: it carries their likeness."
TEACHING = ("auto", "table", "likelihood")
_MOST_ROWS, _EPOCHS, _STEPS, _RULED_OUT = 50_000, 20, 2_000, -50.0


class StudentClassifier(TaughtOnRows, Deciding):
    """A classifier of clean rows, learned from labelled reports and in-house rows.

    Parameters
    ----------
    inhouse : rows, optional
        In-house rows without labels, preferably those that the mechanism was fitted on. Without
        them the student is taught on the centres of the codebook's cells, each with the estimated
        share of its codeword.
    teaching : {"auto", "table", "likelihood"}
        "table": a network learns the most probable label of each row's codeword. "likelihood": a
        linear model of the label is fitted to the reports themselves
        (`tacit.inference.proportions`). "auto" uses the first for linked codewords, which follow
        classes of any shape, and the second for compact ones.
    hidden : tuple of int
        Hidden layers of the network that the table teaches.
    penalty : float
        Ridge penalty of the linear model.
    prior, seed
        As in `NoiseAwareClassifier`.
    central_epsilon, central_delta : float, optional
        Teach with DP-Adam, at this cost to the in-house rows besides that of the codebook, which
        must have a central guarantee. Only with the table; needs torch.
    inhouse_public : bool
        State that these in-house rows are public; certificates say so.
    device : str
        Where DP-Adam runs: "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one. The
        other ways of teaching run on the CPU.
    priors, costs, threshold
        How probabilities become answers, as in `NoiseAwareClassifier`.

    Attributes
    ----------
    teacher_ : NoiseAwareClassifier
        The estimated table.
    guarantee_ : Guarantee
        Towards those who reported.
    inhouse_ : Protection
        Towards the in-house rows: those of the codebook and those of teaching, each with its own
        guarantee.
    """

    kind: ClassVar[str] = "student"

    def __init__(
        self,
        *,
        inhouse: Any = None,
        teaching: str = "auto",
        hidden: tuple[int, ...] = (256,),
        penalty: float = proportions.PENALTY,
        prior: str = "auto",
        seed: int = 0,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
        inhouse_public: bool = False,
        device: str = "cpu",
        priors: Any = None,
        costs: Any = None,
        threshold: float | None = None,
    ) -> None:
        self.inhouse = inhouse
        self.inhouse_public = inhouse_public
        self.central_epsilon = central_epsilon
        self.central_delta = central_delta
        self.teaching = teaching
        self.hidden = hidden
        self.penalty = penalty
        self.prior = prior
        self.seed = seed
        self.device = device
        self.priors = priors
        self.costs = costs
        self.threshold = threshold

    def fit(self, reports: Reports, y: None = None, *, rng: Randomness | None = None) -> Self:
        """Estimate the table, then teach; `rng` draws the noise of a central guarantee."""
        must_be_none("StudentClassifier.fit", y)
        target, device = self._checked(reports)
        self._forget_fit()
        reports = reports.as_multiset()
        teacher = NoiseAwareClassifier(prior=self.prior, seed=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantAnswerWarning)  # the student's answers count
            self._take(teacher.fit(reports))
        quantizer = self.mechanism_.quantizer_
        if target is not None:
            vectors = self.mechanism_.vectors_alone(self.inhouse)
            codes = self.mechanism_.codes_alone(vectors)
            answers = teacher.given_codeword().argmax(axis=1)[codes]
            self.network_, self.inhouse_ = self._taught_privately(
                vectors, answers, target, rng, device
            )
            self._certify(reports, self.inhouse_.parts[-1].sentence)
            # Not the in-house rows: what they say is protected by the noise of teaching alone.
            self._settle_on(quantizer.cells, quantizer.groups)
            return self
        if self.inhouse is None:
            vectors, codes = quantizer.cells, quantizer.groups
            self.inhouse_ = self.mechanism_.inhouse_
            self._certify(reports)
        else:
            vectors = self.mechanism_.vectors(self.inhouse)
            codes = quantizer.of_vectors(vectors)
            own = Protection.none(self.inhouse_public, TAUGHT)
            self.inhouse_ = together([self.mechanism_.inhouse_, own])
            self._certify(reports, CARRIED)
        self.network_ = self._teach(reports, vectors, codes)
        self._settle_on(vectors, codes)
        return self

    def _certify(self, reports: Reports, *further: str) -> None:
        self.certificate_ = reports.certify(*further, readers=reports.readers())

    def _teach(
        self, reports: Reports, vectors: npt.NDArray[np.float32], codes: npt.NDArray[np.int64]
    ) -> Network:
        """Teach on points whose codewords are known, without noise."""
        if self._by_likelihood():
            shares = self.teacher_.table_.sum(axis=1)
            rows = proportions.Inhouse.of(vectors, codes)
            return proportions.fit_labels(rows, evidence_of(reports), shares, self.penalty)
        answers = self.teacher_.given_codeword().argmax(axis=1)[codes]
        return _taught(vectors, answers, len(self.classes_), self.hidden, self.seed)

    def _settle_on(self, points: npt.NDArray[np.float32], codes: npt.NDArray[np.int64]) -> None:
        """Find assumed shares and answers on points, which share the weight of their codeword."""
        mass = self.teacher_.table_.sum(axis=1)
        weights = mass[codes] / np.bincount(codes, minlength=len(mass))[codes]
        self._settle(self.network_.predict_proba(points), weights)

    def _checked(self, reports: Reports) -> tuple[Target | None, str]:
        """Check the parameters; return the cost to the in-house rows, and the device."""
        where = "StudentClassifier"
        errors.choice(where, "teaching", self.teaching, TEACHING)
        errors.whole(where, "seed", self.seed, least=0)
        errors.positive(where, "penalty", self.penalty)
        if not isinstance(reports, Reports) or reports.channel.symbols is None:
            raise errors.InvalidData(f"{where}.fit: reports must come from a codebook.")
        self._rule_for(reports.mechanism.classes)
        target = Target.of(where, self.central_epsilon, self.central_delta)
        if target is not None:
            self._must_teach_privately(reports.mechanism.inhouse_)
        elif self.inhouse is None:
            _ = reports.mechanism.schema  # a copy with the channel alone has no cells
        return target, devices.resolve(where, self.device, used=target is not None)

    def _take(self, teacher: NoiseAwareClassifier) -> None:
        self.teacher_ = teacher
        self.mechanism_, self.classes_ = teacher.mechanism_, teacher.classes_
        self.guarantee_, self.reports_ = teacher.guarantee_, teacher.reports_

    def _must_teach_privately(self, codebook: Protection) -> None:
        where = "StudentClassifier"
        if not codebook.proved:
            remedy = "Fit the codebook with central_epsilon too."
            raise errors.InvalidParameter(
                f"{where}: the codebook must protect its in-house rows, got {codebook.guarantee}. "
                f"{remedy}"
            )
        if self.inhouse is None:
            remedy = "Pass the in-house rows, or leave out central_epsilon: cells cost nothing."
            errors.refuse(where, "inhouse", "given with central_epsilon", None, remedy)
        if self.teaching == "likelihood":
            errors.refuse(where, "teaching", "by the table with central_epsilon", self.teaching)

    def _taught_privately(
        self,
        vectors: npt.NDArray[np.float32],
        answers: npt.NDArray[np.int64],
        target: Target,
        rng: Randomness | None,
        device: str,
    ) -> tuple[Network, Protection]:
        from tacit.local.inference.taught import taught_privately

        cells = self.mechanism_.quantizer_.cells
        network, trained = taught_privately(
            vectors,
            answers,
            len(self.classes_),
            tuple(self.hidden),
            cells,
            target,
            self.seed,
            rng,
            device,
        )
        own = Protection.of(
            trained.event,
            target.delta,
            assumptions=trained.assumptions,
            public=self.inhouse_public,
            seeded=trained.seeded,
            whose=TAUGHT,
        )
        return network, together([self.mechanism_.inhouse_, own])

    def _by_likelihood(self) -> bool:
        quantizer = self.mechanism_.quantizer_
        compact = quantizer.codewords == len(quantizer.cells)
        return self.teaching == "likelihood" or (self.teaching == "auto" and compact)

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """Predict class probabilities of clean rows; for released ones use the teacher."""
        check_is_fitted(self, "network_")
        if isinstance(rows, Reports):
            teacher = self.teacher_
            return self.rule.reweighed(teacher.predict_proba(rows), teacher.assumed_shares_)
        learned = self.network_.predict_proba(self.mechanism_.vectors(rows))
        return self.rule.reweighed(learned, self.assumed_shares_)

    def onnx(self) -> bytes | None:
        """Export rows to the index of the answer in `classes_`, for devices without Python.

        Returns None without the `onnx` package.
        """
        check_is_fitted(self, "network_")
        if (vectors := self.mechanism_.vectors_graph()) is None:
            return None
        return exported.answers(vectors, self.network_, self.rule, self.assumed_shares_)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        parameters, arrays = parts_of(self, self.network_)
        parameters["teacher"], taught = self.teacher_.parts()
        kept = {name: taught[name] for name in ("table", "main") if name in taught}
        return parameters, arrays | kept

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> StudentClassifier:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays)
        made._take(NoiseAwareClassifier.from_parts(parameters["teacher"], arrays))
        return made


def _taught(
    vectors: npt.NDArray[np.float32],
    answers: npt.NDArray[np.int64],
    classes: int,
    hidden: tuple[int, ...],
    seed: int,
) -> Network:
    """Fit a network to the codewords' labels, with scikit-learn, so that torch is not needed."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    chosen = np.random.default_rng(seed).permutation(len(vectors))[:_MOST_ROWS]
    center = vectors.mean(axis=0)
    spread = np.full_like(center, max(float(vectors.std(axis=0).mean()), 1e-12))
    epochs = max(_EPOCHS, -(-_STEPS * 200 // len(chosen)))  # in batches of 200
    model = MLPClassifier(tuple(hidden), alpha=1e-3, max_iter=epochs, random_state=seed)
    # In one thread: products this small are several times slower in two threads.
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few passes are intended
        model.fit((vectors[chosen] - center) / spread, answers[chosen])
    weights, bias = _all_classes(model, classes)
    return Network(
        center,
        spread,
        (*(np.asarray(layer, np.float32) for layer in model.coefs_[:-1]), weights),
        (*(np.asarray(layer, np.float32) for layer in model.intercepts_[:-1]), bias),
    )


def _all_classes(model: Any, classes: int) -> tuple[Any, Any]:
    """Extend the last layer to all classes; labels that no codeword has get probability 0."""
    last, bias = model.coefs_[-1], model.intercepts_[-1]
    if len(model.classes_) <= 2:  # scikit-learn then keeps only the log odds of the last class
        last, bias = np.hstack([0 * last, last]), np.concatenate([0 * bias, bias])
        last, bias = last[:, -len(model.classes_) :], bias[-len(model.classes_) :]
    weights = np.zeros((len(last), classes), np.float32)
    offsets = np.full(classes, _RULED_OUT, np.float32)
    weights[:, model.classes_], offsets[model.classes_] = last, bias
    return weights, offsets
