"""The record of real tables: what collections reached, for plans of those who have no rows yet.

Plain accuracy on held-out rows of collections in one round, with seeded noise: means of the
trials in the record of the study `tables` (`papers/results/tables.json`), whose page says where
each table comes from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """What collections on one table reached.

    Parameters
    ----------
    table : str
        Its name in the record.
    columns, classes : int
        Its size, without the label.
    people : int
        How many reported.
    largest : float
        The accuracy of naming the largest class.
    reached : tuple of float
        The accuracy at each ε of `EPSILONS`.
    """

    table: str
    columns: int
    classes: int
    people: int
    largest: float
    reached: tuple[float, ...]


EPSILONS = (1.0, 2.0, 4.0, 8.0)

RECORD = (
    Measured("breast_cancer", 30, 2, 284, 0.60, (0.82, 0.93, 0.93, 0.94)),
    Measured("credit", 13, 2, 2800, 0.69, (0.74, 0.76, 0.78, 0.79)),
    Measured("Arrests", 7, 2, 3200, 0.83, (0.82, 0.83, 0.83, 0.83)),
    Measured("k401", 8, 2, 5500, 0.59, (0.65, 0.66, 0.67, 0.67)),
    Measured("loans", 20, 2, 6400, 0.51, (0.56, 0.60, 0.61, 0.62)),
    Measured("nassCDS", 10, 2, 16_000, 0.96, (0.96, 0.96, 0.96, 0.96)),
    Measured("CPS1988", 6, 2, 18_000, 0.50, (0.70, 0.73, 0.73, 0.74)),
    Measured("adult", 13, 2, 20_000, 0.75, (0.82, 0.83, 0.83, 0.84)),
    Measured("wine", 13, 3, 89, 0.47, (0.53, 0.83, 0.92, 0.97)),
    Measured("NMES1988", 18, 3, 2800, 0.80, (0.80, 0.80, 0.80, 0.81)),
    Measured("loan_grades", 15, 5, 6400, 0.27, (0.25, 0.27, 0.32, 0.36)),
    Measured("diamonds", 9, 5, 20_000, 0.41, (0.56, 0.59, 0.61, 0.63)),
    Measured("digits", 64, 10, 898, 0.12, (0.37, 0.72, 0.86, 0.94)),
    Measured("pen_strokes", 64, 10, 4000, 0.11, (0.65, 0.87, 0.94, 0.98)),
    Measured("mnist_components", 64, 10, 6000, 0.11, (0.62, 0.82, 0.86, 0.91)),
    Measured("fashion_components", 64, 10, 6000, 0.10, (0.43, 0.68, 0.72, 0.80)),
)


def comparable(classes: int) -> tuple[Measured, ...]:
    """Return the tables to compare with: those of two classes, or those of more."""
    return tuple(one for one in RECORD if (one.classes == 2) == (classes == 2))


def accuracies(classes: int, epsilon: float) -> tuple[float, float] | None:
    """Return the least and the most that comparable tables reached, if ε is within the record.

    Between two recorded ε it takes the lesser end of the lower and the greater of the higher one.
    """
    if not EPSILONS[0] <= epsilon <= EPSILONS[-1]:
        return None
    below = max(i for i, known in enumerate(EPSILONS) if known <= epsilon)
    above = min(i for i, known in enumerate(EPSILONS) if known >= epsilon)
    reached = [one.reached for one in comparable(classes)]
    low = min(min(values[below], values[above]) for values in reached)
    return low, max(max(values[below], values[above]) for values in reached)


def fewest_people(classes: int, epsilon: float, target: float) -> int | None:
    """Return the fewest people in the record who reached the target at this ε or a smaller one."""
    found = [
        one.people
        for one in comparable(classes)
        for known, reached in zip(EPSILONS, one.reached, strict=True)
        if known <= epsilon and reached >= target
    ]
    return min(found, default=None)
