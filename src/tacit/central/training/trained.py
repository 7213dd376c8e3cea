"""What a private training states: its event, its guarantee, and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tacit.privacy import events
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Seeded


@dataclass(frozen=True)
class Trained:
    """The event and the guarantee of a private training."""

    event: events.Event
    guarantee: Guarantee
    noise_multiplier: float
    sampling_probability: float
    steps: int
    dropped: int = field(repr=False)
    """Number of examples that were not finite, counted each time they were sampled. In-house only:
    it depends on the data without noise."""
    seeded: bool
    assumptions: tuple[str, ...] = field(repr=False)
    not_protected: tuple[str, ...] = field(repr=False)

    def certificate(self, artifact: str | Path | None = None) -> Certificate:
        """Certify the trained module, or a file that holds it."""
        return Certificate.issue(
            self.event,
            guarantee=self.guarantee,
            artifact=artifact,
            assumptions=self.assumptions,
            not_protected=self.not_protected,
            rng=Seeded(0) if self.seeded else None,
        )
