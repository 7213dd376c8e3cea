r"""Frequent texts among answers that anybody may write, from one private report a person.

A public level is drawn for each person, whatever the text is. The report is the text's prefix of
that level's length, hashed to a cell and released by projective geometry response with the whole
ε. Whoever collects extends the prefixes that pass a test at one level, and tests their
extensions with the reports of other people at the next.

Notes
-----
With so many people at level j, the reports on the hyperplane of a prefix of share f in the
population are :math:`S \sim \mathrm{Bin}(n_j, q + f (p - q))`, more if other prefixes share its
cell. A prefix passes if S is at least :math:`s_j`, which depends on earlier levels alone, so on
other people. At most 1/f texts have a share of f or more. Let :math:`f_j` be the smallest share
with :math:`P(S < s_j) \le f_j\,\beta / m`; by a union bound, every text with a share of at least
:math:`\max_j f_j` passes all m levels, with probability 1 − β.

References
----------
.. [WLJ21] Wang, Li, Jha. Locally differentially private heavy hitter identification. IEEE TDSC
   2021 (prefixes of different people, extended level by level).
.. [FNNT22] Feldman, Nelson, Nguyen, Talwar. Private frequency estimation via projective geometry.
   ICML 2022.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.mechanisms import ProjectiveGeometryResponse
from tacit.privacy.randomness import Randomness, source, uniform_below
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Columns = dict[str, Integers]

_TESTED = 2**17
"""About so many prefixes are tested at a level."""
_EXPECTED = 2**7
"""Prefixes that are taken to pass a level, when levels are laid out."""
_MOST = 2**12
"""Prefixes of a level that are extended at most."""
_BY_CHANCE = 32
"""Prefixes of nobody that may pass a level before the last, on average."""
_END = "\0"


@dataclass(frozen=True, kw_only=True, repr=False)
class HeavyHitters(Shown):
    r"""A channel from a short text to a level and a point, from which frequent texts are found.

    Parameters
    ----------
    alphabet : str
        The characters that count. Others are left out of a text.
    length : int
        Characters of a text that count: the rest is cut off.
    epsilon : float
        Local privacy parameter of a person's whole report.
    salt : str
        A public word that the hash begins with: the same for everybody, chosen before texts are.
    cells : int
        Values of the hash, a power of two.

    Notes
    -----
    ε-DP for any two texts. The level is drawn without looking at the text, and the cell of a prefix
    is released by `ProjectiveGeometryResponse`, with the whole ε. Every value has a report: what is
    no text counts as the empty one, and nothing is refused.

    References
    ----------
    .. [WLJ21] Wang, Li, Jha. Locally differentially private heavy hitter identification. IEEE TDSC
       2021.

    Examples
    --------
    >>> towns = HeavyHitters(alphabet="abcdefghijklmnopqrstuvwxyz", length=9, epsilon=4)
    >>> print(towns.guarantee)
    4-DP (local, any-two-inputs, unit: person)
    >>> towns.lengths
    (3, 5, 7, 9)
    """

    alphabet: str
    length: int
    epsilon: float | Fraction
    salt: str = ""
    cells: int = 2**24
    unit: Unit = Unit.PERSON

    def __post_init__(self) -> None:
        name, alphabet = "HeavyHitters", self.alphabet
        if not isinstance(alphabet, str) or not 0 < len(set(alphabet) - {_END}) <= 2**12:
            errors.refuse(name, "alphabet", "1 to 4096 characters", type(alphabet).__name__)
        object.__setattr__(self, "alphabet", "".join(sorted(set(alphabet) - {_END})))
        length = errors.whole(name, "length", self.length, least=1, most=64)
        object.__setattr__(self, "length", length)
        if not isinstance(self.salt, str):
            errors.refuse(name, "salt", "a text", self.salt)
        cells = errors.whole(name, "cells", self.cells, least=2, most=2**24)
        if cells & (cells - 1):
            errors.refuse(name, "cells", "a power of two", cells)
        object.__setattr__(self, "cells", cells)
        _ = self.law

    @cached_property
    def law(self) -> ProjectiveGeometryResponse:
        """The channel of the cell of a prefix."""
        return ProjectiveGeometryResponse(
            categories=self.cells, epsilon=self.epsilon, unit=self.unit
        )

    @property
    def event(self) -> Event:
        return self.law.event

    @property
    def guarantee(self) -> Guarantee:
        return self.law.guarantee

    @property
    def certificate(self) -> Certificate:
        """The certificate of one person's report."""
        return Certificate.issue(self.event, assumptions=self.assumptions)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "Which level a person reports at is drawn without looking at the text; a person sends "
            "one report.",
        )

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length of the prefixes of each level."""
        first, step = (self._reach(tested) for tested in (_TESTED, _TESTED // _EXPECTED))
        return (*range(min(first, self.length), self.length, step), self.length)

    def _reach(self, tested: int) -> int:
        """Return how many characters have at most so many values, and at least one."""
        size = 1
        while (len(self.alphabet) + 1) ** (size + 1) <= tested:
            size += 1
        return size

    def read(self, raw: Any) -> str:
        """Return the part of a text that counts; a value that is no text has none."""
        if not isinstance(raw, str):
            return ""
        known = self._known
        return "".join(islice((one for one in raw if one in known), self.length))

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        """Release a level and a point for each text."""
        texts, stream = _listed(raw), source(rng)
        if not texts:
            raise errors.InvalidData("HeavyHitters: there must be a text.")
        # The last level, whose reports also estimate shares, has twice the people of another.
        level = np.minimum(self._draw(len(texts), stream), len(self.lengths) - 1)
        return {"level": level, "point": self.law.release(self._cells(texts, level), stream)}

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        level = self._levels(released)
        logs = self.law.log_prob(released["point"], self._cells(_listed(raw), level))
        last = np.where(level == len(self.lengths) - 1, math.log(2), 0.0)
        return logs + last - math.log(len(self.lengths) + 1)

    def estimate(self, released: Columns, *, confidence: float = 0.95) -> FrequentTexts:
        """Find the texts that are frequent in the population that people were sampled from.

        All texts with a share of `threshold` or more are found with probability `confidence`, and
        a cell that nobody is in is reported with probability 1 − `confidence` at most.
        """
        confidence = errors.probability("HeavyHitters", "confidence", confidence, zero=False)
        levels, risk = self._levels(released), 1 - confidence
        points = np.asarray(released["point"])
        kept, share, capped = [""], 0.0, False
        for number, length in enumerate(self.lengths):
            tested = [one for prefix in kept for one in self._extensions(prefix, length)]
            test = self._test(points[levels == number], tested, number, risk)
            share = max(share, test.share_found(risk / len(self.lengths)))
            passed = test.passed
            capped |= len(passed) > _MOST
            kept = [tested[at] for at in passed[:_MOST]]
        return test.found([one.rstrip(_END) for one in kept], share, confidence, capped)

    def _test(self, points: Integers, tested: list[str], number: int, risk: float) -> _Test:
        if not points.size:
            condition = "there must be reports of every level. Collect more"
            raise errors.InvalidParameter(f"HeavyHitters: {condition}.")
        cells = np.array([self._cell(prefix, number) for prefix in tested])
        support = self.law.estimate_counts(points, cells).support
        last = number == len(self.lengths) - 1
        chance = min((risk if last else _BY_CHANCE) / len(tested), 0.5)
        least = int(binom.isf(chance, points.size, self.law.inclusion[1])) + 1
        return _Test(support, points.size, least, *self.law.inclusion)

    def _extensions(self, prefix: str, length: int) -> Iterator[str]:
        """List the prefixes of that length; what follows the end of a text is only the end."""
        more = length - len(prefix)
        for size in range(more + 1) if not prefix.endswith(_END) else (0,):
            for letters in product(self.alphabet, repeat=size):
                yield prefix + "".join(letters) + _END * (more - size)

    def _cells(self, texts: list[Any], level: Integers) -> Integers:
        padded = [self.read(one).ljust(self.length, _END) for one in texts]
        pairs = zip(padded, level.tolist(), strict=True)
        return np.array([self._cell(text[: self.lengths[at]], at) for text, at in pairs])

    def _cell(self, prefix: str, level: int) -> int:
        hashed = self._salted.copy()
        hashed.update(bytes([level]) + prefix.encode("utf-8", "surrogatepass"))
        return int.from_bytes(hashed.digest()[:3], "big") % self.cells

    def _draw(self, people: int, rng: Randomness) -> Integers:
        return uniform_below(len(self.lengths) + 1, people, rng)

    def _levels(self, released: Columns) -> Integers:
        most = len(self.lengths) - 1
        level = errors.integers("HeavyHitters", released["level"], lower=0, upper=most)
        if level.ndim != 1 or level.shape != np.shape(released["point"]):
            raise errors.InvalidData("HeavyHitters: a report must be a level and a point.")
        return level

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.alphabet)

    @cached_property
    def _salted(self) -> Any:
        salt = self.salt.encode("utf-8", "surrogatepass")
        return hashlib.sha256(b"tacit heavy hitters\n" + hashlib.sha256(salt).digest())


@dataclass(frozen=True)
class FrequentTexts:
    """Texts that were found, the most frequent first.

    Parameters
    ----------
    texts : list of str
    shares : array
        Unbiased estimates of their shares, but for the selection of what was found.
    standard_errors : array
        Of noise and of who was asked.
    intervals : array
        One row of two ends a text, for its share in the population, with `confidence` given that
        it was found: an estimate just above the test is not taken at its word.
    threshold : float
        All texts with at least this share were found, with `confidence`.
    confidence : float
    reports : int
        Reports of the last level, from which shares are estimated.
    capped : bool
        Whether more prefixes passed a level than are extended: `threshold` does not hold then.
    """

    texts: list[str]
    shares: Reals
    standard_errors: Reals
    intervals: Reals
    threshold: float
    confidence: float
    reports: int
    capped: bool


@dataclass(frozen=True)
class _Test:
    """How many reports of a level support each prefix, and how many it takes to pass."""

    support: Integers
    reports: int
    least: int
    true: float
    other: float

    @property
    def passed(self) -> list[int]:
        order = np.argsort(-self.support, kind="stable")
        places: list[int] = order[self.support[order] >= self.least].tolist()
        return places

    def share_found(self, risk: float) -> float:
        """Find the smallest f so that all prefixes with a share of f pass, but for this risk."""
        return _smallest(lambda f: binom.cdf(self.least - 1, self.reports, self._at(f)) <= f * risk)

    def found(
        self, texts: list[str], share: float, confidence: float, capped: bool
    ) -> FrequentTexts:
        seen = self.support[self.passed][: len(texts)]
        tail = (1 - confidence) / 2
        ends = [[self._low(int(one), tail), self._high(int(one), tail)] for one in seen]
        rates, reach = seen / self.reports, self.true - self.other
        return FrequentTexts(
            texts,
            (rates - self.other) / reach,
            np.sqrt(rates * (1 - rates) / self.reports) / reach,
            np.array(ends, np.float64).reshape(-1, 2),
            share,
            confidence,
            self.reports,
            capped,
        )

    def _at(self, share: float) -> float:
        """Compute how likely a report supports a prefix of this share."""
        return self.other + share * (self.true - self.other)

    def _low(self, seen: int, tail: float) -> float:
        """Find the smallest share that makes so many, given that it passed, likely enough."""

        def likely(share: float) -> bool:
            rare = binom.logsf([seen - 1, self.least - 1], self.reports, self._at(share))
            return bool(rare[0] - rare[1] >= math.log(tail))

        return _smallest(likely)

    def _high(self, seen: int, tail: float) -> float:
        """Find the smallest share that makes so few, given that it passed, unlikely enough."""

        def unlikely(share: float) -> bool:
            rare = binom.logsf([seen, self.least - 1], self.reports, self._at(share))
            return bool(-math.expm1(rare[0] - rare[1]) <= tail)

        return _smallest(unlikely)


def _listed(raw: Any) -> list[Any]:
    return [raw] if isinstance(raw, str) else list(raw)


def _smallest(holds: Callable[[float], bool]) -> float:
    """Bisect for the smallest share for which a condition holds from there on; else 1."""
    low, high = 0.0, 1.0
    if holds(low):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
