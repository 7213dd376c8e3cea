r"""Collections: the mechanism, the reports and the model of one campaign, chosen for the rows.

Rows get partitions (`tacit.learned.partitions`) and a model that is fitted through all of them:
tables, vectors and signals a mixture of models (`tacit.inference.mixture`), images the labels of
small cells (`tacit.inference.field`). With a central budget, partitions of tables, their later
rounds and the model are learned on synthetic rows (`tacit.learned.private_partitions`), so that all
of them may be handed out; images get a codebook and its student.

A collection may run in rounds: what the reports of earlier people taught chooses the cells in which
later people report. This costs nobody anything. Each person reports once, to a channel that is
ε-DP whatever its cells are, and cells depend on the reports of *other* people only: given those,
the person's own report still has the law of that channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from tacit.data.outcomes import Numeric
from tacit.data.schema import Schema
from tacit.local.inference.moments_regressor import MomentsRegressor
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.local.learned.base import NotFitted, declared
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.partitions import Partitions
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors, shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.randomness import Randomness


class Collection:
    """A model learned from people who each send one report: the way to start.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included.
    people : int
        The expected number of reports, over all rounds.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1.
    outcome : Numeric, optional
        The bounds of a number that people report in place of a label: what is learned is then a
        regressor.
    rounds : int
        How many rounds are planned; see `adapt`.
    unit : Unit
        The unit of a report: "person" if everyone reports one row once.
    central_epsilon, central_delta : float, optional
        The total cost of the mechanism to the in-house rows. Without it they are not protected.

    Attributes
    ----------
    mechanism_ : Partitions or Codebook
        What runs on each person's device.
    round_ : int
        The round, from 1.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.utils import shuffle
    >>> rows, cultivars = shuffle(*load_wine(return_X_y=True, as_frame=True), random_state=0)
    >>> collection = Collection(epsilon=4, people=90, classes=3).fit(rows[:60])
    >>> reports = collection.release(rows[60:150], cultivars[60:150])
    >>> model = collection.learn(reports)
    >>> print(model.guarantee_)
    4-DP (local, any-two-inputs, unit: record)
    """

    mechanism_: Partitions | Codebook

    def __init__(
        self,
        *,
        epsilon: float | Fraction,
        people: int,
        classes: int | Sequence[Any] | None = None,
        outcome: Numeric | None = None,
        rounds: int = 1,
        unit: Unit | str = Unit.RECORD,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
    ) -> None:
        self.rounds = errors.whole("Collection", "rounds", rounds, least=1, most=100)
        self._settings: dict[str, Any] = {
            "epsilon": epsilon,
            "people": people,
            "classes": classes,
            "outcome": outcome,
            "unit": unit,
        }
        self._central: dict[str, Any] = {
            "central_epsilon": central_epsilon,
            "central_delta": central_delta,
        }
        # Checked now, so that fit refuses rows only.
        with _said_by_collection():
            declared("Collection", classes, outcome)
            Codebook(**self._settings, **self._central)

    def __repr__(self) -> str:
        """Show parameters, and the mechanism once there is one; never the rows."""
        given = {name: self._settings[name] for name in self._settings if name != "unit"}
        if not hasattr(self, "mechanism_"):
            return shown.line("Collection", given, "not fitted")
        given |= {"round": f"{self.round_} of {self.rounds}", "mechanism": self.mechanism_.kind}
        return shown.line("Collection", given, self.guarantee)

    def fit(
        self,
        inhouse: Any,
        *,
        schema: Schema | None = None,
        image: tuple[int, ...] | None = None,
        signal: tuple[int, int] | None = None,
        seed: int = 0,
        inhouse_public: bool = False,
        rng: Randomness | None = None,
    ) -> Self:
        """Learn the mechanism from in-house rows without labels; keep the rows for `learn`.

        Parameters
        ----------
        inhouse
            A table, or an array of numbers (n, width). Arrays (n, height, width), grey, and
            (n, height, width, channels), in colour, are images.
        schema : Schema, optional
            Public bounds and categories; read off the rows by default.
        image : (int, int) or (int, int, int), optional
            Height, width and, in colour, channels, if flat rows are images.
        signal : (int, int), optional
            Points in time and channels, if rows are signals: windows (n, time, channels), or flat.
        seed : int
            Seed of cells; privacy does not depend on it.
        inhouse_public : bool
            State that the in-house rows are public; certificates say so.
        rng : Randomness, optional
            Draws the noise of a central guarantee.
        """
        images = _images(inhouse, schema, image, signal)
        if self.rounds > 1 and images:
            remedy = "Images are collected in one round. For signals pass signal=…."
            errors.refuse("Collection.fit", "rounds", "1", self.rounds, remedy)
        if images and self._settings["outcome"] is not None:
            remedy = "Numeric outcomes are collected with tables, vectors and signals."
            errors.refuse("Collection.fit", "outcome", "absent for images", "one", remedy)
        mechanism: Any = Partitions(**self._settings, **self._central)
        shape: dict[str, Any] = {"image": image, "signal": signal}
        if self._protected and images:
            mechanism = Codebook(**self._settings, **self._central)
            shape.pop("signal")
        with _said_by_collection():
            mechanism.fit(
                inhouse, schema=schema, **shape, seed=seed, inhouse_public=inhouse_public, rng=rng
            )
        self.mechanism_, self.round_ = mechanism, 1
        self._inhouse, self._seed, self._public = inhouse, seed, inhouse_public
        return self

    # --- what a mechanism has ------------------------------------------------------------------

    @property
    def event(self) -> Event:
        """The event of one person's report."""
        return self._fitted().event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report, towards the person who reports."""
        return self._fitted().guarantee

    @property
    def certificate(self) -> Certificate:
        """The certificate of one person's report."""
        return self._fitted().certificate

    def release(
        self,
        raw: Any,
        labels: Any = None,
        rng: Randomness | None = None,
        *,
        persons: Any = None,
        most: int = 1,
    ) -> Reports:
        """Release one report per row, with its label or outcome where they are given.

        With `persons`, the name of whoever each row is of, at most `most` rows of a person are
        reported, chosen at random; rows without a name are not.
        """
        with _said_by_collection():
            return self._fitted().release(raw, labels, rng, persons=persons, most=most)

    def save(self, path: str | Path) -> Path:
        """Write the mechanism to a directory for use in-house, without the in-house rows."""
        return self._fitted().save(path)

    def export(self, path: str | Path) -> Path:
        """Write what people get; refused if it would reveal in-house rows."""
        return self._fitted().export(path)

    # --- learning ------------------------------------------------------------------------------

    def learn(
        self, reports: Reports | Sequence[Reports]
    ) -> ProportionsClassifier | StudentClassifier | MomentsRegressor:
        """Learn a classifier, or a regressor, of clean rows from the reports of all rounds so far.

        It is taught on the in-house rows, and must stay in-house unless these are public. With
        `central_epsilon` it is taught on synthetic rows, and may be handed out (images excepted).
        """
        by_partitions = isinstance(self._fitted(), Partitions)
        inhouse = None if by_partitions and self._protected else self._inhouse
        settings: dict[str, Any] = {"inhouse": inhouse, "seed": self._seed}
        settings["inhouse_public"] = self._public
        with _said_by_collection():
            if self._settings["outcome"] is not None:
                return MomentsRegressor(**settings).fit(reports)
            if by_partitions:
                return ProportionsClassifier(**settings).fit(reports)
            single = reports if isinstance(reports, Reports) else Reports.concatenate(list(reports))
            return StudentClassifier(**settings).fit(single)

    def adapt(
        self, model: ProportionsClassifier | StudentClassifier | MomentsRegressor
    ) -> Collection:
        """Return the collection of the next round: cells follow what the model has learned."""
        mechanism = self._fitted()
        if not isinstance(mechanism, Partitions) or not isinstance(
            model, ProportionsClassifier | MomentsRegressor
        ):
            raise errors.InvalidParameter(
                "Collection.adapt: the collection must be of a table, of vectors or of signals. "
                "Others are collected in one round."
            )
        if artifact.fingerprint(model.mechanism_) != artifact.fingerprint(mechanism):
            raise errors.InvalidParameter(
                "Collection.adapt: the model must be learned from reports of this round. Use learn."
            )
        if self.round_ >= self.rounds:
            remedy = "Plan more rounds when the collection is made."
            errors.refuse("Collection.adapt", "round", f"below {self.rounds}", self.round_, remedy)
        other = Collection(**self._settings, rounds=self.rounds, **self._central)
        inhouse = None if self._protected else self._inhouse
        other.mechanism_ = model.next_round(inhouse, inhouse_public=self._public, seed=self._seed)
        other.round_ = self.round_ + 1
        other._inhouse, other._seed, other._public = self._inhouse, self._seed, self._public
        return other

    @property
    def _protected(self) -> bool:
        return self._central["central_epsilon"] is not None

    def _fitted(self) -> Partitions | Codebook:
        if not hasattr(self, "mechanism_"):
            raise NotFitted("Collection: it must be fitted first. Call fit.")
        mechanism: Partitions | Codebook = self.mechanism_
        return mechanism


def _images(inhouse: Any, schema: Schema | None, image: Any, signal: Any) -> bool:
    declared = any(getattr(schema, name, None) is not None for name in ("image", "colour"))
    return declared or image is not None or (signal is None and getattr(inhouse, "ndim", 2) > 2)


_NAMES = {
    "MomentsRegressor.fit": "Collection.learn",
    "ProportionsClassifier.fit": "Collection.learn",
    "StudentClassifier.fit": "Collection.learn",
    "Partitions": "Collection",
    "Codebook": "Collection",
}
"""Where an error arose, and the place that users of a collection know."""


@contextmanager
def _said_by_collection() -> Iterator[None]:
    """Make errors of parts that a user has not met name the collection."""
    try:
        yield
    except errors.TacitError as error:
        for part, known in _NAMES.items():
            if str(error).startswith((f"{part}:", f"{part}.")):
                raise type(error)(known + str(error).removeprefix(part)) from None
        raise
