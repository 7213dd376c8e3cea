r"""Several public partitions of the raw space; each person reports a cell of one of them.

A single set of cells shows learners the labels' shares in those cells and nothing else. With P
partitions, of which fair randomness assigns one to each person, the same people show shares in P
times as many cells, and one model is fitted through all of them. The assignment does not depend on
the row, every report has the whole ε, and the law is the same in all partitions
(`tacit.channels.PartitionedChannel`).

Tables, vectors and signals have partitions with cells of their own, in features on two scales
(`tacit.learned.scales`, `tacit.learned.signals`). Images have partitions that join the same small
cells, in features of images: see `tacit.learned.cells`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit.data import schema_inference
from tacit.data.outcomes import Numeric
from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.channels import PartitionedChannel, ReportChannel
from tacit.local.inhouse import Protection, Target, together
from tacit.local.learned import contrasts, partitions_storage, private_partitions
from tacit.local.learned import features as features_of
from tacit.local.learned import quantizer as quantizers
from tacit.local.learned.base import Learned, declared
from tacit.local.learned.blockwise import COMPONENTS, k_means, projected
from tacit.local.learned.cells import Cells, enough_to_link, joined, linked
from tacit.local.learned.features import Features, QuantileTransform, blocks
from tacit.local.learned.private_partitions import SYNTHETIC, RowModel
from tacit.local.learned.quantizer import Projection
from tacit.local.learned.rule import codewords_for
from tacit.local.learned.scales import Scales
from tacit.local.learned.signals import Signals
from tacit.local.outcome_channels import ContrastChannel, RoundedChannel
from tacit.privacy import artifact, errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import LocalMean, SubsetSelection
from tacit.privacy.randomness import Randomness

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

MOST_PARTITIONS, LEAST_PEOPLE = 8, 50
"""The default number of partitions: as many as have this many people each, up to the first."""

MOST_COMPACT = 4
"""The same for tables whose cells are those of k-means."""

MANY_COLUMNS = 16
"""Tables with at least this many columns, all of them numbers, get linked cells."""

_ROWS_PER_CELL, _NOISY = 8, 4


class Partitions(Learned[ReportChannel]):
    """A mechanism with several partitions, learned without labels; people report one symbol each.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included.
    people : int
        The expected number of reports, over all rounds.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1.
    outcome : Numeric, optional
        The bounds of a number that people report in place of a label.
    codewords : int, optional
        K, the cells of a partition. By default from ε, people and classes (`tacit.learned.rule`);
        for an outcome 2 at ε below 3, 8 below 6, and from there on 16, or 64 with 5,000 people.
    partitions : int, optional
        P. Each person is assigned one by fair randomness. By default 8, or 4 if cells are those of
        k-means, or fewer if a partition would have fewer than 50 people. For an outcome and two
        cells 64.
    unit : Unit
        The unit of a report: "person" if everyone reports one row once.
    central_epsilon, central_delta : float, optional
        The total cost to the in-house rows. Cells are then those of synthetic rows, drawn from
        noisy statistics (`tacit.learned.private_partitions`). Without it the in-house rows are not
        protected, and what was learned must stay in-house.

    Attributes
    ----------
    inhouse_ : Protection
        The protection of the in-house rows: none without `central_epsilon`.
    synthetic_ : RowModel or None
        What synthetic rows are drawn from, with `central_epsilon`.
    split_ : dict
        What each part of `synthetic_` cost the in-house rows: the sum of Δ²/σ² of its noise.
    seeded_ : bool
        Whether the cells follow reports with seeded noise, which protects nobody.

    Notes
    -----
    ε-DP for any two rows, labels included: whichever partition is assigned, subset selection over
    its symbols treats any two of them alike, and the assignment does not depend on the row. An
    outcome with two cells is released by `LocalMean` instead: see
    `tacit.local.outcome_channels.ContrastChannel`.

    Towards the in-house rows: (central ε, central δ) for one row or a blank in its place. It covers
    everything that is saved, models that are learned on synthetic rows, and later rounds.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(900, 8))
    >>> mechanism = Partitions(epsilon=4, people=600, classes=2).fit(rows[:300])
    >>> reports = mechanism.release(rows[300:], rows[300:, 0] > 0)
    >>> print(reports.guarantee)
    4-DP (local, any-two-inputs, unit: record)
    """

    kind: ClassVar[str] = "partitions"
    features_: Features
    synthetic_: RowModel | None
    split_: dict[str, float]

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        people: int,
        classes: int | Sequence[Any] | None = None,
        outcome: Numeric | None = None,
        codewords: int | None = None,
        partitions: int | None = None,
        unit: Unit | str = Unit.RECORD,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
    ) -> None:
        where = "Partitions"
        self.central = Target.of(where, central_epsilon, central_delta)
        self.unit = Unit.of(where, unit)
        self.epsilon: Fraction = errors.epsilon_in_range(where, epsilon)
        self.classes, self.outcome = declared(where, classes, outcome)
        self.people = errors.whole(where, "people", people, least=1)
        self._rule_decides = partitions is None
        if codewords is not None:
            codewords = errors.whole(where, "codewords", codewords, least=2, most=2**16)
        self.codewords = codewords
        if partitions is None:
            partitions = self._usual(MOST_PARTITIONS)
        self.partitions = errors.whole(where, "partitions", partitions, least=1, most=1024)
        self._mean_base: tuple[int, ...] | None = None

    def _usual(self, most: int) -> int:
        if self.outcome is not None and self._cells_wanted() == 2:
            return contrasts.PARTITIONS
        return min(max(self.people // LEAST_PEOPLE, 1), most)

    def _cells_wanted(self) -> int:
        if self.codewords is not None:
            return self.codewords
        if self.classes is None:
            return contrasts.cells_for(float(self.epsilon), self.people)
        return codewords_for(float(self.epsilon), self.people, len(self.classes))

    # --- learning, in-house --------------------------------------------------------------------

    def fit(
        self,
        raw: Any,
        *,
        schema: Schema | None = None,
        image: tuple[int, ...] | None = None,
        signal: tuple[int, int] | None = None,
        seed: int = 0,
        inhouse_public: bool = False,
        rng: Randomness | None = None,
    ) -> Self:
        """Learn features and the cells of all partitions from in-house rows.

        Parameters
        ----------
        raw
            A table, or an array (n, width). Arrays (n, height, width) and (n, height, width,
            channels) are images, the first unless `signal` is given.
        schema : Schema, optional
            Public bounds and categories; read off the rows by default.
        image : (int, int) or (int, int, int), optional
            Height, width and, in colour, channels, if flat rows are images.
        signal : (int, int), optional
            Points in time and channels, if rows are signals.
        seed : int
            Seed of cells; privacy does not depend on it.
        inhouse_public : bool
            State that the in-house rows are public; certificates say so.
        rng : Randomness, optional
            Draws the noise of a central guarantee.
        """
        self._forget_fit()
        if self._rule_decides:
            self.partitions = self._usual(MOST_PARTITIONS)
        given = schema or inferred(raw, image, signal, private=self.central is not None)
        rows = given.rows(raw, "Partitions.fit")
        wanted = self._cells_wanted()
        if len(rows) < 2 * _ROWS_PER_CELL:
            fewest = 2 * _ROWS_PER_CELL
            raise errors.InvalidData(
                f"Partitions.fit: in-house rows must be at least {fewest}. Give more rows."
            )
        cells = min(wanted, len(rows) // _ROWS_PER_CELL)
        protection, quantile = Protection.none(inhouse_public), None
        self.synthetic_, self.split_ = None, {}
        if self.central is not None:
            _must_be_a_table(given)
            # From here on, rows are synthetic: whatever is computed from them is post-processing.
            released = private_partitions.fit(given, rows, self.central, seed, rng)
            self.synthetic_, self.split_ = released.model, released.split
            protection = released.learning.protection(inhouse_public)
            rows, quantile = self.synthetic_.draw(SYNTHETIC, seed), self.synthetic_.quantile
        if isinstance(given, ArraySchema) and (given.image or given.colour):
            _no_outcome(self.outcome)
            self._fit_images(given, rows, cells, seed)
        else:
            self._fit_columns(given, rows, cells, seed, quantile)
        self.inhouse_, self.seeded_ = protection, False
        return self

    def _fit_columns(
        self, given: Schema, rows: Rows, cells: int, seed: int, quantile: QuantileTransform | None
    ) -> None:
        """Fit cells in principal components of each block of features.

        Where all columns are numbers, and many, classes tend to be clusters, and cells are linked.
        Other tables get fewer partitions, and fewer cells, of k-means: labels there are smoother,
        and noise costs more than the shape of cells.
        """
        learned: Signals | Scales
        if isinstance(given, ArraySchema) and given.signal is not None:
            learned = Signals.fit(given, rows)
        else:
            learned = Scales.fit(given, rows, quantile=quantile)
        projection, self.blocks_ = projected(learned, rows, seed)
        vectors = quantizers.project(learned, rows, projection)
        if self.outcome is not None:
            made = self._fit_for_outcome(projection, vectors, cells, seed)
            return self._set(given, learned, projection, made)
        many = len(learned.blocks) > 1 and learned.blocks[1] >= MANY_COLUMNS
        if many and self.partitions > 1 and enough_to_link(len(rows), cells):
            made = linked(vectors, self.blocks_, cells, self.partitions, seed)
        else:
            if self._rule_decides:
                self.partitions = self._usual(MOST_COMPACT)
            if self.codewords is None and self.epsilon <= _NOISY:
                cells = max(cells // 2, min(cells, 2 * len(self.classes or ())))
            made = self._compact(vectors, cells, seed)
        self._set(given, learned, projection, made)

    def _compact(self, vectors: Floats, cells: int, seed: int) -> Cells:
        turns = [self.blocks_[i % len(self.blocks_)] for i in range(self.partitions)]
        return Cells.stacked(
            [k_means(vectors, block, cells, seed + i) for i, block in enumerate(turns)]
        )

    def _fit_for_outcome(
        self, projection: Projection, vectors: Floats, cells: int, seed: int
    ) -> Cells:
        """Fit two halves in each of many directions, or cells of k-means."""
        if cells > 2:
            return self._compact(vectors, cells, seed)
        assert projection.matrix is not None
        return contrasts.halves(vectors, projection.matrix, self.blocks_, self.partitions, seed)

    def _fit_images(self, given: Schema, rows: Rows, cells: int, seed: int) -> None:
        """Fit small cells in damped components of features of images, and join them."""
        kind = "scattering" if given.image else "patches"  # type: ignore[union-attr]
        learned = features_of.fit(kind, given, rows, seed)
        count = min(COMPONENTS, learned.dimension - 1, len(rows) - 1)
        projection = quantizers.fit_projection(learned, rows, count, True, seed)
        assert projection.matrix is not None
        vectors = quantizers.project(learned, rows, projection)
        made = joined(vectors, cells, self.partitions, seed)
        if made.count < 2:
            raise errors.InvalidData("Partitions.fit: in-house rows must not be all alike.")
        self.blocks_ = (slice(0, count),)
        self._set(given, learned, projection, made)

    def adapted(
        self,
        scores: Sequence[Floats],
        raw: Any = None,
        *,
        taught: Protection,
        inhouse_public: bool = False,
        seeded: bool = False,
        seed: int = 0,
    ) -> Partitions:
        """Return the mechanism of a next round, whose cells follow the scores of a learned model.

        Parameters
        ----------
        scores : sequence of arrays, (q + 1, classes)
            Linear scores of a vector; the last row is the constant. Every second partition follows
            them, by turns; the others stay.
        raw : optional
            The in-house rows: cells are those of k-means of their scores. With a central guarantee
            synthetic rows are used by default, and the guarantee covers these cells as well.
        taught : Protection
            The protection of the in-house rows that the scores were learned on.
        inhouse_public : bool
            State that `raw` are public rows.
        seeded : bool
            Whether the scores were learned from reports with seeded noise, which protects nobody:
            then the mechanism is not handed out.
        """
        if self.cells_.shared:
            raise errors.InvalidParameter(
                "Partitions.adapted: rows must not be images. They are collected in one round."
            )
        vectors = self.synthetic_vectors(seed) if raw is None else self.vectors(raw)
        own = [] if raw is None else [Protection.none(inhouse_public)]
        parts = {}
        # Every second partition stays: scores that are mostly noise must not decide all cells.
        for index in range(0, self.partitions, 2):
            linear = scores[index // 2 % len(scores)]
            linear = linear - linear.mean(axis=1, keepdims=True)
            values = vectors @ linear[:-1] + linear[-1]
            centres = quantizers.k_means(values, self.codewords_, seed + index)
            # |s − m|² / 2 less |s|² / 2, with s = Wᵀv + w: affine in v.
            offsets = (centres**2).sum(axis=1) / 2 - centres @ linear[-1]
            parts[index] = (centres @ linear[:-1].T, offsets)
        other = self._copy()
        other._set(self.schema, self.features_, self.projection_, self.cells_.replaced(parts))
        other.inhouse_ = together([self.inhouse_, taught, *own])
        other.seeded_ = self.seeded_ or seeded
        return other

    def _set(self, given: Schema, learned: Features, projection: Projection, cells: Cells) -> None:
        self._forget_channels()
        self._schema, self.features_, self.projection_ = given, learned, projection
        self.cells_ = cells
        self.codewords_ = cells.count

    # --- the channel ---------------------------------------------------------------------------

    def shared(self, application: str = "collection", level: str = "latent") -> Partitions:
        """Return the copy that may be handed out for an application; see `Learned.shared`."""
        if self.seeded_:
            raise errors.InvalidParameter(
                "export: earlier rounds must have noise from the operating system, got a seeded "
                "generator, for tests. Collect them again without rng."
            )
        return super().shared(application, level)

    def _channel_alone(self) -> Partitions:
        """Keep the numbers of partitions and cells, which reports show."""
        other = self._copy()
        other._schema = None
        other.features_ = other.projection_ = other.cells_ = None  # type: ignore[assignment]
        other.blocks_, other.synthetic_, other.split_ = (), None, {}
        return other

    def _shown(self) -> dict[str, Any]:
        shown = {"codewords": getattr(self, "codewords_", self.codewords)}
        return {**shown, "partitions": self.partitions, "people": self.people}

    def at(self, epsilon: float) -> Partitions:
        other = super().at(epsilon)
        other._mean_base = None
        return other

    def mean_law(self) -> LocalMean:
        """Return the channel of a number in [−1, 1]; it is solved once, and stored."""
        law = contrasts.mean_law(self.epsilon, self._mean_base, self.unit)
        self._mean_base = law.base
        return law

    @property
    def contrasting(self) -> bool:
        """Whether a report holds the outcome with the sign of a half, and no cell."""
        return self.outcome is not None and self.codewords_ == 2

    def _make_channel(self, labelled: bool) -> ReportChannel:
        self._must_be_fitted()
        if labelled and self.outcome is not None:
            return self._outcome_channel(self.outcome)
        classes = self.classes if labelled else None
        return self._partitioned(classes)

    def _outcome_channel(self, outcome: Numeric) -> ReportChannel:
        if self.contrasting:
            law = self.mean_law()
            return ContrastChannel(law=law, partitions=self.partitions, outcome=outcome)
        levels = tuple(range(contrasts.levels_for(float(self.epsilon), self.people)))
        return RoundedChannel(inner=self._partitioned(levels), outcome=outcome)

    def _partitioned(self, classes: tuple[Any, ...] | None) -> PartitionedChannel:
        law = SubsetSelection(
            categories=self.codewords_ * (1 if classes is None else len(classes)),
            epsilon=self.epsilon,
            unit=self.unit,
        )
        return PartitionedChannel(law=law, partitions=self.partitions, classes=classes)

    # --- on a person's device ------------------------------------------------------------------

    def encode_rows(self, rows: Rows) -> Integers:
        """Return the cell of each checked row in each partition, (n, P)."""
        # Silent whatever the weights: a warning for some rows would reveal something about them.
        with np.errstate(all="ignore"):
            parts = [
                self.cells_(self.projection_(features_of.transform(self.features_, block)))
                for block in blocks(rows)
            ]
        return np.concatenate(parts)

    # --- what a learner may ask ----------------------------------------------------------------

    def vectors(self, raw: Any) -> Floats:
        """Compute projected features of clean rows, in which cells are defined."""
        rows = self.schema.rows(raw, "Partitions")
        return quantizers.project(self.features_, rows, self.projection_)

    def synthetic_vectors(self, seed: int = 0) -> Floats:
        """Compute the same of synthetic rows, which the central guarantee covers."""
        self._must_encode()
        if self.synthetic_ is None:
            errors.refuse("Partitions", "inhouse", "given", None, "Pass the in-house rows.")
        rows = self.synthetic_.draw(SYNTHETIC, seed)
        return quantizers.project(self.features_, rows, self.projection_)

    # --- storage -------------------------------------------------------------------------------

    def onnx(self) -> bytes | None:
        """Export the encoder for devices without Python; None without the `onnx` package."""
        if (vectors := self.vectors_graph()) is None:
            return None
        from tacit.local.learned.onnx import partitions_encoder

        return partitions_encoder(vectors, self.cells_)

    def vectors_graph(self) -> Any:
        """Start an ONNX graph of rows with their `vectors`; None without the `onnx` package."""
        if find_spec("onnx") is None or self.cells_ is None:
            return None
        from tacit.local.learned.onnx import vectors_graph

        mean, matrix = self.projection_.mean, self.projection_.matrix
        assert matrix is not None
        return vectors_graph(self.schema, self.features_, mean, matrix)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and weights."""
        self._must_be_fitted()
        return partitions_storage.parts(self)

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> Partitions:
        """Rebuild what `parts` took apart; refuse arrays that do not fit each other."""
        return partitions_storage.rebuilt(cls, parameters, arrays)


def _must_be_a_table(given: Schema) -> None:
    if isinstance(given, ArraySchema) and (given.image or given.colour or given.signal):
        remedy = "Use Codebook for images; compute features of signals first."
        condition = "absent for images and signals"
        errors.refuse("Partitions.fit", "central_epsilon", condition, "given", remedy)


def _no_outcome(outcome: Numeric | None) -> None:
    if outcome is not None:
        remedy = "Numeric outcomes are collected with tables, vectors and signals."
        errors.refuse("Partitions.fit", "outcome", "absent for images", outcome, remedy)


def inferred(
    raw: Any,
    image: tuple[int, ...] | None = None,
    signal: tuple[int, int] | None = None,
    *,
    private: bool = False,
) -> Schema:
    """Read bounds and categories off in-house rows; numbers may be missing in any column.

    With a central guarantee (`private`) nothing is read off the rows: see `of_bytes`.
    """
    if private:
        return schema_inference.of_bytes(raw, image, "Partitions.fit")
    read = schema_inference.infer(raw, image, "Partitions.fit", signal)
    return schema_inference.may_be_missing(read)
