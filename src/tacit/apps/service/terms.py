"""What a participant is offered, derived on their own device from the mechanism that would run.

A server's description is not believed: the mechanism's hash must be the described one, and the
described certificate must follow from this mechanism and this ballot. What a person is then shown
is a certificate that was issued here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tacit.apps.service.campaign import Campaign
from tacit.privacy import artifact, errors
from tacit.privacy.certificate import Certificate, from_plain

_VERSIONS, _PLATFORMS = 1e-9, 1e-11


def checked(described: dict[str, Any], packed: bytes) -> Campaign:
    """The campaign of a description and a packed mechanism; refused where they do not agree."""
    mechanism = artifact.unpack(packed, "mechanism")
    if not hasattr(mechanism, "release"):
        raise errors.InvalidData("campaign: its artifact must be a mechanism, not a model.")
    try:
        stated = str(described["artifact"]["sha256"])
        certificate = _certificate(described["certificate"])
        settings = _settings(described)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, errors.TacitError):
            raise
        raise errors.InvalidData(
            "campaign: its description must be complete. Is this a Tacit server?"
        ) from None
    for by_class in (False, True):
        campaign = Campaign(mechanism=mechanism, vote_by_class=by_class, **settings)
        _must_be(stated, campaign.fingerprint)
        if campaign.event == certificate.event:
            _must_cost(described, campaign)
            return campaign
    raise errors.CertificateError(
        "campaign: its certificate must be about its mechanism and its votes. Nothing was drawn."
    )


def epsilon(campaign: Campaign) -> float:
    """What report and vote together cost; infinite where nothing is proved."""
    return float(getattr(campaign.certificate.guarantee, "epsilon", "inf"))


def _settings(described: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "title", "purpose", "labelled", "vote_epsilon", "minimum", "quota")
    kinds = [type(described[name]) for name in names[:4]]
    if kinds != [str, str, str, bool]:
        raise TypeError
    times = {
        name: described[name] and datetime.fromisoformat(described[name])
        for name in ("opens", "closes")
    }
    return {name: described[name] for name in names} | times


def _certificate(body: Any) -> Certificate:
    stated = from_plain(body)
    stated.verify()
    return stated


def _must_cost(described: dict[str, Any], campaign: Campaign) -> None:
    """Refuse a server that states other costs, or other labels, than follow from its mechanism."""
    derived = campaign.describe(False, 0, 0, None)
    for name in ("epsilon", "total_epsilon", "delta", "classes"):
        stated, found = described.get(name), derived[name]
        # Less is a promise that is not kept; with δ, machines differ in the last digits of ε.
        less = _PLATFORMS if derived["delta"] and name != "delta" else 0.0
        if stated != found and not _close(stated, found, less):
            raise errors.CertificateError(
                f"campaign: {name} must be what follows from its mechanism and its votes, "
                f"{found!r}, got {stated!r:.60}. Nothing was drawn."
            )


def _close(stated: Any, found: Any, less: float) -> bool:
    """Whether both are the same number but for rounding up: other versions round, too."""
    numbers = isinstance(stated, int | float) and isinstance(found, float)
    return numbers and -less * found <= stated - found <= _VERSIONS * found


def _must_be(stated: str, found: str) -> None:
    if stated != found:
        raise errors.CertificateError(
            f"campaign: the mechanism must be the described one, of SHA-256 {stated[:64]!r}, got "
            f"{found}. Nothing was drawn."
        )
