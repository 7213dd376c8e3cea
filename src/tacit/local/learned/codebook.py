r"""The codebook mechanism: one report of a codeword, or of codeword and label, with the whole ε.

A raw row goes through public features and the quantizer to a codeword k among K, both learned on
in-house rows without labels. With a label y among C classes the symbol is k·C + y. Subset selection
over the symbols releases it: ε-local DP whatever the encoder does, as the channel's inputs are the
symbols and it treats any two of them alike.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.data import labels, schema
from tacit.data.schema import Rows, Schema
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import codebook_storage, private_quantizer
from tacit.local.learned import features as features_of
from tacit.local.learned import quantizer as quantizers
from tacit.local.learned.base import Learned, refuse_channel_alone
from tacit.local.learned.features import Features, blocks
from tacit.local.learned.private_features import Learning
from tacit.local.learned.quantizer import Quantizer
from tacit.local.learned.rule import codewords_for
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Randomness, source

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
"""Codewords where no label is reported: learners then have a model of the rows, and no table."""


class Codebook(Learned):
    """A mechanism learned without labels; people report one symbol each.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included.
    people : int, optional
        How many are expected to report; needed with `classes` unless `codewords` is given.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1. Without, no label can be reported.
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
        What one report is about: "person" where everyone reports one row once.
    central_epsilon, central_delta : float, optional
        What all that is learned from the in-house rows may cost them. Without, they are not
        protected, and what was learned must not leave the house.

    Attributes
    ----------
    inhouse_ : Protection
        What protects the in-house rows: see `tacit.inhouse`.

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
        self.classes = None if classes is None else labels.declare(where, classes)
        self.people = None if people is None else errors.whole(where, "people", people, least=1)
        if codewords is not None:
            codewords = errors.whole(where, "codewords", codewords, least=2, most=2**16)
        elif self.people is None and self.classes is not None:
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
        image: tuple[int, int] | None = None,
        seed: int = 0,
        device: str = "cpu",
        inhouse_public: bool = False,
        public_features: bool = False,
        rng: Randomness | None = None,
    ) -> Self:
        """Learn features (where they are learned), cells and codewords from in-house rows.

        `inhouse_public` states that the in-house rows are public, `public_features` that features
        which were handed in fitted were learned without them; certificates say so. `rng` draws
        the noise of a central guarantee. `device` is where features are trained, as in `VLM.fit`;
        the fitted mechanism computes on the CPU, see `on`.
        """
        trains = self.features in features_of.TRAINED
        device = devices.resolve("Codebook.fit", device, used=trains)
        if image is None and self.features in _OF_IMAGES:
            image = _square(raw)
        self.inhouse_ = Protection.none(inhouse_public)  # until all is done
        given = schema or infer_schema(raw, image, private=self.central is not None)
        rows = given.rows(raw, "Codebook.fit")
        kind = default_features(given) if self.features is None else self.features
        if self.central is None:
            self._fit_plain(kind, given, rows, seed, device)
        else:
            learning = Learning(kind, given, rows, self.central, seed, rng, public_features, device)
            self._fit_privately(learning)
            self.inhouse_ = learning.protection(inhouse_public)
        if trains:
            self.features_ = features_of.on(self.features_, "cpu")
        return self

    def _fit_privately(self, learning: Learning) -> None:
        """Within the central budget."""
        given, learned = learning.schema, learning.features()
        _, damped, grouping = _defaults(learned)
        found = private_quantizer.fit(
            given,
            learned,
            learning.rows,
            self.codewords or self._rule(),
            budget=learning.budget,
            grouping=self.grouping or grouping,
            damped=damped,
            seed=learning.seed,
        )
        self._set(given, learned, found.quantizer)
        self.counts_, self.links_, self.prototypes_ = found.counts, found.links, found.prototypes

    def _fit_plain(
        self, kind: str | Features, given: Schema, rows: Rows, seed: int, device: str
    ) -> None:
        """Without noise: the best codewords, and no promise to the in-house rows."""
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
        codes = groups[quantizers.nearest(vectors, cells)]
        self.counts_ = np.bincount(codes, minlength=self.codewords_)
        linked = self.codewords_ < len(cells)
        self.links_ = quantizers.links(vectors, cells, groups) if linked else None
        self.prototypes_ = quantizers.means(features_of.Raw(given), rows, codes, self.codewords_)

    def _rule(self) -> int:
        if self.people is None or self.classes is None:
            return UNLABELLED
        return codewords_for(float(self.epsilon), self.people, len(self.classes))

    def _set(self, given: Schema, learned: Features, quantizer: Quantizer) -> None:
        self.__dict__.pop("_channels", None)
        self._schema, self.features_, self.quantizer_ = given, learned, quantizer
        self.codewords_ = quantizer.codewords

    def at(self, epsilon: float) -> Codebook:
        """The same fitted mechanism at another ε."""
        other = copy.copy(self)
        other.epsilon = errors.epsilon_in_range("Codebook", epsilon)
        other.__dict__.pop("_channels", None)
        return other

    def on(self, device: str) -> Codebook:
        """The same fitted mechanism; features that were trained compute on another device."""
        self._must_encode()
        other = copy.copy(self)
        device = devices.resolve("Codebook.on", device, used=hasattr(self.features_, "on"))
        other.features_ = features_of.on(self.features_, device)
        return other

    def regrouped(self, groups: Any, *, subset_size: int | None = None) -> Codebook:
        """A coarser mechanism: codeword k becomes groups[k]. For people who report no label."""
        mapping = errors.integers("regrouped", groups, lower=0)
        if mapping.shape != (self.codewords_,):
            errors.refuse("regrouped", "groups", f"{self.codewords_} numbers", mapping.shape)
        used, mapping = np.unique(mapping, return_inverse=True)
        if len(used) < 2:
            errors.refuse("regrouped", "groups", "at least two", len(used))
        other = copy.copy(self)
        other.__dict__.pop("_channels", None)
        old = self.quantizer_
        other._set(
            self.schema, self.features_, Quantizer(old.projection, old.cells, mapping[old.groups])
        )
        other.classes, other.subset_size, other.links_ = None, subset_size, None
        weights = np.maximum(self.counts_, 1)
        other.counts_ = np.bincount(mapping, self.counts_, len(used)).astype(np.int64)
        share = np.zeros((len(used), self.codewords_))
        share[mapping, np.arange(self.codewords_)] = weights
        other.prototypes_ = (share / share.sum(1, keepdims=True) @ self.prototypes_).astype(
            np.float32
        )
        return other

    # --- the channel ---------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Of raw rows."""
        self._must_encode()
        return self._schema

    def _channel_alone(self) -> Codebook:
        """Reports show how many codewords there are: that, and nothing else of D1, stays in it."""
        other = copy.copy(self)
        other._schema = other.features = None  # type: ignore[assignment]
        other.features_ = other.quantizer_ = None  # type: ignore[assignment]
        other.counts_ = np.zeros_like(self.counts_)
        other.links_ = other.prototypes_ = None  # type: ignore[assignment]
        return other

    @cached_property
    def _channels(self) -> dict[bool, SubsetSelection]:
        return {}

    def channel(self, labelled: bool) -> SubsetSelection:
        """The law of a report of a codeword, or of codeword and label."""
        self._must_be_fitted()
        if labelled not in self._channels:
            if labelled and self.classes is None:
                labels.refuse_undeclared("Codebook")
            symbols = self.codewords_ * (len(self.classes or ()) if labelled else 1)
            self._channels[labelled] = SubsetSelection(
                categories=symbols, epsilon=self.epsilon, size=self.subset_size, unit=self.unit
            )
        return self._channels[labelled]

    def event(self, labelled: bool) -> Event:
        """What runs on one person's row."""
        return self.channel(labelled).event

    def guarantee(self, labelled: bool) -> Guarantee:
        """Towards the person who reports."""
        return self.channel(labelled).guarantee

    # --- on a person's device ------------------------------------------------------------------

    def encode(self, raw: Any) -> npt.NDArray[np.int64]:
        """The codeword of each row."""
        return self.encode_rows(self.schema.rows(raw, "Codebook"))

    def encode_rows(self, rows: Rows) -> npt.NDArray[np.int64]:
        """The codeword of each checked row."""
        # Silent, whatever the weights: a warning for some people's rows would tell.
        with np.errstate(all="ignore"):
            parts = [
                self.quantizer_(features_of.transform(self.features_, block))
                for block in blocks(rows)
            ]
        return np.concatenate(parts)

    def release(self, raw: Any, labels: Any = None, rng: Randomness | None = None) -> Reports:
        """One report a row, of the codeword or of codeword and label."""
        rows = self.schema.rows(raw, "Codebook.release")
        codes = None if labels is None else self._codes(labels, len(rows))
        symbols = self.encode_rows(rows)
        if codes is not None:
            symbols = symbols * len(self.classes or ()) + codes
        stream = source(rng)
        sets = self.channel(codes is not None).release(symbols, stream)
        return Reports(self, {"symbols": sets}, codes is not None, not stream.secure)

    def _codes(self, given: Any, count: int) -> npt.NDArray[np.int64]:
        codes = labels.codes("Codebook.release", given, self.classes)
        if len(codes) != count:
            raise errors.InvalidData("Codebook.release: labels must be as many as rows.")
        return codes

    def log_prob(
        self, columns: Columns, encoded: Any, codes: Any = None
    ) -> npt.NDArray[np.float64]:
        """The exact law of reports given codewords, and codes of labels where reported."""
        symbols = errors.integers("Codebook.log_prob", encoded)
        if codes is not None:
            symbols = symbols * len(self.classes or ()) + errors.integers("log_prob", codes)
        return self.channel(codes is not None).log_prob(columns["symbols"], symbols)

    def check(self, columns: Columns, labelled: bool) -> Columns:
        """Reports as the narrowest integers; what the channel cannot have released is refused."""
        if set(columns) != {"symbols"} or columns["symbols"].ndim != 2:
            raise errors.InvalidData("reports: columns must be 'symbols' alone, sets of symbols.")
        channel = self.channel(labelled)
        if len(columns["symbols"]):
            channel._sets(columns["symbols"])
        narrow = np.min_scalar_type(channel.categories - 1)
        return {"symbols": columns["symbols"].astype(narrow, copy=False)}

    # --- what a learner may ask ----------------------------------------------------------------

    def posterior(self, reports: Reports, prior: Any = None) -> npt.NDArray[np.float64]:
        """P(codeword | report) for reports without a label; in-house shares are the prior."""
        channel = self.channel(False)
        mass = self.counts_ + 1.0 if prior is None else np.asarray(prior, np.float64)
        odds = np.zeros((len(reports), self.codewords_))
        np.put_along_axis(odds, reports.columns["symbols"].astype(np.int64), channel.log_odds, 1)
        weights = mass * np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def clean_features(self, raw: Any, level: str = "latent") -> npt.NDArray[np.float32]:
        """The codeword as an indicator, or its prototype."""
        indicator = np.eye(self.codewords_, dtype=np.float32)[self.encode(raw)]
        return indicator if _latent(level) else indicator @ self.prototypes_

    def released_features(self, reports: Reports, level: str = "latent") -> npt.NDArray[np.float32]:
        """P(codeword | report), or the prototype that it expects."""
        expected = self.posterior(reports).astype(np.float32)
        if _latent(level):
            return expected
        self._must_encode()
        return expected @ self.prototypes_

    def vectors(self, raw: Any) -> npt.NDArray[np.float32]:
        """What cells are made of: projected features of clean rows."""
        rows = self.schema.rows(raw, "Codebook")
        return quantizers.project(self.features_, rows, self.quantizer_.projection)

    def vectors_alone(self, raw: Any) -> npt.NDArray[np.float32]:
        """The same up to rounding, each from its row alone: what a guarantee to rows rests on."""
        rows = self.schema.rows(raw, "Codebook")
        return quantizers.project_alone(self.features_, rows, self.quantizer_.projection)

    def codes_alone(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """The codeword of each vector, whatever the others are: decided in whole numbers."""
        cells, groups = self.quantizer_.cells, self.quantizer_.groups
        bound = 2 * float(np.linalg.norm(cells, axis=1).max()) + 1e-6
        return np.asarray(groups[private_quantizer.ranks(vectors, cells, bound, 1)[:, 0]])

    # --- storage -------------------------------------------------------------------------------

    def onnx(self) -> bytes | None:
        """The encoder for devices without Python: rows to codewords; None without `onnx`."""
        if find_spec("onnx") is None or self.quantizer_ is None:
            return None
        from tacit.local.learned.onnx import codebook_encoder

        quantizer = self.quantizer_
        matrix = quantizer.projection.matrix
        return codebook_encoder(
            self.schema,
            self.features_,
            quantizer.projection.mean,
            np.eye(self.features_.dimension, dtype=np.float32) if matrix is None else matrix,
            quantizer.cells,
            quantizer.groups,
        )

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """JSON-ready parameters and weights."""
        self._must_be_fitted()
        return codebook_storage.parts(self)

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> Codebook:
        """Rebuild what `parts` took apart."""
        return codebook_storage.rebuilt(cls, parameters, arrays)

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "quantizer_"):
            raise errors.InvalidParameter("Codebook: it must be fitted first. Call fit.")

    def _must_encode(self) -> None:
        self._must_be_fitted()
        if self.quantizer_ is None:
            refuse_channel_alone("Codebook")


def infer_schema(raw: Any, image: tuple[int, int] | None, private: bool = False) -> Schema:
    """Bounds and categories from in-house rows; see `tacit.schema.infer`."""
    return (schema.of_bytes if private else schema.infer)(raw, image, "Codebook.fit")


def _square(raw: Any) -> tuple[int, int] | None:
    """Flat rows that were said to be images are square ones, where their width allows it."""
    if not isinstance(raw, np.ndarray) or raw.ndim != 2:
        return None
    side = math.isqrt(raw.shape[1])
    return (side, side) if side * side == raw.shape[1] else None


def default_features(given: Schema) -> str:
    """Scattering for images, quantiles for tables, values for other arrays."""
    if isinstance(given, schema.TableSchema):
        return "quantile"
    return "raw" if given.image is None else "scattering"


def _defaults(learned: Features) -> tuple[int | None, bool, str]:
    return DEFAULTS.get(learned.kind, (None, False, "compact"))


def _latent(level: str) -> bool:
    return errors.choice("features", "level", level, ("latent", "feature")) == "latent"
