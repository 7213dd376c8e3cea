r"""The baseline: noise on every feature by itself, with an equal share of ε each.

Each of d features gets :math:`\varepsilon_i = \varepsilon / d`. A number, scaled to [0, 1] by its
public bounds, is put on a grid of N steps and released with discrete Laplace noise of sensitivity
N; a category goes through K-ary randomized response:

.. math:: P(y \mid x) = \tanh\!\left(\frac{\varepsilon_i}{2N}\right) e^{-\varepsilon_i |y - x| / N},
          \qquad P(y \mid x) = \frac{e^{\varepsilon_i \mathbb{1}[y = x]}}{e^{\varepsilon_i} + K - 1}

Missing values are features too: a column that may be missing has a category with the two values
"present" and "missing" beside its number, which is the middle of the range if it is missing.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Section 3 and appendix C.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.data import labels, schema, schema_inference
from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.additive_channels import FeatureChannel
from tacit.local.inhouse import Protection, Target
from tacit.local.learned.base import Learned
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import artifact, codec, errors
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_SETTINGS = ("epsilon", "classes", "label_share", "unit")
STEPS = 256
"""N: numbers are released on the grid 0, 1/N, …, 1 and beyond."""

LEVELS = ("latent", "feature")


class Direct(Learned[FeatureChannel]):
    """The baseline mechanism: noise on every feature by itself.

    Nothing is learned, except the bounds if they are not given.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included. Without a label, all of it goes to
        the features.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1. Without it no label can be reported.
    label_share : float
        The label's share of ε.
    unit : Unit
        The unit of a report: "person" if everyone reports one row once.
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
        """Store the schema, or read bounds and categories off in-house rows."""
        self._forget_fit()
        self._schema = schema or _inferred(raw, image, self.central is not None)
        if self.numbers == 0 and max(self.places) < 2:
            errors.refuse("Direct", "schema", "with a column of two values or more", self.places)
        reads = schema is None and self.central is None
        self.inhouse_ = Protection.none(inhouse_public) if reads else Protection.untouched()
        return self

    def _channel_alone(self) -> Direct:
        self.inhouse_.must_leave("bounds and categories")
        return self

    # --- the channel ---------------------------------------------------------------------------

    @property
    def numbers(self) -> int:
        """The number of continuous features."""
        given = self.schema
        return given.width if isinstance(given, ArraySchema) else len(given.continuous)

    @property
    def indicated(self) -> list[int]:
        """The indices of continuous features that may be missing."""
        if isinstance(self.schema, ArraySchema):
            return []
        columns = enumerate(self.schema.continuous)
        return [i for i, column in columns if column.missing == "indicate"]

    @property
    def places(self) -> list[int]:
        """The number of values of each categorical feature: missing indicators, then columns."""
        if isinstance(self.schema, ArraySchema):
            return []
        declared = [len(c.categories) + (c.unseen == "other") for c in self.schema.categorical]
        return [2] * len(self.indicated) + declared

    def _shown(self) -> dict[str, Any]:
        return {"label_share": self.label_share}

    def _make_channel(self, labelled: bool) -> FeatureChannel:
        row, flip = self.epsilon, None
        if labelled:
            row, label = labels.split("Direct", self.epsilon, self.label_share)
            flip = labels.flip(self.classes, label, "Direct", self.unit)
        # A column with a single category carries no information, and needs no share of ε.
        share = labels.part(row, self.numbers + sum(count > 1 for count in self.places))
        return FeatureChannel(
            noise=self._noise(share),
            numbers=self.numbers,
            flips=self._flips(share),
            places=tuple(self.places),
            label=flip,
            classes=self.classes if labelled else None,
        )

    def _noise(self, share: Fraction) -> DiscreteLaplace | None:
        if self.numbers == 0:
            return None
        return DiscreteLaplace(
            epsilon=share,
            sensitivity=STEPS,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    def _flips(self, share: Fraction) -> tuple[RandomizedResponse | None, ...]:
        return tuple(
            RandomizedResponse(categories=count, epsilon=share, unit=self.unit)
            if count > 1
            else None
            for count in self.places
        )

    # --- on a person's device ------------------------------------------------------------------

    def encode_rows(self, rows: Rows) -> Integers:
        """Return grid steps of numbers, then codes of categories, for checked rows."""
        missing = np.isnan(rows.numbers)
        filled = np.where(missing, np.float32(0.5), rows.numbers)
        steps = np.rint(filled * STEPS).astype(np.int64)
        last = np.array(self.places[len(self.indicated) :], np.int64) - 1
        codes = np.where(rows.codes < 0, last, rows.codes)
        return np.concatenate([steps, missing[:, self.indicated], codes], axis=1, dtype=np.int64)

    # --- what a learner may ask ----------------------------------------------------------------

    def clean_features(self, raw: Any, level: str = "latent") -> Floats:
        """Return clean rows as numbers in [0, 1] and indicators of categories."""
        encoded = self.encode(raw)
        return self._features(encoded[:, : self.numbers], encoded[:, self.numbers :], level)

    def released_features(self, reports: Reports | Columns, level: str = "latent") -> Floats:
        """Return reports in the same form. Both levels are equal: nothing is encoded."""
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
        """Return JSON-ready parameters; there are no weights."""
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


def _inferred(raw: Any, image: tuple[int, int] | None, private: bool) -> Schema:
    read = schema_inference.of_bytes if private else schema_inference.infer
    return read(raw, image, "Direct.fit")
