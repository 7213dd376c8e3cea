r"""What can be proved of attackers who guess the person Z from the representation U.

Fano's inequality, for K people and any guess made from U, by a rule or by chance:

.. math:: H(Z \mid U) \le g(P_{err}), \qquad g(t) = t \log(K - 1) - t \log t - (1-t)\log(1-t)

so that :math:`P_{err} \ge g^{-1}(H(Z \mid U))`. Whether that protects anybody hangs on what is
known of :math:`H(Z \mid U)`. All logarithms are natural.

Notes
-----
Three statements of [Feu18]_ need care.

* (13) has :math:`\log K - I` where Fano has :math:`H(Z) - I`. They agree for people with equally
  many rows only; else (13) promises too much: with shares 0.9 and 0.1 and nothing leaked it says
  that every attacker errs half of the time, and naming the first person always errs in a tenth.
* (14) with (11) puts the loss of an adversary in the place of :math:`H(Z \mid U)`. The loss is
  :math:`H(Z \mid U) + D(P_{Z|U} \,\|\, Q)`, never less: a weak adversary makes people look safer
  than they are. It is a bound only if that adversary is the best there is.
* (13) is about an empirical law. A deterministic encoder that gives n rows n representations has
  :math:`\hat I = H(\hat P_Z)` there, and the bound says nothing: errors of 0 or more.

What holds for every attacker needs an upper bound on what U tells: `code_ceiling` gives one where U
is one of finitely many codes, `counting_ceiling` where few codes share a label.

References
----------
.. [Feu18] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with adversarial
   neural networks. 2018.
.. [CT06] Cover, Thomas. Elements of information theory. 2006. Theorem 2.10.1.
.. [BA03] Barber, Agakov. The IM algorithm: a variational approach to information maximization.
   NIPS 2003.
.. [MP09] Maurer, Pontil. Empirical Bernstein bounds and sample variance penalization. COLT 2009.
   Theorem 11.
.. [Mil55] Miller. Note on the bias of information estimates. 1955.
.. [McD89] McDiarmid. On the method of bounded differences. 1989.
.. [BLM13] Boucheron, Lugosi, Massart. Concentration inequalities. 2013. Theorem 6.12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri, xlogy

from tacit.anonymize.released import as_array, distinct
from tacit.anonymize.released import people as people_of
from tacit.privacy import errors

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FOR_EVERY_ATTACKER = "for every attacker"
IF_THE_BEST = "if the adversary is the best there is"


@dataclass(frozen=True)
class Bound:
    """The least share of errors of an attacker, and for whom that holds."""

    error: float
    holds: str

    @property
    def accuracy(self) -> float:
        """The most that an attacker can get right."""
        return 1.0 - self.error

    def __str__(self) -> str:
        return f"at most {self.accuracy:.1%} right, {self.holds}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {"accuracy": self.accuracy, "error": self.error, "holds": self.holds}


@dataclass(frozen=True)
class Information:
    """How much of the person is in the representation, in nats: a number and its interval.

    `about` says what the number is: the information itself, or less than it.
    """

    value: float
    interval: tuple[float, float]
    entropy: float
    confidence: float
    about: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "value": self.value,
            "interval": list(self.interval),
            "entropy": self.entropy,
            "confidence": self.confidence,
            "about": self.about,
        }


def g(t: float, people: int) -> float:
    r"""Fano's function :math:`t \log(K - 1) - t \log t - (1 - t) \log(1 - t)` for t in [0, 1].

    Examples
    --------
    >>> round(g(0.5, 2), 4), round(g(29 / 30, 30) - math.log(30), 4)
    (0.6931, 0.0)
    """
    count = errors.whole("g", "people", people, least=2)
    errors.within("g", "t", t, "[0, 1]")
    return float(t * math.log(count - 1) - xlogy(t, t) - xlogy(1 - t, 1 - t))


def inverse_g(value: float, people: int) -> float:
    """The error in [0, 1 − 1/K] at which g has this value; 0 below 0, 1 − 1/K above log K.

    g rises there, from 0 to log K, so that there is one.

    Examples
    --------
    >>> round(inverse_g(g(0.3, 30), 30), 6)
    0.3
    """
    count = errors.whole("inverse_g", "people", people, least=2)
    value = _finite("inverse_g", "value", value)
    most = 1 - 1 / count
    if value <= 0:
        return 0.0
    if value >= g(most, count):
        return most
    return float(brentq(lambda t: g(t, count) - value, 0.0, most, xtol=1e-14))


def error_bound(conditional_entropy: float, people: int) -> Bound:
    r"""Equation 14: every attacker errs at least :math:`g^{-1}(H(Z \mid U))` of the time.

    Notes
    -----
    For a guess :math:`\hat Z` made from U, by a rule or drawn from a soft classifier's
    probabilities (the paper's error is that of the second), data processing and Fano [CT06]_ give
    :math:`H(Z | U) \le H(Z | \hat Z) \le g(P_{err})`, whatever the shares of people. Below
    1 − 1/K g rises, so that :math:`P_{err} \ge g^{-1}(H(Z|U))`; above it there is nothing to show.
    The entropy must be the true one, or less, in nats: above log K there is none. From an
    adversary's loss take `error_bound_from_adversary`.

    Examples
    --------
    >>> print(error_bound(math.log(30), 30))
    at most 3.3% right, for every attacker
    """
    entropy = _entropy_of("error_bound", "conditional_entropy", conditional_entropy, people)
    return Bound(inverse_g(entropy, people), FOR_EVERY_ATTACKER)


def error_bound_from_information(information: float, entropy: float, people: int) -> Bound:
    r"""Equation 13, with :math:`H(Z) - I(Z; U)` in place of :math:`\log K - I(Z; U)`.

    The two agree for people with equally many rows. The information must be the true one, or more.
    """
    where = "error_bound_from_information"
    information = _at_least_zero(where, "information", information)
    entropy = _entropy_of(where, "entropy", entropy, people)
    return Bound(inverse_g(entropy - information, people), FOR_EVERY_ATTACKER)


def error_bound_from_adversary(loss: float, people: int) -> Bound:
    """Equation 14 with (11): the adversary's mean log-loss in the place of the entropy.

    The loss is above the entropy by what the adversary misses, so that the figure is *no bound* on
    others: whoever learns more than this adversary may be right more often.

    Examples
    --------
    >>> error_bound_from_adversary(3.0, 30).holds
    'if the adversary is the best there is'
    """
    loss = _at_least_zero("error_bound_from_adversary", "loss", loss)
    return Bound(inverse_g(loss, people), IF_THE_BEST)


def guessing_error_ceiling(loss: float) -> float:
    r"""Lemma 1, equation 5: a guess drawn from Q errs at most :math:`1 - e^{-L}` of the time.

    Jensen: :math:`E[Q(Y|U)] = E[e^{\log Q(Y|U)}] \ge e^{-L}`. It is about the drawn guess, not
    about naming the likeliest class: see `deciding_error_ceiling`.
    """
    loss = _at_least_zero("guessing_error_ceiling", "loss", loss)
    return -math.expm1(-loss)


def deciding_error_ceiling(loss: float) -> float:
    r"""Naming the likeliest class under Q errs at most :math:`L / \log 2` of the time.

    Where that is wrong Q gives the truth at most 1/2, a loss of log 2 or more; Markov. Equation 5
    does not cover it: with Q = 0.49 for the truth everywhere it says 0.51, and every answer is
    wrong.
    """
    loss = _at_least_zero("deciding_error_ceiling", "loss", loss)
    return min(loss / math.log(2), 1.0)


def mutual_information(
    losses: Any, private: Any, *, confidence: float = 0.95, mixing: float = 0.01
) -> Information:
    r"""From an attacker's log-losses on rows it never saw: a *lower* bound on I(Z; U) [BA03]_.

    .. math:: I(Z; U) = H(Z) - H(Z \mid U) \ge H(Z) - E[-\log Q(Z \mid U)]

    Parameters
    ----------
    losses : array of float
        −log Q(z | u) of each held-out row, infinite where the attacker ruled the truth out.
    private : array
        Whose rows they are.
    confidence : float
        Of the interval.
    mixing : float
        The attacker's probabilities are mixed with this much of the uniform law. That is an
        attacker, too, and its losses are bounded, so that the interval holds for every law of them.

    Notes
    -----
    The lower end holds: with this confidence the information is at least that. The upper end is
    about this attacker alone: it bounds what *it* found, not what there is, and put into
    `error_bound_from_information` it protects nobody.

    People are taken in the shares that they have among these rows, so that H(Z) is known. Given the
    labels the losses are independent, within an interval of length
    :math:`r = \log(1 + K(1 - m)/m)`, and with V their variance and :math:`\beta` half of
    1 − confidence, each end is off by at most [MP09]_

    .. math:: \sqrt{2 V \log(2/\beta) / n} + 7 r \log(2/\beta) / (3 (n - 1)).
    """
    where = "mutual_information"
    level = _level(where, confidence)
    mixing = errors.probability(where, "mixing", mixing, zero=False)
    given = as_array(where, "losses", losses)
    if given.ndim != 1 or given.dtype.kind not in "iuf" or not np.all(given >= 0):
        raise errors.InvalidData(f"{where}: losses must be one number a row, none below 0.")
    codes, values = people_of(where, private, len(given))
    kept = np.exp(-given.astype(np.float64)) * (1 - mixing)
    mixed = -np.log(kept + mixing / len(values))
    reach = math.log1p(len(values) * (1 - mixing) / mixing)
    margin = _bernstein(mixed, reach, level / 2)
    entropy = _entropy(np.bincount(codes))
    value = entropy - float(mixed.mean())
    return Information(
        value,
        (max(value - margin, 0.0), min(max(value + margin, 0.0), entropy)),
        entropy,
        confidence,
        "no more than the information: what this attacker found",
    )


def code_information(codes: Any, private: Any, *, confidence: float = 0.95) -> Information:
    r"""The information about the person in one of finitely many codes.

    Counted, with the correction of Miller and Madow [Mil55]_ for the cells m that hold rows:

    .. math:: \hat I = \sum_{z,c} \frac{n_{zc}}{n} \log \frac{n\, n_{zc}}{n_z n_c}
              + \frac{m_z + m_c - m_{zc} - 1}{2 n}

    The interval is that of the normal law with the jackknife's spread: right for many rows, no
    guarantee. `code_ceiling` is one.

    Notes
    -----
    The correction is for cells with several rows each. With about as many cells (people times
    codes) as rows or more, the figure is too large: where most rows have a code of their own it is
    near H(Z), whatever the codes tell, and the interval does not cover that.
    """
    where = "code_information"
    level = _level(where, confidence)
    table = _table(where, codes, private)
    rows, filled = int(table.sum()), table > 0
    by_person, by_code = table.sum(axis=1), table.sum(axis=0)
    entropy = _entropy(by_person)
    cells = int((by_person > 0).sum() + (by_code > 0).sum() - filled.sum()) - 1
    value = _plugin(table) + cells / (2 * rows)
    reach = -float(ndtri(level / 2)) * _jackknife_spread(table)
    low, high = (float(np.clip(end, 0.0, entropy)) for end in (value - reach, value + reach))
    return Information(value, (low, high), entropy, confidence, "the information, corrected")


def code_ceiling(codes: Any, private: Any, *, confidence: float = 0.95) -> Bound:
    r"""The most that *every* attacker can get right who sees one code, with this confidence.

    Notes
    -----
    Whoever knows the law of (Z, C) names the likeliest person of each code, and nobody does
    better: :math:`A = \sum_c \max_z P(z, c)`. Counted on n independent rows on which the code was
    *not* learned, :math:`\hat A = \frac1n \sum_c \max_z n_{zc}` satisfies
    :math:`E \hat A \ge A`: the mean of a maximum is at least the maximum of the means. With
    :math:`\beta` = 1 − confidence each of these fails with probability at most β/2, so that the
    smaller one is a ceiling:

    * Another row in the place of one changes :math:`n \hat A` by at most 1, hence by bounded
      differences [McD89]_ :math:`A \le E \hat A \le \hat A + \sqrt{\log(2/\beta) / (2n)}`.
    * :math:`f = n \hat A` is self-bounding: without row i it is smaller by 0 or 1, and by 1 only
      for rows of a code's one most frequent person, of whom there are at most f. Such an f has the
      lower tail of a Poisson variable [BLM13]_,
      :math:`P(f \le s) \le e^{-(E f - s - s \log(E f/s))}` for s below E f. So E f is at most the
      m > f that solves :math:`m - f - f \log(m/f) = \log(2/\beta)`.

    The second is the sharper one where few are found. This is about one row: many rows of one
    person tell more, as `tacit.anonymize.linkage` shows. Codes are told apart by their bytes: −0.0
    is not 0.0. Give an array: of a list, numpy may make equal values out of different ones.

    Examples
    --------
    >>> code_ceiling([0, 1] * 500, ["a", "a", "b", "b"] * 250).accuracy < 0.55
    True
    """
    where = "code_ceiling"
    level = _level(where, confidence)
    table = _table(where, codes, private)
    rows, found = int(table.sum()), int(table.max(axis=0).sum())
    strict = math.log(2 / level)
    bounded = found / rows + math.sqrt(strict / (2 * rows))
    ceiling = min(bounded, _poisson_ceiling(found, strict) / rows, 1.0)
    holds = (
        f"{FOR_EVERY_ATTACKER} on one code, with confidence {confidence:g}, where the code was not "
        "learned on these rows"
    )
    return Bound(1.0 - ceiling, holds)


def counting_ceiling(label_accuracy: float | Bound, codes_per_label: int) -> Bound:
    r"""The most that every attacker can get right where at most k codes share a label.

    If the code c determines a label y(c), and no label has more than k codes,

    .. math:: A = \sum_y \sum_{c: y(c) = y} \max_z P(z, c) \le k \sum_y \max_z P(z, y) = k A_y

    with :math:`A_y` the most that the label alone gives away. Where label and person are
    independent that is the share of the most frequent person: 30 people with equally many rows and
    k codes a digit leave k/30.

    Parameters
    ----------
    label_accuracy : float or Bound
        :math:`A_y`, or more: the largest share, or the `code_ceiling` of the labels, whose
        condition is kept.
    codes_per_label : int
        k.

    Examples
    --------
    >>> print(counting_ceiling(1 / 30, 3))
    at most 10.0% right, for every attacker, if the label alone gives away at most 3.3%
    """
    where = "counting_ceiling"
    count = errors.whole(where, "codes_per_label", codes_per_label, least=1)
    counted = label_accuracy if isinstance(label_accuracy, Bound) else None
    given = label_accuracy if counted is None else counted.accuracy
    accuracy = _at_least_zero(where, "label_accuracy", given)
    if not 0 < accuracy <= 1:
        errors.refuse(where, "label_accuracy", "in (0, 1]", given)
    holds = f"{FOR_EVERY_ATTACKER}, if the label alone gives away at most {accuracy:.1%}"
    if counted is not None:
        holds += f" ({counted.holds})"
    return Bound(max(1.0 - count * accuracy, 0.0), holds)


def _poisson_ceiling(found: int, strict: float) -> float:
    """The mean of which so few would be found once in e^strict times."""

    def excess(mean: float) -> float:
        return mean - found - found * math.log(mean / found) - strict

    # x − f log(1 + x/f) is at least x²/(2(f + x)), which at this x is at least `strict`.
    return float(brentq(excess, found, found + 2 * strict + math.sqrt(2 * strict * found) + 1))


def _bernstein(values: Reals, reach: float, level: float) -> float:
    """How far a mean may be from its expectation, one-sided, for values within so long a range."""
    if len(values) < 2:
        return math.inf
    strict = math.log(2 / level)
    spread = math.sqrt(2 * float(values.var(ddof=1)) * strict / len(values))
    return spread + 7 * reach * strict / (3 * (len(values) - 1))


def _entropy(counts: npt.NDArray[Any]) -> float:
    shares = counts / counts.sum()
    return float(-xlogy(shares, shares).sum())


def _plugin(table: npt.NDArray[Any]) -> float:
    return _entropy(table.sum(axis=1)) + _entropy(table.sum(axis=0)) - _entropy(table.ravel())


def _jackknife_spread(table: Integers) -> float:
    """The standard deviation of the counted information, by leaving out a row of each cell."""
    rows = int(table.sum())
    if rows < 2:
        return math.inf
    cells = np.argwhere(table)
    without, weights = np.empty(len(cells)), table[tuple(cells.T)]
    for place, (person, code) in enumerate(cells):
        table[person, code] -= 1
        without[place] = _plugin(table)
        table[person, code] += 1
    middle = np.average(without, weights=weights)
    return math.sqrt((rows - 1) * float(np.average((without - middle) ** 2, weights=weights)))


def _table(where: str, codes: Any, private: Any) -> Integers:
    """Rows by person and code."""
    given = as_array(where, "codes", codes)
    if given.ndim == 0 or given.size == 0 or given.dtype.kind not in "biufU":
        raise errors.InvalidData(f"{where}: codes must be numbers or words, one or a row a sample.")
    if given.dtype.kind == "f" and not bool(np.isfinite(given).all()):
        raise errors.InvalidData(f"{where}: codes must be finite, without NaN or infinity.")
    place = distinct(given)
    person, values = people_of(where, private, len(given))
    table = np.zeros((len(values), int(place.max()) + 1), np.int64)
    np.add.at(table, (person, place), 1)
    return table


def _level(where: str, confidence: float) -> float:
    return 1 - errors.probability(where, "confidence", confidence, zero=False)


def _entropy_of(where: str, name: str, value: Any, people: int) -> float:
    entropy = _at_least_zero(where, name, value)
    if entropy > math.log(errors.whole(where, "people", people, least=2)) + 1e-9:
        remedy = "Give it in nats."
        errors.refuse(where, name, "at most the logarithm of the people", entropy, remedy)
    return entropy


def _finite(where: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        errors.refuse(where, name, "a number", value)
    if not math.isfinite(number):
        errors.refuse(where, name, "finite", value)
    return number


def _at_least_zero(where: str, name: str, value: Any) -> float:
    number = _finite(where, name, value)
    if not number >= 0:
        errors.refuse(where, name, "at least 0", value)
    return number
