"""The terms of taking part, derived on the participant's device from the mechanism itself.

The server's description is not trusted: the mechanism must have the described hash, and the
described certificate must follow from this mechanism and this ballot. The certificate that the
person sees is issued here, on their device.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tacit.apps.service.campaign import Campaign
from tacit.apps.service.notice import Notice
from tacit.privacy import artifact, errors
from tacit.privacy.certificate import Certificate, from_plain

_VERSIONS, _PLATFORMS = 1e-9, 1e-11


def checked(described: dict[str, Any], packed: bytes) -> Campaign:
    """Return the campaign of a description and a packed mechanism; refuse if they disagree."""
    mechanism = artifact.unpack(packed, "mechanism")
    if not hasattr(mechanism, "release"):
        raise errors.InvalidData("campaign: the artifact must be a mechanism, got a model.")
    try:
        stated = str(described["artifact"]["sha256"])
        certificate = _certificate(described["certificate"])
        settings = _settings(described)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, errors.TacitError):
            raise
        raise errors.InvalidData(
            "campaign: the description must be complete. Is this a Tacit server?"
        ) from None
    for by_class in (False, True):
        campaign = Campaign(mechanism=mechanism, vote_by_class=by_class, **settings)
        _must_be(stated, campaign.fingerprint)
        if campaign.event == certificate.event:
            _must_cost(described, campaign)
            return campaign
    raise errors.CertificateError(
        "campaign: the certificate must be about its mechanism and its votes. Nothing was drawn."
    )


def epsilon(campaign: Campaign) -> float:
    """Return the ε of report and vote together; infinite if nothing is proved."""
    return float(getattr(campaign.certificate.guarantee, "epsilon", "inf"))


def _settings(described: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "title", "purpose", "labelled", "round", "vote_epsilon", "minimum", "quota")
    kinds = [type(described[name]) for name in names[:5]]
    if kinds != [str, str, str, bool, int]:
        raise TypeError
    times = {
        name: described[name] and datetime.fromisoformat(described[name])
        for name in ("opens", "closes")
    }
    about = Notice.from_plain(described.get("about") or {})
    return {name: described[name] for name in names} | times | {"about": about}


def _certificate(body: Any) -> Certificate:
    stated = from_plain(body)
    stated.verify()
    return stated


def _must_cost(described: dict[str, Any], campaign: Campaign) -> None:
    """Refuse a server that states other costs or labels than follow from its mechanism."""
    derived = campaign.describe(False, 0, 0, None)
    for name in ("epsilon", "total_epsilon", "delta", "classes"):
        stated, expected = described.get(name), derived[name]
        # A smaller value is a false promise; with δ, machines differ in the last digits of ε.
        less = _PLATFORMS if derived["delta"] and name != "delta" else 0.0
        if stated != expected and not _close(stated, expected, less):
            raise errors.CertificateError(
                f"campaign: {name} must be what follows from its mechanism and its votes, "
                f"{expected!r}, got {stated!r:.60}. Nothing was drawn."
            )


def _close(stated: Any, expected: Any, less: float) -> bool:
    """Whether both numbers agree except for rounding up, which differs between versions."""
    numbers = isinstance(stated, int | float) and isinstance(expected, float)
    return numbers and -less * expected <= stated - expected <= _VERSIONS * expected


def _must_be(stated: str, derived: str) -> None:
    if stated != derived:
        raise errors.CertificateError(
            f"campaign: the mechanism must be the described one, with SHA-256 {stated[:64]!r}, got "
            f"{derived}. Nothing was drawn."
        )
