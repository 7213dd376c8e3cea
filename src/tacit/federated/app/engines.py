"""The default engine, which runs an algorithm through the Flower apps in this process.

The same client app and the same strategy run over a network (`deployment`) or on Ray
(`simulation`). With the same seed and without noise all of them give the same arrays as the plain
loop, `tacit.federated.rounds.run`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid

from tacit.federated import flower
from tacit.federated.algorithms.client_updates import State
from tacit.federated.algorithms.registry import Algorithm
from tacit.federated.app import wire
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.grid import Faults, LocalGrid
from tacit.federated.app.keeping import Keeper
from tacit.federated.app.mods import Mods
from tacit.federated.app.questions import Questions
from tacit.federated.app.roster import Numbered
from tacit.federated.app.secure_client import Membership
from tacit.federated.app.secure_strategy import SecureFederation
from tacit.federated.app.strategy import Ended, Federation
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.federated.payload import Layout
from tacit.federated.rounds import Intercept, RunOptions, RunResult, Server, checked
from tacit.federated.secure.participant import Terms
from tacit.federated.secure.primitives import new_identity
from tacit.federated.secure.session import Roster
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.federated.record_level.silo import Silo


@dataclass(frozen=True)
class Transport:
    """The simulated path of messages between server and clients.

    Parameters
    ----------
    faults : Faults
        Drop-out and latency.
    mods : Mods
        Mods of the client app. Attacks are allowed, since every client is simulated.
    state : Path, optional
        Folder in which clients keep their states, in addition to the context.
    timeout : float
        Simulated seconds that the server waits for replies.
    """

    faults: Faults = Faults()  # noqa: RUF009
    mods: Mods = Mods()  # noqa: RUF009
    state: Path | None = None
    timeout: float = 3600.0


def run(
    algorithm: Algorithm | str,
    model: Model,
    clients: Sequence[Data | Silo],
    rounds: int,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    transport: Transport = Transport(),  # noqa: B008
    questions: Questions | None = None,
) -> RunResult:
    """Run an algorithm over clients in this process, as Flower apps on a `LocalGrid`.

    Parameters
    ----------
    algorithm, model, clients, rounds, options
        As in `tacit.federated.rounds.run`. `options.intercept` becomes the attack among the mods
        (`Attackers.intercept`).
    transport : Transport
        The simulated path of messages between server and clients.
    questions : Questions, optional
        What silos are asked besides training; results are stored in it.
    """
    chosen, config = checked(algorithm, model, clients, rounds, options)
    held = [
        _client(chosen, config, model, f"client-{number}", client)
        for number, client in enumerate(clients)
    ]
    keeper = Keeper(transport.state)
    app = client_app(
        lambda context: held[int(context.node_config["partition-id"])],
        actions=[phase.name for phase in chosen.phases],
        keeper_of=lambda context: keeper,
        mods=attacked(transport.mods, options.intercept, model.layout),
        simulated=True,
    )
    server = options.server(chosen, config, model, clients)
    run_id = secrets.randbits(63)
    grid = LocalGrid(app, len(clients), run_id, transport.faults)
    strategy = _strategy(server, grid, held, options, questions)
    with flower.identity(run_id), flower.quiet():
        stopped = drive(strategy, grid, rounds, transport.timeout)
    states = _states(strategy, grid, held)
    return RunResult(server.state, states, tuple(strategy.history), stopped)


def _strategy(
    server: Server,
    grid: LocalGrid,
    held: list[FederatedClient],
    options: RunOptions,
    questions: Questions | None,
) -> Federation | SecureFederation:
    """Build the strategy; for secure sums every client joins with a key of its own."""
    roster = Numbered(list(grid.contexts))
    seed, test, callback = options.seed, options.test, options.callback
    if not isinstance(server.coordinator, SecureClientPrivacy):
        return Federation(
            server, roster, seed=seed, test=test, callback=callback, questions=questions
        )
    if options.intercept is not None:
        remedy = "Nobody sees a single reply."
        errors.refuse("run", "intercept", "left out with secure sums", "given", remedy)
    keys, members = memberships(server.coordinator)
    held[:] = [replace(one, membership=own) for one, own in zip(held, members, strict=True)]
    run = str(grid.run.run_id)
    return SecureFederation(server, roster, keys, run, seed=seed, test=test, callback=callback)


def memberships(privacy: SecureClientPrivacy) -> tuple[Roster, list[Membership]]:
    """Create long-term keys for simulated clients, and let each join with the terms of the plan."""
    plan = privacy.plan
    identities = [new_identity() for _ in range(plan.clients)]
    keys = Roster(tuple(key.public_key() for key in identities))
    terms = Terms(plan.corrupt, plan.honest, plan.sums)
    return keys, [
        Membership(privacy.setting, keys, number, key, terms)
        for number, key in enumerate(identities)
    ]


def drive(strategy: Federation | SecureFederation, grid: Grid, rounds: int, timeout: float) -> str:
    """Run a strategy's rounds, and return why the next one was refused, or "" if none was.

    Raises
    ------
    BudgetExceeded
        If not even the first round can be paid.
    """
    try:
        strategy.prepare(grid, timeout)
        strategy.start(grid, ArrayRecord(), rounds * strategy.exchanges, timeout)
    except Ended:
        pass
    except errors.BudgetExceeded as refusal:
        if not strategy.history:
            raise
        return str(refusal)
    return ""


def attacked(mods: Mods, intercept: Intercept | None, layout: Layout) -> Mods:
    """Add an attack that changes or drops replies; `Mods` refuses it outside a simulation."""
    if intercept is None:
        return mods
    if mods.attack is not None:
        errors.refuse("run", "intercept", "left out where mods have an attack", "both")

    def attack(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        answer = call_next(message, context)
        if not message.metadata.message_type.startswith("train."):
            return answer
        _, order = wire.received(message, layout)
        arrived = intercept(order.number, order.client, wire.read_answer(answer))
        if arrived is None:
            raise errors.TacitError("client: its reply was lost on its way.")
        return Message(wire.answered(arrived), reply_to=message)

    return replace(mods, attack=attack)


def _client(
    algorithm: Algorithm, config: Config, model: Model, name: str, one: Data | Silo
) -> FederatedClient:
    if isinstance(one, Data):
        return FederatedClient(algorithm, config, model, name, one)
    return FederatedClient(algorithm, config, model, name, one.stand_in, lambda: nullcontext(one))


def _states(
    strategy: Federation | SecureFederation, grid: LocalGrid, held: Sequence[FederatedClient]
) -> dict[int, State]:
    """Return the states of clients that count."""
    if not strategy.server.algorithm.state:
        return {}
    states = {}
    for client, exchange in sorted(strategy.counted.items()):
        context: Context = grid.contexts[client + 1]
        kept = Keeper().load(context, held[client].name, held[client].data)
        states[client] = kept.at(grid.run.run_id, exchange).state
    return states
