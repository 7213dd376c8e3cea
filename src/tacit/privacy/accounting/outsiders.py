"""The guarantee towards those who see only results of secure sums, and know nobody's own noise.

The server, with clients who side with it, knows some of the noise in a sum. Those who only see the
result know none, so that for them the noise of all survivors is in it. Their guarantee follows from
the same events, and whoever reads a certificate can derive it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit.privacy import errors, events, plain
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.decimals import above
from tacit.privacy.guarantees import ApproxDP, Guarantee

_SAME = 1e-8
"""How much less than its events give a certificate may state: machines round the search for ε."""


@dataclass(frozen=True)
class Outsiders:
    """What those learn who see results of secure sums and no client's noise.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee towards them.
    """

    guarantee: Guarantee

    @classmethod
    def of(cls, event: events.Event, delta: float) -> Outsiders:
        """Derive it from the events that state the guarantee towards the server."""
        return cls(guarantee_of(towards_outsiders(event), delta))

    def __str__(self) -> str:
        return f"{self.guarantee}. {WORDS}"

    def lines(self) -> list[str]:
        """Return the lines of an explanation."""
        stated = self.guarantee
        bounds = str(stated)
        if isinstance(stated, ApproxDP):
            bounds = f"epsilon = {above(stated.epsilon)}, delta = {above(stated.delta, 3)}"
        return [f"{bounds}, from those who see results alone.", WORDS]

    def must_follow(self, event: events.Event) -> None:
        """Raise unless the events give at most what is stated."""
        stated = self.guarantee
        derived = guarantee_of(towards_outsiders(event), getattr(stated, "delta", None))
        if derived == stated:
            return
        if not (
            isinstance(stated, ApproxDP)
            and isinstance(derived, ApproxDP)
            and (stated.scope, stated.delta) == (derived.scope, derived.delta)
            and stated.epsilon >= derived.epsilon * (1 - _SAME)
        ):
            raise errors.CertificateError(
                f"certificate: it states {stated} towards those who see results, but its events "
                f"give: {derived}"
            )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"guarantee": plain.to_plain(self.guarantee), "of": "secure sums", "said": WORDS}

    @classmethod
    def from_plain(cls, body: dict[str, Any]) -> Outsiders:
        """Read JSON values; the words are the library's."""
        if body["of"] != "secure sums":
            raise ValueError
        return cls(plain.guarantee_from_plain(body["guarantee"]))


WORDS = (
    "For readers of results who see no message between clients and server, and know no client's "
    "own noise, if all who answered added theirs."
)


def towards_outsiders(event: events.Event) -> events.Event:
    """Return the events as those see them who know no party's noise.

    Raises
    ------
    CertificateError
        If the events are not secure sums.
    """
    match event:
        case events.Repeated():
            return replace(event, event=towards_outsiders(event.event))
        case events.SummedDiscreteGaussian():
            return replace(event, honest=event.survivors)
    raise errors.CertificateError(
        "certificate: it states a guarantee towards those who see results of secure sums, but its "
        "events are not such sums."
    )
