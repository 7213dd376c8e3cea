r"""The codebook mechanism: one report of a codeword, or of codeword and label, with the whole ε.

A raw row goes through public features and the quantizer to a codeword k among K, both learned on
in-house rows without labels. With a label y among C classes the symbol is k·C + y. Subset selection
over the symbols releases it: ε-local DP whatever the encoder does, as the channel's inputs are the
symbols, and any two of them are treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.data import schema, schema_inference
from tacit.data.outcomes import Numeric
from tacit.data.schema import Rows, Schema
from tacit.local import graphs
from tacit.local.channels import ReportChannel, SymbolChannel
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import codebook_storage, private_quantizer
from tacit.local.learned import features as features_of
from tacit.local.learned import quantizer as quantizers
from tacit.local.learned.base import Learned, declared
from tacit.local.learned.contrasts import levels_for
from tacit.local.learned.features import Features, blocks
from tacit.local.learned.private_features import Learning
from tacit.local.learned.quantizer import Quantizer
from tacit.local.learned.rule import codewords_for
from tacit.local.outcome_channels import RoundedChannel
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Randomness

DEFAULTS: dict[str, tuple[int | None, bool, str]] = {
    "scattering": (48, True, "linked"),
    "invariant": (None, False, "linked"),
    "autoencoder": (None, False, "linked"),
    "raw": (48, False, "compact"),
    "random": (48, False, "compact"),
    "quantile": (16, False, "compact"),
}
"""Components, whether they are damped, and grouping, for each kind of features."""

_OF_IMAGES = ("scattering", "invariant")

UNLABELLED = 64
"""Codewords if no label is reported: learners then use a model of the rows, not a table."""


class Codebook(Learned[ReportChannel]):
    """A mechanism learned without labels; people report one symbol each.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included.
    people : int, optional
        The expected number of reports; needed with `classes` unless `codewords` is given.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1. Without it no label can be reported.
    outcome : Numeric, optional
        The bounds of a number that people may report in place of a label.
    codewords : int, optional
        K. By default from ε, people and classes: see `tacit.learned.rule`; 64 without classes.
    features : str or Features, optional
        "scattering" (the default for images), "quantile" (for tables), "raw" (for other arrays),
        "random", "autoencoder", "invariant", or fitted features.
    grouping : {"linked", "compact"}, optional
        How cells become codewords: see `tacit.learned.quantizer`.
    subset_size : int, optional
        Symbols in a report; by default the best for counts.
    unit : Unit
        The unit of a report: "person" if everyone reports one row once.
    central_epsilon, central_delta : float, optional
        The total cost to the in-house rows of all that is learned from them. Without it they are
        not protected, and what was learned must stay in-house.

    Attributes
    ----------
    counts_, count_variance_ : array, (codewords,)
        In-house rows of each codeword, and the variance of the noise of these counts: 0 without
        `central_epsilon`.
    inhouse_ : Protection
        The protection of the in-house rows: see `tacit.inhouse`.

    Notes
    -----
    ε-DP for any two rows, labels included, by subset selection. The encoder runs before the
    channel, and may be anything.

    Towards the in-house rows: (central ε, central δ) for one row or a blank in its place, by
    `tacit.learned.private_quantizer`; it covers everything that is saved. Features that need
    training: an autoencoder is trained with DP-Adam on half of ε and δ, and nothing is proved of
    the contrastive one.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images, digits = load_digits(return_X_y=True)
    >>> mechanism = Codebook(epsilon=4, people=1200, classes=10)
    >>> reports = mechanism.fit(images[:500]).release(images[500:], digits[500:])
    >>> print(reports.guarantee)
    4-DP (local, any-two-inputs, unit: record)
    """

    kind: ClassVar[str] = "codebook"
    features_: Features

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        people: int | None = None,
        classes: int | Sequence[Any] | None = None,
        outcome: Numeric | None = None,
        codewords: int | None = None,
        features: str | Features | None = None,
        grouping: str | None = None,
        subset_size: int | None = None,
        unit: Unit | str = Unit.RECORD,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
    ) -> None:
        where = "Codebook"
        self.central = Target.of(where, central_epsilon, central_delta)
        self.unit = Unit.of(where, unit)
        self.epsilon: Fraction = errors.epsilon_in_range(where, epsilon)
        self.classes, self.outcome = declared(where, classes, outcome, needed=False)
        self.people = None if people is None else errors.whole(where, "people", people, least=1)
        if codewords is not None:
            codewords = errors.whole(where, "codewords", codewords, least=2, most=2**16)
        elif self.people is None and (self.classes or self.outcome):
            remedy = "The number of codewords follows from it; or give codewords."
            errors.refuse(where, "people", "given", None, remedy)
        if isinstance(features, str):
            errors.choice(where, "features", features, features_of.FIXED + features_of.TRAINED)
        if grouping is not None:
            errors.choice(where, "grouping", grouping, quantizers.GROUPINGS)
        self.codewords, self.features, self.grouping = codewords, features, grouping
        self.subset_size = subset_size

    # --- learning, in-house --------------------------------------------------------------------

    def fit(
        self,
        raw: Any,
        *,
        schema: Schema | None = None,
        image: tuple[int, ...] | None = None,
        seed: int = 0,
        device: str = "cpu",
        inhouse_public: bool = False,
        public_features: bool = False,
        rng: Randomness | None = None,
    ) -> Self:
        """Learn features (if they are learned), cells and codewords from in-house rows.

        `inhouse_public` states that the in-house rows are public, `public_features` that fitted
        features which were passed in were learned without them; certificates say so. `rng` draws
        the noise of a central guarantee. `device` is where features are trained, as in `VLM.fit`;
        the fitted mechanism computes on the CPU, see `on`.
        """
        trains = self.features in features_of.TRAINED
        device = devices.resolve("Codebook.fit", device, used=trains)
        if image is None and self.features in _OF_IMAGES:
            image = _square(raw)
        self._forget_fit()
        given = schema or infer_schema(raw, image, private=self.central is not None)
        rows = given.rows(raw, "Codebook.fit")
        kind = default_features(given) if self.features is None else self.features
        if self.central is None:
            self._fit_plain(kind, given, rows, seed, device)
            self.inhouse_ = Protection.none(inhouse_public)
        else:
            learning = Learning(kind, given, rows, self.central, seed, rng, public_features, device)
            self._fit_privately(learning)
            self.inhouse_ = learning.protection(inhouse_public)
        if trains:
            self.features_ = features_of.on(self.features_, "cpu")
        return self

    def _fit_privately(self, learning: Learning) -> None:
        """Fit within the central budget."""
        given, learned = learning.schema, learning.features()
        _, damped, grouping = _defaults(learned)
        private = private_quantizer.fit(
            given,
            learned,
            learning.rows,
            self.codewords or self._rule(),
            budget=learning.budget,
            grouping=self.grouping or grouping,
            damped=damped,
            seed=learning.seed,
        )
        self._set(given, learned, private.quantizer)
        self.counts_, self.links_, self.prototypes_ = (
            private.counts,
            private.links,
            private.prototypes,
        )
        self.count_variance_ = np.full(self.codewords_, private.count_variance)

    def _fit_plain(
        self, kind: str | Features, given: Schema, rows: Rows, seed: int, device: str
    ) -> None:
        """Fit without noise: the best codewords, and no guarantee towards the in-house rows."""
        learned = kind
        if isinstance(learned, str):
            learned = features_of.fit(learned, given, rows, seed, device=device)
        wanted = self.codewords or self._rule()
        components, damped, grouping = _defaults(learned)
        projection = quantizers.fit_projection(learned, rows, components, damped, seed)
        vectors = quantizers.project(learned, rows, projection)
        cells, groups = quantizers.fit_cells(vectors, wanted, self.grouping or grouping, seed)
        if len(cells) < 2:
            raise errors.InvalidData("Codebook.fit: in-house rows must not be all alike.")
        self._set(given, learned, Quantizer(projection, cells, groups))
        codes = groups[graphs.nearest(vectors, cells)]
        self.counts_ = np.bincount(codes, minlength=self.codewords_)
        self.count_variance_ = np.zeros(self.codewords_)
        linked = self.codewords_ < len(cells)
        self.links_ = quantizers.links(vectors, cells, groups) if linked else None
        self.prototypes_ = quantizers.means(features_of.Raw(given), rows, codes, self.codewords_)

    def _rule(self) -> int:
        held = self.channel_classes
        if self.people is None or held is None:
            return UNLABELLED
        return codewords_for(float(self.epsilon), self.people, len(held))

    @property
    def channel_classes(self) -> tuple[Any, ...] | None:
        """The labels of a report, or the levels of its outcome."""
        if self.outcome is None:
            return self.classes
        return tuple(range(levels_for(float(self.epsilon))))

    def _set(self, given: Schema, learned: Features, quantizer: Quantizer) -> None:
        self._forget_channels()
        self._schema, self.features_, self.quantizer_ = given, learned, quantizer
        self.codewords_ = quantizer.codewords

    def on(self, device: str) -> Codebook:
        """Return the same fitted mechanism, with trained features on another device."""
        self._must_encode()
        other = self._copy()
        device = devices.resolve("Codebook.on", device, used=hasattr(self.features_, "on"))
        other.features_ = features_of.on(self.features_, device)
        return other

    def regrouped(self, groups: Any, *, subset_size: int | None = None) -> Codebook:
        """Return a coarser mechanism, for reports without labels: codeword k becomes groups[k]."""
        mapping = errors.integers("regrouped", groups, lower=0)
        if mapping.shape != (self.codewords_,):
            errors.refuse("regrouped", "groups", f"{self.codewords_} numbers", mapping.shape)
        used, mapping = np.unique(mapping, return_inverse=True)
        if len(used) < 2:
            errors.refuse("regrouped", "groups", "at least two", len(used))
        other = self._copy()
        old = self.quantizer_
        other._set(
            self.schema, self.features_, Quantizer(old.projection, old.cells, mapping[old.groups])
        )
        other.classes, other.subset_size, other.links_ = None, subset_size, None
        other.outcome = None
        weights = np.maximum(self.counts_, 1)
        other.counts_ = np.bincount(mapping, self.counts_, len(used)).astype(np.int64)
        other.count_variance_ = np.bincount(mapping, self.count_variance_, len(used))
        share = np.zeros((len(used), self.codewords_))
        share[mapping, np.arange(self.codewords_)] = weights
        other.prototypes_ = (share / share.sum(1, keepdims=True) @ self.prototypes_).astype(
            np.float32
        )
        return other

    # --- the channel ---------------------------------------------------------------------------

    def _channel_alone(self) -> Codebook:
        """Keep the number of codewords, which reports show, and nothing else that was learned."""
        other = self._copy()
        other._schema = other.features = None
        other.features_ = other.quantizer_ = None  # type: ignore[assignment]
        other.counts_ = np.zeros_like(self.counts_)
        other.count_variance_ = np.zeros_like(self.count_variance_)
        other.links_ = other.prototypes_ = None  # type: ignore[assignment]
        return other

    def _shown(self) -> dict[str, Any]:
        return {"codewords": getattr(self, "codewords_", self.codewords), "people": self.people}

    def _make_channel(self, labelled: bool) -> ReportChannel:
        self._must_be_fitted()
        classes = self.channel_classes if labelled else None
        law = SubsetSelection(
            categories=self.codewords_ * (1 if classes is None else len(classes)),
            epsilon=self.epsilon,
            size=self.subset_size,
            unit=self.unit,
        )
        alone = SymbolChannel(law=law, classes=classes)
        if labelled and self.outcome is not None:
            return RoundedChannel(inner=alone, outcome=self.outcome)
        return alone

    # --- on a person's device ------------------------------------------------------------------

    def _encode(self, raw: Any, where: str) -> npt.NDArray[np.int64]:
        # All rows at once: `encode_rows` has blocks of its own.
        return self.encode_rows(self.schema.rows(raw, where))

    def encode_rows(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Return the codeword of each checked row."""
        # Silent whatever the weights: a warning for some rows would reveal something about them.
        with np.errstate(all="ignore"):
            parts = [
                self.quantizer_(features_of.transform(self.features_, block))
                for block in blocks(rows)
            ]
        return np.concatenate(parts)

    # --- what a learner may ask ----------------------------------------------------------------

    def posterior(self, reports: Reports, prior: Any = None) -> npt.NDArray[np.float64]:
        """Compute P(codeword | report) for reports without labels; the prior is in-house shares."""
        law = self.channel(False).symbols
        assert law is not None
        mass = self.counts_ + 1.0 if prior is None else np.asarray(prior, np.float64)
        odds = np.zeros((len(reports), self.codewords_))
        np.put_along_axis(odds, reports.columns["symbols"].astype(np.int64), law.log_odds, 1)
        weights = mass * np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def clean_features(self, raw: Any, level: str = "latent") -> npt.NDArray[np.float32]:
        """Return the codeword as an indicator, or its prototype."""
        indicator = np.eye(self.codewords_, dtype=np.float32)[self.encode(raw)]
        return indicator if _latent(level) else indicator @ self.prototypes_

    def released_features(self, reports: Reports, level: str = "latent") -> npt.NDArray[np.float32]:
        """Return P(codeword | report), or the expected prototype."""
        expected = self.posterior(reports).astype(np.float32)
        if _latent(level):
            return expected
        self._must_encode()
        return expected @ self.prototypes_

    def vectors(self, raw: Any) -> npt.NDArray[np.float32]:
        """Compute projected features of clean rows, in which cells are defined."""
        rows = self.schema.rows(raw, "Codebook")
        return quantizers.project(self.features_, rows, self.quantizer_.projection)

    def vectors_alone(self, raw: Any) -> npt.NDArray[np.float32]:
        """Compute the same up to rounding, each from its row alone, as guarantees to rows need."""
        rows = self.schema.rows(raw, "Codebook")
        return quantizers.project_alone(self.features_, rows, self.quantizer_.projection)

    def codes_alone(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return the codeword of each vector, decided in integers, independent of the others."""
        cells, groups = self.quantizer_.cells, self.quantizer_.groups
        bound = 2 * float(np.linalg.norm(cells, axis=1).max()) + 1e-6
        return np.asarray(groups[private_quantizer.ranks(vectors, cells, bound, 1)[:, 0]])

    # --- storage -------------------------------------------------------------------------------

    def onnx(self) -> bytes | None:
        """Export the encoder for devices without Python; None without the `onnx` package."""
        if (vectors := self.vectors_graph()) is None:
            return None
        from tacit.local.learned.onnx import codebook_encoder

        return codebook_encoder(vectors, self.quantizer_.cells, self.quantizer_.groups)

    def vectors_graph(self) -> Any:
        """Start an ONNX graph of rows with their `vectors`; None without the `onnx` package."""
        if find_spec("onnx") is None or self.quantizer_ is None:
            return None
        from tacit.local.learned.onnx import vectors_graph

        mean, matrix = self.quantizer_.projection.mean, self.quantizer_.projection.matrix
        if matrix is None:
            matrix = np.eye(self.features_.dimension, dtype=np.float32)
        return vectors_graph(self.schema, self.features_, mean, matrix)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and weights."""
        self._must_be_fitted()
        return codebook_storage.parts(self)

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> Codebook:
        """Rebuild what `parts` took apart."""
        return codebook_storage.rebuilt(cls, parameters, arrays)


def infer_schema(raw: Any, image: tuple[int, ...] | None, private: bool = False) -> Schema:
    """Read bounds and categories off in-house rows; numbers of a table may be missing."""
    if private:
        return schema_inference.of_bytes(raw, image, "Codebook.fit")
    read = schema_inference.infer(raw, image, "Codebook.fit")
    return schema_inference.may_be_missing(read)


def _square(raw: Any) -> tuple[int, int] | None:
    """Guess the size of flat images: square, if their width allows it."""
    if not isinstance(raw, np.ndarray) or raw.ndim != 2:
        return None
    side = math.isqrt(raw.shape[1])
    return (side, side) if side * side == raw.shape[1] else None


def default_features(given: Schema) -> str:
    """Choose scattering for images, quantiles for tables, raw values for other arrays."""
    if isinstance(given, schema.TableSchema):
        return "quantile"
    return "raw" if given.image is None else "scattering"


def _defaults(learned: Features) -> tuple[int | None, bool, str]:
    return DEFAULTS.get(learned.kind, (None, False, "compact"))


def _latent(level: str) -> bool:
    return errors.choice("features", "level", level, ("latent", "feature")) == "latent"
