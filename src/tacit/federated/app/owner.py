"""Messages to a node's owner about the budget, on standard error of the owner's machine.

There is one line per exchange that was answered or refused. Flower keeps the output of a client
app on the node; the server does not see it.
"""

from __future__ import annotations

import sys

from flwr.app import Context, Message

from tacit.federated.app import wire
from tacit.federated.app.job import Job
from tacit.federated.app.joining import Terms
from tacit.privacy import decimals as digits
from tacit.privacy import errors
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.ledger import Ledger


def tell(message: Message, context: Context, refusal: errors.TacitError | None) -> None:
    """Print whether a message was answered or refused; nothing if it cost nothing."""
    what = _asked(message)
    if refusal is not None:
        return _say(f"{what or 'the job'} refused. {refusal}")
    job, terms = Job.from_json(str(context.run_config["job"])), Terms.of(context.node_config)
    if not what or job.unit != "record" or terms.ledger is None or terms.account is None:
        return
    with Ledger(terms.ledger) as ledger:
        account = ledger.show(terms.account)
    cost = str(job.record_budget()).partition(" (")[0]  # without the unit and neighbours
    remaining = filters.shown(account.remaining, digits.below)
    _say(
        f"{what} answered. The whole job may cost {cost}, "
        f"account {account.name} has {remaining} remaining."
    )


def _asked(message: Message) -> str:
    """Name the exchange of a message; empty if it costs nothing.

    Only numbers are echoed, since a server may write anything.
    """
    kind = message.metadata.message_type
    if kind == wire.STATISTICS:
        return "statistics"
    number = wire.number(message)
    if number is None:
        return ""
    return f"evaluation after round {number}" if kind == wire.CONFUSION else f"round {number}"


def _say(text: str) -> None:
    print(f"tacit: {text}", file=sys.stderr, flush=True)
