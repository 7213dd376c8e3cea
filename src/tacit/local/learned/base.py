"""The base of the learned mechanisms: channels, reports, certificates, and what may leave."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.data import labels as declared_labels
from tacit.data.outcomes import Numeric
from tacit.data.schema import Rows, Schema, row_blocks
from tacit.local import inhouse
from tacit.local.channels import ReportChannel
from tacit.local.inhouse import Protection
from tacit.local.persons import ASSUMED_ONE, PerPerson, chosen
from tacit.local.report_files import Columns
from tacit.local.reports import Reports, certify
from tacit.privacy import artifact, errors, shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.randomness import Randomness, source

ChannelT = TypeVar("ChannelT", bound=ReportChannel)


class NotFitted(errors.InvalidParameter, AttributeError):
    """A mechanism was used before it was fitted."""


class Learned(ABC, Generic[ChannelT]):
    """Base of the learned mechanisms. Abstract: each brings its own encoder and channel."""

    epsilon: Fraction
    unit: Unit
    classes: tuple[Any, ...] | None
    outcome: Numeric | None = None
    inhouse_: Protection
    """The protection of the rows that it was fitted on."""
    _schema: Schema | None
    """The schema of raw rows, once fitted; None in a copy that holds the channel alone."""

    def __repr__(self) -> str:
        """Show parameters, and the guarantee once there is one, in one line."""
        classes = None if self.classes is None else len(self.classes)
        given = {"epsilon": self.epsilon, "classes": classes, "outcome": self.outcome}
        given |= self._shown()
        end = self.guarantee if hasattr(self, "_schema") else "not fitted"
        return shown.line(type(self).__name__, given, end)

    def _shown(self) -> dict[str, Any]:
        """Return further parameters that `repr` shows; those that are None are left out."""
        return {}

    # --- the channel ---------------------------------------------------------------------------

    def channel(self, labelled: bool | None = None) -> ChannelT:
        """Return the channel of a report with or without a label.

        By default the main channel: with a label where classes or an outcome are declared.
        """
        declared = self.classes is not None or self.outcome is not None
        labelled = declared if labelled is None else labelled
        if labelled and not declared:
            declared_labels.refuse_undeclared(type(self).__name__)
        if labelled not in self._channels:
            self._channels[labelled] = self._make_channel(labelled)
        return self._channels[labelled]

    @cached_property
    def _channels(self) -> dict[bool, ChannelT]:
        return {}

    @abstractmethod
    def _make_channel(self, labelled: bool) -> ChannelT:
        """Build the channel from the parameters."""

    @property
    def event(self) -> Event:
        """The event of one person's report through the main channel."""
        return self.channel().event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report through the main channel, towards the person who reports."""
        return self.channel().guarantee

    def at(self, epsilon: float) -> Self:
        """Return the same fitted mechanism at another ε."""
        other = self._copy()
        other.epsilon = errors.epsilon_in_range(type(self).__name__, epsilon)
        return other

    def for_persons(self) -> Self:
        """Return the same fitted mechanism with a guarantee for persons, to release by names."""
        other = self._copy()
        other.unit = Unit.PERSON
        return other

    def _copy(self) -> Self:
        """Copy everything but the channels, which follow from the parameters."""
        other = copy.copy(self)
        other._forget_channels()
        return other

    def _forget_fit(self) -> None:
        """Make it unfitted until a fit succeeds, so that nothing is stated about other rows."""
        self._forget_channels()
        self.__dict__.pop("_schema", None)
        self.inhouse_ = Protection.none()

    def _forget_channels(self) -> None:
        self.__dict__.pop("_channels", None)

    # --- on a person's device ------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Bounds and categories of raw rows."""
        self._must_be_fitted()
        if self._schema is None:
            refuse_channel_alone(type(self).__name__)
        return self._schema

    def encode(self, raw: Any) -> npt.NDArray[np.int64]:
        """Encode raw rows as the integers that the channel takes, without labels."""
        return self._encode(raw, type(self).__name__)

    def _encode(self, raw: Any, where: str) -> npt.NDArray[np.int64]:
        blocks = row_blocks(self.schema, raw, where)
        return np.concatenate([self.encode_rows(rows) for rows in blocks])

    @abstractmethod
    def encode_rows(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Encode rows that were already checked against the schema."""

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
        reported, chosen at random; rows without a name are not (`tacit.local.persons`). The
        mechanism must be one for persons; without names, its certificate assumes that each row is
        another person.
        """
        where = f"{type(self).__name__}.release"
        self._must_encode()
        codes = None if labels is None else self._codes(where, labels)
        encoded = self._encode(raw, where)
        if codes is not None and len(codes) != len(encoded):
            told = "labels" if self.outcome is None else "outcomes"
            raise errors.InvalidData(f"{where}: {told} must be one per row.")
        channel, stream = self.channel(codes is not None), source(rng)
        per_person = ASSUMED_ONE
        if persons is not None:
            per_person = self.per_person(most)
            kept = chosen(persons, most, stream, where=where)
            if len(kept) != len(encoded):
                raise errors.InvalidData(f"{where}: persons must be one per row.")
            encoded, codes = encoded[kept], codes if codes is None else codes[kept]
        columns = channel.release(channel.combine(encoded, codes), stream)
        return Reports(self, columns, channel, not stream.secure, per_person=per_person)

    def per_person(self, most: int) -> PerPerson:
        """Return the limit that names enforce on a person's reports; refuse another unit."""
        if self.unit is not Unit.PERSON:
            remedy = "Use mechanism.for_persons()."
            errors.refuse(type(self).__name__, "unit", "'person'", str(self.unit), remedy)
        return PerPerson(most, enforced=True)

    def _codes(self, where: str, labels: Any) -> npt.NDArray[np.int64]:
        """Return the code of each label, or the position of each outcome."""
        if self.outcome is not None:
            return self.outcome.positions(where, labels)
        return declared_labels.codes(where, labels, self.classes)

    def log_prob(
        self, columns: Columns, encoded: Any, codes: Any = None
    ) -> npt.NDArray[np.float64]:
        """Compute the exact log-probability of reports given encoded rows, and codes of labels."""
        channel = self.channel(codes is not None)
        return channel.log_prob(columns, channel.combine(encoded, codes))

    # --- certificates, and what may leave ------------------------------------------------------

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Sentences of a report's certificate about what is not protected."""
        return (self.inhouse_.sentence,)

    @property
    def certificate(self) -> Certificate:
        """The certificate of one person's report through the main channel."""
        return certify(self, self.channel())

    def save(self, path: str | Path) -> Path:
        """Write a directory for use in-house; see `tacit.artifact`."""
        return artifact.save(self, path)  # type: ignore[arg-type]

    def export(
        self, path: str | Path, application: str = "collection", level: str = "latent"
    ) -> Path:
        """Write what people, voters or partners get; refused if it would reveal in-house rows."""
        return self.shared(application, level).save(path)

    def shared(self, application: str = "collection", level: str = "latent") -> Self:
        """Return the copy that may be handed out for an application.

        Components that `tacit.inhouse.requirements` lists must carry a central guarantee, unless
        the in-house rows are public. If nothing of the mechanism is needed outside, the copy holds
        the channel alone.
        """
        needed = inhouse.requirements(application, level)
        if self.inhouse_.may_leave:
            return self
        if needed:
            self.inhouse_.must_leave(f"{' and '.join(needed)} ({application}, {level} level)")
        return self._channel_alone()

    @abstractmethod
    def _channel_alone(self) -> Self:
        """Return a copy that knows the law of reports, and nothing else."""

    # --- checks --------------------------------------------------------------------------------

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "_schema"):
            raise NotFitted(f"{type(self).__name__}: it must be fitted first. Call fit.")

    def _must_encode(self) -> None:
        _ = self.schema


def refuse_channel_alone(where: str) -> NoReturn:
    """Refuse what a copy without an encoder cannot do."""
    raise errors.InvalidParameter(
        f"{where}: this copy must hold its encoder. It was handed out with the channel alone: "
        "rows are encoded where it was fitted."
    )


def declared(
    where: str, classes: Any, outcome: Any, *, needed: bool = True
) -> tuple[tuple[Any, ...] | None, Numeric | None]:
    """Check what people report besides their row: labels, or a number, but not both."""
    if outcome is not None and not isinstance(outcome, Numeric):
        errors.refuse(where, "outcome", "tacit.Numeric(lower, upper)", type(outcome).__name__)
    if classes is not None and outcome is not None:
        errors.refuse(where, "classes", "absent with an outcome", classes)
    if classes is None and outcome is None and needed:
        errors.refuse(where, "classes", "given", None, "Or give outcome=tacit.Numeric(…).")
    return (None if classes is None else declared_labels.declare(where, classes)), outcome
