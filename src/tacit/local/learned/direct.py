r"""The baseline: noise on every feature by itself, with an equal share of ε each.

Of d features each gets :math:`\varepsilon_i = \varepsilon / d`. A number, scaled to [0, 1] by its
public bounds, is put on a grid of N steps and released with discrete Laplace noise of sensitivity
N; a category goes through K-ary randomized response:

.. math:: P(y \mid x) = \tanh\!\left(\frac{\varepsilon_i}{2N}\right) e^{-\varepsilon_i |y - x| / N},
          \qquad P(y \mid x) = \frac{e^{\varepsilon_i \mathbb{1}[y = x]}}{e^{\varepsilon_i} + K - 1}

Missing values are features like others: a column that may be missing is a category with the two
values "there" and "missing" beside its number, which then counts as the middle of the range.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Section 3 and appendix C.2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.data import labels, schema
from tacit.data.schema import ArraySchema, Rows, Schema, row_blocks
from tacit.local.inhouse import Protection, Target
from tacit.local.learned.base import Learned
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import artifact, codec, errors
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.events import Composed, Event, Repeated
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse
from tacit.privacy.randomness import Randomness, source

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_SETTINGS = ("epsilon", "classes", "label_share", "unit")
STEPS = 256
"""N: numbers are released on the grid 0, 1/N, …, 1 and beyond."""

LEVELS = ("latent", "feature")


class Direct(Learned):
    """Noise on every feature by itself; nothing is learned but public bounds, if not given.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included. Without a label, all of it goes to
        the features.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1. Without, no label can be reported.
    label_share : float
        What the label gets of ε.
    unit : Unit
        What one report is about: "person" where everyone reports one row once.
    central_epsilon, central_delta : float, optional
        As in the other mechanisms. Nothing is learned here: with them, bounds must be declared.

    Notes
    -----
    ε-DP for any two rows: features are released one after the other, and basic composition adds
    up their equal shares and the label's, exactly.
    """

    kind: ClassVar[str] = "direct"

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        classes: int | Sequence[Any] | None = None,
        label_share: float | Fraction = 0.3,
        unit: Unit | str = Unit.RECORD,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
    ) -> None:
        where = "Direct"
        self.central = Target.of(where, central_epsilon, central_delta)
        self.unit = Unit.of(where, unit)
        self.epsilon: Fraction = errors.epsilon_in_range(where, epsilon)
        self.classes = None if classes is None else labels.declare(where, classes)
        labels.split(where, epsilon, label_share)
        self.label_share: Fraction = errors.rational(where, "label_share", label_share)

    def fit(
        self,
        raw: Any,
        *,
        schema: Schema | None = None,
        image: tuple[int, int] | None = None,
        seed: int = 0,
        device: str = "cpu",
        inhouse_public: bool = False,
    ) -> Self:
        """Take the schema, or read bounds and categories off in-house rows."""
        self.__dict__.pop("_channels", None)
        self.inhouse_ = Protection.none(inhouse_public)  # until all is done
        self._schema = schema or _inferred(raw, image, self.central is not None)
        if schema is not None or self.central is not None:
            self.inhouse_ = Protection.untouched()
        if self.numbers == 0 and max(self.places) < 2:
            errors.refuse("Direct", "schema", "with a column of two values or more", self.places)
        return self

    def _channel_alone(self) -> Direct:
        self.inhouse_.must_leave("bounds and categories")
        return self

    def at(self, epsilon: float) -> Direct:
        """The same mechanism at another ε."""
        other = copy.copy(self)
        other.epsilon = errors.epsilon_in_range("Direct", epsilon)
        other.__dict__.pop("_channels", None)
        return other

    # --- the channel ---------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Of raw rows."""
        if not hasattr(self, "_schema"):
            raise errors.InvalidParameter("Direct: it must be fitted first. Call fit.")
        return self._schema

    @property
    def numbers(self) -> int:
        """Continuous features."""
        given = self.schema
        return given.width if isinstance(given, ArraySchema) else len(given.continuous)

    @property
    def indicated(self) -> list[int]:
        """Those among them that may be missing."""
        if isinstance(self.schema, ArraySchema):
            return []
        columns = enumerate(self.schema.continuous)
        return [i for i, column in columns if column.missing == "indicate"]

    @property
    def places(self) -> list[int]:
        """Values of each categorical feature: there or missing first, then declared columns."""
        if isinstance(self.schema, ArraySchema):
            return []
        declared = [len(c.categories) + (c.unseen == "other") for c in self.schema.categorical]
        return [2] * len(self.indicated) + declared

    @cached_property
    def _channels(self) -> dict[bool, tuple[Any, list[Any], Any]]:
        return {}

    def channel(
        self, labelled: bool
    ) -> tuple[DiscreteLaplace | None, list[RandomizedResponse | None], RandomizedResponse | None]:
        """Noise of one number, the flip of each category, and that of the label if reported."""
        if labelled not in self._channels:
            row, flip = self.epsilon, None
            if labelled:
                row, label = labels.split("Direct", self.epsilon, self.label_share)
                flip = labels.flip(self.classes, label, "Direct", self.unit)
            # A column with a single category says nothing, and needs no share.
            share = labels.part(row, self.numbers + sum(count > 1 for count in self.places))
            self._channels[labelled] = (self._noise(share), self._flips(share), flip)
        return self._channels[labelled]

    def _noise(self, share: Fraction) -> DiscreteLaplace | None:
        if self.numbers == 0:
            return None
        return DiscreteLaplace(
            epsilon=share,
            sensitivity=STEPS,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    def _flips(self, share: Fraction) -> list[RandomizedResponse | None]:
        return [
            RandomizedResponse(categories=count, epsilon=share, unit=self.unit)
            if count > 1
            else None
            for count in self.places
        ]

    @property
    def label_matrix(self) -> npt.NDArray[np.float64]:
        """Row y holds the law of the report of someone whose label has code y."""
        flip = self.channel(True)[2]
        assert flip is not None
        return flip.matrix

    def event(self, labelled: bool) -> Event:
        """What runs on one person's row."""
        noise, flips, flip = self.channel(labelled)
        parts: list[Event] = [] if noise is None else [Repeated(noise.event, self.numbers)]
        parts += [one.event for one in (*flips, flip) if one is not None]
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def guarantee(self, labelled: bool) -> Guarantee:
        """Towards the person who reports."""
        return guarantee_of(self.event(labelled))

    # --- on a person's device ------------------------------------------------------------------

    def encode(self, raw: Any) -> Integers:
        """Grid steps of numbers, then codes of categories, (n, features)."""
        return np.concatenate(
            [self.encode_rows(rows) for rows in row_blocks(self.schema, raw, "Direct")]
        )

    def encode_rows(self, rows: Rows) -> Integers:
        """The same of checked rows; the schema has refused or clipped what is out of range."""
        missing = np.isnan(rows.numbers)
        filled = np.where(missing, np.float32(0.5), rows.numbers)
        steps = np.rint(filled * STEPS).astype(np.int64)
        last = np.array(self.places[len(self.indicated) :], np.int64) - 1
        codes = np.where(rows.codes < 0, last, rows.codes)
        return np.concatenate([steps, missing[:, self.indicated], codes], axis=1, dtype=np.int64)

    def release(self, raw: Any, labels: Any = None, rng: Randomness | None = None) -> Reports:
        """One report a row: every feature noised by itself, and a flipped label where given."""
        codes = None if labels is None else self._codes(labels)
        encoded = np.concatenate(
            [self.encode_rows(b) for b in row_blocks(self.schema, raw, "Direct.release")]
        )
        if codes is not None and len(codes) != len(encoded):
            raise errors.InvalidData("Direct.release: labels must be as many as rows.")
        noise, flips, flip = self.channel(codes is not None)
        stream, count = source(rng), self.numbers
        columns: Columns = {}
        if noise is not None:
            columns["numbers"] = noise.release(encoded[:, :count], stream)
        if flips:
            columns["codes"] = _flipped(flips, encoded[:, count:], stream)
        if codes is not None and flip is not None:
            columns["label"] = flip.release(codes, stream)
        return Reports(self, columns, codes is not None, not stream.secure)

    def _codes(self, given: Any) -> Integers:
        return labels.codes("Direct.release", given, self.classes)

    def log_prob(
        self, columns: Columns, encoded: Any, codes: Any = None
    ) -> npt.NDArray[np.float64]:
        """The exact law of reports given what `encode` gave, and codes of labels if reported."""
        noise, flips, flip = self.channel(codes is not None)
        clean = errors.integers("Direct.log_prob", encoded)
        total = np.zeros(len(clean))
        if noise is not None:
            total += noise.log_prob(columns["numbers"], clean[:, : self.numbers]).sum(axis=1)
        for index, one in enumerate(flips):
            if one is not None:
                total += one.log_prob(columns["codes"][:, index], clean[:, self.numbers + index])
        return total if flip is None else total + flip.log_prob(columns["label"], codes)

    def check(self, columns: Columns, labelled: bool) -> Columns:
        """Reports as integers; what the channel cannot have released is refused."""
        widths = {"numbers": self.numbers, "codes": len(self.places)}
        wanted: dict[str, tuple[int, ...]] = {k: (w,) for k, w in widths.items() if w}
        wanted |= {"label": ()} if labelled else {}
        if {name: column.shape[1:] for name, column in columns.items()} != wanted:
            raise errors.InvalidData(f"reports: columns must be {', '.join(wanted)}, as released.")
        if len({len(column) for column in columns.values()}) != 1:
            raise errors.InvalidData("reports: columns must be of equal length.")
        most = {"numbers": 2**62, "label": len(self.classes or ()) - 1}
        for name, column in columns.items():
            whole = column.dtype.kind in "iu"
            limit = np.array(self.places) - 1 if name == "codes" else most[name]
            least = -(2**62) if name == "numbers" else 0
            if not whole or bool(np.any((column < least) | (column > limit))):
                raise errors.InvalidData(f"reports: column {name!r} must be what was released.")
        return {name: column.astype(np.int64, copy=False) for name, column in columns.items()}

    # --- what a learner may ask ----------------------------------------------------------------

    def clean_features(self, raw: Any, level: str = "latent") -> Floats:
        """Of clean rows: numbers in [0, 1], and an indicator of every category."""
        encoded = self.encode(raw)
        return self._features(encoded[:, : self.numbers], encoded[:, self.numbers :], level)

    def released_features(self, reports: Reports | Columns, level: str = "latent") -> Floats:
        """Of reports, the same. Both levels are one here: nothing is encoded."""
        columns = reports.columns if isinstance(reports, Reports) else reports
        count = len(next(iter(columns.values())))
        empty = np.empty((count, 0), np.int64)
        return self._features(columns.get("numbers", empty), columns.get("codes", empty), level)

    def _features(self, steps: Integers, codes: Integers, level: str) -> Floats:
        errors.choice("Direct", "level", level, LEVELS)
        hot = [np.eye(count, dtype=np.float32)[codes[:, i]] for i, count in enumerate(self.places)]
        return np.concatenate([(steps / STEPS).astype(np.float32), *hot], axis=1)

    # --- storage -------------------------------------------------------------------------------

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """JSON-ready parameters; there are no weights."""
        parameters = {
            **codec.settings(self, _SETTINGS),
            "schema": self.schema.to_plain(),
            "inhouse": self.inhouse_.to_plain(),
        }
        return parameters, {}

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> Direct:
        """Rebuild what `parts` took apart."""
        settings = {name: parameters[name] for name in _SETTINGS}
        made = cls(**codec.exact("Direct", settings, "epsilon", "label_share"))
        made._schema = schema.from_plain(parameters["schema"])
        made.inhouse_ = Protection.from_plain(parameters["inhouse"], learned=False)
        return made


def _flipped(flips: list[RandomizedResponse | None], codes: Integers, rng: Randomness) -> Integers:
    released = codes.copy()
    # Strict: a column without its flip would go out in the clear.
    for index, (flip, column) in enumerate(zip(flips, codes.T, strict=True)):
        if flip is not None:
            released[:, index] = flip.release(column, rng)
    return released


def _inferred(raw: Any, image: tuple[int, int] | None, private: bool) -> Schema:
    return (schema.of_bytes if private else schema.infer)(raw, image, "Direct.fit")
