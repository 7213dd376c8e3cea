"""What certificates of secure sums with noise from the clients state, assume and leave open."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tacit.federated.client_level.shares import SharePlan
from tacit.privacy.certificate import Certificate
from tacit.privacy.decimals import above
from tacit.privacy.randomness import Randomness


def certify(
    plan: SharePlan,
    rounds: int,
    artifact: str | Path | None = None,
    *,
    assumptions: tuple[str, ...] = (),
    rng: Randomness | None = None,
) -> Certificate:
    """Issue a certificate of this many rounds of a plan, with both readers."""
    issued = Certificate.issue(
        plan.event(rounds),
        delta=plan.delta,
        artifact=artifact,
        assumptions=(*_ASSUMPTIONS, _server(plan), *assumptions),
        not_protected=(_remains(plan, rounds), *_LIMITS),
        rng=rng,
    )
    return replace(issued, readers=plan.outsiders(rounds))


def _server(plan: SharePlan) -> str:
    setup = plan.setup()
    if setup.everyone:
        who = "Whatever the server does"
    else:
        who = "The server follows the protocol, and looks at all that it receives; then"
    return (
        f"{who}, it learns no more than sums: the long-term keys of the roster are the clients' "
        f"own, at most {plan.corrupt} clients side with the server, and X25519, HKDF-SHA256, "
        "AES-256, and the signatures of the roster's keys are not broken."
    )


def _remains(plan: SharePlan, rounds: int) -> str:
    """State what remains where fewer are honest than was planned."""
    parts = []
    for honest in sorted({max(plan.honest // 2, 1), 1}, reverse=True):
        stated = plan.guarantee(rounds, honest)
        epsilon = getattr(stated, "epsilon", math.inf)
        parts.append(f"with {honest} it is {above(epsilon, 4)}")
    return (
        f"Clients from the server where fewer than {plan.honest} of those who answered are "
        f"honest: {', '.join(parts)} instead of the stated epsilon, at the same delta, while at "
        f"most {plan.corrupt} side with the server."
    )


_ASSUMPTIONS = (
    "The initial model, the settings and the planned number of rounds did not depend on the "
    "clients' data.",
    "Whether a client answered did not depend on its rows: one whose computation failed sent zeros "
    "with its noise.",
)
SETTLED = "The decision to end training after this round did not depend on what was released."
ONE_PROCESS = (
    "Clients and server exchanged all messages within one process: a simulation. What is said of "
    "the server holds where each client runs the protocol on a machine of its own."
)
OWN_MACHINES = (
    "Each client's part ran on a machine that its owner trusts, was that of this library, and used "
    "the roster that the owner had checked. Flower lets whoever may submit a run bring an app of "
    "their own instead."
)
NO_MASKS = (
    "Masks were left out, in a simulation within one process: what is said of the server holds of "
    "the noise alone."
)
_LIMITS = (
    "The number of clients, who took part in a round, and who was lost.",
    "The result from clients who send made-up vectors: nobody sees a single one.",
    "Rows on which the model was evaluated: loss and accuracy of each round have no noise.",
)
