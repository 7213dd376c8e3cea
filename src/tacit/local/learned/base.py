"""What all learned mechanisms share: their certificates, and what of them may leave the house."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from tacit.local import inhouse
from tacit.local.inhouse import Protection
from tacit.local.reports import certify
from tacit.privacy import artifact, errors
from tacit.privacy.certificate import Certificate


class Learned(ABC):
    """Base of the learned mechanisms. Abstract: each brings its own channel and parts."""

    classes: tuple[Any, ...] | None
    inhouse_: Protection
    """What protects the rows that it was fitted on."""

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What a report's certificate must say beside the guarantee."""
        return (self.inhouse_.sentence,)

    @property
    def certificate(self) -> Certificate:
        """Of one person's report, with a label where classes are declared."""
        return certify(self, self.classes is not None)  # type: ignore[arg-type]

    def save(self, path: str | Path) -> Path:
        """Write a directory for use in-house; see `tacit.artifact`."""
        return artifact.save(self, path)  # type: ignore[arg-type]

    def export(
        self, path: str | Path, application: str = "collection", level: str = "latent"
    ) -> Path:
        """Write what people, voters or partners get; refused where D1 would go with it."""
        return self.shared(application, level).save(path)

    def shared(self, application: str = "collection", level: str = "latent") -> Self:
        """The copy that may be handed out for an application.

        What `tacit.inhouse.requirements` names must carry a central guarantee, or D1 be public.
        Where nothing of the mechanism is needed outside, the copy holds the channel alone.
        """
        needed = inhouse.requirements(application, level)
        if self.inhouse_.may_leave:
            return self
        if needed:
            self.inhouse_.must_leave(f"{' and '.join(needed)} ({application}, {level} level)")
        return self._channel_alone()

    @abstractmethod
    def _channel_alone(self) -> Self:
        """A copy that knows the law of reports, and nothing else."""


def refuse_channel_alone(where: str) -> None:
    """For what a copy without an encoder cannot do."""
    raise errors.InvalidParameter(
        f"{where}: this copy must hold its encoder. It was handed out with the channel alone: "
        "rows are encoded where it was fitted."
    )
