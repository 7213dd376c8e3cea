"""The same apps in Flower's own simulation on Ray, if that is installed.

Clients run in worker processes, which read their rows from files; the server runs in a thread of
this process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from tacit.federated import flower
from tacit.federated.algorithms.registry import ALGORITHMS, Algorithm
from tacit.federated.algorithms.registry import algorithm as named
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.engines import attacked, drive
from tacit.federated.app.keeping import Keeper
from tacit.federated.app.mods import Mods
from tacit.federated.app.nodes import read_data, write_data
from tacit.federated.app.roster import Named
from tacit.federated.app.strategy import Federation
from tacit.federated.attacks.threats import Attackers
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.federated.rounds import RunOptions, RunResult, checked
from tacit.privacy import errors


def run(
    algorithm: Algorithm | str,
    build: Callable[[], Model],
    clients: Sequence[Data],
    rounds: int,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    patience: float = 600.0,
) -> RunResult:
    """Run an algorithm as `tacit.federated.app.engines.run` does, on Ray.

    The states of clients are not returned.

    Parameters
    ----------
    algorithm, clients, rounds
        As there.
    build : callable
        Builds the model, here and once in every worker.
    options : RunOptions
        As there; `options.intercept` runs in the workers. They do not communicate, so clones are
        refused.
    patience : float
        Seconds to wait for workers, and for the replies of an exchange.
    """
    attackers = getattr(options.intercept, "__self__", None)
    if isinstance(attackers, Attackers) and attackers.attack.clones:
        remedy = "Clones are one attacker, and workers do not communicate: run them locally."
        errors.refuse("simulation", "intercept", "without clones", attackers.attack.name, remedy)
    if find_spec("ray") is None:
        raise errors.TacitError(
            "simulation: Ray must be installed. pip install 'tacit[federated]'."
        )
    chosen = named(algorithm) if isinstance(algorithm, str) else algorithm
    if ALGORITHMS.get(chosen.name) is not chosen:
        remedy = "Workers know algorithms by their names."
        errors.refuse("simulation", "algorithm", "one of this library's", chosen.name, remedy)
    model = build()
    chosen, config = checked(chosen, model, clients, rounds, options)
    if isinstance(options.coordinator, SecureClientPrivacy):
        remedy = "Secure sums run on the local engine and in deployments."
        errors.refuse("simulation", "coordinator", "one of plain sums", "secure sums", remedy)
    server = options.server(chosen, config, model, clients)
    roster = Named()
    strategy = Federation(
        server, roster, seed=options.seed, test=options.test, callback=options.callback
    )
    stopped: list[str] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        roster.meet(grid, len(clients), patience)
        stopped.append(drive(strategy, grid, rounds, patience))

    with tempfile.TemporaryDirectory(prefix="tacit-simulation-") as folder, flower.quiet():
        for number, data in enumerate(clients):
            write_data(_file(folder, number), data)
        source = _Source(chosen, config, build, folder)
        mods = attacked(Mods(), options.intercept, server.model.layout)
        nodes = client_app(source.client, keeper_of=source.keeper, mods=mods, simulated=True)
        flower.simulate(app, nodes, len(clients))
    return RunResult(server.state, {}, tuple(strategy.history), stopped[0])


class _Source:
    """The source of clients in a worker, each read from its file."""

    def __init__(
        self, algorithm: Algorithm, config: Config, build: Callable[[], Model], folder: str
    ) -> None:
        self._algorithm, self._config, self._folder = algorithm.name, config, folder
        self._build = build

    def client(self, context: Context) -> FederatedClient:
        number = int(context.node_config["partition-id"])
        data = _data(str(_file(self._folder, number)))
        model = _MODELS.get(self._folder) or _MODELS.setdefault(self._folder, self._build())
        return FederatedClient(
            named(self._algorithm), self._config, model, f"client-{number:05d}", data
        )

    def keeper(self, context: Context) -> Keeper:
        return Keeper(Path(self._folder) / "states")


_MODELS: dict[str, Model] = {}
"""Models of a worker by run: pickling a model would separate its parameters from the buffer."""


@lru_cache(maxsize=128)
def _data(path: str) -> Data:
    return read_data(Path(path))


def _file(folder: str, number: int) -> Path:
    return Path(folder) / f"client-{number:05d}.npz"
