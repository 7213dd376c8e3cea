"""The demonstration: the same survey answered to a trusted curator, and to nobody.

The people are the 1,797 handwriting samples that come with scikit-learn; the question is which
digit each of them wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit import errors
from tacit.accounting.ledger import Ledger
from tacit.certificate import Certificate
from tacit.guarantees import Adjacency, PureDP, Unit
from tacit.mechanisms import DiscreteLaplace, Mechanism, SubsetSelection

_DIGITS = 10


@dataclass(frozen=True)
class Outcome:
    """What the demonstration released, and where it is."""

    true: list[int]
    curator: list[int]
    local: list[float]
    local_deviation: list[float]
    certificates: dict[str, Certificate]
    ledger: Path

    def to_dict(self) -> dict[str, Any]:
        return {
            "true": self.true,
            "curator": self.curator,
            "local": [round(count, 1) for count in self.local],
            "local_deviation": [round(deviation, 1) for deviation in self.local_deviation],
            "guarantees": {name: str(c.guarantee) for name, c in self.certificates.items()},
        }


def run(out: Path, epsilon: float) -> Outcome:
    """Release a histogram twice, certify both, and keep the curator to a budget."""
    answers = _answers()
    errors.epsilon_in_range("demo", epsilon)
    out.mkdir(parents=True, exist_ok=True)
    true = np.bincount(answers, minlength=_DIGITS)

    # One person's answer replaced moves one count down and another up: ℓ1 sensitivity 2.
    curator = DiscreteLaplace(epsilon=epsilon, sensitivity=2, unit=Unit.PERSON)
    _charge(out / "ledger.sqlite", curator, epsilon)
    histogram = curator.release(true)

    device = SubsetSelection(categories=_DIGITS, epsilon=epsilon, unit=Unit.PERSON)
    estimate = device.estimate_counts(device.release(answers))

    return Outcome(
        true=true.tolist(),
        curator=histogram.tolist(),
        local=estimate.counts.tolist(),
        local_deviation=np.sqrt(estimate.variances).tolist(),
        certificates={
            "curator": _publish(out, "curator", curator, histogram.tolist()),
            "local": _publish(out, "local", device, estimate.counts.round(1).tolist()),
        },
        ledger=out / "ledger.sqlite",
    )


def _answers() -> Any:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise errors.TacitError("demo: it needs scikit-learn. pip install 'tacit[demo]'.") from None
    return load_digits().target


def _charge(path: Path, mechanism: DiscreteLaplace, epsilon: float) -> None:
    """Before the draw: a charge that would overdraw must leave nothing released."""
    account = f"survey of {datetime.now(UTC).isoformat()}"
    with Ledger(path) as ledger:
        budget = PureDP(epsilon, adjacency=Adjacency.REPLACE_ONE, unit=Unit.PERSON)
        ledger.open(account, budget)
        ledger.charge(account, mechanism.event, key="histogram")


def _publish(out: Path, name: str, mechanism: Mechanism, counts: list[Any]) -> Certificate:
    artifact = out / f"{name}.json"
    artifact.write_text(json.dumps({"counts": counts}) + "\n")
    certificate = Certificate.issue(mechanism.event, artifact=artifact)
    certificate.save(out / f"{name}.certificate.json")
    certificate.verify(artifact)
    return certificate
