r"""Votes: people try a model on their own row, and report through a channel if it was right.

A vote is one symbol: right or wrong, or also the voter's class and group where those are private
and asked for. On a regressor, "right" is an absolute error that was rounded at random to zero. The
whole ε goes to that symbol; nothing is split. Only the vote leaves a device.

References
----------
.. [War65] Warner. Randomized response: a survey technique for eliminating evasive answer bias.
   JASA 1965.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.data import labels
from tacit.data import outcomes as numeric
from tacit.local import origins
from tacit.local.inference.losses import limit_in_range, losses
from tacit.local.persons import ASSUMED_ONE
from tacit.local.reports import REFUSED
from tacit.privacy import artifact, canonical, errors, files, shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.mechanisms import RandomizedResponse, SubsetSelection
from tacit.privacy.randomness import Randomness, Seeded, source
from tacit.privacy.shown import Shown

FORMAT = "tacit-votes/2"
_LARGEST_FILE = 2**30

KNOWN_GROUP = "Which group a voter belongs to: whoever counts the votes knows it."

Integers = npt.NDArray[np.int64]


class Law(NamedTuple):
    """A channel over symbols: a vote names `size` of them, its own with probability `own`."""

    symbols: int
    size: int
    own: float
    other: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Ballot(Shown):
    r"""The local mechanism of one vote: was the model right?

    With neither classes nor groups it is Warner's coin [War65]_:

    .. math:: P(\tilde c \ne c) = p = \frac{1}{e^\varepsilon + 1}

    With C classes, G groups or both, a vote is one of 2CG symbols (class, group, right) through
    one channel with the whole ε: subset selection with the size of smallest variance, which is
    randomized response if that size is one.

    On a regressor, with a `limit` L, an absolute error e is rounded at random first: the vote is
    "right" with probability 1 − e/L, and then goes through the same channel. With a vote s,

    .. math:: P(s \mid e) = (1 - e/L) \, P(s \mid \text{right}) + (e/L) \, P(s \mid \text{wrong}).

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one vote.
    classes : int or sequence, optional
        Ask for the voter's class too, privately: C means 0, …, C − 1.
    groups : sequence of str, optional
        Ask for the voter's group too, privately. Groups that are known anyway cost nothing: pass
        them to `Votes` instead.
    limit : float, optional
        Vote on a regressor. Absolute errors beyond this count as this; the smaller it is, the less
        the noise weighs. Public, and declared without looking at the voters' outcomes.
    unit : Unit
        The unit of a vote: a person, who votes once.

    Notes
    -----
    ε-DP for any two rows, labels or outcomes and groups included, whatever the model says: the law
    given an error is a mixture of two laws of the channel.

    Examples
    --------
    >>> ballot = Ballot(epsilon=2)
    >>> print(ballot.guarantee)
    2-DP (local, any-two-inputs, unit: person)
    >>> len(ballot.release([True, False, True]))
    3
    """

    epsilon: float | Fraction
    classes: Any = None
    groups: Any = None
    limit: float | None = None
    unit: Unit | str = Unit.PERSON

    def __post_init__(self) -> None:
        where = "Ballot"
        unit = Unit.of(where, self.unit)
        settled: dict[str, Any] = {
            "epsilon": errors.epsilon_in_range(where, self.epsilon),
            "classes": None if self.classes is None else labels.declare(where, self.classes),
            "groups": None if self.groups is None else _declared_groups(self.groups),
            "limit": None if self.limit is None else limit_in_range(where, self.limit),
            "unit": unit,
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        if self.limit is not None and self.classes is not None:
            errors.refuse(where, "classes", "None with a limit", self.classes, "Use groups.")
        errors.whole(where, "symbols", 2 * self.parts, least=2, most=2**16)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of classes, groups and answers; 1 for classes or groups not asked for."""
        return len(self.classes or (None,)), len(self.groups or (None,)), 2

    @property
    def parts(self) -> int:
        """Classes times groups."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def channel(self) -> RandomizedResponse | SubsetSelection:
        """The law of a vote."""
        given: dict[str, Any] = {"epsilon": self.epsilon, "unit": self.unit}
        if self.parts > 1:
            chosen = SubsetSelection(categories=2 * self.parts, **given)
            if chosen.event.size > 1:
                return chosen
        return RandomizedResponse(categories=2 * self.parts, **given)

    @cached_property
    def law(self) -> Law:
        """The probabilities of the channel."""
        channel = self.channel
        if isinstance(channel, SubsetSelection):
            return Law(channel.categories, channel.event.size, *channel.inclusion)
        own, other = np.exp(channel.log_prob([0, 1], [0, 0])).tolist()
        return Law(channel.categories, 1, own, other)

    @property
    def event(self) -> Event:
        """The event that runs on one voter's row."""
        return self.channel.event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee towards the voter."""
        return self.channel.guarantee

    @property
    def certificate(self) -> Certificate:
        """The certificate of one vote."""
        assumed = ASSUMED_ONE.assumptions(self.channel)
        return Certificate.issue(self.event, assumptions=assumed, not_protected=(REFUSED,))

    def release(
        self,
        correct: Any,
        *,
        classes: Any = None,
        groups: Any = None,
        rng: Randomness | None = None,
    ) -> Votes:
        """Release one vote per row: whether it was right, and class and group if asked for.

        With a `limit`, `correct` holds the positions of errors instead, from `losses`.
        """
        answers = self._answers(correct)
        part, stream = self._part(classes, groups, answers.size), source(rng)
        if self.limit is not None:
            answers = 1 - numeric.rounded(answers, 2, stream)
        released = self.channel.release(2 * part + answers, stream)
        return Votes(self, released, seeded=not stream.secure)

    def log_prob(
        self, symbols: Any, correct: Any, *, classes: Any = None, groups: Any = None
    ) -> npt.NDArray[np.float64]:
        """Compute the natural logarithm of the exact probability of each vote."""
        answers = self._answers(correct)
        part = self._part(classes, groups, answers.size)
        if self.limit is None:
            return np.asarray(self.channel.log_prob(symbols, 2 * part + answers))
        wrong, right = (self.channel.log_prob(symbols, 2 * part + one) for one in (0, 1))
        share = answers / numeric.STEPS
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-share) + right, np.log(share) + wrong)

    def _answers(self, correct: Any) -> Integers:
        most = 1 if self.limit is None else numeric.STEPS
        answers = errors.integers("Ballot.release", correct, lower=0, upper=most)
        if answers.ndim != 1:
            raise errors.InvalidData("Ballot.release: answers must be one column.")
        return answers

    def _part(self, classes: Any, groups: Any, count: int) -> Integers:
        part = np.zeros(count, np.int64)
        for name, given, declared in (
            ("classes", classes, self.classes),
            ("groups", groups, self.groups),
        ):
            if (given is None) != (declared is None):
                condition = "given, as the ballot asks for them" if declared else "None"
                errors.refuse("Ballot.release", name, condition, type(given).__name__)
            if declared is not None:
                codes = labels.codes(f"Ballot.release, {name}", given, declared)
                if codes.size != count:
                    raise errors.InvalidData(f"Ballot.release: {name} must be one per answer.")
                part = part * len(declared) + codes
        return part

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready data, for `from_plain`."""
        return {
            "epsilon": str(self.epsilon),
            "classes": None if self.classes is None else list(self.classes),
            "groups": None if self.groups is None else list(self.groups),
            "limit": self.limit,
            "unit": str(self.unit),
        }

    @staticmethod
    def from_plain(data: dict[str, Any]) -> Ballot:
        """Read what `to_plain` wrote."""
        return Ballot(**data)


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """Votes as they left the devices; whoever counts them sees nothing else.

    Parameters
    ----------
    ballot : Ballot
        The mechanism that released them.
    symbols : array
        One symbol or one row of symbols per vote; what the channel cannot release is refused.
    groups : sequence of str, optional
        The group of each voter, where it is known anyway.
    about : str
        Fingerprint of the model that was voted on, "" where unknown.
    seeded : bool
        Whether a reproducible generator drew the noise: such votes protect nobody.
    releases : tuple of str
        Which rows of which releases they are (`tacit.local.origins`); all of a new one unless
        given.
    """

    ballot: Ballot
    symbols: Integers
    groups: tuple[str, ...] | None = None
    about: str = ""
    seeded: bool = False
    releases: tuple[str, ...] = field(default_factory=origins.fresh)
    event: Event = field(init=False)
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        symbols = errors.integers("Votes", self.symbols)
        width = 2 if self.ballot.law.size > 1 else 1
        if symbols.ndim != width:
            raise errors.InvalidData(f"Votes: symbols must have {width} dimensions.")
        # The channel's own check: it refuses what it cannot have released.
        self.ballot.channel.log_prob(symbols, np.zeros(len(symbols), np.int64))
        symbols.flags.writeable = False
        object.__setattr__(self, "symbols", symbols)
        if self.groups is not None:
            groups = tuple(str(group) for group in self.groups)
            if len(groups) != len(symbols):
                raise errors.InvalidData("Votes: groups must be one per vote.")
            object.__setattr__(self, "groups", groups)
        releases = origins.settled("Votes", self.releases, len(symbols))
        object.__setattr__(self, "releases", releases)
        object.__setattr__(self, "event", self.ballot.event)
        object.__setattr__(self, "guarantee", self.ballot.guarantee)

    def __repr__(self) -> str:
        """Show their number and guarantee in one line, and no vote."""
        return shown.line("Votes", {"votes": len(self), "seeded": self.seeded}, self.guarantee)

    def _repr_html_(self) -> str:
        rows = {"votes": len(self), "guarantee": self.guarantee, "seeded": self.seeded}
        return shown.table("Votes", rows)

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> Votes:
        """Choose votes, each at most once; they stay votes of their release."""
        groups = None if self.groups is None else tuple(np.array(self.groups, object)[chosen])
        known = (self.about, self.seeded, origins.chosen("Votes", self.releases, chosen))
        return Votes(self.ballot, self.symbols[chosen], groups, *known)

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate: guarantee, event and what is not protected."""
        further = () if self.groups is None else (KNOWN_GROUP,)
        stream = Seeded(0) if self.seeded else None
        assumed = ASSUMED_ONE.assumptions(self.ballot.channel)
        left = (REFUSED, *further)
        return Certificate.issue(self.event, assumptions=assumed, not_protected=left, rng=stream)

    @staticmethod
    def concatenate(parts: Sequence[Votes]) -> Votes:
        """Join votes of one ballot about one model; refuse a vote that occurs twice."""
        if not parts:
            errors.refuse("concatenate", "parts", "at least one", 0)
        first = parts[0]
        for part in parts[1:]:
            same = (part.ballot, part.about) == (first.ballot, first.about)
            if not same or (part.groups is None) != (first.groups is None):
                raise errors.InvalidData(
                    "concatenate: votes must be on equal ballots and about the same model. "
                    "Count each part on its own."
                )
        releases = tuple(one for part in parts for one in part.releases)
        origins.must_be_once("concatenate", releases)
        groups = None
        if first.groups is not None:
            groups = tuple(group for part in parts for group in part.groups or ())
        symbols = np.concatenate([part.symbols for part in parts])
        seeded = any(part.seeded for part in parts)
        return Votes(first.ballot, symbols, groups, first.about, seeded, releases)

    def write(self, path: str | Path) -> Path:
        """Write JSON, all or nothing; never replace a file, which may be the only draw."""
        path = Path(path)
        files.must_be_free("votes", path)
        files.create(path, _sealed(self._body()))
        return path

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "ballot": self.ballot.to_plain(),
            "about": self.about,
            "seeded": self.seeded,
            "releases": list(self.releases),
            "certificate": self.certificate.to_json(),
            "votes": self.symbols.tolist(),
            "groups": None if self.groups is None else list(self.groups),
        }

    @staticmethod
    def read(path: str | Path) -> Votes:
        """Read what `write` wrote; refuse a changed byte."""
        path = Path(path)
        if not path.is_file():
            errors.refuse("votes", "path", "an existing file", str(path), "Check the path.")
        if path.stat().st_size > _LARGEST_FILE:
            raise errors.InvalidData(f"{path}: it must be smaller than 1 GiB.")
        content = path.read_bytes()
        try:
            body = json.loads(content)
            body.pop("digest")
            if body["format"] != FORMAT or _sealed(body) != content:
                raise ValueError
            votes = _from_body(body)
        except (
            *(errors.TacitError, ValueError, KeyError, TypeError, AttributeError),
            *(RecursionError, ArithmeticError),
        ) as error:
            # Values of the file must not be shown: our own messages do not, others might.
            own = f" {error}" if isinstance(error, errors.TacitError) else ""
            raise errors.InvalidData(
                f"{path}: it must be an unchanged file of {FORMAT}.{own}"
            ) from None
        return votes


def outcomes(model: Any, rows: Any, truth: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Compute, on voters' devices, whether the model is right on each row, and the row's class.

    Both are raw and private: they are for a ballot only.
    """
    declared = np.asarray(model.classes_)
    place = labels.codes("vote", truth, tuple(declared.tolist()))
    # Silent whatever the model: a warning for some rows would reveal something about them.
    with np.errstate(all="ignore"):
        said = np.asarray(model.predict(rows))
    if said.shape != place.shape:
        raise errors.InvalidData("vote: labels must be one per row.")
    return said == declared[place], declared[place]


def cast(
    model: Any,
    rows: Any,
    truth: Any,
    ballot: Ballot,
    *,
    groups: Any = None,
    known_groups: Any = None,
    rng: Randomness | None = None,
) -> Votes:
    """Try the model on each row and vote, on voters' devices.

    `truth` holds labels, or outcomes on a ballot with a `limit`. `groups` are private and part of
    the vote, on a ballot that asks for them; `known_groups` are known to whoever counts.
    """
    if ballot.limit is not None:
        votes = ballot.release(losses(model, rows, truth, ballot.limit), groups=groups, rng=rng)
    else:
        right, classes = outcomes(model, rows, truth)
        asked = None if ballot.classes is None else classes
        votes = ballot.release(right, classes=asked, groups=groups, rng=rng)
    return replace(votes, groups=known_groups, about=fingerprint(model))


def fingerprint(model: Any) -> str:
    """Return the fingerprint of a model that can be stored, else ""."""
    return artifact.fingerprint(model) if hasattr(model, "parts") else ""


def _declared_groups(groups: Any) -> tuple[str, ...]:
    if isinstance(groups, str) or not all(isinstance(group, str) for group in groups):
        errors.refuse("Ballot", "groups", "a sequence of words", groups)
    return tuple(map(str, labels.declare("Ballot", list(groups))))


def _sealed(body: dict[str, Any]) -> bytes:
    """Return canonical JSON that includes the digest of everything else."""
    return canonical.lines({**body, "digest": canonical.sha256(canonical.text(body))})


def _from_body(body: dict[str, Any]) -> Votes:
    ballot = Ballot.from_plain(body["ballot"])
    groups = None if body["groups"] is None else tuple(body["groups"])
    releases = tuple(map(str, body["releases"]))
    known = (str(body["about"]), bool(body["seeded"]), releases)
    votes = Votes(ballot, body["votes"], groups, *known)
    stated = Certificate.from_json(body["certificate"])
    stated.verify()
    if stated.event != votes.event or stated.seeded != votes.seeded:
        raise errors.InvalidData("Its certificate is about other votes.")
    return votes
