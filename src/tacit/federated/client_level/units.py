"""Clip units of an algorithm's phases, and the clip norm of each."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.federated.algorithms.registry import Phase
from tacit.privacy import errors

Norms = float | dict[str, float]


def clip_units(where: str, name: str, phase: Phase) -> list[str]:
    """Return the clip units of a phase in the order of its parts; each is one release."""
    units: list[str] = []
    for part in phase.parts:
        if part.clip_unit is None or part.binary or part.kept or not part.additive:
            errors.refuse(
                where,
                "algorithm",
                "one whose parts can be clipped, summed and noised",
                f"{name} with its {part.name}",
                "Noise cannot hide what depends on a client's data without a bound.",
            )
        if part.clip_unit not in units:
            units.append(part.clip_unit)
    return units


def norms_by_unit(where: str, clip_norm: float | Mapping[str, float]) -> Norms:
    """Check one clip norm for all units, or one for each."""
    if isinstance(clip_norm, Mapping):
        return {
            unit: float(errors.positive(where, f"clip_norm of {unit}", norm))
            for unit, norm in clip_norm.items()
        }
    return float(errors.positive(where, "clip_norm", clip_norm))


def norm_of(where: str, norms: Norms, unit: str) -> float:
    """Return the clip norm of a unit."""
    if isinstance(norms, float):
        return norms
    if unit not in norms:
        errors.refuse(where, "clip_norm", f"given for {unit}", sorted(norms))
    return norms[unit]
