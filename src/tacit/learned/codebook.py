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
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit import artifact, errors, labels, schema
from tacit.certificate import Certificate
from tacit.events import Event
from tacit.guarantees import Guarantee, Unit
from tacit.learned import features as features_of
from tacit.learned import quantizer as quantizers
from tacit.learned.features import Features, blocks
from tacit.learned.quantizer import Projection, Quantizer
from tacit.learned.rule import codewords_for
from tacit.mechanisms import SubsetSelection
from tacit.randomness import Randomness, source
from tacit.reports import Columns, Reports, certify
from tacit.schema import Rows, Schema

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
_FLOATS = ("mean", "matrix", "cells", "prototypes", "links")
_WHOLE = ("groups", "counts")

UNLABELLED = 64
"""Codewords where no label is reported: learners then have a model of the rows, and no table."""

NOT_PROTECTED = (
    "The in-house rows that the mechanism was fitted on (D1) are not protected: cells, codewords, "
    "their links, prototypes and the number of in-house rows of each codeword were computed from "
    "them without noise.",
)


class Codebook:
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

    Notes
    -----
    ε-DP for any two rows, labels included, by subset selection. The encoder runs before the
    channel, and may be anything.

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
    ) -> None:
        where = "Codebook"
        self.unit = Unit(errors.choice(where, "unit", unit, list(Unit)))
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
    ) -> Self:
        """Learn features (where they are learned), cells and codewords from in-house rows."""
        if image is None and self.features in _OF_IMAGES:
            image = _square(raw)
        given = infer_schema(raw, image) if schema is None else schema
        rows = given.rows(raw, "Codebook.fit")
        kind = default_features(given) if self.features is None else self.features
        learned = features_of.fit(kind, given, rows, seed) if isinstance(kind, str) else kind
        wanted = self.codewords or self._rule()
        components, damped, grouping = DEFAULTS.get(learned.kind, (None, False, "compact"))
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
        self.prototypes_ = _means(features_of.Raw(given), rows, codes, self.codewords_)
        return self

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
        self._must_be_fitted()
        return self._schema

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

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What the certificate must say beside the guarantee."""
        return NOT_PROTECTED

    @property
    def certificate(self) -> Certificate:
        """Of one person's report, with a label where classes are declared."""
        return certify(self, self.classes is not None)

    # --- on a person's device ------------------------------------------------------------------

    def encode(self, raw: Any) -> npt.NDArray[np.int64]:
        """The codeword of each row."""
        return self.encode_rows(self.schema.rows(raw, "Codebook"))

    def encode_rows(self, rows: Rows) -> npt.NDArray[np.int64]:
        """The codeword of each checked row."""
        # Silent, whatever the weights: a warning for some people's rows would tell.
        with np.errstate(all="ignore"):
            parts = [self.quantizer_(self.features_.transform(block)) for block in blocks(rows)]
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
        return expected if _latent(level) else expected @ self.prototypes_

    def vectors(self, raw: Any) -> npt.NDArray[np.float32]:
        """What cells are made of: projected features of clean rows."""
        rows = self.schema.rows(raw, "Codebook")
        return quantizers.project(self.features_, rows, self.quantizer_.projection)

    # --- storage -------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write a directory; see `tacit.artifact`."""
        return artifact.save(self, path)

    def onnx(self) -> bytes | None:
        """The encoder for devices without Python: rows to codewords; None without `onnx`."""
        if find_spec("onnx") is None:
            return None
        from tacit.learned.onnx import codebook_encoder

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
        settings, weights = self.features_.parts()
        parameters = {
            "epsilon": str(self.epsilon),
            "classes": None if self.classes is None else list(self.classes),
            "people": self.people,
            "subset_size": self.subset_size,
            "unit": str(self.unit),
            "schema": self.schema.to_plain(),
            "features": {"kind": self.features_.kind, "settings": settings},
        }
        quantizer = self.quantizer_
        arrays: artifact.Arrays = {
            "cells": quantizer.cells,
            "groups": quantizer.groups,
            "mean": quantizer.projection.mean,
            "counts": self.counts_,
            "prototypes": self.prototypes_,
            **artifact.nested(weights, "features"),
        }
        optional = {"matrix": quantizer.projection.matrix, "links": self.links_}
        arrays |= {name: array for name, array in optional.items() if array is not None}
        return parameters, arrays

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> Codebook:
        """Rebuild what `parts` took apart."""
        given = schema.from_plain(parameters["schema"])
        described = parameters["features"]
        weights = artifact.part(arrays, "features")
        learned = features_of.from_parts(described["kind"], given, described["settings"], weights)
        # In the types that encoding counts on: narrower ones would wrap for some people.
        floats = {name: arrays[name].astype(np.float32) for name in _FLOATS if name in arrays}
        whole = {name: errors.integers("Codebook", arrays[name], lower=0) for name in _WHOLE}
        projection = Projection(floats["mean"], floats.get("matrix"))
        quantizer = Quantizer(projection, floats["cells"], whole["groups"])
        _must_fit(learned, quantizer, arrays)
        made = cls(
            epsilon=errors.rational("Codebook", "epsilon", parameters["epsilon"]),
            people=parameters["people"],
            classes=parameters["classes"],
            codewords=quantizer.codewords,
            features=learned,
            subset_size=parameters["subset_size"],
            unit=parameters["unit"],
        )
        made._set(given, learned, quantizer)
        made.counts_, made.prototypes_ = whole["counts"], floats["prototypes"]
        made.links_ = floats.get("links")
        return made

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "quantizer_"):
            raise errors.InvalidParameter("Codebook: it must be fitted first. Call fit.")


def infer_schema(raw: Any, image: tuple[int, int] | None) -> Schema:
    """Bounds and categories from in-house rows; see `tacit.schema.infer`."""
    return schema.infer(raw, image, "fit")


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


def _latent(level: str) -> bool:
    return errors.choice("features", "level", level, ("latent", "feature")) == "latent"


def _means(
    values: Features, rows: Rows, codes: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float32]:
    """The mean row of each codeword, indicators of categories included."""
    totals = np.zeros((count, values.dimension))
    for start, block in enumerate(blocks(rows)):
        at = codes[start * 1024 : start * 1024 + len(block)]
        np.add.at(totals, at, values.transform(block))
    return np.asarray(totals / np.bincount(codes, minlength=count)[:, None], np.float32)


def _must_fit(learned: Features, quantizer: Quantizer, arrays: artifact.Arrays) -> None:
    """Weights of another shape than the rest must be refused before anything is encoded."""
    matrix, cells, groups = quantizer.projection.matrix, quantizer.cells, quantizer.groups
    width = learned.dimension if matrix is None else matrix.shape[1]
    count = int(groups.max()) + 1
    fits = (
        cells.ndim == 2
        and cells.shape == (len(groups), width)
        and bool(np.isfinite(cells).all())
        and np.array_equal(np.unique(groups), np.arange(count))
        and quantizer.projection.mean.shape == (learned.dimension,)
        and (matrix is None or matrix.shape[0] == learned.dimension)
        and arrays["counts"].shape == (count,)
        and len(arrays["prototypes"]) == count
        and arrays.get("links", np.empty((count, count))).shape == (count, count)
    )
    if not fits:
        raise errors.InvalidData(
            "Codebook: weights must fit each other. Was the file made by hand?"
        )
