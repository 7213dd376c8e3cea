"""One noisy sum of a run: how an update becomes a vector, and a sum of vectors a mean.

Clients and server compute all of it from what each knows itself: the setting that they agreed on,
the name of the run, the number of the sum, and what clients were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.client_level.rotation import Reals
from tacit.federated.client_level.shares import SharePlan, share_plan
from tacit.federated.client_level.units import Norms, clip_units, norm_of, norms_by_unit
from tacit.federated.config import Config
from tacit.federated.payload import Vector
from tacit.federated.secure.session import subject
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

WHERE = "SecureClientPrivacy"


@dataclass(frozen=True, eq=False)
class Setting:
    """What all parties of a run agree on before it begins.

    Parameters
    ----------
    algorithm, config
        The algorithm and its settings.
    plan : SharePlan
        Clients, grid and noise.
    norms : float or dict
        The clip norm of each clip unit.
    about : str
        What else they agree on.
    """

    algorithm: Algorithm
    config: Config
    plan: SharePlan
    norms: Norms
    about: str = ""

    def __post_init__(self) -> None:
        units = [clip_units(WHERE, self.algorithm.name, phase) for phase in self.algorithm.phases]
        if any(len(phase.parts) != 1 for phase in self.algorithm.phases):
            errors.refuse(WHERE, "algorithm", "one with one part a phase", self.algorithm.name)
        for (unit,) in units:
            norm_of(WHERE, self.norms, unit)

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        config: Config,
        clients: int,
        *,
        clip_norm: float | Mapping[str, float] = 1.0,
        about: str = "",
        **told: Any,
    ) -> Setting:
        """Return the setting for these parameters of `SecureClientPrivacy`."""
        plan = share_plan(clients, **told, releases=len(algorithm.phases))
        return cls(algorithm, config, plan, norms_by_unit(WHERE, clip_norm), about)

    def __str__(self) -> str:
        return f"{self.algorithm.name} {self.config} {self.plan} {self.norms} {self.about}"

    def sum_of(
        self, phase: Phase, run: str, number: int, received: Mapping[str, Vector]
    ) -> NoisySum:
        """Return the sum of a phase, for clients who were sent these vectors."""
        arrays = (np.ascontiguousarray(received[name]).tobytes() for name in sorted(received))
        shown = subject(*sorted(received), *arrays)
        return NoisySum(self, phase, run, number, shown)


@dataclass(frozen=True, eq=False)
class NoisySum:
    """One sum.

    Parameters
    ----------
    setting : Setting
        The setting of the run.
    phase : Phase
        The phase whose updates are summed.
    run : str
        Name of the run.
    number : int
        Number of the sum in the run, from 1.
    shown : bytes
        Digest of what clients were sent.
    """

    setting: Setting
    phase: Phase
    run: str
    number: int
    shown: bytes

    @property
    def part(self) -> str:
        """Name of the part that is summed."""
        return self.phase.parts[0].name

    @property
    def about(self) -> bytes:
        """Digest of all that vectors are computed from: it goes into every key of the sum."""
        return subject(str(self.setting), self.phase.name, self.shown)

    @property
    def _norm(self) -> float:
        return norm_of(WHERE, self.setting.norms, self.phase.parts[0].clip_unit or "")

    @cached_property
    def _signs(self) -> Reals:
        name = subject("rotation", self.run, [self.number])
        return self.setting.plan.grid.rotation.signs(name)

    def vector(self, update: Any, rng: Randomness) -> npt.NDArray[np.int64]:
        """Encode a client's update, and add its noise; None stands for zeros."""
        plan = self.setting.plan
        given = np.zeros(plan.grid.size) if update is None else update
        return plan.share(plan.grid.encode(given, self._norm, self._signs, rng), rng)

    def mean(self, total: npt.NDArray[np.int64], survivors: int) -> Vector:
        """Return the mean update that a sum over this many survivors stands for."""
        summed: Vector = self.setting.plan.grid.decode(total, self._norm, self._signs)
        return summed / survivors
