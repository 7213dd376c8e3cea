r"""Bounds on the accuracy of attackers who guess the person Z from the representation U.

Fano's inequality, for K people and any guess made from U, by a rule or by chance:

.. math:: H(Z \mid U) \le g(P_{err}), \qquad g(t) = t \log(K - 1) - t \log t - (1-t)\log(1-t)

so that :math:`P_{err} \ge g^{-1}(H(Z \mid U))`. Whether that protects anybody depends on what is
known about :math:`H(Z \mid U)`. All logarithms are natural.

Notes
-----
Three statements of [Feu18]_ need care.

* (13) has :math:`\log K - I` where Fano has :math:`H(Z) - I`. They agree only for people with
equally
  many rows; otherwise (13) promises too much: with shares 0.9 and 0.1 and no leakage it states that
  every attacker errs half of the time, while always naming the first person errs in a tenth.
* (14) with (11) puts the loss of an adversary in place of :math:`H(Z \mid U)`. The loss is
  :math:`H(Z \mid U) + D(P_{Z|U} \,\|\, Q)`, never less: a weak adversary makes people look safer
  than they are. It is a bound only if that adversary is optimal.
* (13) is about an empirical distribution. A deterministic encoder that maps n rows to n distinct
  representations has :math:`\hat I = H(\hat P_Z)` there, and the bound is vacuous.

A bound for every attacker needs an upper bound on the information in U: `code_ceiling` gives one if
U is one of finitely many codes, `counting_ceiling` if few codes share a label.

References
----------
.. [Feu18] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with adversarial
   neural networks. 2018.
.. [CT06] Cover, Thomas. Elements of information theory. 2006. Theorem 2.10.1.
.. [McD89] McDiarmid. On the method of bounded differences. 1989.
.. [BLM13] Boucheron, Lugosi, Massart. Concentration inequalities. 2013. Theorem 6.12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq
from scipy.special import xlogy

from tacit.anonymize.information import level_of, rows_by_person_and_code
from tacit.privacy import errors

FOR_EVERY_ATTACKER = "for every attacker"
IF_THE_BEST = "if the adversary is the best there is"


@dataclass(frozen=True)
class ErrorBound:
    """A lower bound on the error of attackers, and for which attackers it holds."""

    error: float
    holds: str

    @property
    def accuracy(self) -> float:
        """Upper bound on the accuracy of attackers."""
        return 1.0 - self.error

    def __str__(self) -> str:
        return f"at most {self.accuracy:.1%} right, {self.holds}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"accuracy": self.accuracy, "error": self.error, "holds": self.holds}


def g(t: float, people: int) -> float:
    r"""Compute Fano's :math:`t \log(K - 1) - t \log t - (1 - t) \log(1 - t)` for t in [0, 1].

    Examples
    --------
    >>> round(g(0.5, 2), 4), round(g(29 / 30, 30) - math.log(30), 4)
    (0.6931, 0.0)
    """
    count = errors.whole("g", "people", people, least=2)
    errors.within("g", "t", t, "[0, 1]")
    return float(t * math.log(count - 1) - xlogy(t, t) - xlogy(1 - t, 1 - t))


def inverse_g(value: float, people: int) -> float:
    """Find the error in [0, 1 − 1/K] at which g has this value; 0 below 0, 1 − 1/K above log K.

    g increases there from 0 to log K, so the error is unique.

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


def error_bound(conditional_entropy: float, people: int) -> ErrorBound:
    r"""Bound the error of every attacker by :math:`g^{-1}(H(Z \mid U))`: equation 14.

    Notes
    -----
    For a guess :math:`\hat Z` made from U, by a rule or drawn from a soft classifier's
    probabilities (the paper's error is that of the second), data processing and Fano [CT06]_ give
    :math:`H(Z | U) \le H(Z | \hat Z) \le g(P_{err})`, whatever the shares of people. Below
    1 − 1/K g increases, so :math:`P_{err} \ge g^{-1}(H(Z|U))`; above it there is nothing to show.
    The entropy must be the true one, or less, in nats, so at most log K. For an adversary's loss
    use `error_bound_from_adversary`.

    Examples
    --------
    >>> print(error_bound(math.log(30), 30))
    at most 3.3% right, for every attacker
    """
    entropy = _entropy_of("error_bound", "conditional_entropy", conditional_entropy, people)
    return ErrorBound(inverse_g(entropy, people), FOR_EVERY_ATTACKER)


def error_bound_from_information(information: float, entropy: float, people: int) -> ErrorBound:
    r"""Bound the error by equation 13, with :math:`H(Z) - I` in place of :math:`\log K - I`.

    The two agree for people with equally many rows. The information must be the true one, or more.
    """
    where = "error_bound_from_information"
    information = _at_least_zero(where, "information", information)
    entropy = _entropy_of(where, "entropy", entropy, people)
    return ErrorBound(inverse_g(entropy - information, people), FOR_EVERY_ATTACKER)


def error_bound_from_adversary(loss: float, people: int) -> ErrorBound:
    """Evaluate equation 14 with (11): an adversary's mean log-loss in place of the entropy.

    The loss is above the entropy by what the adversary misses, so the result is *no bound* on
    others: an attacker that is better than this adversary may have a higher accuracy.

    Examples
    --------
    >>> error_bound_from_adversary(3.0, 30).holds
    'if the adversary is the best there is'
    """
    loss = _at_least_zero("error_bound_from_adversary", "loss", loss)
    return ErrorBound(inverse_g(loss, people), IF_THE_BEST)


def guessing_error_ceiling(loss: float) -> float:
    r"""Bound the error of a guess drawn from Q by :math:`1 - e^{-L}`: Lemma 1, equation 5.

    By Jensen :math:`E[Q(Y|U)] = E[e^{\log Q(Y|U)}] \ge e^{-L}`. This is about the drawn guess, not
    about predicting the most likely class: see `deciding_error_ceiling`.
    """
    loss = _at_least_zero("guessing_error_ceiling", "loss", loss)
    return -math.expm1(-loss)


def deciding_error_ceiling(loss: float) -> float:
    r"""Bound the error of predicting the most likely class under Q by :math:`L / \log 2`.

    If that class is wrong, Q gives the truth at most 1/2, a loss of at least log 2; then Markov.
    Equation 5 does not cover it: with Q = 0.49 for the truth everywhere it gives 0.51, while every
    prediction is wrong.
    """
    loss = _at_least_zero("deciding_error_ceiling", "loss", loss)
    return min(loss / math.log(2), 1.0)


def code_ceiling(codes: Any, private: Any, *, confidence: float = 0.95) -> ErrorBound:
    r"""Bound the accuracy of *every* attacker who sees one code, with this confidence.

    Notes
    -----
    An attacker who knows the distribution of (Z, C) names the most likely person of each code, and
    nobody does better: :math:`A = \sum_c \max_z P(z, c)`. Counted on n independent rows on which
    the code was *not* learned, :math:`\hat A = \frac1n \sum_c \max_z n_{zc}` satisfies
    :math:`E \hat A \ge A`: the mean of a maximum is at least the maximum of the means. With
    :math:`\beta` = 1 − confidence each of these fails with probability at most β/2, so the smaller
    one is an upper bound:

    * Replacing one row changes :math:`n \hat A` by at most 1, hence by bounded differences
      [McD89]_ :math:`A \le E \hat A \le \hat A + \sqrt{\log(2/\beta) / (2n)}`.
    * :math:`f = n \hat A` is self-bounding: without row i it is smaller by 0 or 1, and by 1 only
      for rows of a code's unique most frequent person, of which there are at most f. Such an f has
      the lower tail of a Poisson variable [BLM13]_,
      :math:`P(f \le s) \le e^{-(E f - s - s \log(E f/s))}` for s below E f. So E f is at most the
      m > f that solves :math:`m - f - f \log(m/f) = \log(2/\beta)`.

    The second is sharper for small accuracies. The bound is about one row: many rows of one person
    reveal more, as `tacit.anonymize.linkage` shows. Codes are compared by their bytes: −0.0 is not
    0.0. Give an array: converting a list, numpy may make different values equal.

    Examples
    --------
    >>> round(code_ceiling([0, 1] * 500, ["a", "a", "b", "b"] * 250).accuracy, 3)
    0.543
    """
    where = "code_ceiling"
    level = level_of(where, confidence)
    table = rows_by_person_and_code(where, codes, private)
    rows, right = int(table.sum()), int(table.max(axis=0).sum())
    strict = math.log(2 / level)
    bounded = right / rows + math.sqrt(strict / (2 * rows))
    ceiling = min(bounded, _poisson_ceiling(right, strict) / rows, 1.0)
    holds = (
        f"{FOR_EVERY_ATTACKER} on one code, with confidence {confidence:g}, where the code was not "
        "learned on these rows"
    )
    return ErrorBound(1.0 - ceiling, holds)


def counting_ceiling(label_accuracy: float | ErrorBound, codes_per_label: int) -> ErrorBound:
    r"""Bound the accuracy of every attacker if at most k codes share a label.

    If the code c determines a label y(c), and no label has more than k codes,

    .. math:: A = \sum_y \sum_{c: y(c) = y} \max_z P(z, c) \le k \sum_y \max_z P(z, y) = k A_y

    with :math:`A_y` the best accuracy from the label alone. If label and person are independent it
    is the share of the most frequent person: 30 people with equally many rows and k codes per digit
    give k/30.

    Parameters
    ----------
    label_accuracy : float or ErrorBound
        :math:`A_y`, or an upper bound of it: the largest share, or the `code_ceiling` of the
        labels, whose condition is kept.
    codes_per_label : int
        k, the largest number of codes of a label.

    Examples
    --------
    >>> print(counting_ceiling(1 / 30, 3))
    at most 10.0% right, for every attacker, if the label alone gives away at most 3.3%
    """
    where = "counting_ceiling"
    count = errors.whole(where, "codes_per_label", codes_per_label, least=1)
    counted = label_accuracy if isinstance(label_accuracy, ErrorBound) else None
    value = label_accuracy if counted is None else counted.accuracy
    accuracy = _at_least_zero(where, "label_accuracy", value)
    if not 0 < accuracy <= 1:
        errors.refuse(where, "label_accuracy", "in (0, 1]", value)
    holds = f"{FOR_EVERY_ATTACKER}, if the label alone gives away at most {accuracy:.1%}"
    if counted is not None:
        holds += f" ({counted.holds})"
    return ErrorBound(max(1.0 - count * accuracy, 0.0), holds)


def _poisson_ceiling(count: int, strict: float) -> float:
    """Find the mean at which so small a count has probability at most e^−strict."""

    def excess(mean: float) -> float:
        return mean - count - count * math.log(mean / count) - strict

    # x − f log(1 + x/f) is at least x²/(2(f + x)), which at this x is at least `strict`.
    return float(brentq(excess, count, count + 2 * strict + math.sqrt(2 * strict * count) + 1))


def _entropy_of(where: str, name: str, value: Any, people: int) -> float:
    entropy = _at_least_zero(where, name, value)
    if entropy > math.log(errors.whole(where, "people", people, least=2)) + 1e-9:
        remedy = "Give it in nats."
        errors.refuse(where, name, "at most the logarithm of people", entropy, remedy)
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
