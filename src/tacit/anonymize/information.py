r"""Estimates of the mutual information of person Z and representation U. Logarithms are natural.

References
----------
.. [BA03] Barber, Agakov. The IM algorithm: a variational approach to information maximization.
   NIPS 2003.
.. [MP09] Maurer, Pontil. Empirical Bernstein bounds and sample variance penalization. COLT 2009.
   Theorem 11.
.. [Mil55] Miller. Note on the bias of information estimates. 1955.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, xlogy

from tacit.anonymize.released import as_array, distinct
from tacit.anonymize.released import people as people_of
from tacit.privacy import errors

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Information:
    """An estimate of the information about the person in nats, and its interval.

    `about` states what the estimate is: the information itself, or a lower bound.
    """

    value: float
    interval: tuple[float, float]
    entropy: float
    confidence: float
    about: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "value": self.value,
            "interval": list(self.interval),
            "entropy": self.entropy,
            "confidence": self.confidence,
            "about": self.about,
        }


def mutual_information(
    losses: Any, private: Any, *, confidence: float = 0.95, mixing: float = 0.01
) -> Information:
    r"""Estimate a *lower* bound on I(Z; U) from an attacker's log-losses on held-out rows [BA03]_.

    .. math:: I(Z; U) = H(Z) - H(Z \mid U) \ge H(Z) - E[-\log Q(Z \mid U)]

    Parameters
    ----------
    losses : array of float
        −log Q(z | u) of each held-out row, infinite if the attacker excluded the truth.
    private : array
        The person of each row.
    confidence : float
        Confidence of the interval.
    mixing : float
        Share of the uniform distribution that is mixed into the attacker's probabilities. The
        result is an attacker with bounded losses, so the interval holds for every distribution of
        losses.

    Notes
    -----
    The lower end is valid: with this confidence the information is at least that. The upper end is
    about this attacker alone: it bounds what *it* found, not the information, and must not be used
    in `error_bound_from_information`.

    People have the shares that they have among these rows, so H(Z) is known. Given the labels the
    losses are independent, within an interval of length :math:`r = \log(1 + K(1 - m)/m)`, and with
    V their variance and :math:`\beta` half of 1 − confidence, each end is off by at most [MP09]_

    .. math:: \sqrt{2 V \log(2/\beta) / n} + 7 r \log(2/\beta) / (3 (n - 1)).
    """
    where = "mutual_information"
    level = level_of(where, confidence)
    mixing = errors.probability(where, "mixing", mixing, zero=False)
    array = as_array(where, "losses", losses)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.all(array >= 0):
        raise errors.InvalidData(f"{where}: losses must be one number per row, at least 0.")
    codes, values = people_of(where, private, len(array))
    kept = np.exp(-array.astype(np.float64)) * (1 - mixing)
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
    r"""Estimate the information about the person in one of finitely many codes.

    It is counted, with the correction of Miller and Madow [Mil55]_ for the m cells that hold rows:

    .. math:: \hat I = \sum_{z,c} \frac{n_{zc}}{n} \log \frac{n\, n_{zc}}{n_z n_c}
              + \frac{m_z + m_c - m_{zc} - 1}{2 n}

    The interval is normal, with the jackknife's standard error: it is asymptotic, without a
    guarantee. `code_ceiling` has one.

    Notes
    -----
    The correction is for cells with several rows each. If there are about as many cells (people
    times codes) as rows, or more, the estimate is too large: if most rows have a unique code it is
    near H(Z) whatever the codes reveal, and the interval does not cover that.
    """
    where = "code_information"
    level = level_of(where, confidence)
    table = rows_by_person_and_code(where, codes, private)
    rows, filled = int(table.sum()), table > 0
    by_person, by_code = table.sum(axis=1), table.sum(axis=0)
    entropy = _entropy(by_person)
    cells = int((by_person > 0).sum() + (by_code > 0).sum() - filled.sum()) - 1
    value = _plugin(table) + cells / (2 * rows)
    reach = -float(ndtri(level / 2)) * _jackknife_spread(table)
    low, high = (float(np.clip(end, 0.0, entropy)) for end in (value - reach, value + reach))
    return Information(value, (low, high), entropy, confidence, "the information, corrected")


def rows_by_person_and_code(where: str, codes: Any, private: Any) -> Integers:
    """Count rows by person and code."""
    array = as_array(where, "codes", codes)
    if array.ndim == 0 or array.size == 0 or array.dtype.kind not in "biufU":
        raise errors.InvalidData(
            f"{where}: codes must be numbers or strings, one value or one row per sample."
        )
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise errors.InvalidData(f"{where}: codes must be finite, without NaN or infinity.")
    place = distinct(array)
    person, values = people_of(where, private, len(array))
    table = np.zeros((len(values), int(place.max()) + 1), np.int64)
    np.add.at(table, (person, place), 1)
    return table


def level_of(where: str, confidence: float) -> float:
    """Return 1 − confidence."""
    return 1 - errors.probability(where, "confidence", confidence, zero=False)


def _bernstein(values: Reals, reach: float, level: float) -> float:
    """Bound how far a mean is above its expectation, for values in a range of length `reach`."""
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
    """Estimate the standard error of the counted information by the jackknife."""
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
