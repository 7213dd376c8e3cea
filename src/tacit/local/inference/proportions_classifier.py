"""Classifiers of clean rows, learned from reports of partitions and in-house rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2
from sklearn.utils.validation import check_is_fitted

from tacit.local import shuffling
from tacit.local.channels import PartitionedChannel
from tacit.local.inference import exported, field, finite, mixture, tempering
from tacit.local.inference.decisions import Deciding
from tacit.local.inference.finite import Evidence, ShiftTest
from tacit.local.inference.noise_aware import PRIORS, SIGNIFICANCE, ShiftWarning, must_be_none
from tacit.local.inference.rounds import must_belong_together, protections
from tacit.local.inference.stored import TaughtOnRows, parts_of, restored
from tacit.local.inhouse import TAUGHT, Protection, together
from tacit.local.outcome_channels import OutcomeChannel
from tacit.local.persons import joined
from tacit.local.reports import Reports, certify
from tacit.privacy import artifact, codec, errors
from tacit.privacy.randomness import Seeded

CARRIED = f"{TAUGHT}: it carries their likeness."


class ProportionsClassifier(TaughtOnRows, Deciding):
    """A classifier of clean rows, fitted to the shares of labels in the cells of all partitions.

    Parameters
    ----------
    inhouse : rows, optional
        In-house rows without labels, preferably those that the mechanism was fitted on. A mechanism
        with a central guarantee has synthetic rows, which are used by default.
    prior : {"auto", "inhouse", "none"}
        Whether the in-house shares of cells help, as in `NoiseAwareClassifier`.
    seed : int
        Seed of landmarks; privacy does not depend on it.
    inhouse_public : bool
        State that these in-house rows are public; certificates say so.
    priors, costs, threshold
        How probabilities become answers, as in `NoiseAwareClassifier`.

    Attributes
    ----------
    mixture_ : Mixture or Field
        The models that explain held-out reports best, and their shares: see
        `tacit.inference.mixture`. Where partitions join the same small cells, as those of images,
        the labels of these cells: see `tacit.inference.field`.
    sharpness_ : float
        The power of the mixture's probabilities: see `tacit.inference.tempering`.
    shift_ : ShiftTest
        A test of whether the people look like the rows that the model is taught on.
    guarantee_ : Guarantee
        Towards those who reported: learning is post-processing.
    inhouse_ : Protection
        Towards the in-house rows: none if the model is taught on them, as this adds no noise; that
        of the mechanism if it is taught on synthetic rows.
    """

    kind: ClassVar[str] = "proportions"

    def __init__(
        self,
        *,
        inhouse: Any = None,
        prior: str = "auto",
        seed: int = 0,
        inhouse_public: bool = False,
        priors: Any = None,
        costs: Any = None,
        threshold: float | None = None,
    ) -> None:
        self.inhouse = inhouse
        self.prior = prior
        self.seed = seed
        self.inhouse_public = inhouse_public
        self.priors = priors
        self.costs = costs
        self.threshold = threshold

    def fit(self, reports: Reports | Sequence[Reports], y: None = None) -> Self:
        """Learn from labelled reports of one round, or of several rounds of one collection."""
        where = "ProportionsClassifier.fit"
        must_be_none(where, y)
        errors.choice(where, "prior", self.prior, PRIORS)
        rounds = [reports] if isinstance(reports, Reports) else list(reports)
        _must_be_of_partitions(where, rounds)
        must_belong_together(where, rounds)
        taught = self.inhouse is not None
        if not taught and rounds[-1].mechanism.synthetic_ is None:
            errors.refuse(where, "inhouse", "given", None, "Pass the in-house rows.")
        self._rule_for(rounds[-1].mechanism.classes)
        self._forget_fit()
        rounds = [one.as_multiset() for one in rounds]
        self.__dict__.pop("_pooled", None)
        last = rounds[-1]
        mechanism, classes = last.mechanism, np.asarray(last.mechanism.classes)
        vectors = (
            mechanism.vectors(self.inhouse) if taught else mechanism.synthetic_vectors(self.seed)
        )
        parts = self._parts(rounds, vectors)
        self._pooled = pooled(rounds)
        self.mixture_ = _fitted(parts, vectors, rounds, self.seed)
        self.sharpness_ = _sharpness(self.mixture_, parts, vectors, len(classes), self.seed)
        self.mechanism_, self.classes_ = last.mechanism, classes
        per_person = joined([reports.per_person for reports in rounds])
        self.reports_, self.guarantee_ = sum(map(len, rounds)), per_person.guarantee(last.channel)
        own = [Protection.none(self.inhouse_public, TAUGHT)] if taught else []
        self.inhouse_ = together([*protections(rounds), *own])
        stream = Seeded(0) if any(reports.seeded for reports in rounds) else None
        told = last.mechanism.inhouse_.sentence
        earlier = dict.fromkeys(reports.mechanism.inhouse_.sentence for reports in rounds[:-1])
        said = [sentence for sentence in earlier if sentence not in told]
        carried = (CARRIED,) if taught else ()
        further = (*said, *carried)
        issued = certify(last.mechanism, last.channel, stream, further, per_person)
        self.certificate_ = replace(
            issued, issued=last.certificate.issued, readers=shuffling.readers(rounds)
        )
        self._settle(self._probabilities(vectors))
        return self

    def _parts(
        self, rounds: Sequence[Reports], vectors: npt.NDArray[np.float32]
    ) -> list[mixture.PartitionReports]:
        """Divide reports by partition, and estimate the shares of its cells among people."""
        divided = []
        for reports in rounds:
            cells = reports.mechanism.cells_(vectors)
            for index, evidence in enumerate(_by_partition(reports)):
                divided.append((evidence, cells[:, index]))
        counts = [np.bincount(own, minlength=e.codewords) for e, own in divided]
        tests = [finite.shift_test(e, c) for (e, _), c in zip(divided, counts, strict=True)]
        trusted = self._trusts(tests)
        parts = []
        for (evidence, own), count in zip(divided, counts, strict=True):
            prior = count.astype(np.float64) * float(trusted)
            table = finite.maximum_likelihood(evidence, prior, tolerance=1e-4, steps=200)
            parts.append(mixture.PartitionReports(evidence, own, table.sum(axis=1)))
        return parts

    def _trusts(self, tests: Sequence[ShiftTest]) -> bool:
        """Test all partitions together: their people are different ones, so statistics add up."""
        statistic, degrees = sum(t.statistic for t in tests), sum(t.degrees for t in tests)
        self.shift_ = ShiftTest(statistic, degrees, float(chi2.sf(statistic, degrees)))
        if self.prior != "auto":
            return self.prior == "inhouse"
        if self.shift_.p_value >= SIGNIFICANCE:
            return True
        if self.inhouse is None:
            return False  # synthetic rows differ from the in-house ones: no sign of a shift
        warnings.warn(
            f"The people's cells differ from the in-house ones (p = {self.shift_.p_value:.2g}): "
            "their shares are estimated from reports alone.",
            ShiftWarning,
            stacklevel=4,
        )
        return False

    def next_round(
        self, inhouse: Any = None, *, inhouse_public: bool = False, seed: int = 0
    ) -> Any:
        """Return the mechanism of a next round, whose cells follow the model's linear scores.

        It carries the protection of all in-house rows that it depends on: those of the mechanism,
        of the model, and `inhouse`, in which the cells are computed. Without `inhouse` they are
        computed in synthetic rows, which a mechanism with a central guarantee has.
        """
        check_is_fitted(self, "mixture_")
        if isinstance(self.mixture_, field.Field):
            raise errors.InvalidParameter(
                "next_round: rows must not be images. They are collected in one round."
            )
        return self.mechanism_.adapted(
            self.mixture_.linear_scores(self.mechanism_.blocks_[-1].stop),
            inhouse,
            taught=self.inhouse_,
            inhouse_public=inhouse_public,
            seeded=self.certificate_.seeded,
            seed=seed,
        )

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """Predict class probabilities of clean rows."""
        check_is_fitted(self, "mixture_")
        if isinstance(rows, Reports):
            raise errors.InvalidData(
                "predict: rows must be clean, got reports. A report of partitions shows one cell; "
                "for rows that are themselves reported, use Codebook and NoiseAwareClassifier."
            )
        learned = self._probabilities(self.mechanism_.vectors(rows))
        return self.rule.reweighed(learned, self.assumed_shares_)

    def _probabilities(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        return tempering.raised(self.mixture_.predict_proba(vectors), self.sharpness_)

    def class_shares(
        self, confidence: float = 0.95
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Estimate the shares of the labels among people, and their intervals (classes, 2).

        How likely a report is to name a label depends on the person's label, and not on the
        partition. So the reports of all partitions and rounds together give an unbiased estimate,
        here the nearest shares that are not negative and sum to 1, and one exact interval
        (`finite.share_interval`), widened to include the estimate where necessary. Partitions by
        themselves have too few reports: maximum likelihood in each of them overstates rare labels.
        """
        check_is_fitted(self, "mixture_")
        if not hasattr(self, "_pooled"):
            raise errors.InvalidParameter(
                "class_shares: the classifier must hold its reports, as after fit. Fit it again."
            )
        confidence = errors.probability("class_shares", "confidence", confidence, zero=False)
        shares = finite.label_shares(self._pooled)
        lower, upper = finite.share_interval(self._pooled, 0, confidence).T
        return shares, np.stack([np.minimum(lower, shares), np.maximum(upper, shares)], axis=-1)

    def onnx(self) -> bytes | None:
        """Export rows to the index of the answer in `classes_`, for devices without Python.

        Returns None without the `onnx` package.
        """
        check_is_fitted(self, "mixture_")
        vectors = self.mechanism_.vectors_graph()
        if vectors is None:
            return None
        return exported.answers(
            vectors, self.mixture_, self.rule, self.assumed_shares_, self.sharpness_
        )

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        parameters, arrays = parts_of(self)
        parameters["mixture"], own = self.mixture_.parts()
        parameters["shift"], parameters["sharpness"] = asdict(self.shift_), self.sharpness_
        return parameters, {**arrays, **codec.nested(own, "mixture")}

    @classmethod
    def from_parts(
        cls, parameters: dict[str, Any], arrays: artifact.Arrays
    ) -> ProportionsClassifier:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays, network=False)
        own = codec.part(arrays, "mixture")
        told = parameters["mixture"]
        if told.get("kind") == "field":
            made.mixture_ = field.Field.from_parts(own)
        else:
            made.mixture_ = mixture.Mixture.from_parts(told, own)
        _must_answer(made.mixture_, made.mechanism_.blocks_[-1].stop, len(made.classes_))
        made.shift_ = ShiftTest(**parameters["shift"])
        made.sharpness_ = float(parameters.get("sharpness", 1.0))
        if not 0 < made.sharpness_ < np.inf:
            raise ValueError("proportions: sharpness must be positive and finite")
        return made


def _must_answer(model: mixture.Mixture | field.Field, width: int, classes: int) -> None:
    """Refuse a file whose model does not fit its mechanism and classes."""
    if isinstance(model, field.Field):
        fits = model.centres.shape[1] == width and model.values.shape[1] == classes
    else:
        members = model.members
        fits = any(member.share > 0 for member in members) and all(
            0 <= member.inputs.start < member.inputs.stop <= width
            and member.weights.shape[2] == classes
            and np.isfinite(member.weights).all()
            for member in members
        )
    if not fits:
        raise ValueError("proportions: the model must fit its mechanism and its classes")


def _fitted(
    parts: Sequence[mixture.PartitionReports],
    vectors: npt.NDArray[np.float32],
    rounds: Sequence[Reports],
    seed: int,
) -> mixture.Mixture | field.Field:
    """Fit the model that suits the partitions: of small cells if they share these, else of rows."""
    last = rounds[-1].mechanism
    if not last.cells_.shared:
        linked = last.cells_.groups is not None
        return mixture.fit(parts, vectors, last.blocks_, len(last.classes), seed, clustered=linked)
    groups = [own for reports in rounds for own in reports.mechanism.cells_.groups]
    grouped = [
        field.JoinedReports(part.evidence, own, part.shares)
        for part, own in zip(parts, groups, strict=True)
    ]
    return field.fit(grouped, vectors, last.cells_.centres[0], len(last.classes))


def _sharpness(
    fitted: mixture.Mixture | field.Field,
    parts: Sequence[mixture.PartitionReports],
    vectors: npt.NDArray[np.float32],
    classes: int,
    seed: int,
) -> float:
    """Choose the power of a mixture; a field has no folds to choose it by."""
    if isinstance(fitted, field.Field):
        return 1.0
    return tempering.power(parts, vectors, fitted, classes, seed)


def _by_partition(reports: Reports) -> list[Evidence]:
    channel = reports.channel
    assert isinstance(channel, PartitionedChannel)
    assigned, sets = reports.columns["partition"], reports.columns["symbols"]
    return [
        Evidence(sets[assigned == index], channel.law, channel.class_count)
        for index in range(channel.partitions)
    ]


def pooled(rounds: Sequence[Reports]) -> Evidence:
    """Put the reports of all partitions together: they agree on labels, though not on cells."""
    channel = rounds[0].channel
    assert isinstance(channel, PartitionedChannel)
    sets = np.concatenate([reports.columns["symbols"] for reports in rounds])
    return Evidence(sets, channel.law, channel.class_count)


def _must_be_of_partitions(where: str, rounds: Sequence[Reports]) -> None:
    for reports in rounds:
        if not isinstance(reports, Reports) or not isinstance(reports.channel, PartitionedChannel):
            if isinstance(getattr(reports, "channel", None), OutcomeChannel):
                raise errors.InvalidData(
                    f"{where}: reports must hold labels, got numeric outcomes. "
                    "Use Collection.learn or MomentsRegressor."
                )
            raise errors.InvalidData(f"{where}: reports must come from partitions.")
        if not reports.labelled:
            raise errors.InvalidData(f"{where}: reports must have labels. Release with labels=….")
